//! The routed layer over processes: the golden values, and the very bits of thread ranks.

use std::error::Error;
use std::time::Duration;

use fulmar_ep::transport::Group;
use fulmar_tests::compare::{assert_same_bits, assert_within};

use crate::case::{EpCase, ep_cases};
use crate::ranks::{ShardRun, dispatcher, run_case, run_shard};
use crate::{Case, Needed, RANKS};

pub(crate) fn cases() -> [Case; 1] {
    [Case {
        name: "every_golden_case_of_up_to_four_shards_has_its_values_and_the_bits_of_threads",
        deadline: Duration::from_secs(60),
        body: golden,
        needed: Needed::Success,
    }]
}

/// Among the first ranks, as many as a case has shards; the others go on to the next case.
fn golden(all: Group) -> Result<(), Box<dyn Error>> {
    for case in ep_cases().iter().filter(|case| case.shards.len() <= RANKS) {
        let shards = case.shards.len();
        let members = if all.rank() < shards { 0..shards } else { shards..RANKS };
        let group = all.subgroup(&members.collect::<Vec<_>>());
        if all.rank() < shards {
            let dispatcher = dispatcher(case.rule, case.num_experts, &group);
            let run = run_shard(case, &case.shards[group.rank()], &dispatcher)?;
            assert_golden(case, &run, &group);
            assert_same(case, &run, &run_case(case, case.rule)[group.rank()]);
        }
    }
    Ok(())
}

/// This shard's part of a case's values, within the tolerance of the whole.
fn assert_golden(case: &EpCase, run: &ShardRun, group: &Group) {
    let counts = run.report.counts;
    let own = [counts.sender_dropped, counts.receiver_dropped, counts.padding];
    let drops = group.sum_u64("drops", &own).expect("peers");
    let drops: Vec<usize> = drops.into_iter().map(|count| count as usize).collect();
    let expected = &case.expected;
    assert_eq!(drops, expected.drops, "{}: drops", case.name);
    let close = |name: &str, found: &[f32], expected: &[f32], tolerance: f32| {
        let scale = expected.iter().fold(0.0f32, |max, value| max.max(value.abs()));
        let own = &expected[group.rank() * found.len()..][..found.len()];
        let name = format!("{}: {name} of shard {}", case.name, group.rank());
        assert_within(&name, found, own, tolerance * scale);
    };
    close("out", &run.out, &expected.out, 2e-5);
    close("dx", &run.dx, &expected.dx, 1e-4);
    close("dcombine", &run.dcombine, &expected.dcombine, 1e-4);
    close("dw13", &run.dw13, &expected.dw13, 1e-4);
    close("dw2", &run.dw2, &expected.dw2, 1e-4);
}

fn assert_same(case: &EpCase, run: &ShardRun, threads: &ShardRun) {
    let same = |name: &str, found: &[f32], expected: &[f32]| {
        assert_same_bits(&format!("{}: {name}", case.name), found, expected);
    };
    same("out", &run.out, &threads.out);
    same("dx", &run.dx, &threads.dx);
    same("dcombine", &run.dcombine, &threads.dcombine);
    same("dw13", &run.dw13, &threads.dw13);
    same("dw2", &run.dw2, &threads.dw2);
}
