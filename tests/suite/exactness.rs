//! The same seed gives the same bits, through a restart too.

use fulmar::model::weights;
use fulmar::train::run;
use fulmar_tests::compare::assert_within;

use crate::process;
use crate::tiny::{Bench, Tiny, assert_same_files, config_in, logged, options_in, steps_from};

#[test]
fn one_seed_twice_gives_the_same_bits_of_every_logged_value_and_weight() {
    let tiny = Tiny::new();
    let often = ["evaluation.every=3", "checkpoint.every=4"];
    for out in ["first", "second"] {
        tiny.run(out, &often).expect("a run");
    }
    let (first, second) = (logged(&tiny.path("first")), logged(&tiny.path("second")));
    // Ten steps, evaluations after 3, 6, 9 and at the end.
    assert_eq!(first.len(), 14);
    for (first, second) in first.iter().zip(&second) {
        assert_eq!(first, second);
    }
    for step in [4, 8, 10] {
        assert_same_files(&tiny.checkpoint("first", step), &tiny.checkpoint("second", step));
    }

    tiny.run("third", &["seed=4"]).expect("a run");
    assert_ne!(first[0]["train/loss"], logged(&tiny.path("third"))[0]["train/loss"]);
}

#[test]
fn ten_steps_are_four_steps_and_six_more_in_a_fresh_process() {
    if let Some(folder) = process::handed_over() {
        let mut options = options_in(&folder, "halves");
        options.resume = true;
        let summary = run(&config_in(&folder, &[]), &options).expect("the second half");
        assert_eq!(summary.steps_taken, 6);
        return;
    }
    let tiny = Tiny::new();
    tiny.run("whole", &[]).expect("ten steps");
    let mut options = tiny.options("halves");
    options.stop_after = Some(4);
    run(&tiny.config(&[]), &options).expect("the first half");

    let said = process::again(
        "exactness::ten_steps_are_four_steps_and_six_more_in_a_fresh_process",
        &tiny.path(""),
    );
    assert!(said.contains("resumed from") && said.contains("(step 4)"), "{said}");
    assert_same_files(&tiny.checkpoint("whole", 10), &tiny.checkpoint("halves", 10));
    let whole = steps_from(&tiny.path("whole"), 5);
    assert_eq!(whole.len(), 6);
    assert_eq!(whole, steps_from(&tiny.path("halves"), 5));
}

#[test]
fn micro_batches_of_any_size_give_the_same_losses_and_weights() {
    let tiny = Tiny::new();
    let three_steps = |micro_rows: u64| {
        let mut bench = Bench::new(tiny.config(&[&format!("batch.micro_rows={micro_rows}")]));
        let losses: Vec<f32> = (0..3).map(|_| bench.step().loss as f32).collect();
        (losses, weights::export(&bench.state.model))
    };
    let (losses, whole) = three_steps(4);
    for micro_rows in [1, 2] {
        let (found, weights) = three_steps(micro_rows);
        assert_within(&format!("losses, {micro_rows} rows"), &found, &losses, 1e-5);
        for (path, expected) in &whole {
            let values = |data: &burn::tensor::TensorData| data.iter::<f32>().collect::<Vec<_>>();
            // Quantiles differ by the width of a histogram's bin: one pass over the step's margins
            // for a whole batch, the aligned grid for several micro-batches.
            let bound = if path.ends_with("router.bias") { 1e-3 } else { 1e-4 };
            assert_within(path, &values(&weights[path]), &values(expected), bound);
        }
    }
}

#[test]
fn runs_on_one_two_and_five_threads_have_the_same_bits() {
    // Rows and widths beyond the blocks in which kernels share work among threads.
    let wide = [
        "schedule.steps=3",
        "batch.rows=6",
        "batch.micro_rows=3",
        "model.max_seq_len=160",
        "model.sliding_window=48",
        "model.hidden_dim=96",
        "model.latent_dim=48",
        "model.intermediate_dim=40",
        "model.num_experts=16",
    ];
    let bf16 = ["model.compute=\"bf16\"", "optimizer.momentum_dtype=\"bf16\""];
    let tiny = Tiny::new();
    for (name, overrides) in [("f32", &[][..]), ("bf16", &bf16)] {
        let overrides = [&wide, overrides].concat();
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let pool = pool.build().expect("a pool");
            pool.install(|| tiny.run(&format!("{name}{threads}"), &overrides)).expect("a run");
        }
        let one = format!("{name}1");
        for more in [2, 5].map(|threads| format!("{name}{threads}")) {
            assert_same_files(&tiny.checkpoint(&one, 3), &tiny.checkpoint(&more, 3));
            assert_eq!(logged(&tiny.path(&one)), logged(&tiny.path(&more)), "{more}");
        }
    }
}
