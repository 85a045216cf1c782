//! The exchange that the hero run switched to: exactly the rows that are accepted travel.

mod plan;

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Int, Tensor};
use fulmar_kernels::grouped_swiglu::Groups;
use fulmar_kernels::permute::{RowMap, combine_rows, dispatch_rows};

use super::choices::Choices;
use super::retrace::{Crossing, Keep, Retrace, only};
use super::send_order::SendOrder;
use super::{Combined, Dispatched, ExpertRows, TokenDispatcher, experts_of};
use crate::capacity::{RaggedCapacity, ragged_dropless_factor};
use crate::demand::Demand;
use crate::error::EpError;
use crate::exchange::{Label, Payload, Route};
use crate::report::{DispatchReport, WireCounter};
use crate::transport::{Group, or_unwind};
use plan::{Acceptance, arrival_rows};

/// Ragged exchange (SPEC section 3).
///
/// Shards first tell each other how many rows they have for each expert. From these counts every
/// shard computes which of them every receiver accepts, so only accepted rows travel and no verdict
/// has to come back.
#[derive(Debug, Clone)]
pub struct Ragged {
    num_experts: usize,
    group: Group,
    /// r; without it there is room for everything.
    receiver: Option<f64>,
    payload: Payload,
}

/// What [`Ragged`] remembers between dispatch and combine.
#[derive(Debug)]
pub struct RaggedHandle {
    way: Arc<RaggedWay>,
    report: DispatchReport,
}

/// Accepted rows to their experts and back.
#[derive(Debug)]
struct RaggedWay {
    /// From assignments to sent rows.
    sent: RowMap,
    over: Crossing,
    /// From arrived rows to experts' rows.
    arrived: RowMap,
    groups: Groups,
    back: Crossing,
}

impl Retrace for RaggedWay {
    fn dispatch(&self, tokens: Tensor<2>) -> Vec<ExpertRows> {
        let packed = dispatch_rows(tokens, &self.sent);
        let rows = dispatch_rows(self.over.cross(packed), &self.arrived);
        vec![ExpertRows { rows, groups: self.groups.clone() }]
    }

    fn combine(&self, outputs: Vec<Tensor<2>>, weights: Tensor<2>) -> Tensor<2> {
        let packed = dispatch_rows(only(outputs), &self.arrived.transposed());
        combine_rows(self.back.cross(packed), weights, &self.sent)
    }
}

impl Ragged {
    /// The exchange of `num_experts` experts among the shards of `group`, with the factor r if
    /// there is not to be room for everything.
    pub fn new(num_experts: usize, group: &Group, receiver: Option<f64>, payload: Payload) -> Self {
        Self { num_experts, group: group.clone(), receiver, payload }
    }

    fn accepted(&self, counts: &[Vec<u64>], demand: &Demand, k: usize) -> Acceptance {
        let (shards, experts) = (self.group.size() as u64, self.num_experts as u64);
        let factor = self.receiver.unwrap_or_else(|| ragged_dropless_factor(shards, experts));
        let (n, valid) = (demand.most_tokens() * k as u64, demand.valid_everywhere() * k as u64);
        Acceptance::new(counts, RaggedCapacity::new(n, valid, shards, experts, factor))
    }

    /// Tells every shard how many rows this one has for each expert, or that it cannot route.
    fn exchange_counts(
        &self,
        choices: &Result<Choices, EpError>,
        wire: &WireCounter,
    ) -> Result<Vec<Vec<u64>>, EpError> {
        let mut own = vec![0; self.num_experts + 1];
        match choices {
            Ok(choices) => {
                let by_expert = choices.by_expert(self.num_experts);
                own.iter_mut().zip(by_expert).for_each(|(own, rows)| *own = rows as u64);
            }
            Err(_) => own[self.num_experts] = 1,
        }
        let peers = self.group.size() as u64 - 1;
        wire.add_header(peers * size_of_val(own.as_slice()) as u64);
        let counts = or_unwind(self.group.gather_u64("counts", &own));
        match counts.iter().position(|counts| counts[self.num_experts] != 0) {
            Some(shard) => Err(EpError::PeerNotRouted { shard }),
            None => Ok(counts),
        }
    }
}

impl TokenDispatcher for Ragged {
    type Handle = RaggedHandle;

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
    ) -> Result<Dispatched<RaggedHandle>, EpError> {
        self.dispatch_keeping(tokens, selected, demand, Keep::Decisions)
    }

    fn combine(
        &self,
        outputs: Vec<Tensor<2>>,
        weights: Tensor<2>,
        handle: RaggedHandle,
    ) -> Result<Combined, EpError> {
        Ok(self.combine_keeping(outputs, weights, handle)?.0)
    }

    fn dispatch_keeping(
        &self,
        tokens: Tensor<2>,
        selected: Tensor<2, Int>,
        demand: &Demand,
        keep: Keep,
    ) -> Result<Dispatched<RaggedHandle>, EpError> {
        let ([num_tokens, _], [_, k]) = (tokens.dims(), selected.dims());
        let (device, rank) = (selected.device(), self.group.rank());
        let wire = Arc::new(WireCounter::default());
        let choices = Choices::read(selected, demand, self.num_experts);
        let counts = self.exchange_counts(&choices, &wire);
        let (choices, counts) = (choices?, counts?);
        let acceptance = self.accepted(&counts, demand, k);
        let order = SendOrder::new(&choices, num_tokens * k, &acceptance.accepted[rank]);
        let report = order.report(demand, k, wire.clone());
        if self.receiver.is_none() && report.counts.receiver_dropped > 0 {
            return Err(EpError::NotDropless { dropped: report.counts.receiver_dropped });
        }

        let route = Route {
            group: self.group.clone(),
            label: Label::DISPATCH,
            payload: self.payload,
            send_rows: acceptance.sent_by(rank),
            recv_rows: acceptance.received_by(rank),
            header_rows: 0,
            wire,
        };
        let num_sent = route.send_rows.iter().sum();
        let sent = RowMap::from_rows(order.row_of, k, num_sent, &device);
        let (row_of, group_sizes) = arrival_rows(&acceptance.accepted, self.local_experts());
        let num_arrived = row_of.len();
        let way = Arc::new(RaggedWay {
            sent,
            over: Crossing::exchange(route.clone(), keep),
            arrived: RowMap::from_rows(row_of, 1, num_arrived, &device),
            groups: Groups::from_counts(&group_sizes),
            back: Crossing::exchange(route.reversed(Label::COMBINE), keep),
        });
        Ok(Dispatched { waves: way.dispatch(tokens), handle: RaggedHandle { way, report } })
    }

    fn combine_keeping(
        &self,
        outputs: Vec<Tensor<2>>,
        weights: Tensor<2>,
        handle: RaggedHandle,
    ) -> Result<(Combined, Arc<dyn Retrace>), EpError> {
        let RaggedHandle { way, report } = handle;
        let tokens = way.combine(outputs, weights);
        report.counts.check()?;
        Ok((Combined { tokens, report }, way))
    }
}
