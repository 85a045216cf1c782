//! Every dispatcher, in values and in all gradients, against the slow layer.

use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar_ep::TokenDispatcher;
use fulmar_ep::transport::{Group, run_world};
use fulmar_tests::compare::{assert_close, assert_same_bits};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::case::{EpCase, Expected, ShardInputs};
use crate::random::Shape;
use crate::ranks::{DEADLINE, dispatcher, floats, run_case, stacked};
use crate::reference::{Problem, Rule};
use crate::rules::{roomy_rules, tight_rules};

/// A case with random values on a problem's choices, and what the slow layer makes of them.
fn case_of(problem: &Problem, rule: Rule, [latent_dim, intermediate_dim]: [usize; 2]) -> EpCase {
    let mut generator = ChaCha8Rng::seed_from_u64(7);
    let mut values =
        |len: usize| -> Vec<f32> { (0..len).map(|_| generator.random_range(-1.0..1.0)).collect() };
    let (k, e) = (problem.k, problem.num_experts);
    let shards = problem.selected.iter().zip(&problem.valid).map(|(selected, valid)| ShardInputs {
        x: values(valid.len() * latent_dim),
        selected: selected.iter().map(|id| *id as i32).collect(),
        combine: values(valid.len() * k),
        valid: valid.clone(),
        dy: values(valid.len() * latent_dim),
    });
    let shards = shards.collect();
    let mut case = EpCase {
        name: format!("{rule:?}"),
        rule,
        num_experts: e,
        k,
        latent_dim,
        intermediate_dim,
        shards,
        w13: values(e * latent_dim * 2 * intermediate_dim),
        w2: values(e * intermediate_dim * latent_dim),
        expected: Expected::default(),
    };
    let kept = rule.outcome(problem).kept();
    let found = case.layer().run(&problem.selected.concat(), &kept);
    let narrow = |values: Vec<f64>| values.into_iter().map(|value| value as f32).collect();
    case.expected = Expected {
        out: narrow(found.out),
        dx: narrow(found.dx),
        dcombine: narrow(found.dcombine),
        dw13: narrow(found.dw13),
        dw2: narrow(found.dw2),
        ..Expected::default()
    };
    case
}

fn assert_gradients(problem: &Problem, rule: Rule, widths: [usize; 2]) {
    let case = case_of(problem, rule, widths);
    let (runs, expected) = (run_case(&case, rule), &case.expected);
    let close = |name: &str, found: Vec<f32>, expected: &[f32], tolerance: f32| {
        assert_close(&format!("{rule:?}: {name} of {problem:?}"), &found, expected, tolerance);
    };
    close("out", stacked(&runs, |run| &run.out), &expected.out, 2e-5);
    close("dx", stacked(&runs, |run| &run.dx), &expected.dx, 1e-4);
    close("dcombine", stacked(&runs, |run| &run.dcombine), &expected.dcombine, 1e-4);
    close("dw13", stacked(&runs, |run| &run.dw13), &expected.dw13, 1e-4);
    close("dw2", stacked(&runs, |run| &run.dw2), &expected.dw2, 1e-4);
}

fn over_ranks(problem: &Problem) -> impl Iterator<Item = Rule> {
    let alone = problem.shards() == 1;
    let rules = tight_rules().into_iter().chain(roomy_rules(problem));
    rules.filter(move |rule| alone || *rule != Rule::Local)
}

#[test]
fn random_problems_have_the_gradients_of_the_slow_layer() {
    for (seed, shards) in [1, 2, 4, 4].into_iter().enumerate() {
        let shape = Shape { shards, num_experts: 3 * shards, k: 2, max_tokens: 33 };
        let problem = shape.problem(seed as u64);
        for rule in over_ranks(&problem) {
            assert_gradients(&problem, rule, [5, 3]);
        }
    }
}

#[test]
fn one_expert_has_everything_and_one_nothing() {
    // 2 ranks with 3 experts each, 5 tokens: expert 4 is in every token's choice, expert 1 in none.
    let problem = Problem {
        num_experts: 6,
        k: 2,
        selected: vec![vec![4, 0, 4, 2, 4, 3, 4, 5, 4, 0], vec![2, 4, 0, 4, 5, 4, 3, 4, 0, 4]],
        valid: vec![vec![true; 5]; 2],
    };
    for rule in over_ranks(&problem) {
        assert_gradients(&problem, rule, [96, 16]);
    }
}

#[test]
fn ids_beyond_256_arrive_as_themselves() {
    for shards in [1, 2] {
        let problem = Problem {
            num_experts: 384,
            k: 2,
            selected: vec![vec![257, 383, 256, 257, 383, 0]; shards],
            valid: vec![vec![true; 3]; shards],
        };
        for rule in over_ranks(&problem) {
            assert_gradients(&problem, rule, [4, 2]);
        }
    }
}

#[test]
fn views_that_are_not_contiguous_give_the_same_bits() {
    let problem = Shape { shards: 2, num_experts: 6, k: 2, max_tokens: 20 }.problem(2);
    for rule in over_ranks(&problem) {
        let through = |transposed: bool| {
            let runs = run_world(2, DEADLINE, |transport| {
                let group = Group::new(transport);
                let (shard, device) = (group.rank(), Device::flex());
                let tokens = problem.valid[shard].len();
                let tensor = |rows: usize, columns: usize, salt: f32| -> Tensor<2> {
                    let value = |i: usize| (i as f32 * 0.37 + salt).sin();
                    let (shape, at): ([usize; 2], &dyn Fn(usize) -> usize) = if transposed {
                        ([columns, rows], &|i| i % rows * columns + i / rows)
                    } else {
                        ([rows, columns], &|i| i)
                    };
                    let values: Vec<f32> = (0..rows * columns).map(|i| value(at(i))).collect();
                    let tensor = Tensor::from_data(TensorData::new(values, shape), &device);
                    if transposed { tensor.swap_dims(0, 1) } else { tensor }
                };
                let ids: Vec<i32> = problem.selected[shard].iter().map(|id| *id as i32).collect();
                let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [tokens, 2]), &device);
                let dispatcher = dispatcher(rule, 6, &group);
                let demand = dispatcher.demand(&problem.valid[shard])?;
                let sent = dispatcher.dispatch(tensor(tokens, 5, 0.0), ids, &demand)?;
                let outputs = sent.waves.into_iter().map(|wave| wave.rows.mul_scalar(2.0));
                let weights = tensor(tokens, 2, 1.0);
                let combined = dispatcher.combine(outputs.collect(), weights, sent.handle)?;
                Ok::<_, fulmar_ep::EpError>(floats(combined.tokens))
            });
            runs.unwrap_or_else(|error| panic!("{rule:?}: {error}")).concat()
        };
        assert_same_bits(&format!("{rule:?}"), &through(true), &through(false));
    }
}

#[test]
fn every_dispatcher_of_one_shard_is_local_bit_for_bit_where_sums_have_its_order() {
    let problem = Shape { shards: 1, num_experts: 6, k: 3, max_tokens: 64 }.problem(1);
    let local = run_case(&case_of(&problem, Rule::Local, [16, 8]), Rule::Local);
    for rule in roomy_rules(&problem) {
        // A wave is a sum of its own, so three waves add a token's slots in another order.
        if matches!(rule, Rule::PooledWave { waves: 3, .. }) {
            continue;
        }
        let run = run_case(&case_of(&problem, rule, [16, 8]), rule);
        assert_same_bits(&format!("{rule:?}: out"), &run[0].out, &local[0].out);
        assert_same_bits(&format!("{rule:?}: dx"), &run[0].dx, &local[0].dx);
    }
}
