//! What a run tells of itself, in its files.

use std::collections::BTreeMap;

use fulmar::model::weights;
use fulmar::train::history::{Event, History};
use fulmar::train::run;
use fulmar::train::telemetry::stitch::Curve;
use fulmar::train::telemetry::{Metrics, jsonl};

use crate::tiny::{Tiny, logged};

fn number(line: &Metrics, name: &str) -> f64 {
    let value = line.get(name).and_then(serde_json::Value::as_f64);
    value.unwrap_or_else(|| panic!("no number `{name}` in {line:?}"))
}

/// Lines of steps, with their times.
fn steps(tiny: &Tiny, out: &str) -> Vec<Metrics> {
    let (mut lines, cut_short) = jsonl::read(&tiny.path(out)).expect("a log");
    assert_eq!(cut_short, 0);
    lines.retain(|line| line.contains_key("train/loss"));
    lines
}

fn events(tiny: &Tiny, out: &str, what: &str) -> Vec<Event> {
    let mut events = History::read(&tiny.path(out)).expect("a history");
    events.retain(|event| event.what == what);
    events
}

#[test]
fn times_by_phase_add_up_to_the_iteration_and_a_step_is_part_of_it() {
    let tiny = Tiny::new();
    let often = ["evaluation.every=2", "checkpoint.every=3", "log.peak_flops_per_second=1e9"];
    let summary = tiny.run("run", &often).expect("ten steps");
    let steps = steps(&tiny, "run");
    assert_eq!(steps.len(), 10);
    let part = |line: &Metrics, name: &str| number(line, &format!("throughput/{name}_time"));
    for line in &steps {
        let names = ["starting", "loading", "forward_backward", "gradient", "update", "hook"];
        let names = names.iter().chain(&["evaluation", "checkpoint", "ending"]);
        let sum: f64 = names.map(|name| part(line, name)).sum();
        let iteration = part(line, "iteration");
        assert!((sum - iteration).abs() <= 1e-9 * iteration.max(1.0), "{sum} of {iteration}");
        let step = number(line, "throughput/duration");
        let parts = ["forward_backward", "gradient", "update"].map(|name| part(line, name));
        assert!(parts.iter().all(|secs| *secs > 0.0) && part(line, "loading") > 0.0, "{line:?}");
        let parts: f64 = parts.iter().sum();
        assert!(parts <= iteration && (step - parts).abs() < 0.2 * step, "{parts} of {step}");
    }
    // The line of step 3 comes after the evaluation at step 2, that of step 4 after the save at 3.
    for (index, line) in steps.iter().enumerate().skip(1) {
        let before = index as u64;
        assert_eq!(part(line, "evaluation") > 0.0, before.is_multiple_of(2), "after step {before}");
        assert_eq!(part(line, "checkpoint") > 0.0, before.is_multiple_of(3), "after step {before}");
    }
    // The share of the peak is that of the FLOPs that a plan counts, head included.
    let config = tiny.config(&often);
    let flops = config.model.step_flops(config.tokens_per_step());
    for line in &steps {
        let needed = 100.0 * flops / number(line, "throughput/duration") / 1e9;
        let found = number(line, "throughput/mfu");
        assert!((found / needed - 1.0).abs() < 1e-9, "{found}, needed {needed}");
        assert_eq!(line["throughput/flops_rule"], "with_head");
        assert_eq!(line["throughput/peak_source"], "given");
    }
    assert_eq!(summary.steps_taken, 10);
}

