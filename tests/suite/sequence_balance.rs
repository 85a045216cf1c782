//! Training with the optional loss that balances the experts of each row.

use fulmar::model::weights;
use fulmar_tests::compare::assert_within;

use crate::tiny::{Bench, Tiny, logged};

const NAME: &str = "train/router/aux_loss_weighted";

fn weight(value: f64) -> String {
    format!("model.sequence_balance_loss={value:?}")
}

#[test]
fn it_is_logged_by_its_own_name_and_the_loss_is_that_of_the_text() {
    let tiny = Tiny::new();
    tiny.run("without", &[]).expect("a run");
    tiny.run("with", &[&weight(0.5)]).expect("a run");
    let (without, with) = (logged(&tiny.path("without")), logged(&tiny.path("with")));
    assert!(without.iter().all(|line| !line.contains_key(NAME)));
    // The first step has the same weights in both; what it does to them differs.
    assert_eq!(without[0]["train/loss"], with[0]["train/loss"]);
    assert_ne!(without[0]["grad/norm/total"], with[0]["grad/norm/total"]);
    assert_ne!(without[1]["train/loss"], with[1]["train/loss"]);
    // Two layers, each at 1 when balanced and at most at e / k = 4.
    let found = with[0][NAME].as_f64().expect("a number");
    assert!((0.95..=4.0).contains(&found), "{found}");
}

#[test]
fn micro_batches_of_any_size_give_the_same_balance_and_weights() {
    let tiny = Tiny::new();
    // One step: in the next, biases differ by the width of a histogram's bin, and so may choices.
    let step = |micro_rows: u64| {
        let micro_rows = format!("batch.micro_rows={micro_rows}");
        let mut bench = Bench::new(tiny.config(&[&weight(0.5), &micro_rows]));
        let balance = bench.step().sequence_balance.expect("a weight above 0");
        (balance as f32, weights::export(&bench.state.model))
    };
    let (balance, whole) = step(4);
    for micro_rows in [1, 2] {
        let (found, weights) = step(micro_rows);
        assert_within(&format!("balance, {micro_rows} rows"), &[found], &[balance], 1e-6);
        for (path, expected) in &whole {
            let values = |data: &burn::tensor::TensorData| data.iter::<f32>().collect::<Vec<_>>();
            assert_within(path, &values(&weights[path]), &values(expected), 1e-5);
        }
    }
}

#[test]
fn what_is_trained_on_falls() {
    let tiny = Tiny::new();
    let last_of_ten = |of: f64| {
        let mut bench = Bench::new(tiny.config(&[&weight(of)]));
        let balance = (0..10).map(|_| bench.step().sequence_balance.expect("a weight above 0"));
        balance.last().expect("ten steps")
    };
    // A weight that is nothing in f32 shows what happens without.
    let (without, with) = (last_of_ten(1e-30), last_of_ten(10.0));
    // Two layers, each at 1 when balanced: what is above is to go.
    let excess = |balance: f64| balance - 2.0;
    assert!(excess(with) < 0.5 * excess(without), "{with} with the loss, {without} without");
}
