//! Each replay against a literal one that lists assignments, sorts them and counts places.

use super::*;
use crate::capacity::{FixedCellCapacity, PooledWaveCapacity, RaggedCapacity, ring_limit};

/// One valid assignment.
#[derive(Debug, Clone, Copy)]
struct Assignment {
    source: usize,
    flat: usize,
    expert: usize,
}

/// Choices that own their values.
struct Problem {
    world: World,
    selected: Vec<u16>,
    valid: Option<Vec<bool>>,
}

impl Problem {
    /// Choices drawn with `skew`: 1 is even, more prefers low ids.
    fn random(seed: u64, world: World, tokens: usize, skew: i32, padding: bool) -> Self {
        let mut state = seed;
        let mut uniform = move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut selected = Vec::new();
        for _ in 0..world.shards * tokens {
            let mut chosen: Vec<u16> = Vec::new();
            while chosen.len() < world.experts_per_token {
                let expert = (uniform().powi(skew) * world.num_experts as f64) as u16;
                if !chosen.contains(&expert) {
                    chosen.push(expert);
                }
            }
            selected.extend(chosen);
        }
        let valid = padding.then(|| (0..world.shards * tokens).map(|_| uniform() > 0.3).collect());
        Self { world, selected, valid }
    }

    fn choices(&self) -> Choices<'_> {
        Choices::new(self.world, &self.selected, self.valid.as_deref()).expect("good choices")
    }

    fn per_shard(&self) -> usize {
        self.selected.len() / self.world.shards
    }

    fn assignments(&self) -> Vec<Assignment> {
        let (k, per_shard) = (self.world.experts_per_token, self.per_shard());
        let is_valid = |i: usize| self.valid.as_ref().is_none_or(|valid| valid[i / k]);
        let at = |i: usize| Assignment {
            source: i / per_shard,
            flat: i % per_shard,
            expert: usize::from(self.selected[i]),
        };
        (0..self.selected.len()).filter(|&i| is_valid(i)).map(at).collect()
    }

    fn shard_of(&self, assignment: &Assignment) -> usize {
        assignment.expert / self.world.local_experts()
    }

    fn counts(&self, sent: usize, kept: usize) -> DispatchCounts {
        let (all, valid) = (self.selected.len() as u64, self.assignments().len() as u64);
        DispatchCounts {
            assignments: all,
            padding: all - valid,
            valid,
            kept: kept as u64,
            sender_dropped: valid - sent as u64,
            receiver_dropped: (sent - kept) as u64,
        }
    }
}

/// The place of each item within its group, when items are put in the order of `key`.
fn places<T: Copy, G: Ord + Copy, K: Ord>(
    items: &[T],
    group: impl Fn(&T) -> G,
    key: impl Fn(&T) -> K,
) -> Vec<(T, usize)> {
    let mut sorted = items.to_vec();
    sorted.sort_by_key(|item| (group(item), key(item)));
    let mut placed: Vec<(T, usize)> = Vec::new();
    for item in sorted {
        let place = match placed.last() {
            Some((last, place)) if group(last) == group(&item) => place + 1,
            _ => 0,
        };
        placed.push((item, place));
    }
    placed
}

fn pooled_wave(problem: &Problem, rule: PooledWave) -> DispatchCounts {
    let (world, all) = (problem.world, problem.assignments());
    let capacity = PooledWaveCapacity::new(
        problem.per_shard() as u64,
        world.shards as u64,
        world.num_experts as u64,
        rule.waves as u64,
        (rule.sender, rule.receiver),
    );
    let valid_at = |source| all.iter().filter(|a| a.source == source).count() as u64;
    let placed = places(&all, |a| (a.source, problem.shard_of(a)), |a| a.flat);
    let sent: Vec<(Assignment, usize, usize)> = placed
        .into_iter()
        .map(|(a, rank)| (a, rank % rule.waves, rank / rule.waves))
        .filter(|(a, _, position)| {
            (*position as u64) < capacity.pool_limit(valid_at(a.source), rule.sender)
        })
        .collect();
    let arrived = places(&sent, |(a, wave, _)| (*wave, a.expert), |(a, _, pos)| (*pos, a.source));
    let limit = capacity.expert_limit(all.len() as u64, rule.receiver);
    let kept = arrived.iter().filter(|(_, rank)| (*rank as u64) < limit).count();
    problem.counts(sent.len(), kept)
}

fn ragged(problem: &Problem, rule: Ragged) -> DispatchCounts {
    let (world, all) = (problem.world, problem.assignments());
    let capacity = RaggedCapacity::new(
        problem.per_shard() as u64,
        all.len() as u64,
        world.shards as u64,
        world.num_experts as u64,
        rule.receiver,
    );
    let chunk_experts = world.local_experts() / capacity.chunks as usize;
    let arrived = places(&all, |a| a.expert / chunk_experts, |a| (a.expert, a.source, a.flat));
    let kept = arrived.iter().filter(|(_, place)| (*place as u64) < capacity.chunk_rows).count();
    problem.counts(all.len(), kept)
}

