//! One shard that holds every expert: no transport, no drops.

use std::ops::Range;

use burn::tensor::{Int, Tensor, TensorData};
use fulmar_kernels::grouped_swiglu::Groups;
use fulmar_kernels::permute::{RowMap, combine_rows, dispatch_rows};

use super::{Combined, Dispatched, ExpertRows, TokenDispatcher};
use crate::counts::DispatchCounts;
use crate::demand::Demand;
use crate::error::EpError;
use crate::report::{DispatchReport, tokens_by_lost};
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
    map: RowMap,
    report: DispatchReport,
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
        let device = selected.device();
        let (token_valid, [_, k]) = (demand.token_valid(), selected.dims());
        let sorted = sort_by_expert(selected, token_valid, self.num_experts)?;
        let map = RowMap {
            row_of: Tensor::from_data(sorted.row_of, &device),
            assignment_of: Tensor::from_data(sorted.assignment_of, &device),
        };
        let rows = dispatch_rows(tokens, &map);
        let report = DispatchReport {
            counts: sorted.counts,
            tokens_by_lost: tokens_by_lost(token_valid, k, |_| false),
            ..Default::default()
        };
        let wave = ExpertRows { rows, groups: Groups::from_counts(&sorted.group_sizes) };
        Ok(Dispatched { waves: vec![wave], handle: LocalHandle { map, report } })
    }

    fn combine(
        &self,
        outputs: Vec<Tensor<2>>,
        weights: Tensor<2>,
        handle: LocalHandle,
    ) -> Result<Combined, EpError> {
        let [rows]: [Tensor<2>; 1] =
            outputs.try_into().expect("a local dispatch has one wave, so one output");
        let tokens = combine_rows(rows, weights, &handle.map);
        handle.report.counts.check()?;
        Ok(Combined { tokens, report: handle.report })
    }
}

struct Sorted {
    row_of: TensorData,
    assignment_of: TensorData,
    group_sizes: Vec<usize>,
    counts: DispatchCounts,
}

/// Counting sort of the valid assignments by expert, stable in flat (token, slot) order.
fn sort_by_expert(
    selected: Tensor<2, Int>,
    token_valid: &[bool],
    num_experts: usize,
) -> Result<Sorted, EpError> {
    let [num_tokens, k] = selected.dims();
    if token_valid.len() != num_tokens {
        return Err(EpError::ValidMask { found: token_valid.len(), tokens: num_tokens });
    }
    let selected: Vec<i32> = selected.into_data().iter::<i32>().collect();
    let mut group_sizes = vec![0; num_experts];
    for (token, slot, found) in valid_assignments(&selected, token_valid, k) {
        match usize::try_from(found) {
            Ok(expert) if expert < num_experts => group_sizes[expert] += 1,
            Ok(_) => return Err(EpError::ExpertId { token, slot, found, num_experts }),
            Err(_) => return Err(EpError::NotRouted { token, slot }),
        }
    }
    let mut next_row: Vec<usize> = exclusive_sums(&group_sizes);
    let kept: usize = group_sizes.iter().sum();
    let mut row_of = vec![-1i32; num_tokens * k];
    let mut assignment_of = vec![-1i32; kept];
    for (token, slot, expert) in valid_assignments(&selected, token_valid, k) {
        let row = &mut next_row[expert as usize];
        row_of[token * k + slot] = *row as i32;
        assignment_of[*row] = (token * k + slot) as i32;
        *row += 1;
    }
    let assignments = (num_tokens * k) as u64;
    let kept = kept as u64;
    let counts = DispatchCounts {
        assignments,
        padding: assignments - kept,
        valid: kept,
        kept,
        ..Default::default()
    };
    Ok(Sorted {
        row_of: TensorData::new(row_of, [num_tokens, k]),
        assignment_of: TensorData::new(assignment_of, [kept as usize]),
        group_sizes,
        counts,
    })
}

fn valid_assignments<'a>(
    selected: &'a [i32],
    token_valid: &'a [bool],
    k: usize,
) -> impl Iterator<Item = (usize, usize, i32)> + 'a {
    let of_token =
        move |token: usize| (0..k).map(move |slot| (token, slot, selected[token * k + slot]));
    (0..token_valid.len()).filter(|&token| token_valid[token]).flat_map(of_token)
}

fn exclusive_sums(sizes: &[usize]) -> Vec<usize> {
    let starts = sizes.iter().scan(0, |sum, size| {
        let start = *sum;
        *sum += size;
        Some(start)
    });
    starts.collect()
}

#[cfg(test)]
mod tests;
