//! Held-out figures: independent of the batch, and right in a case done by hand.

use fulmar::data::Batch;
use fulmar::ep::Local;
use fulmar::ep::transport::Group;
use fulmar::eval::{ModelScorer, TokenBigram, evaluate};
use fulmar::train::state;
use fulmar_tests::compare::assert_within;

use crate::tiny::{Bench, Tiny};

#[test]
fn an_evaluation_does_not_depend_on_the_rows_of_a_batch() {
    let tiny = Tiny::new();
    let mut bench = Bench::new(tiny.config(&[]));
    bench.step();
    let dispatcher = Local::new(bench.config.model.num_experts);
    let model = bench.state.evaluation_model(&state::balancing(&bench.config));
    let scorer = ModelScorer::new(&model, &dispatcher, &bench.device);
    let report = |batch_rows| {
        let nats = |batch: &Batch| scorer.nats(batch);
        evaluate(&bench.data.heldout, batch_rows, 0, &Group::solo(), nats).expect("an evaluation")
    };
    let one = report(1);
    assert_eq!(one.domains.keys().collect::<Vec<_>>(), ["prose", "verse"]);
    assert_eq!((one.total().documents, one.partial_documents), (12, 0));
    assert!(one.total().loss().is_finite() && one.total().bits_per_byte() > 0.0);
    for batch_rows in [3, 8] {
        assert_eq!(report(batch_rows), one, "{batch_rows} rows in a batch");
    }
}

/// One row over the vocabulary {0, 1}.
fn row(tokens: &[i32], targets: &[i32], loss_weight: &[f32]) -> Batch {
    Batch {
        num_rows: 1,
        seq_len: tokens.len(),
        first_row: 0,
        tokens: tokens.to_vec(),
        targets: targets.to_vec(),
        loss_weight: loss_weight.to_vec(),
        segment_ids: vec![0; tokens.len()],
        token_valid: vec![true; tokens.len()],
        cells: vec![0],
        first_documents: vec![0],
    }
}

#[test]
fn a_bigram_of_two_tokens_has_the_probabilities_worked_out_by_hand() {
    let mut bigram = TokenBigram::new(2);
    // Counted pairs: 0 1, 1 0, 0 0. The last position has no weight and counts nowhere.
    bigram.count(&row(&[0, 1, 0, 0], &[1, 0, 0, 1], &[1.0, 1.0, 1.0, 0.0]));

    // Targets: 0 twice, 1 once; total 3, of 2 kinds; uniform is 1/2.
    //   single(0) = (2 + 2 * 1/2) / (3 + 2) = 3/5
    //   single(1) = (1 + 2 * 1/2) / (3 + 2) = 2/5
    // Context 0: seen 2 times, followed by 2 kinds, 0 and 1 once each.
    //   p(0 | 0) = (1 + 2 * 3/5) / (2 + 2) = 11/20
    //   p(1 | 0) = (1 + 2 * 2/5) / (2 + 2) =  9/20
    // Context 1: seen once, followed by 1 kind, 0 once.
    //   p(0 | 1) = (1 + 1 * 3/5) / (1 + 1) = 4/5
    //   p(1 | 1) = (0 + 1 * 2/5) / (1 + 1) = 1/5
    let nats = bigram.nats(&row(&[0, 0, 1, 1], &[0, 1, 0, 1], &[1.0; 4]));
    let expected = [11.0 / 20.0, 9.0 / 20.0, 4.0 / 5.0, 1.0 / 5.0].map(|p: f64| -p.ln() as f32);
    assert_within("nats", &nats, &expected, 1e-6);
}

#[test]
fn a_bigram_falls_back_to_single_counts_and_then_to_the_uniform_distribution() {
    let mut bigram = TokenBigram::new(3);
    let unseen = row(&[2], &[1], &[1.0]);
    // Nothing counted: 1/3 for every token.
    assert_within("uniform", &bigram.nats(&unseen), &[3f32.ln()], 1e-6);
    // 0 1 once: one target of one kind, so single(1) = (1 + 1 * 1/3) / (1 + 1) = 2/3, and context
    // 2, never seen, passes it on.
    bigram.count(&row(&[0], &[1], &[1.0]));
    assert_within("single", &bigram.nats(&unseen), &[1.5f32.ln()], 1e-6);
}
