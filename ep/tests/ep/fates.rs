//! The dispatchers choose the very rows that the slow references choose.

use std::collections::BTreeMap;

use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar_ep::transport::{Group, run_world};
use fulmar_ep::{DispatchCounts, EpError, TokenDispatcher};

use crate::random::Shape;
use crate::ranks::{DEADLINE, dispatcher, floats};
use crate::reference::{Fate, Problem, Row, Rule};
use crate::rules::{one_rank_wants_one_expert, roomy_rules, tight_rules};

/// What one shard sees.
struct Seen {
    /// Rows of each (wave, expert) in order, by the number they carry.
    groups: BTreeMap<(usize, usize), Vec<f32>>,
    /// For each assignment whether it came back.
    kept: Vec<bool>,
    counts: DispatchCounts,
    tokens_by_lost: Vec<u64>,
}

/// Sends each token's number, and brings it back weighted with a power of two a slot.
fn watch(problem: &Problem, rule: Rule, group: &Group) -> Result<Seen, EpError> {
    let (shard, k, device) = (group.rank(), problem.k, Device::flex());
    let valid = &problem.valid[shard];
    let (tokens, first) = (valid.len(), problem.valid[..shard].iter().map(Vec::len).sum::<usize>());
    let numbers: Vec<f32> = (0..tokens).map(|token| (first + token + 1) as f32).collect();
    let x = Tensor::<2>::from_data(TensorData::new(numbers, [tokens, 1]), &device);
    let ids: Vec<i32> = problem.selected[shard].iter().map(|id| *id as i32).collect();
    let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [tokens, k]), &device);
    let dispatcher = dispatcher(rule, problem.num_experts, group);
    let demand = dispatcher.demand(valid)?;
    let sent = dispatcher.dispatch(x, ids, &demand)?;
    let mut groups = BTreeMap::new();
    for (wave, rows) in sent.waves.iter().enumerate() {
        let values = floats(rows.rows.clone());
        for (i, expert) in dispatcher.local_experts().enumerate() {
            let range = rows.groups.range(i);
            if !range.is_empty() {
                groups.insert((wave, expert), values[range].to_vec());
            }
        }
    }
    // Experts that say 1 of every row: a token's sum tells which slots came back.
    let ones = sent.waves.iter().map(|wave| wave.rows.ones_like()).collect();
    let powers = (0..tokens * k).map(|i| (1u32 << (i % k)) as f32).collect();
    let weights = Tensor::<2>::from_data(TensorData::new::<f32, _>(powers, [tokens, k]), &device);
    let combined = dispatcher.combine(ones, weights, sent.handle)?;
    let sums = floats(combined.tokens);
    let kept = (0..tokens * k).map(|i| sums[i / k] as u32 >> (i % k) & 1 == 1).collect();
    let report = combined.report;
    Ok(Seen { groups, kept, counts: report.counts, tokens_by_lost: report.tokens_by_lost })
}

fn assert_same_fates(problem: &Problem, rule: Rule) {
    let outcome = rule.outcome(problem);
    let seen = run_world(problem.shards(), DEADLINE, |transport| {
        watch(problem, rule, &Group::new(transport))
    });
    let seen = seen.unwrap_or_else(|error| panic!("{rule:?}: {error}"));
    let kept: Vec<bool> = seen.iter().flat_map(|seen| seen.kept.clone()).collect();
    assert_eq!(kept, outcome.kept(), "{rule:?}: kept assignments of {problem:?}");
    for (shard, seen) in seen.iter().enumerate() {
        let fates = &outcome.fates[shard];
        let count = |fate| fates.iter().filter(|found| **found == fate).count() as u64;
        let needed = DispatchCounts {
            assignments: fates.len() as u64,
            padding: count(Fate::Padding),
            valid: fates.len() as u64 - count(Fate::Padding),
            kept: count(Fate::Kept),
            sender_dropped: count(Fate::SenderDropped),
            receiver_dropped: count(Fate::ReceiverDropped),
        };
        assert_eq!(seen.counts, needed, "{rule:?}: counts of source {shard}");
        assert_eq!(seen.tokens_by_lost, by_lost(fates, problem.k), "{rule:?}: shard {shard}");
    }
    let groups = seen.iter().flat_map(|seen| seen.groups.clone()).collect::<BTreeMap<_, _>>();
    assert_eq!(groups, numbered(problem, rule, &outcome.groups), "{rule:?}: rows of experts");
}

