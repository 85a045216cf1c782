//! Continuations: the same with a cache as without, from a run, a checkpoint or an export, alone or
//! beside others, on one rank or several.

use std::path::Path;

use burn::tensor::Device;
use fulmar::data::{Batch, Tokenizer};
use fulmar::ep::Dispatcher;
use fulmar::ep::transport::Group;
use fulmar::eval::ModelScorer;
use fulmar::eval::sampling::Sampling;
use fulmar::train::generate::{Continuation, GenerateOptions, generate};
use fulmar::train::interchange::{ExportDtype, ExportOptions, Saved, Weights as _, export, load};
use fulmar::train::past_run::PastRun;
use fulmar::train::samples::{self, SAMPLES_FILE, Sample};
use fulmar::train::{DeviceChoice, RunOptions, TrainError, run};

use crate::tiny::Tiny;

const PROMPTS: [&str; 3] = ["the sea was grey", "rain", "a gull rose over"];

fn options(new_tokens: usize, sampling: Sampling) -> GenerateOptions {
    GenerateOptions {
        step: None,
        device: DeviceChoice::Cpu,
        prompts: PROMPTS.map(str::to_owned).to_vec(),
        new_tokens,
        sampling,
        seed: 5,
    }
}

fn texts(place: &Path, options: &GenerateOptions) -> Vec<Continuation> {
    generate(place, options).unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// The best token each time by whole forward passes over rows of `seq_len`; a full row goes on from its
/// newer half.
fn greedy_without_cache(saved: &Saved, prompt: &str, new_tokens: usize) -> String {
    let (model, device) = (saved.model(), Device::flex());
    let weights = load(saved, 0..model.num_experts, &device).expect("weights");
    let dispatcher = Dispatcher::dropless(model.num_experts, &Group::solo()).expect("local");
    let scorer = ModelScorer::new(&weights, &dispatcher, &device);
    let tokenizer = Tokenizer::shipped().expect("shipped");
    let mut text = vec![tokenizer.bos_id()];
    text.extend(tokenizer.encode(prompt).expect("encoded"));
    let (first, mut from) = (text.len(), 0);
    for _ in 0..new_tokens {
        if text.len() - from > model.max_seq_len {
            from = text.len() - model.max_seq_len / 2;
        }
        let row = &text[from..];
        let logits = scorer.next_logits(&Batch::of_document(row), row.len() - 1).expect("scores");
        let logits: Vec<f32> = logits.into_data().iter::<f32>().collect();
        let best = (0..logits.len()).rev().max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
        let best = best.expect("a vocabulary") as u32;
        if best == tokenizer.eos_id() {
            break;
        }
        text.push(best);
    }
    tokenizer.decode(&text[first..]).expect("decoded")
}

#[test]
fn greedy_texts_are_those_without_a_cache_past_the_end_of_a_row() {
    let tiny = Tiny::new();
    tiny.run("run", &["schedule.steps=6"]).expect("six steps");
    let saved = Saved::find(&tiny.path("run"), None).expect("saved");
    // Rows are 32 tokens, windows 16: each text fills several.
    let found = texts(&tiny.path("run"), &options(100, Sampling::GREEDY));
    assert_eq!(found.iter().map(|one| &one.prompt[..]).collect::<Vec<_>>(), PROMPTS);
    for one in &found {
        assert_eq!((one.step, one.tokens, one.ended), (Some(6), 100, false));
        assert_eq!(one.text, greedy_without_cache(&saved, &one.prompt, 100), "{}", one.prompt);
    }
    assert_ne!(found[0].text, found[1].text);
}

#[test]
fn a_text_is_the_same_from_any_layout_alone_and_beside_others() {
    let tiny = Tiny::new();
    let set = ["schedule.steps=4", "checkpoint.every=2"];
    tiny.run("run", &set).expect("four steps");
    let drawn = options(40, Sampling { temperature: 1.0, top_k: 50, top_p: 0.95 });
    let of_run = texts(&tiny.path("run"), &drawn);
    assert_eq!(texts(&tiny.checkpoint("run", 4), &drawn), of_run);

    let out = tiny.path("hf");
    let (dtype, max_shard_bytes) = (ExportDtype::F32, 50_000);
    let saved = Saved::find(&tiny.path("run"), None).expect("saved");
    export(&saved, &ExportOptions { out, dtype, max_shard_bytes, check: false }).expect("exported");
    let of_export = texts(&tiny.path("hf"), &drawn);
    let text = |all: &[Continuation]| all.iter().map(|one| one.text.clone()).collect::<Vec<_>>();
    assert_eq!(text(&of_export), text(&of_run));
    assert!(of_export.iter().all(|one| one.step.is_none()));

    for (index, one) in of_run.iter().enumerate() {
        let alone = GenerateOptions {
            prompts: vec![one.prompt.clone()],
            seed: drawn.seed + index as u64,
            ..drawn.clone()
        };
        assert_eq!(texts(&tiny.path("run"), &alone), std::slice::from_ref(one));
    }
    let other_seed = GenerateOptions { seed: 99, ..drawn.clone() };
    assert_ne!(text(&texts(&tiny.path("run"), &other_seed)), text(&of_run));
    let earlier = GenerateOptions { step: Some(2), ..drawn.clone() };
    assert_eq!(texts(&tiny.path("run"), &earlier)[0].step, Some(2));
    let none = GenerateOptions { new_tokens: 0, ..drawn };
    assert!(texts(&tiny.path("run"), &none).iter().all(|one| one.text.is_empty() && !one.ended));
}

#[test]
fn what_cannot_be_continued_is_named() {
    let tiny = Tiny::new();
    tiny.run("run", &["schedule.steps=1"]).expect("one step");
    let usual = options(4, Sampling::ALL);
    let sampling = |sampling| GenerateOptions { sampling, ..usual.clone() };
    let long = "the sea was grey and a gull rose over rain ".repeat(8);
    for (wrong, said) in [
        (sampling(Sampling { temperature: -1.0, ..Sampling::ALL }), "`--temperature`"),
        (sampling(Sampling { top_p: 0.0, ..Sampling::ALL }), "`--top-p`"),
        (GenerateOptions { prompts: vec![], ..usual.clone() }, "`--prompt`"),
        (GenerateOptions { prompts: vec![long], ..usual.clone() }, "at most 31"),
        (GenerateOptions { step: Some(9), ..usual.clone() }, "step-00000009"),
    ] {
        let error = generate(&tiny.path("run"), &wrong).expect_err(said).chain();
        assert!(error.contains(said), "{error}");
    }
    let error = generate(&tiny.path("nowhere"), &usual).expect_err("nothing there").chain();
    assert!(error.contains("nowhere"), "{error}");
}

const EVALUATED: [&str; 4] = [
    "schedule.steps=6",
    "evaluation.every=2",
    "evaluation.prompts=[\"the sea \", \"stone\"]",
    "evaluation.new_tokens=9",
];

fn writing(tiny: &Tiny, out: &str) -> RunOptions {
    RunOptions { samples: true, ..tiny.options(out) }
}

/// What `train generate` writes of the sample's checkpoint.
fn again(tiny: &Tiny, out: &str, sample: &Sample) -> String {
    let prompts = ["the sea ", "stone"];
    let index = prompts.iter().position(|prompt| *prompt == sample.prompt).expect("a prompt");
    let sampling = Sampling { temperature: sample.temperature, ..Sampling::ALL };
    let options = GenerateOptions {
        step: Some(sample.step),
        prompts: vec![sample.prompt.clone()],
        seed: 3 + index as u64,
        ..options(9, sampling)
    };
    texts(&tiny.path(out), &options)[0].text.clone()
}

#[test]
fn a_run_writes_samples_at_each_evaluation_and_at_its_end() -> Result<(), TrainError> {
    let tiny = Tiny::new();
    let mut set = EVALUATED.to_vec();
    set.push("checkpoint.every=2");
    let summary = run(&tiny.config(&set), &writing(&tiny, "run"))?;
    let written = PastRun::open(&tiny.path("run"))?.samples()?;
    let steps: Vec<u64> = written.iter().map(|sample| sample.step).collect();
    assert_eq!(steps, [2, 2, 4, 4, 6, 6]);
    assert_eq!(summary.samples, written[4..]);
    for sample in &written {
        assert_eq!((sample.attempt, sample.temperature), (1, 0.8));
        assert_eq!(sample.text, again(&tiny, "run", sample), "step {}", sample.step);
    }
    // A run that shall write nothing leaves no file.
    run(&tiny.config(&set), &tiny.options("silent"))?;
    assert!(!tiny.path("silent").join(SAMPLES_FILE).exists());
    Ok(())
}

#[test]
fn shards_write_what_one_process_writes() -> Result<(), TrainError> {
    let tiny = Tiny::new();
    let mut set = EVALUATED.to_vec();
    set.extend(["checkpoint.every=2", "parallel.shards=2", "parallel.replicas=2"]);
    set.push("parallel.dispatch={kind=\"pooled_wave\",num_expert_waves=2}");
    run(&tiny.config(&set), &writing(&tiny, "run"))?;
    let written = samples::read(&tiny.path("run"))?;
    assert_eq!(written.len(), 6, "by the first rank alone");
    for sample in &written {
        assert_eq!(sample.text, again(&tiny, "run", sample), "step {}", sample.step);
    }
    Ok(())
}

#[test]
fn a_prompt_that_fills_a_row_stops_a_run_before_anything_is_written() {
    let tiny = Tiny::new();
    let long = "the sea was grey and a gull rose over rain ".repeat(8);
    let prompts = format!("evaluation.prompts=[\"{long}\"]");
    let error = tiny.run("run", &[&prompts]).expect_err("a long prompt").chain();
    assert!(error.contains("`evaluation.prompts`") && error.contains("at most 31"), "{error}");
    assert!(!tiny.path("run").exists());
    let mut config = tiny.config(&[]);
    config.evaluation.temperature = -1.0;
    let error = config.validate().expect_err("below 0").chain();
    assert!(error.contains("`evaluation.temperature` is -1"), "{error}");
}

#[test]
fn samples_that_cannot_be_written_stop_no_run() -> Result<(), TrainError> {
    let tiny = Tiny::new();
    std::fs::create_dir_all(tiny.path("run").join(SAMPLES_FILE)).expect("a folder in its place");
    let summary = run(&tiny.config(&EVALUATED), &writing(&tiny, "run"))?;
    assert_eq!((summary.state.step, summary.samples.len()), (6, 2));
    Ok(())
}
