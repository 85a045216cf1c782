use fulmar_ep::DispatchConfig;

use super::*;
use crate::recipe;

/// A run like the hero's in small: blocks of three batches, two phases with the second at 80%.
const RECIPE: &str = "\
name = \"small\"
model.preset = \"mini_d96\"
batch.rows = 8
schedule.steps = 1000
[data]
block_rows = 24
stages = [
  { from_block = 0, weights = { a = 0.5, b = 0.5 } },
  { from_block = 266, weights = { a = 0.9, b = 0.1 } },
]
[[context]]
from_step = 500
seq_len = 512
";

fn config() -> RunConfig {
    recipe::parse(RECIPE, "small.toml", &[]).expect("valid")
}

fn at(step: u64) -> Position {
    Position { step, batches: step }
}

fn refused<T: std::fmt::Debug>(result: Result<T, TrainError>, needed: &str) {
    let error = result.expect_err(needed).to_string();
    assert!(error.contains(needed), "{error}");
}

#[test]
fn a_new_horizon_moves_decay_phase_and_context_and_is_continuous() {
    let before = config();
    let operation = move_horizon(&before, at(200), 600).expect("within a quarter");
    let after = operation.apply(&before).expect("valid");
    // 80% of 600 is batch 480, block 160; 50% of 600 is step 300.
    assert_eq!(after.data.stages.as_ref().expect("two")[1].from_block, 160);
    assert_eq!(after.context[0].from_step, 300);
    assert_eq!(after.schedule.horizon(), 600);
    assert_eq!(after.schedule.factor(200), before.schedule.factor(200));
    assert!((after.schedule.factor(600) - 0.05).abs() < 1e-12);
    assert_eq!(after.peaks(), before.peaks());
    same_past(&before, &after, at(200)).expect("nothing of the past has changed");
    let (field, ..) = same_past(&before, &after, at(201)).expect_err("the 201st update has");
    assert_eq!(field, "schedule.replans");
}

#[test]
fn the_hero_shortened_at_a_tenth_moves_its_phase_to_a_boundary_of_48_steps() {
    let mut hero = RunConfig::preset(fulmar_model::Preset::D6144);
    let first = config().data.stages.expect("two");
    let mut stages = first.clone();
    stages[1].from_block = 312_192 * 11_264 / 49_152;
    hero.data.stages = Some(stages);
    let operation = move_horizon(&hero, at(39_000), 300_000).expect("within a quarter");
    let after = operation.apply(&hero).expect("valid");
    let block = after.data.stages.expect("two")[1].from_block;
    assert_eq!((block * 49_152) % 11_264, 0);
    assert_eq!(block * 49_152 / 11_264, 240_000);
}

#[test]
fn a_horizon_too_late_or_in_the_past_is_refused() {
    let config = config();
    refused(move_horizon(&config, at(251), 600), "`--from` is 251, needed at most 250");
    refused(move_horizon(&config, at(200), 200), "`--steps` is 200, needed above 200");
    refused(move_horizon(&config, at(200), 1_000), "another horizon than 1000");
    // 80% of 240 lies before step 200.
    refused(move_horizon(&config, at(200), 240), "begins at block 67 or later");
}

#[test]
fn a_phase_that_is_not_at_80_percent_stays() {
    let mut config = config();
    config.data.stages.as_mut().expect("two")[1].from_block = 100;
    let operation = move_horizon(&config, at(100), 700).expect("within a quarter");
    assert_eq!(operation.apply(&config).expect("valid").data.stages, config.data.stages);
}

#[test]
fn a_mixture_keeps_what_has_begun_and_replaces_the_rest() {
    let before = config();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("mixture.toml");
    let text = "[[stages]]\nfrom_block = 40\nweights = { a = 0.2, b = 0.8 }\n";
    std::fs::write(&file, text).expect("written");
    let new = read_stages(&file).expect("stages");
    let current = before.data.stages.clone().expect("two");
    let operation = change_mixture(&before, &current, at(100), new.clone()).expect("block 34 on");
    let after = operation.apply(&before).expect("valid");
    let blocks: Vec<u64> =
        after.data.stages.iter().flatten().map(|stage| stage.from_block).collect();
    assert_eq!(blocks, [0, 40]);
    same_past(&before, &after, at(120)).expect("block 40 begins at batch 120");
    same_past(&before, &after, at(121)).expect_err("it has begun");
    let late = change_mixture(&before, &current, at(121), new);
    refused(late, "`stages[0].from_block` is 40, needed at least 41");
    std::fs::write(&file, "[[stages]]\nfrom_blok = 40\nweights = {}\n").expect("written");
    refused(read_stages(&file), "from_blok");
}

