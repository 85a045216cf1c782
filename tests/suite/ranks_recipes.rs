//! Recipes whose ranks or exchanges cannot be are refused, with field, value and rule.

use crate::toy;

/// The message that refuses the toy recipe with these fields.
fn refused(overrides: &[&str]) -> String {
    let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    let parsed = fulmar::train::recipe::parse(toy::RECIPE, "toy.toml", &overrides);
    parsed.map(|_| overrides).expect_err("a broken rule").to_string()
}

fn assert_refused(overrides: &[&str], needed: &[&str]) {
    let message = refused(overrides);
    for needed in needed {
        assert!(message.contains(needed), "{overrides:?}: {message}, needed {needed}");
    }
}

#[test]
fn ranks_that_cannot_share_the_work_are_refused() {
    let ragged = "parallel.dispatch={kind=\"ragged\"}";
    assert_refused(&["parallel.shards=3", ragged], &["`shards` is 3", "divides 16 experts"]);
    assert_refused(&["parallel.shards=32", ragged], &["`shards` is 32", "divides 16 experts"]);
    assert_refused(&["parallel.shards=2"], &["`kind` is local", "exchanges rows, for 2 shards"]);
    for axis in ["replicas", "shards"] {
        let needed = format!("`parallel.{axis}` is 0, needed at least 1");
        assert_refused(&[&format!("parallel.{axis}=0")], &[&needed]);
    }
    assert_refused(&["parallel.context=2"], &["`parallel.context` is 2, needed 1"]);
    assert_refused(&["parallel.replicas=5"], &["`batch.rows` is 32, needed a multiple of 5"]);
    assert_refused(
        &["parallel.replicas=4", "batch.micro_rows=3"],
        &["`batch.micro_rows` is 3, needed a divisor of the 8 rows"],
    );
    for seconds in ["0", "-1", "nan", "inf", "2e9"] {
        assert_refused(
            &[&format!("parallel.deadline_secs={seconds}")],
            &["`parallel.deadline_secs` is", "needed seconds above 0"],
        );
    }
}

#[test]
fn exchanges_that_cannot_carry_the_rows_are_refused() {
    let exchange = |text: &str| format!("parallel.dispatch={{{text}}}");
    let two = "parallel.shards=2";
    let waves = |waves: u64| exchange(&format!("kind=\"pooled_wave\", num_expert_waves={waves}"));
    assert_refused(&[two, &waves(3)], &["`num_expert_waves` is 3", "divides 8 local experts"]);
    assert_refused(&[two, &waves(0)], &["`num_expert_waves` is 0", "divides 8 local experts"]);
    let kinds = ["kind=\"pooled_wave\", num_expert_waves=2", "kind=\"ragged\"", "kind=\"ring\""];
    for kind in kinds.into_iter().chain(["kind=\"fixed_cells\""]) {
        for (value, found) in
            [("0", "0"), ("0.0", "0"), ("-1.5", "-1.5"), ("nan", "NaN"), ("inf", "inf")]
        {
            let dispatch = exchange(&format!("{kind}, capacity_factor={value}"));
            let needed = format!("`capacity_factor` is {found}, needed a finite number above 0");
            assert_refused(&[two, &dispatch], &["`parallel.dispatch`", &needed]);
        }
    }
    let transport = exchange(&format!("{}, transport_capacity_factor=nan", kinds[0]));
    assert_refused(&[two, &transport], &["`transport_capacity_factor` is NaN, needed a finite"]);
    assert_refused(&[two, &exchange("kind=\"rugged\"")], &["`rugged`", "did you mean `ragged`?"]);
    assert_refused(
        &[two, &exchange("kind=\"ragged\", capacity=1.0")],
        &["`capacity`", "did you mean `capacity_factor`?"],
    );
}

#[test]
fn ids_that_bf16_does_not_tell_apart_are_refused() {
    // Ids are 1 to L, so L + 1 numbers: 256 of 512 experts on each of two shards are one too many.
    for kind in ["pooled_wave\", num_expert_waves=1", "fixed_cells\""] {
        let dispatch =
            |payload: &str| format!("parallel.dispatch={{kind=\"{kind}, payload=\"{payload}\"}}");
        let experts = |experts: usize| format!("model.num_experts={experts}");
        let too_many = [&*experts(512), "parallel.shards=2", &dispatch("bf16")];
        assert_refused(&too_many, &["`payload` is bf16", "ids up to 256 exactly", "below 256"]);
        for (experts, payload) in [(experts(510), "bf16"), (experts(512), "f32")] {
            let overrides = [experts, "parallel.shards=2".to_owned(), dispatch(payload)];
            let parsed = fulmar::train::recipe::parse(toy::RECIPE, "toy.toml", &overrides);
            parsed.unwrap_or_else(|error| panic!("{overrides:?}: {error}"));
        }
    }
}

#[test]
fn switches_out_of_order_or_to_what_cannot_be_are_refused() {
    let switches = |steps: [u64; 3]| {
        let entry = |step: u64| format!("{{step={step}, dispatch={{kind=\"ring\"}}}}");
        format!("parallel.switches=[{}]", steps.map(entry).join(", "))
    };
    for (steps, field, found, before) in [
        ([2, 4, 3], "parallel.switches[2].step", 3, 4),
        ([2, 2, 5], "parallel.switches[1].step", 2, 2),
    ] {
        let needed = format!("`{field}` is {found}, needed above {before}, the switch before");
        assert_refused(&[&switches(steps)], &[&needed]);
    }
    assert_refused(
        &[
            "parallel.shards=2",
            "parallel.dispatch={kind=\"ragged\"}",
            "parallel.switches=[{step=1, dispatch={kind=\"ring\"}}, {step=5, dispatch={kind=\"local\"}}]",
        ],
        &["`parallel.switches[1].dispatch`", "`kind` is local"],
    );
}
