//! What `train plan` says of memory.

use std::collections::BTreeMap;

use fulmar_ep::World;
use fulmar_model::{Preset, Recompute};
use fulmar_train::memory_plan::MemoryPlan;
use fulmar_train::optim::Rule;
use fulmar_train::plan::Plan;
use fulmar_train::state::TrainState;
use fulmar_train::{RunConfig, recipe};

const GIB: f64 = (1u64 << 30) as f64;

fn with(overrides: &[&str]) -> RunConfig {
    let text = "name = \"plan\"\nmodel.preset = \"mini_d96\"\nbatch.rows = 8\nschedule.steps = 9\n";
    let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    recipe::parse(text, "plan.toml", &overrides).expect("a recipe")
}

#[test]
fn parameters_by_role_are_those_of_a_model() {
    for overrides in [
        &[][..],
        &["model.short_conv_sites=[\"v\"]", "model.num_shared_experts=3", "model.num_layers=5"],
    ] {
        let config = with(overrides);
        let device = burn::tensor::Device::flex();
        let state = TrainState::new(&config, &World::solo(), &device).expect("a state");
        let mut found = BTreeMap::new();
        for (_, entry) in state.optimizer.table().iter() {
            *found.entry(entry.role).or_insert(0) += entry.shape.iter().product::<usize>() as u64;
        }
        let mut planned = config.model.params_by_role();
        planned.retain(|_, count| *count > 0);
        assert_eq!(planned, found);
    }
}

#[test]
fn the_smallest_rung_has_18_gib_of_weights_gradients_and_optimizer_state() {
    let plan = MemoryPlan::new(&RunConfig::preset(Preset::D768));
    let sum = (plan.weights + plan.gradients + plan.optimizer_state) as f64 / GIB;
    assert!((18.0..19.0).contains(&sum), "{sum}");
}

#[test]
fn less_is_kept_in_every_mode_and_shards_share_the_experts() {
    let plan = |overrides: &[&str]| MemoryPlan::new(&with(overrides));
    let ragged = "parallel.dispatch={kind=\"ragged\"}";
    let [alone, shared] = [plan(&[]), plan(&["parallel.shards=4", ragged])];
    for plan in [&alone, &shared] {
        let [none, save_moe, block] = Recompute::ALL.map(|mode| *plan.mode(mode));
        assert!(none.activations > save_moe.activations && none.peak > save_moe.peak, "{plan:?}");
        assert!(save_moe.activations >= block.activations && save_moe.peak >= block.peak);
        assert!(block.block > none.block, "what is computed again is there for a while");
    }
    let activations = |plan: &MemoryPlan, mode| plan.mode(mode).activations;
    let [alone_kept, shared_kept] = [&alone, &shared]
        .map(|plan| activations(plan, Recompute::SaveMoe) - activations(plan, Recompute::Block));
    assert!(alone_kept == 0 && shared_kept > 0, "deliveries: {alone_kept} and {shared_kept}");
    assert!(alone.exchange == 0 && shared.exchange > 0);
    // 21 of 23 million parameters are experts.
    assert!(shared.weights * 2 < alone.weights, "{} and {}", shared.weights, alone.weights);
}

#[test]
fn momenta_in_bf16_take_half() {
    let plan = |overrides: &[&str]| MemoryPlan::new(&with(overrides)).optimizer_state;
    let (wide, half) = (plan(&[]), plan(&["optimizer.momentum_dtype=\"bf16\""]));
    let muonh: u64 = with(&[])
        .model
        .params_by_role()
        .into_iter()
        .filter(|(role, _)| Rule::of(*role) == Rule::MuonH)
        .map(|(_, count)| count)
        .sum();
    assert_eq!(wide - half, 2 * muonh);
}

#[test]
fn the_plan_prints_it_as_text_and_json() {
    let plan = Plan::new(&with(&[]));
    let text = plan.to_string();
    for line in ["memory of a rank", "optimizer state", "save_moe"] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&plan.to_json()).expect("JSON");
    assert_eq!(json["memory"]["weights"], plan.memory.weights);
    assert_eq!(json["memory"]["modes"][2]["recompute"], "block");
    assert_eq!(json["memory"]["modes"][2]["peak"], plan.memory.mode(Recompute::Block).peak);
}

#[test]
fn a_mode_is_named_in_the_recipe() {
    for mode in Recompute::ALL {
        let config = with(&[&format!("memory.recompute=\"{}\"", mode.name())]);
        assert_eq!(config.memory.recompute, mode);
    }
    let text = "name = \"x\"\nmodel.preset = \"mini_d96\"\nbatch.rows = 8\nschedule.steps = 9\n\
                [memory]\nrecompute = \"blok\"\n";
    let error = recipe::parse(text, "x.toml", &[]).expect_err("refused").to_string();
    assert!(
        error.contains("memory.recompute") && error.contains("did you mean `block`"),
        "{error}"
    );
}
