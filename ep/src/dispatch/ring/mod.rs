//! All rows to all shards, and sums back.

mod plan;

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Int, Tensor};
use fulmar_kernels::grouped_swiglu::Groups;
use fulmar_kernels::permute::{RowMap, combine_rows, dispatch_rows};

use super::choices::Choices;
use super::retrace::{Crossing, Keep, Retrace, only};
use super::{Combined, Dispatched, ExpertRows, TokenDispatcher, experts_of};
use crate::capacity::ring_limit;
use crate::demand::Demand;
use crate::error::EpError;
use crate::exchange::{Label, Payload, Route};
use crate::report::{DispatchReport, WireCounter};
use crate::transport::{Buffer, Collective, Group, or_unwind};
use plan::{Everyone, RingPlan};

/// Ring exchange (SPEC section 3): gather all tokens, compute the local experts, reduce-scatter.
///
/// Every shard holds every row and sums what its experts make of each token, so the bytes do not
/// depend on how many experts a token has, and grow with the number of shards.
#[derive(Debug, Clone)]
pub struct Ring {
    num_experts: usize,
    group: Group,
    /// r; without it there is room for everything.
    receiver: Option<f64>,
    payload: Payload,
}

/// What [`Ring`] remembers between dispatch and combine.
#[derive(Debug)]
pub struct RingHandle {
    way: Arc<RingWay>,
    report: DispatchReport,
}

/// Everyone's rows to this shard's experts, and sums back.
#[derive(Debug)]
struct RingWay {
    tokens: Crossing,
    /// From everyone's assignments to rows of this shard's experts.
    map: RowMap,
    groups: Groups,
    weights: Crossing,
    sums: Crossing,
}

impl Retrace for RingWay {
    fn dispatch(&self, tokens: Tensor<2>) -> Vec<ExpertRows> {
        let rows = dispatch_rows(self.tokens.cross(tokens), &self.map);
        vec![ExpertRows { rows, groups: self.groups.clone() }]
    }

    fn combine(&self, outputs: Vec<Tensor<2>>, weights: Tensor<2>) -> Tensor<2> {
        let weights = self.weights.cross(weights);
        self.sums.cross(combine_rows(only(outputs), weights, &self.map))
    }
}

impl Ring {
    /// The exchange of `num_experts` experts among the shards of `group`, with the factor r if
    /// there is not to be room for everything.
    pub fn new(num_experts: usize, group: &Group, receiver: Option<f64>, payload: Payload) -> Self {
        Self { num_experts, group: group.clone(), receiver, payload }
    }

    /// Everyone's choices, in the order of shards.
    fn gather_choices(
        &self,
        choices: &Result<Choices, EpError>,
        demand: &Demand,
        k: usize,
        wire: &WireCounter,
    ) -> Result<Everyone, EpError> {
        let own = Everyone::encode(choices, demand.token_valid().len() * k);
        let peers = self.group.size() as u64 - 1;
        wire.add_header(peers * size_of_val(own.as_slice()) as u64);
        let words = demand.tokens_by_shard().iter().map(|t| *t as usize * k + 1).collect();
        let collective = Collective::AllGather { send: Buffer::host(own), words };
        let all = or_unwind(self.group.run("choices", collective));
        Everyone::decode(&all, demand.tokens_by_shard(), k)
    }

    fn limit(&self, demand: &Demand, k: u64) -> u64 {
        let (shards, experts) = (self.group.size() as u64, self.num_experts as u64);
        let all = demand.tokens_by_shard().iter().sum::<u64>() * k;
        let factor = self.receiver.unwrap_or(shards as f64);
        ring_limit(all, demand.valid_everywhere() * k, shards, experts, factor)
    }
}

impl TokenDispatcher for Ring {
    type Handle = RingHandle;

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
    ) -> Result<Dispatched<RingHandle>, EpError> {
        self.dispatch_keeping(tokens, selected, demand, Keep::Decisions)
    }

    fn combine(
        &self,
        outputs: Vec<Tensor<2>>,
        weights: Tensor<2>,
        handle: RingHandle,
    ) -> Result<Combined, EpError> {
        Ok(self.combine_keeping(outputs, weights, handle)?.0)
    }

    fn dispatch_keeping(
        &self,
        tokens: Tensor<2>,
        selected: Tensor<2, Int>,
        demand: &Demand,
        keep: Keep,
    ) -> Result<Dispatched<RingHandle>, EpError> {
        let ([_, k], device) = (selected.dims(), selected.device());
        let wire = Arc::new(WireCounter::default());
        let choices = Choices::read(selected, demand, self.num_experts);
        let everyone = self.gather_choices(&choices, demand, k, &wire);
        choices?;
        let everyone = everyone?;
        let shards = self.group.size();
        let plan = RingPlan::new(&everyone, self.num_experts, shards, self.limit(demand, k as u64));
        let report = plan.report(&everyone, self.group.rank(), demand, k, wire.clone());
        if self.receiver.is_none() && report.counts.receiver_dropped > 0 {
            return Err(EpError::NotDropless { dropped: report.counts.receiver_dropped });
        }
        let rows_by_shard = demand.tokens_by_shard().iter().map(|tokens| *tokens as usize);
        let recv_rows: Vec<usize> = rows_by_shard.collect();
        let route = Route {
            send_rows: vec![recv_rows[self.group.rank()]; shards],
            recv_rows,
            group: self.group.clone(),
            label: Label::DISPATCH,
            payload: self.payload,
            header_rows: 0,
            wire,
        };
        let (row_of, group_sizes) = plan.local_rows(&everyone, self.local_experts());
        let of_weights = Route { label: Label::WEIGHTS, payload: Payload::F32, ..route.clone() };
        let way = Arc::new(RingWay {
            tokens: Crossing::gather(route.clone(), keep),
            map: RowMap::from_rows(row_of, k, group_sizes.iter().sum(), &device),
            groups: Groups::from_counts(&group_sizes),
            weights: Crossing::gather(of_weights, keep),
            sums: Crossing::scatter(route.reversed(Label::COMBINE), keep),
        });
        Ok(Dispatched { waves: way.dispatch(tokens), handle: RingHandle { way, report } })
    }

    fn combine_keeping(
        &self,
        outputs: Vec<Tensor<2>>,
        weights: Tensor<2>,
        handle: RingHandle,
    ) -> Result<(Combined, Arc<dyn Retrace>), EpError> {
        let RingHandle { way, report } = handle;
        let tokens = way.combine(outputs, weights);
        report.counts.check()?;
        Ok((Combined { tokens, report }, way))
    }
}
