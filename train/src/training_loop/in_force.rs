//! What of the recipe holds for the step at hand.

use fulmar_ep::Dispatcher;

use super::TrainingLoop;
use crate::error::TrainError;

impl TrainingLoop<'_> {
    /// Takes the exchange that the recipe names for this step; the state does not depend on it.
    pub(super) fn switch_exchange(&mut self) -> Result<(), TrainError> {
        let exchange = *self.config.parallel.dispatch_at(self.state.step);
        if exchange == self.exchange {
            return Ok(());
        }
        let (before, after) = (self.exchange.name(), exchange.name());
        let num_experts = self.config.model.num_experts;
        self.dispatcher = Dispatcher::new(&exchange, num_experts, &self.world.expert)?;
        self.exchange = exchange;
        self.record.line(&format!("step {}: exchange {before} -> {after}", self.state.step));
        Ok(())
    }
}
