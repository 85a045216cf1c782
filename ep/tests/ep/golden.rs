//! The reference against every golden case of the routed layer.

use fulmar_ep::capacity::ragged_chunks;
use fulmar_tests::compare::assert_close;

use crate::case::{EpCase, ep_cases};

#[test]
fn the_reference_drops_what_the_golden_cases_drop() {
    for case in ep_cases() {
        let problem = case.problem();
        let outcome = case.rule.outcome(&problem);
        assert_eq!(outcome.drops().as_slice(), case.expected.drops, "{}: drops", case.name);
        if let Some(accepted) = &case.expected.accepted {
            let kept = outcome.kept();
            assert_eq!(kept.len(), accepted.len(), "{}: assignments", case.name);
            let differ = kept.iter().zip(accepted).position(|(kept, accepted)| kept != accepted);
            assert_eq!(differ, None, "{}: first assignment of another fate", case.name);
        }
        if let Some(chunks) = case.expected.expert_chunks {
            let found = ragged_chunks(problem.local_experts() as u64);
            assert_eq!(found, chunks, "{}: chunks of a receiver", case.name);
        }
    }
}

#[test]
fn the_reference_layer_has_the_golden_values_and_gradients() {
    for case in ep_cases() {
        assert_values(&case);
    }
}

fn assert_values(case: &EpCase) {
    let problem = case.problem();
    let kept = case.rule.outcome(&problem).kept();
    let found = case.layer().run(&problem.selected.concat(), &kept);
    let expected = &case.expected;
    let close = |name: &str, found: &[f64], expected: &[f32], tolerance: f32| {
        let found: Vec<f32> = found.iter().map(|&value| value as f32).collect();
        assert_close(&format!("{}: {name}", case.name), &found, expected, tolerance);
    };
    close("out", &found.out, &expected.out, 2e-5);
    close("dx", &found.dx, &expected.dx, 1e-4);
    close("dcombine", &found.dcombine, &expected.dcombine, 1e-4);
    close("dw13", &found.dw13, &expected.dw13, 1e-4);
    close("dw2", &found.dw2, &expected.dw2, 1e-4);
}