fn fixed_cells(problem: &Problem, rule: FixedCells) -> DispatchCounts {
    let all = problem.assignments();
    let experts = problem.world.num_experts as u64;
    let capacity = FixedCellCapacity::new(problem.per_shard() as u64, experts, rule.receiver);
    let valid_at = |source| all.iter().filter(|a| a.source == source).count() as u64;
    let placed = places(&all, |a| (a.source, a.expert), |a| a.flat);
    let fits = |(a, place): &&(Assignment, usize)| {
        (*place as u64) < capacity.cell_limit(valid_at(a.source), rule.receiver)
    };
    let kept = placed.iter().filter(fits).count();
    problem.counts(kept, kept)
}

fn ring(problem: &Problem, rule: Ring) -> DispatchCounts {
    let (world, all) = (problem.world, problem.assignments());
    let limit = ring_limit(
        problem.selected.len() as u64,
        all.len() as u64,
        world.shards as u64,
        world.num_experts as u64,
        rule.receiver,
    );
    let placed = places(&all, |a| problem.shard_of(a), |a| (a.expert, a.source, a.flat));
    let kept = placed.iter().filter(|(_, place)| (*place as u64) < limit).count();
    problem.counts(all.len(), kept)
}

fn world(shards: usize, num_experts: usize, experts_per_token: usize) -> World {
    World { shards, num_experts, experts_per_token }
}

fn problems() -> Vec<Problem> {
    let worlds = [world(1, 3, 1), world(2, 6, 2), world(3, 9, 3), world(4, 24, 4), world(8, 48, 8)];
    let mut problems = Vec::new();
    for (seed, world) in (0..).zip(worlds) {
        for tokens in [0, 1, 7, 40] {
            for (skew, padding) in [(1, false), (2, true), (4, false)] {
                problems.push(Problem::random(seed, world, tokens, skew, padding));
            }
        }
    }
    problems
}

#[test]
fn every_rule_counts_what_a_literal_replay_counts() {
    let payload = RowFormat { width: 8, element_bytes: 2 };
    for problem in problems() {
        let choices = problem.choices();
        let demand = Demand::of(&choices);
        let of = |rule: &dyn Rule| {
            Replay::of(rule, &choices, &demand, payload).expect("a rule that fits").counts
        };
        for factor in [0.3, 0.5, 1.0, 1.15, 1.5, 40.0] {
            for waves in [1, 3] {
                let rule = PooledWave { waves, sender: factor, receiver: 1.05 };
                assert_eq!(of(&rule), pooled_wave(&problem, rule), "{:?} {rule:?}", problem.world);
                let rule = PooledWave { waves, sender: 1.2, receiver: factor };
                assert_eq!(of(&rule), pooled_wave(&problem, rule), "{:?} {rule:?}", problem.world);
            }
            let rule = Ragged { receiver: factor };
            assert_eq!(of(&rule), ragged(&problem, rule), "{:?} {rule:?}", problem.world);
            let rule = FixedCells { receiver: factor };
            assert_eq!(of(&rule), fixed_cells(&problem, rule), "{:?} {rule:?}", problem.world);
            let rule = Ring { receiver: factor };
            assert_eq!(of(&rule), ring(&problem, rule), "{:?} {rule:?}", problem.world);
        }
    }
}

#[test]
fn the_sender_that_sends_all_to_one_shard_drops_what_its_pool_cannot_hold() {
    // 4 ranks, 4 experts, 8 tokens, top-1; rank 0 sends all to rank 3, the others spread evenly.
    let even = [0, 1, 2, 3, 0, 1, 2, 3];
    let selected = [[3; 8], even, even, even].concat();
    let problem = Problem { world: world(4, 4, 1), selected, valid: None };
    let (choices, demand) = (problem.choices(), Demand::of(&problem.choices()));
    let rule = |receiver| PooledWave { waves: 1, sender: 1.0, receiver };
    assert_eq!(rule(4.0).counts(&choices, &demand).sender_dropped, 6);
    // The pools of three waves hold one row each, so three of the eight arrive.
    let three = PooledWave { waves: 3, ..rule(4.0) };
    assert_eq!(three.counts(&choices, &demand).sender_dropped, 5);
    assert_eq!(FixedCells { receiver: 1.0 }.counts(&choices, &demand).sender_dropped, 6);
    let ragged = Ragged { receiver: 1.0 }.counts(&choices, &demand);
    assert_eq!((ragged.sender_dropped, ragged.receiver_dropped), (0, 6));
}

#[test]
fn a_factor_with_room_for_all_drops_nothing() {
    for problem in problems() {
        let (choices, demand) = (problem.choices(), Demand::of(&problem.choices()));
        let shards = problem.world.shards as f64;
        let experts = problem.world.num_experts as f64;
        let rules: [&dyn Rule; 4] = [
            &PooledWave { waves: 1, sender: shards, receiver: experts },
            &Ragged { receiver: 2.0 * shards },
            &FixedCells { receiver: experts },
            &Ring { receiver: shards },
        ];
        for rule in rules {
            let counts = rule.counts(&choices, &demand).check().expect("counts that add up");
            assert_eq!(counts.kept, counts.valid, "{} {:?}", rule.name(), problem.world);
        }
    }
}

