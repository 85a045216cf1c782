//! Every golden case of the routed layer over thread ranks.

use fulmar_tests::compare::assert_close;

use crate::case::{EpCase, ep_cases};
use crate::ranks::{ShardRun, run_case, stacked};

#[test]
fn ranks_have_the_golden_drops_values_and_gradients() {
    for case in ep_cases() {
        let runs = run_case(&case, case.rule);
        assert_golden(&case, &runs);
    }
}

/// The values of all shards against a case's.
pub(crate) fn assert_golden(case: &EpCase, runs: &[ShardRun]) {
    let count = |of: fn(&ShardRun) -> u64| runs.iter().map(of).sum::<u64>() as usize;
    let drops = [
        count(|run| run.report.counts.sender_dropped),
        count(|run| run.report.counts.receiver_dropped),
        count(|run| run.report.counts.padding),
    ];
    let expected = &case.expected;
    assert_eq!(drops.as_slice(), expected.drops, "{}: drops", case.name);
    let close = |name: &str, part: fn(&ShardRun) -> &[f32], expected: &[f32], tolerance: f32| {
        assert_close(&format!("{}: {name}", case.name), &stacked(runs, part), expected, tolerance);
    };
    close("out", |run| &run.out, &expected.out, 2e-5);
    close("dx", |run| &run.dx, &expected.dx, 1e-4);
    close("dcombine", |run| &run.dcombine, &expected.dcombine, 1e-4);
    close("dw13", |run| &run.dw13, &expected.dw13, 1e-4);
    close("dw2", |run| &run.dw2, &expected.dw2, 1e-4);
}
