//! What of the plan holds for the step at hand.

use fulmar_data::{Loader, RankShare};
use fulmar_ep::Dispatcher;

use super::TrainingLoop;
use crate::context::boundary_every;
use crate::error::TrainError;
use crate::history::Event;
use crate::operations::{Comparison, Operation, Position};
use crate::{assemble, state};

impl TrainingLoop<'_> {
    /// Takes the exchange that the plan names for this step; the state does not depend on it.
    pub(super) fn switch_exchange(&mut self) -> Result<(), TrainError> {
        let exchange = *self.config.parallel.dispatch_at(self.state.step);
        if exchange == self.exchange {
            return Ok(());
        }
        let text = format!("exchange {} -> {}", self.exchange.name(), exchange.name());
        let event = Event::now(self.state.step, self.record.attempt(), "exchange", text);
        let num_experts = self.config.model.num_experts;
        self.dispatcher = Dispatcher::new(&exchange, num_experts, &self.world.expert)?;
        self.exchange = exchange;
        self.record.event(&event);
        Ok(())
    }

    /// Batches from where the run stands, in rows of the length in force.
    pub(super) fn batches(&self) -> Result<Loader, TrainError> {
        let (rows, ahead) = (self.data.rows.clone(), self.config.data.read_ahead);
        let (batch_rows, step) = (self.config.batch.rows, self.state.batches);
        Ok(Loader::of_rank(rows, batch_rows, step, RankShare::ALL, ahead)?)
    }

    /// Opens the next context stage if this is a boundary of blocks, the stage is due, and few
    /// enough assignments were dropped since the boundary before; whether it did.
    ///
    /// Every rank comes to the same: the counts are those of all.
    pub(super) fn open_context_stage(&mut self) -> Result<bool, TrainError> {
        let at = Position { step: self.state.step, batches: self.state.batches };
        if !at.batches.is_multiple_of(boundary_every(&self.config)?) {
            return Ok(false);
        }
        let dropped = std::mem::take(&mut self.state.since_boundary).drop_fraction();
        let open = self.config.open_stages(at.batches);
        let Some(stage) = self.config.context.get(open).filter(|stage| stage.from_step <= at.step)
        else {
            return Ok(false);
        };
        let (len, gate) = (stage.seq_len, stage.max_drop_fraction);
        let measured = format!("{:.2}% dropped, {:.2}% allowed", 100.0 * dropped, 100.0 * gate);
        if dropped > gate {
            let text = format!("rows of {len} tokens wait: {measured}");
            let event = Event::now(at.step, self.record.attempt(), "context_held", text);
            self.record.event(&event.with("drop_fraction", dropped));
            return Ok(false);
        }
        let operation = Operation::ContextOpened { stage: open, at_batch: at.batches };
        let plan = operation.apply(&self.config)?;
        let change = Comparison::new(&self.config, &plan, at);
        let reason = format!("rows of {len} tokens from here on: {measured}");
        let event = operation.event(at, self.record.attempt(), &reason, &change);
        self.record.event(&event.with("drop_fraction", dropped));
        self.config = plan;
        self.take_shape()?;
        Ok(true)
    }

    /// Says which stages of longer rows a run that has come to its horizon never opened.
    pub(super) fn say_unopened(&mut self) {
        let open = self.config.open_stages(self.state.batches);
        if self.state.step < self.config.schedule.horizon() || open == self.config.context.len() {
            return;
        }
        let lengths: Vec<String> =
            self.config.context[open..].iter().map(|stage| stage.seq_len.to_string()).collect();
        let text = format!("rows of {} tokens never opened", lengths.join(", "));
        self.record.event(&Event::now(
            self.state.step,
            self.record.attempt(),
            "context_never_opened",
            text,
        ));
    }

    /// Takes rows, micro-batches and `qk_mult` of the context stages that are open.
    pub(super) fn take_shape(&mut self) -> Result<(), TrainError> {
        self.shape = self.config.with_open_stages(self.config.open_stages(self.state.batches));
        self.balancing = state::balancing(&self.shape);
        self.state.model.set_qk_mult(self.shape.model.qk_mult);
        assemble::reshape(&mut self.data, &self.config, &self.shape)
    }
}