#[test]
fn the_hero_run_has_this_footprint() {
    // Shapes alone decide all but the ragged wire; 65,536 tokens of even choices a shard.
    let world = world(64, 384, 8);
    let selected: Vec<u16> = (0..64 * 65_536 * 8).map(|i| (i % 384) as u16).collect();
    let choices = Choices::new(world, &selected, None).expect("good choices");
    let demand = Demand::of(&choices);
    let payload = RowFormat { width: 3_072, element_bytes: 2 };
    let footprint = |rule: &dyn Rule| rule.footprint(&choices, &demand, payload);

    // p = 3,141 and q = 33,497 in each of 3 waves (`capacity`); M = ceil(3,141 / 3,072) = 2.
    let pooled = footprint(&PooledWave { waves: 3, sender: 1.15, receiver: 1.15 });
    assert_eq!(pooled.expert_rows, 3 * 6 * 33_497);
    let rows = 2 * 64 * (2 + 3_141) + 2 * 6 * 33_497 + 2 * 64 * 3_141;
    assert_eq!(pooled.buffer_bytes, rows * 6_144);
    assert_eq!(pooled.wire_bytes, 3 * 63 * (2 + 2 * 3_141) * 6_144);
    assert_eq!(pooled.header_bytes, 3 * 63 * 2 * 6_144);

    // Cells of ceil(1.15 x 524,288 / 384) = 1,571 rows.
    let cells = footprint(&FixedCells { receiver: 1.15 });
    assert_eq!(cells.buffer_bytes, 6 * 384 * 1_571 * 6_144);
    assert_eq!(cells.wire_bytes, 2 * 63 * 6 * 1_571 * 6_144);

    // All choices are even, so 63 of 64 rows cross, there and back, beside 384 sizes to each other.
    let ragged = footprint(&Ragged { receiver: 1.15 });
    assert_eq!(ragged.expert_rows, 602_932);
    assert_eq!(ragged.buffer_bytes, (2 * 524_288 + 602_932) * 6_144);
    assert_eq!(ragged.header_bytes, 63 * 384 * 4);
    let even = 2 * 524_288 / 64 * 63 * 6_144;
    assert!(ragged.wire_bytes.abs_diff(even + ragged.header_bytes) < even / 1_000);

    let ring = footprint(&Ring { receiver: 1.0 });
    assert_eq!(ring.buffer_bytes, (2 * 64 * 65_536 + 2 * 524_288) * 6_144);
    assert_eq!(ring.wire_bytes, 2 * 63 * 65_536 * 6_144 + 8 * 63 * 65_536 * 8);
}

#[test]
fn what_does_not_fit_is_refused_by_name_and_value() {
    let new = |world, selected: &[u16], valid: Option<&[bool]>| {
        Choices::new(world, selected, valid).map(|_| ()).expect_err("bad choices").to_string()
    };
    let needed = "`num_experts` is 5, which 2 shards cannot share; use a multiple of 2";
    assert_eq!(new(world(2, 5, 1), &[], None), needed);
    let needed = "`experts_per_token` is 7, needed 1 to 6, the number of experts";
    assert_eq!(new(world(2, 6, 7), &[], None), needed);
    let needed = "3 choices cannot be those of 2 shards, 2 a token; needed a multiple of 4";
    assert_eq!(new(world(2, 6, 2), &[0, 1, 2], None), needed);
    let needed = "token 0 chose expert 6 in slot 1, needed an id below 6";
    assert_eq!(new(world(2, 6, 2), &[0, 1, 5, 6], None), needed);
    let needed = "the validity mask has 3 entries, needed one for each of 2 tokens";
    assert_eq!(new(world(2, 6, 2), &[0, 1, 5, 4], Some(&[true; 3])), needed);
    assert!(Choices::new(world(2, 6, 2), &[0, 1, 5, 6], Some(&[true, false])).is_ok());

    let refused = |rule: &dyn Rule| rule.validate(world(2, 6, 2)).expect_err("bad").to_string();
    let needed = "`waves` is 2, which 3 local experts cannot share; use a divisor of 3";
    assert_eq!(refused(&PooledWave { waves: 2, sender: 1.0, receiver: 1.0 }), needed);
    let needed = "the sender factor is NaN, needed a number above 0 and up to 1000000";
    assert_eq!(refused(&PooledWave { waves: 3, sender: f64::NAN, receiver: 1.0 }), needed);
    let needed = "the receiver factor is -1, needed a number above 0 and up to 1000000";
    assert_eq!(refused(&Ragged { receiver: -1.0 }), needed);
    assert!(refused(&FixedCells { receiver: 0.0 }).contains("is 0, needed"));
    assert!(refused(&Ring { receiver: f64::INFINITY }).contains("is inf, needed"));
}
