//! One shard that holds every expert: no transport, no drops.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Int, Tensor};
use fulmar_kernels::grouped_swiglu::Groups;
use fulmar_kernels::permute::{RowMap, combine_rows, dispatch_rows};

use super::choices::Choices;
use super::retrace::{Keep, Retrace, only};
use super::send_order::SendOrder;
use super::{Combined, Dispatched, ExpertRows, TokenDispatcher};
use crate::demand::Demand;
use crate::error::EpError;
use crate::report::DispatchReport;
use crate::transport::Group;

/// The reference dispatcher: rows are sorted by expert, then by (token, slot), and none is lost.
#[derive(Debug, Clone)]
pub struct Local {
    num_experts: usize,
    group: Group,
}

/// What [`Local`] remembers between dispatch and combine.
#[derive(Debug)]
pub struct LocalHandle {
    way: Arc<LocalWay>,
    report: DispatchReport,
}

/// Rows sorted by expert.
#[derive(Debug)]
struct LocalWay {
    map: RowMap,
    groups: Groups,
}

impl Retrace for LocalWay {
    fn dispatch(&self, tokens: Tensor<2>) -> Vec<ExpertRows> {
        let rows = dispatch_rows(tokens, &self.map);
        vec![ExpertRows { rows, groups: self.groups.clone() }]
    }

    fn combine(&self, outputs: Vec<Tensor<2>>, weights: Tensor<2>) -> Tensor<2> {
        combine_rows(only(outputs), weights, &self.map)
    }
}

impl Local {
    /// A shard that holds all of `num_experts` experts.
    pub fn new(num_experts: usize) -> Self {
        Self { num_experts, group: Group::solo() }
    }
}

impl TokenDispatcher for Local {
    type Handle = LocalHandle;

    fn local_experts(&self) -> Range<usize> {
        0..self.num_experts
    }

    fn group(&self) -> &Group {
        &self.group
    }

    fn dispatch(
        &self,
        tokens: Tensor<2>,
        selected: Tensor<2, Int>,
        demand: &Demand,
    ) -> Result<Dispatched<LocalHandle>, EpError> {
        self.dispatch_keeping(tokens, selected, demand, Keep::Decisions)
    }

    fn combine(
        &self,
        outputs: Vec<Tensor<2>>,
        weights: Tensor<2>,
        handle: LocalHandle,
    ) -> Result<Combined, EpError> {
        Ok(self.combine_keeping(outputs, weights, handle)?.0)
    }

    fn dispatch_keeping(
        &self,
        tokens: Tensor<2>,
        selected: Tensor<2, Int>,
        demand: &Demand,
        _: Keep,
    ) -> Result<Dispatched<LocalHandle>, EpError> {
        let ([num_tokens, k], device) = (selected.dims(), selected.device());
        let choices = Choices::read(selected, demand, self.num_experts)?;
        let group_sizes = choices.by_expert(self.num_experts);
        let order = SendOrder::new(&choices, num_tokens * k, &group_sizes);
        let report = order.report(demand, k, Default::default());
        let map = RowMap::from_rows(order.row_of, k, choices.assignments.len(), &device);
        let way = Arc::new(LocalWay { map, groups: Groups::from_counts(&group_sizes) });
        Ok(Dispatched { waves: way.dispatch(tokens), handle: LocalHandle { way, report } })
    }

    fn combine_keeping(
        &self,
        outputs: Vec<Tensor<2>>,
        weights: Tensor<2>,
        handle: LocalHandle,
    ) -> Result<(Combined, Arc<dyn Retrace>), EpError> {
        let LocalHandle { way, report } = handle;
        let tokens = way.combine(outputs, weights);
        report.counts.check()?;
        Ok((Combined { tokens, report }, way))
    }
}

#[cfg(test)]
mod tests;