#[test]
fn exchange_and_decay_take_effect_from_the_position_on() {
    let before = config();
    let ragged = DispatchConfig::dropless();
    let operation = switch_exchange(&before, at(10), ragged).expect("another");
    let after = operation.apply(&before).expect("valid");
    assert_eq!(
        (after.parallel.dispatch_at(9).name(), after.parallel.dispatch_at(10).name()),
        ("local", "ragged")
    );
    refused(switch_exchange(&after, at(20), ragged), "another exchange than the one in force");
    refused(switch_exchange(&after, at(10), DispatchConfig::Local), "a step after 10");

    let operation = set_decay(&before, at(250), 0.02).expect("none before");
    let after = operation.apply(&before).expect("valid");
    let decays =
        [249, 250, 999].map(|step| crate::optim::StepRates::of(&after, step).gate_router_decay);
    assert_eq!(decays[0], 0.0);
    assert!((decays[1] - 0.015).abs() < 1e-12 && (decays[2] - 0.000_02).abs() < 1e-12);
    same_past(&before, &after, at(250)).expect("the 251st update is the first");
    same_past(&before, &after, at(251)).expect_err("it has had effect");
    refused(set_decay(&after, at(300), 0.1), "no decay that has been applied before");
}

#[test]
fn a_context_stage_must_divide_the_longest_row_that_was_planned() {
    let before = config();
    let stage = |from, len| ContextStage::new(from, len);
    let operation = plan_context(&before, at(10), stage(900, 256)).expect("a divisor of 512");
    let after = operation.apply(&before).expect("valid");
    assert_eq!((after.context.len(), after.longest_row()), (2, 512));
    refused(plan_context(&before, at(10), stage(900, 1_024)), "a divisor of 512, the longest row");
    refused(plan_context(&before, at(10), stage(9, 256)), "`--context` is 9, needed at least 10");
}

#[test]
fn a_branch_has_its_own_horizon_and_leaves_the_run_alone() {
    let main = config();
    let branch = branch(&main, Path::new("runs/main"), at(400), "cooldown", 500).expect("valid");
    assert_eq!(branch.schedule.horizon(), 500);
    assert_eq!(branch.schedule.factor(400), main.schedule.factor(400));
    assert_eq!(branch.parent.as_ref().expect("one").step, 400);
    same_past(&main, &branch, at(400)).expect("the same until it branches off");
    let late = super::branch(&main, Path::new("runs/main"), at(400), "cooldown", 400);
    refused(late, "`--steps` is 400, needed above 400");
}

#[test]
fn a_plan_in_force_is_the_recipe_with_every_operation_of_the_history() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let first = config();
    let mut history = History::open(folder.path()).expect("opened");
    let horizon = move_horizon(&first, at(200), 600).expect("within a quarter");
    let second = horizon.apply(&first).expect("valid");
    let change = Comparison::new(&first, &second, at(200));
    history.append(&horizon.event(at(200), 0, "the grant ends", &change)).expect("written");
    let opened = Operation::ContextOpened { stage: 0, at_batch: 303 };
    let third = opened.apply(&second).expect("at a boundary");
    let change = Comparison::new(&second, &third, at(303));
    history.append(&opened.event(at(303), 1, "gate", &change)).expect("written");
    let in_force = |batches| plan_in_force(&first, folder.path(), at(batches)).expect("valid");
    assert_eq!(in_force(302), second, "the run decides again");
    assert_eq!(in_force(303), second, "what is saved at a boundary is from before it");
    assert_eq!(in_force(304), third);
    let (event, _) = &of_run(folder.path()).expect("two")[0];
    assert_eq!((event.text.as_str(), event.what.as_str()), ("the grant ends", "operation"));
    // An attempt that begins before the boundary decides anew; one that begins there does not.
    let mut starts = |batches: u64| {
        let event = Event::now(batches, 2, STARTED, "").with("batches", batches);
        history.append(&event).expect("written");
    };
    starts(303);
    assert_eq!(in_force(304), third);
    starts(302);
    assert_eq!(in_force(304), second);
}

#[test]
fn a_comparison_marks_what_changes() {
    let before = config();
    let operation = move_horizon(&before, at(200), 600).expect("within a quarter");
    let after = operation.apply(&before).expect("valid");
    let change = Comparison::new(&before, &after, at(200));
    let changed: Vec<&str> = change.changed().map(|figure| figure.what.as_str()).collect();
    assert!(!changed.iter().any(|what| what.starts_with("next rate")), "{changed:?}");
    for what in ["updates of the run", "tokens left", "mixture stages", "context stages"] {
        assert!(changed.contains(&what), "{changed:?}");
    }
    println!("{change}");
}
