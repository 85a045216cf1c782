//! Training with products in bf16 beside the same training in f32.

use crate::tiny::{Bench, Tiny};

const BF16: &str = "model.compute=\"bf16\"";

#[test]
fn thirty_steps_in_bf16_end_within_half_a_percent_of_the_loss_in_f32() {
    let tiny = Tiny::new();
    let losses = |overrides: &[&str]| -> Vec<f64> {
        let mut bench = Bench::new(tiny.config(&[&["schedule.steps=30"], overrides].concat()));
        (0..30).map(|_| bench.step().loss).collect()
    };
    let (wide, narrow) = (losses(&[]), losses(&[BF16]));
    let last = |losses: &[f64]| losses[20..].iter().sum::<f64>() / 10.0;
    let (of_wide, of_narrow) = (last(&wide), last(&narrow));
    println!("mean loss of the last ten steps: f32 {of_wide:.5}, bf16 {of_narrow:.5}");
    assert!((of_wide - of_narrow).abs() <= 5e-3 * of_wide, "f32 {of_wide}, bf16 {of_narrow}");
    assert!(of_wide < 0.95 * wide[0], "it learns: {wide:?}");
    for (step, (wide, narrow)) in wide.iter().zip(&narrow).enumerate() {
        assert_ne!(wide, narrow, "step {step}: products are rounded");
    }
}

#[test]
fn compute_of_another_name_is_refused() {
    let recipe = "name = \"x\"\nmodel.preset = \"mini_d96\"\nbatch.rows = 8\nschedule.steps = 1\n";
    let overrides = ["model.compute=\"bf15\"".to_owned()];
    let error = fulmar::train::recipe::parse(recipe, "x.toml", &overrides).expect_err("refused");
    let error = error.to_string();
    assert!(error.contains("model.compute") && error.contains("did you mean `bf16`?"), "{error}");
}
