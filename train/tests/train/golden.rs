//! Whole training steps on given rows, from given first weights to the final ones.

use burn::tensor::{Device, TensorData};
use fulmar_data::Batch;
use fulmar_ep::{Local, World};
use fulmar_model::moe::balance::Balancing as _;
use fulmar_model::weights;
use fulmar_tests::compare::{assert_close, assert_within};
use fulmar_tests::golden::{GoldenFile, cases};
use fulmar_tests::model::config_of;
use fulmar_tests::names::golden_name;
use fulmar_train::RunConfig;
use fulmar_train::config::BatchConfig;
use fulmar_train::optim::rule::Rule;
use fulmar_train::optim::{NewtonSchulzKind, OptimizerConfig, Schedule};
use fulmar_train::state::{TrainState, balancing};
use fulmar_train::step::StepContext;

/// Of each value (README of the golden files); betas and biases absolute, about one bin.
const LOSSES: f32 = 2e-5;
const GRADIENT_NORM: f32 = 1e-4;
const WEIGHTS: f32 = 1e-4;
const BETA: f32 = 5e-3;

/// The case as a run of ours: every setting of its metadata is a setting of the recipe.
fn run_config(file: &GoldenFile) -> RunConfig {
    let newton_schulz = match file.metadata["newton_schulz"].as_str() {
        "f32, 5 steps" => NewtonSchulzKind::F32,
        "bf16, 5 steps" => NewtonSchulzKind::Bf16,
        other => panic!("{}: Newton-Schulz `{other}`", file.path.display()),
    };
    let [_, rows, _]: [usize; 3] = file.shape("ids").try_into().expect("[steps, b, s]");
    RunConfig {
        name: "trajectory".to_owned(),
        seed: 0,
        model: config_of(file),
        batch: BatchConfig { rows: rows as u64, micro_rows: None },
        schedule: Schedule {
            steps: file.setting("steps"),
            warmup_steps: Some(file.setting("warmup_steps")),
            final_ratio: file.setting("final_lr_ratio"),
            replans: Vec::new(),
        },
        optimizer: OptimizerConfig {
            peak_lr_adam: Some(file.setting("peak_lr_adam")),
            peak_lr_muonh: Some(file.setting("peak_lr_muonh")),
            beta1: file.setting("beta1"),
            beta2: Some(file.setting("beta2")),
            epsilon: Some(file.setting("epsilon")),
            momentum: file.setting("momentum"),
            newton_schulz,
            ..OptimizerConfig::default()
        },
        data: Default::default(),
        parallel: Default::default(),
        memory: Default::default(),
        evaluation: Default::default(),
        checkpoint: Default::default(),
        log: Default::default(),
        guard: Default::default(),
        context: Vec::new(),
        parent: None,
        forecast: None,
        alarms: Default::default(),
    }
}

fn batch(file: &GoldenFile, step: usize) -> Batch {
    let [_, rows, s]: [usize; 3] = file.shape("ids").try_into().expect("[steps, b, s]");
    let len = rows * s;
    let tokens = file.integers("ids")[step * len..][..len].to_vec();
    let next = |i: usize| if (i + 1).is_multiple_of(s) { 0 } else { tokens[i + 1] };
    Batch {
        num_rows: rows,
        seq_len: s,
        first_row: (step * rows) as u64,
        targets: (0..len).map(next).collect(),
        loss_weight: file.floats("weight").to_vec(),
        segment_ids: file.integers("segments").to_vec(),
        token_valid: vec![true; len],
        cells: vec![0; rows],
        first_documents: vec![0; rows],
        tokens,
    }
}

/// The rules of our table are the groups of the metadata.
fn groups_agree(file: &GoldenFile, state: &TrainState) {
    let groups: std::collections::BTreeMap<String, String> =
        serde_json::from_str(&file.metadata["groups"]).expect("groups");
    for (path, entry) in state.optimizer.table().iter() {
        let expected = match entry.rule {
            Rule::MuonH => "muonh",
            Rule::AdamH => "adamh",
            Rule::Adam => "adam",
            Rule::Fixed => "none",
        };
        // The metadata gives layer 0 for all layers.
        let name = golden_name(path);
        let field = name.splitn(3, '.').nth(2).map(|field| format!("layers.0.{field}"));
        assert_eq!(groups[&field.unwrap_or(name)], expected, "{path}");
    }
}

#[test]
fn golden_trajectory_of_whole_steps_agrees() {
    for path in cases("trajectory") {
        let file = GoldenFile::read(&path);
        let config = run_config(&file);
        config.validate().expect("a valid run");
        let device = Device::flex();
        let mut state = TrainState::new(&config, &World::solo(), &device).expect("state");
        groups_agree(&file, &state);
        let first = |path: &str| {
            let name = format!("first.{}", golden_name(path));
            Some(TensorData::new(file.floats(&name).to_vec(), file.shape(&name)))
        };
        state.model = weights::import(state.model, first).expect("every weight");
        follow(&file, &config, &device, &mut state);

        for (path, found) in weights::export(&state.model) {
            let name = format!("final.{}", golden_name(&path));
            let found: Vec<f32> = found.iter::<f32>().collect();
            if path.ends_with("router.bias") {
                assert_within(&name, &found, file.floats(&name), BETA);
            } else {
                assert_close(&name, &found, file.floats(&name), WEIGHTS);
            }
        }
    }
}

fn follow(file: &GoldenFile, config: &RunConfig, device: &Device, state: &mut TrainState) {
    let dispatcher = Local::new(config.model.num_experts);
    let balancing = balancing(config);
    let world = World::solo();
    let context = StepContext::new(config, &world, &dispatcher, &balancing, device);
    let betas_a_step = config.model.num_layers * config.model.num_experts;
    for step in 0..config.schedule.steps as usize {
        let rates = state.optimizer.rates(&config.schedule, step as u64);
        let report = state.step(&batch(file, step), rates, &context).expect("step");
        let close = |name: &str, found: f64, tolerance: f32| {
            let expected = file.floats(name)[step];
            assert_close(
                &format!("{name} of step {step}"),
                &[found as f32],
                &[expected],
                tolerance,
            );
        };
        close("loss", report.loss, LOSSES);
        close("ce", report.cross_entropy, LOSSES);
        close("z", report.z, LOSSES);
        close("grad_norm", report.grad_norm, GRADIENT_NORM);
        close("lr_muonh", rates.muonh, LOSSES);
        close("lr_adam", rates.adam, LOSSES);
        let expected = &file.floats("qb_beta")[step * betas_a_step..][..betas_a_step];
        assert_within(&format!("betas of step {step}"), &state.pending.concat(), expected, BETA);
        assert_eq!(balancing.bias(&state.pending[0]).len(), config.model.num_experts);
    }
}