#[test]
fn norms_by_role_and_layer_are_those_of_the_weights_wherever_experts_live() {
    let tiny = Tiny::new();
    let alone = ["schedule.steps=4", "batch.rows=8", "log.norms_every=2"];
    let summary = tiny.run("alone", &alone).expect("four steps");
    let lines = steps(&tiny, "alone");
    let logged: Vec<bool> =
        lines.iter().map(|line| line.contains_key("params/norm/total")).collect();
    assert_eq!(logged, [false, true, false, true]);

    // From the weights at the end, one by one.
    let (table, mut squares) = (summary.state.optimizer.table(), BTreeMap::<String, f64>::new());
    for (path, data) in weights::export(&summary.state.model) {
        let role = table.get(&path).expect("in the table").role.name();
        if role == "router_bias" {
            continue;
        }
        let sum: f64 = data.iter::<f32>().map(|value| f64::from(value).powi(2)).sum();
        let layer = path.strip_prefix("layers.").and_then(|rest| rest.split('.').next());
        let layer = layer.map(|layer| format!("layer_{layer}"));
        for group in ["total", role].into_iter().map(str::to_owned).chain(layer) {
            *squares.entry(group).or_default() += sum;
        }
    }
    assert!(squares.len() >= 10, "{squares:?}");
    let close = |found: f64, needed: f64, what: &str| {
        assert!((found / needed - 1.0).abs() < 1e-4, "{what}: {found}, needed {needed}");
    };
    for (group, sum) in &squares {
        close(number(&lines[3], &format!("params/norm/{group}")), sum.sqrt(), group);
    }
    // Roles partition the parameters, so do layers and what is outside of them.
    let sum_of = |line: &Metrics, prefix: &str, roles: &[&str]| -> f64 {
        roles.iter().map(|role| number(line, &format!("{prefix}/{role}")).powi(2)).sum()
    };
    let roles: Vec<&str> = squares.keys().map(String::as_str).collect();
    let roles: Vec<&str> =
        roles.into_iter().filter(|role| *role != "total" && !role.starts_with("layer")).collect();
    for prefix in ["params/norm", "grad/norm"] {
        let total = number(&lines[3], &format!("{prefix}/total"));
        close(sum_of(&lines[3], prefix, &roles).sqrt(), total, prefix);
    }

    let ranks = [
        "parallel.replicas=2",
        "parallel.shards=2",
        "parallel.dispatch={kind=\"pooled_wave\", num_expert_waves=2, capacity_factor=16, \
         transport_capacity_factor=2}",
    ];
    tiny.run("ranks", &[&alone[..], &ranks[..]].concat()).expect("four steps");
    let of_ranks = steps(&tiny, "ranks");
    for (name, value) in &lines[3] {
        if name.contains("/norm/") {
            close(number(&of_ranks[3], name), value.as_f64().expect("finite"), name);
        }
    }
}

#[test]
fn an_alarm_is_an_event_and_a_metric_of_every_step() {
    let tiny = Tiny::new();
    let alarm = ["alarms.grad_norm=1e-6", "alarms.samples=3"];
    tiny.run("run", &alarm).expect("ten steps");
    let raised = events(&tiny, "run", "alarm_raised");
    let steps_raised: Vec<u64> = raised.iter().map(|event| event.step).collect();
    assert_eq!(steps_raised, [3], "{raised:?}");
    assert_eq!(raised[0].detail["alarm"], "grad_norm");
    assert_eq!(raised[0].detail["limit"], 1e-6);
    for line in logged(&tiny.path("run")).iter().filter(|line| line.contains_key("train/loss")) {
        let up = u64::from(line["step"].as_u64() >= Some(3));
        assert_eq!(line["alarm/grad_norm"], up, "{}", line["step"]);
        assert_eq!(line["alarm/loss"], 0);
    }
    // A run of so few tokens is not judged for its uneven loads.
    assert_eq!(events(&tiny, "run", "alarm_cleared"), []);
}

#[test]
fn the_log_of_a_run_that_was_resumed_twice_is_one_curve() {
    let tiny = Tiny::new();
    tiny.run("whole", &["checkpoint.every=2"]).expect("ten steps");
    let config = tiny.config(&["checkpoint.every=2"]);
    let mut options = tiny.options("run");
    for (resume, stop_after) in [(false, Some(5)), (true, Some(7)), (true, None)] {
        (options.resume, options.stop_after) = (resume, stop_after);
        run(&config, &options).expect("some steps");
        // As after a kill: the run goes on from two steps earlier than its log.
        if let Some(step) = stop_after {
            std::fs::remove_dir_all(tiny.checkpoint("run", step)).expect("removed");
        }
    }
    let curve = Curve::read(&tiny.path("run"), "train/loss", 1).expect("read");
    let whole = Curve::read(&tiny.path("whole"), "train/loss", 1).expect("read");
    assert_eq!(curve.points, whole.points, "the same bits at every step");
    assert_eq!((curve.superseded, curve.gaps, curve.doubles, curve.not_finite), (2, 0, 0, 0));
    for attempt in 1..=3 {
        let folder = tiny.path(&format!("run/tensorboard/attempt-{attempt}"));
        let files: Vec<_> = std::fs::read_dir(folder).expect("a folder").collect();
        assert_eq!(files.len(), 1);
    }
}

#[test]
fn a_run_without_tensorboard_has_no_such_folder() {
    let tiny = Tiny::new();
    tiny.run("run", &["schedule.steps=1", "log.tensorboard=false"]).expect("a step");
    assert!(!tiny.path("run/tensorboard").exists());
}
