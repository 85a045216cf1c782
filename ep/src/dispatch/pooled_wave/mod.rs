//! The fixed exchange of the hero run's first 3.77T tokens: equal parts, pools shared by all
//! experts of a destination, in waves.

mod receive;
mod send;

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Int, Tensor};
use fulmar_kernels::grouped_swiglu::Groups;
use fulmar_kernels::pack::{Header, pack_rows};
use fulmar_kernels::permute::{RowMap, combine_parts, dispatch_rows};

use super::choices::Choices;
use super::frame::Frame;
use super::retrace::{Crossing, Keep, Retrace, Sending};
use super::{Combined, Dispatched, ExpertRows, NONE, TokenDispatcher, experts_of};
use crate::capacity::PooledWaveCapacity;
use crate::demand::Demand;
use crate::error::EpError;
use crate::exchange::{Label, Payload};
use crate::report::{DispatchReport, WireCounter};
use crate::transport::Group;
use receive::Receipt;
use send::SendPlan;

/// Fixed pooled-wave exchange (SPEC section 3).
///
/// A destination has one pool of rows in each wave, which its experts share, and an expert takes a
/// limited number of rows in each wave; what finds no room in a pool is dropped by the sender, what
/// finds none at its expert by the receiver. Ids travel in front of the rows, and so do, on the way
/// back, the receiver's verdicts, so every shard knows the fate of each of its assignments.
#[derive(Debug, Clone)]
pub struct PooledWave {
    num_experts: usize,
    group: Group,
    /// W.
    waves: usize,
    /// s.
    sender: f64,
    /// r.
    receiver: f64,
    payload: Payload,
}

/// What [`PooledWave`] remembers between dispatch and combine.
#[derive(Debug)]
pub struct PooledWaveHandle {
    frame: Frame,
    plan: SendPlan,
    waves: Vec<Wave>,
    token_valid: Vec<bool>,
    k: usize,
    wire: Arc<WireCounter>,
}

/// One wave to its experts and back.
#[derive(Debug)]
struct Wave {
    sending: Sending,
    /// From arrived rows to experts' rows.
    arrived: RowMap,
    groups: Groups,
    /// The verdict on each slot.
    verdicts: Header,
    back: Crossing,
}

impl Wave {
    fn take(&self, arrived: Tensor<2>) -> ExpertRows {
        let rows = dispatch_rows(arrived, &self.arrived);
        ExpertRows { rows, groups: self.groups.clone() }
    }

    fn give_back(&self, output: Tensor<2>) -> Tensor<2> {
        self.back.cross(pack_rows(output, &self.arrived.transposed(), &self.verdicts))
    }
}

/// All waves, and which of the rows that come back are whose.
#[derive(Debug)]
struct PooledWaveWay {
    waves: Vec<Wave>,
    /// From assignments to rows of all returning frames.
    returned: RowMap,
}

impl Retrace for PooledWaveWay {
    fn dispatch(&self, tokens: Tensor<2>) -> Vec<ExpertRows> {
        let rows = |wave: &Wave| wave.take(wave.sending.send(tokens.clone()));
        self.waves.iter().map(rows).collect()
    }

    fn combine(&self, outputs: Vec<Tensor<2>>, weights: Tensor<2>) -> Tensor<2> {
        let pairs = self.waves.iter().zip(outputs);
        let returned = pairs.map(|(wave, output)| wave.give_back(output)).collect();
        combine_parts(returned, weights, &self.returned)
    }
}

impl PooledWave {
    /// The exchange of `num_experts` experts among the shards of `group` in `waves` waves, with the
    /// factors (s, r). [`Dispatcher::new`](super::Dispatcher::new) checks a recipe's settings.
    pub fn new(
        num_experts: usize,
        group: &Group,
        waves: usize,
        (sender, receiver): (f64, f64),
        payload: Payload,
    ) -> Self {
        Self { num_experts, group: group.clone(), waves, sender, receiver, payload }
    }

    fn capacity(&self, demand: &Demand, k: usize) -> PooledWaveCapacity {
        let (shards, experts) = (self.group.size() as u64, self.num_experts as u64);
        let n = demand.most_tokens() * k as u64;
        let factors = (self.sender, self.receiver);
        PooledWaveCapacity::new(n, shards, experts, self.waves as u64, factors)
    }
}

impl TokenDispatcher for PooledWave {
    type Handle = PooledWaveHandle;

    fn local_experts(&self) -> Range<usize> {
        experts_of(&self.group, self.num_experts)
    }

    fn group(&self) -> &Group {
        &self.group
    }

