//! The reference rules on cases small enough to work out by hand, and on random ones.

use std::collections::BTreeMap;

use fulmar_ep::capacity::ragged_dropless_factor;

use crate::random::Shape;
use crate::reference::{Fate, Outcome, Problem, Row, Rule};

/// Every rule, tight enough to drop.
pub(crate) fn tight_rules() -> Vec<Rule> {
    vec![
        Rule::Local,
        Rule::PooledWave { waves: 1, sender: 1.0, receiver: 1.0 },
        Rule::PooledWave { waves: 3, sender: 1.1, receiver: 0.9 },
        Rule::Ragged { receiver: 1.0 },
        Rule::FixedCells { receiver: 1.1 },
        Rule::Ring { receiver: 1.0 },
    ]
}

/// Every rule, with factors from which it cannot drop.
pub(crate) fn roomy_rules(problem: &Problem) -> Vec<Rule> {
    let (shards, num_experts) = (problem.shards() as f64, problem.num_experts as f64);
    let ragged = ragged_dropless_factor(problem.shards() as u64, problem.num_experts as u64);
    vec![
        // A pool then holds all of a source's rows of a wave, an expert all valid rows.
        Rule::PooledWave { waves: 1, sender: shards, receiver: num_experts },
        Rule::PooledWave { waves: 3, sender: shards, receiver: num_experts * 3.0 },
        Rule::Ragged { receiver: ragged },
        Rule::FixedCells { receiver: num_experts },
        Rule::Ring { receiver: shards },
    ]
}

/// Shards whose tokens are all valid and choose these experts, one each.
fn top_1(num_experts: usize, selected: Vec<Vec<usize>>) -> Problem {
    let valid = selected.iter().map(|shard| vec![true; shard.len()]).collect();
    Problem { num_experts, k: 1, selected, valid }
}

/// 4 ranks, 4 experts, 8 tokens each: rank 0 wants expert 3 only, the others each expert twice.
pub(crate) fn one_rank_wants_one_expert() -> Problem {
    let even = || (0..8).map(|token| token % 4).collect();
    top_1(4, vec![vec![3; 8], even(), even(), even()])
}

#[test]
fn a_pool_of_one_wave_drops_six_at_the_sender() {
    // p = ceil(8 / 4) = 2 of rank 0's 8. Expert 3 then has 2 rows of each rank, and room for 8.
    let rule = Rule::PooledWave { waves: 1, sender: 1.0, receiver: 1.0 };
    assert_eq!(rule.outcome(&one_rank_wants_one_expert()).drops(), [6, 0, 0]);
}

#[test]
fn pools_of_three_waves_hold_one_row_each_and_drop_five() {
    // p = ceil(8 / 12) = 1 in 3 waves. Expert 3 takes ceil(8 / 3) = 3 rows a wave; in waves 0 and 1
    // all four ranks send it one, in wave 2 only rank 0.
    let rule = Rule::PooledWave { waves: 3, sender: 1.0, receiver: 1.0 };
    assert_eq!(rule.outcome(&one_rank_wants_one_expert()).drops(), [5, 2, 0]);
}

#[test]
fn fixed_cells_drop_six_at_the_sender() {
    // A cell has ceil(8 / 4) = 2 rows.
    let rule = Rule::FixedCells { receiver: 1.0 };
    assert_eq!(rule.outcome(&one_rank_wants_one_expert()).drops(), [6, 0, 0]);
}

#[test]
fn ragged_and_ring_drop_at_the_receiver_only() {
    // Rank 3 has room for ceil(32 / 4) = 8 of the 8 + 3 * 2 rows that it is sent.
    for rule in [Rule::Ragged { receiver: 1.0 }, Rule::Ring { receiver: 1.0 }] {
        assert_eq!(rule.outcome(&one_rank_wants_one_expert()).drops(), [0, 6, 0], "{rule:?}");
    }
}