fn by_lost(fates: &[Fate], k: usize) -> Vec<u64> {
    let mut tokens = vec![0; k + 1];
    for fates in fates.chunks(k).filter(|fates| fates[0] != Fate::Padding) {
        tokens[fates.iter().filter(|fate| **fate != Fate::Kept).count()] += 1;
    }
    tokens
}

/// The numbers that the reference's rows carry; waves are passes of their own, chunks are not.
fn numbered(
    problem: &Problem,
    rule: Rule,
    groups: &BTreeMap<(usize, usize), Vec<Row>>,
) -> BTreeMap<(usize, usize), Vec<f32>> {
    let first = |shard: usize| problem.valid[..shard].iter().map(Vec::len).sum::<usize>();
    let number = |row: &Row| (first(row.shard) + row.assignment / problem.k + 1) as f32;
    let groups = groups.iter().map(|(&(pass, expert), rows)| {
        let wave = if matches!(rule, Rule::PooledWave { .. }) { pass } else { 0 };
        ((wave, expert), rows.iter().map(number).collect())
    });
    groups.collect()
}

#[test]
fn every_dispatcher_keeps_the_rows_that_its_rule_keeps() {
    let shapes = [
        Shape { shards: 1, num_experts: 6, k: 2, max_tokens: 40 },
        Shape { shards: 2, num_experts: 6, k: 3, max_tokens: 5 },
        Shape { shards: 4, num_experts: 12, k: 3, max_tokens: 64 },
        Shape { shards: 4, num_experts: 16, k: 4, max_tokens: 127 },
        Shape { shards: 3, num_experts: 9, k: 1, max_tokens: 1 },
    ];
    for (i, shape) in shapes.iter().enumerate() {
        for seed in 0..6 {
            let problem = shape.problem(100 * i as u64 + seed);
            for rule in tight_rules().into_iter().chain(roomy_rules(&problem)) {
                if rule != Rule::Local || problem.shards() == 1 {
                    assert_same_fates(&problem, rule);
                }
            }
        }
    }
}

#[test]
fn one_rank_that_wants_one_expert_loses_what_the_record_says() {
    let problem = one_rank_wants_one_expert();
    for rule in [
        Rule::PooledWave { waves: 1, sender: 1.0, receiver: 1.0 },
        Rule::PooledWave { waves: 3, sender: 1.0, receiver: 1.0 },
        Rule::FixedCells { receiver: 1.0 },
        Rule::Ragged { receiver: 1.0 },
        Rule::Ring { receiver: 1.0 },
    ] {
        assert_same_fates(&problem, rule);
    }
}

#[test]
fn degenerate_batches_go_through_every_dispatcher() {
    let all_to_one = |tokens: usize, valid: bool| Problem {
        num_experts: 6,
        k: 1,
        selected: vec![vec![4; tokens]; 2],
        valid: vec![vec![valid; tokens]; 2],
    };
    let lopsided = Problem {
        num_experts: 6,
        k: 2,
        selected: vec![vec![], [0, 5].repeat(127)],
        valid: vec![vec![], vec![true; 127]],
    };
    let problems = [
        all_to_one(0, true),
        all_to_one(1, true),
        all_to_one(127, true),
        all_to_one(9, false),
        lopsided,
    ];
    for problem in &problems {
        for rule in tight_rules().into_iter().filter(|rule| *rule != Rule::Local) {
            assert_same_fates(problem, rule);
        }
    }
}