    fn dispatch(
        &self,
        tokens: Tensor<2>,
        selected: Tensor<2, Int>,
        demand: &Demand,
    ) -> Result<Dispatched<PooledWaveHandle>, EpError> {
        self.dispatch_keeping(tokens, selected, demand, Keep::Decisions)
    }

    fn combine(
        &self,
        outputs: Vec<Tensor<2>>,
        weights: Tensor<2>,
        handle: PooledWaveHandle,
    ) -> Result<Combined, EpError> {
        Ok(self.combine_keeping(outputs, weights, handle)?.0)
    }

    fn dispatch_keeping(
        &self,
        tokens: Tensor<2>,
        selected: Tensor<2, Int>,
        demand: &Demand,
        keep: Keep,
    ) -> Result<Dispatched<PooledWaveHandle>, EpError> {
        let ([num_tokens, width], [_, k]) = (tokens.dims(), selected.dims());
        let device = selected.device();
        let capacity = self.capacity(demand, k);
        let frame = Frame::new(self.group.size(), capacity.pool_rows, width)?;
        frame.check_number(self.waves)?;
        let local_experts = self.local_experts().len();
        let pool_limit = capacity.pool_limit(demand.valid_here() * k as u64, self.sender);
        let expert_limit =
            capacity.expert_limit(demand.valid_everywhere() * k as u64, self.receiver);

        let choices = Choices::read(selected, demand, self.num_experts);
        let plan = match &choices {
            Ok(choices) => {
                let limits = send::Limits { local_experts, pool: pool_limit as usize };
                SendPlan::new(choices, num_tokens * k, self.waves, limits, &frame)
            }
            Err(_) => SendPlan::refusal(num_tokens * k, self.waves, &frame),
        };
        let mut failed = choices.err();
        let wire = Arc::new(WireCounter::default());
        let route = |label| frame.route(&self.group, self.payload, label, &wire);
        let (mut waves, mut rows) = (Vec::new(), Vec::new());
        for (wave, header) in plan.headers.iter().enumerate() {
            let over = route(Label::dispatch_wave(wave));
            let sending = Sending {
                sent: RowMap::from_rows(plan.row_of(wave, &frame), k, frame.rows(), &device),
                header: header.clone(),
                over: Crossing::exchange(over, keep),
            };
            let arrived = sending.send(tokens.clone());
            let ids = frame.read(&arrived, local_experts);
            if let Some(error) = failed.take() {
                return Err(error);
            }
            let receipt = Receipt::new(
                &ids?,
                &frame,
                local_experts,
                capacity.expert_rows as usize,
                expert_limit as usize,
            );
            let starts = (0..local_experts).map(|expert| expert * capacity.expert_rows as usize);
            let groups = Groups::new(starts.collect(), receipt.taken, receipt.num_rows)
                .expect("experts have rows of their own");
            let back = route(Label::combine_wave(wave));
            let wave = Wave {
                sending,
                arrived: RowMap::from_rows(receipt.row_of, 1, receipt.num_rows, &device),
                groups,
                verdicts: frame.header(&receipt.verdicts),
                back: Crossing::exchange(back, keep),
            };
            rows.push(wave.take(arrived));
            waves.push(wave);
        }
        let token_valid = demand.token_valid().to_vec();
        let handle = PooledWaveHandle { frame, plan, waves, token_valid, k, wire };
        Ok(Dispatched { waves: rows, handle })
    }

    fn combine_keeping(
        &self,
        outputs: Vec<Tensor<2>>,
        weights: Tensor<2>,
        handle: PooledWaveHandle,
    ) -> Result<(Combined, Arc<dyn Retrace>), EpError> {
        let PooledWaveHandle { frame, plan, waves, token_valid, k, wire } = handle;
        assert_eq!(outputs.len(), waves.len(), "an output for each wave");
        let device = weights.device();
        let (mut returned, mut verdicts) = (Vec::new(), Vec::new());
        for (wave, output) in waves.iter().zip(outputs) {
            let rows = wave.give_back(output);
            verdicts.push(frame.read(&rows, 1)?);
            returned.push(rows);
        }
        let row_of = plan.returned_rows(&verdicts, &frame);
        let is_kept = |assignment: usize| row_of[assignment] != NONE;
        let report = DispatchReport::new(&token_valid, k, plan.sender_dropped, is_kept, wire);
        report.counts.check()?;
        let map = RowMap::from_rows(row_of, k, returned.len() * frame.rows(), &device);
        let tokens = combine_parts(returned, weights, &map);
        Ok((Combined { tokens, report }, Arc::new(PooledWaveWay { waves, returned: map })))
    }
}