#[test]
fn pooled_rows_arrive_position_by_position_and_ragged_rows_source_by_source() {
    let problem = top_1(2, vec![vec![1; 4], vec![1; 4]]);
    let rows = |rows: &[(usize, usize)]| -> Vec<Row> {
        rows.iter().map(|&(shard, assignment)| Row { shard, assignment }).collect()
    };
    let pooled = Rule::PooledWave { waves: 2, sender: 2.0, receiver: 2.0 }.outcome(&problem);
    let waves = [
        ((0, 1), rows(&[(0, 0), (1, 0), (0, 2), (1, 2)])),
        ((1, 1), rows(&[(0, 1), (1, 1), (0, 3), (1, 3)])),
    ];
    assert_eq!(pooled.groups, BTreeMap::from(waves));

    let one_pass = rows(&[(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)]);
    let one_pass = BTreeMap::from([((0, 1), one_pass)]);
    for rule in [Rule::Local, Rule::Ragged { receiver: 2.0 }, Rule::Ring { receiver: 2.0 }] {
        assert_eq!(rule.outcome(&problem).groups, one_pass, "{rule:?}");
    }
    assert_eq!(Rule::FixedCells { receiver: 2.0 }.outcome(&problem).groups, one_pass);
}

#[test]
fn equal_demand_loses_equally_in_every_wave() {
    // Senders have room for everything; each wave's receivers do not.
    let demand: Vec<usize> = (0..40).map(|token| [0, 0, 0, 5, 0, 2][token % 6]).collect();
    let problem = top_1(8, vec![demand; 4]);
    for waves in [1, 2, 3] {
        let rule = Rule::PooledWave { waves, sender: 4.0, receiver: 1.0 };
        let outcome = rule.outcome(&problem);
        let [sender, receiver, _] = outcome.drops();
        assert!(sender == 0 && receiver > 0, "{waves} waves: {sender}, {receiver}");
        for (group, rows) in &outcome.groups {
            let of_source = |source| rows.iter().filter(|row| row.shard == source).count();
            let counts: Vec<usize> = (0..4).map(of_source).collect();
            let spread = counts.iter().max().unwrap() - counts.iter().min().unwrap();
            assert!(spread <= 1, "{waves} waves, {group:?}: rows by source {counts:?}");
        }
    }
}

#[test]
fn padding_takes_no_room_and_is_no_drop() {
    let selected = vec![vec![3; 10], vec![3; 10]];
    let all_padding =
        Problem { num_experts: 6, k: 2, selected, valid: vec![vec![false; 5], vec![false; 5]] };
    for rule in tight_rules() {
        let outcome = rule.outcome(&all_padding);
        assert_eq!(outcome.drops(), [0, 0, 20], "{rule:?}");
        assert!(outcome.groups.is_empty(), "{rule:?}");
    }
    // One valid token among padding that wants the same expert: every rule has room for one row.
    let mut one_valid = top_1(6, vec![vec![3; 5], vec![3; 5]]);
    one_valid.valid = vec![vec![false; 5], vec![false, false, false, true, false]];
    for rule in tight_rules() {
        let outcome = rule.outcome(&one_valid);
        assert_eq!(outcome.fates[1][3], Fate::Kept, "{rule:?}");
        assert_eq!(outcome.drops(), [0, 0, 9], "{rule:?}");
    }
}

#[test]
fn no_tokens_have_no_fates() {
    let nobody = top_1(4, vec![Vec::new(), Vec::new()]);
    let one_idle = top_1(4, vec![Vec::new(), vec![0, 1, 2, 3]]);
    for rule in tight_rules() {
        let outcome = rule.outcome(&nobody);
        assert_eq!((outcome.fates, outcome.groups.len()), (vec![Vec::new(); 2], 0), "{rule:?}");
        assert_eq!(rule.outcome(&one_idle).fates[0], Vec::new(), "{rule:?}");
        assert_eq!(rule.outcome(&one_idle).fates[1].len(), 4, "{rule:?}");
    }
}

#[test]
fn one_expert_takes_what_its_rule_has_room_for() {
    // 2 ranks of 3 experts; 5 tokens each, all for expert 4.
    let problem = top_1(6, vec![vec![4; 5], vec![4; 5]]);
    let drops = |rule: Rule| rule.outcome(&problem).drops();
    assert_eq!(drops(Rule::Local), [0, 0, 0]);
    // p = ceil(5 / 2) = 3, so 2 + 2 stay; rows = clamp(ceil(10 / 6), 1, ceil(5 / 3)) = 2 of 6.
    assert_eq!(drops(Rule::PooledWave { waves: 1, sender: 1.0, receiver: 1.0 }), [4, 4, 0]);
    // p = 1 in 3 waves, so 2 + 2 stay; rows = 1 of the 2 in each wave.
    assert_eq!(drops(Rule::PooledWave { waves: 3, sender: 1.0, receiver: 1.0 }), [4, 3, 0]);
    // A cell has ceil(5 / 6) = 1 row.
    assert_eq!(drops(Rule::FixedCells { receiver: 1.0 }), [8, 0, 0]);
    // Room for ceil(10 / 2) = 5, in one chunk because 3 is odd: the whole of source 0.
    assert_eq!(drops(Rule::Ragged { receiver: 1.0 }), [0, 5, 0]);
    assert_eq!(drops(Rule::Ring { receiver: 1.0 }), [0, 5, 0]);
}

#[test]
fn a_chunk_does_not_use_the_rows_of_its_neighbour() {
    // 2 ranks of 2 experts; 4 tokens each, all for expert 0: 4 rows, of which its chunk has 2.
    let problem = top_1(4, vec![vec![0; 4], vec![0; 4]]);
    assert_eq!(Rule::Ragged { receiver: 1.0 }.outcome(&problem).drops(), [0, 6, 0]);
}

/// Padding is exactly the padding, and the groups hold each kept row once, at its own expert.
fn assert_consistent(problem: &Problem, outcome: &Outcome, what: &str) {
    let assignments = problem.all() as usize;
    assert_eq!(outcome.kept().len(), assignments, "{what}");
    let valid = problem.valid_all() as usize;
    assert_eq!(outcome.count(Fate::Padding), assignments - valid, "{what}");
    let mut seen = Vec::new();
    for ((_, expert), rows) in &outcome.groups {
        for &row in rows {
            assert_eq!(problem.expert(row), *expert, "{what}: {row:?}");
            assert_eq!(outcome.fates[row.shard][row.assignment], Fate::Kept, "{what}: {row:?}");
            seen.push(row);
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), outcome.count(Fate::Kept), "{what}: distinct rows");
}

#[test]
fn random_problems_lose_nothing_and_roomy_rules_drop_nothing() {
    let shapes = [
        Shape { shards: 4, num_experts: 12, k: 3, max_tokens: 20 },
        Shape { shards: 2, num_experts: 12, k: 4, max_tokens: 9 },
        Shape { shards: 3, num_experts: 6, k: 1, max_tokens: 127 },
        Shape { shards: 1, num_experts: 6, k: 2, max_tokens: 16 },
    ];
    let mut dropped = 0;
    for (shape, seed) in shapes.iter().flat_map(|shape| (0..25).map(move |seed| (shape, seed))) {
        let problem = shape.problem(seed);
        for rule in tight_rules() {
            let outcome = rule.outcome(&problem);
            assert_consistent(&problem, &outcome, &format!("{rule:?}, {shape:?}, seed {seed}"));
            let [sender, receiver, _] = outcome.drops();
            dropped += sender + receiver;
        }
        let local = Rule::Local.outcome(&problem);
        for rule in roomy_rules(&problem) {
            let outcome = rule.outcome(&problem);
            let what = format!("{rule:?}, {shape:?}, seed {seed}");
            assert_consistent(&problem, &outcome, &what);
            assert_eq!(outcome.fates, local.fates, "{what}");
        }
    }
    assert!(dropped > 0, "tight rules drop");
}
