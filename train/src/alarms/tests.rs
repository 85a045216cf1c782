use super::*;

/// A step of a run that is well.
fn well(step: u64) -> Health {
    Health {
        step,
        skipped: false,
        loss: 3.0,
        grad_norm: 0.5,
        drop_fraction: 0.02,
        entropy_gap: 0.01,
        bias: 3.0,
        mfu: None,
        assignments_per_expert: 5000.0,
    }
}

/// Steps at which each alarm turned, over steps that `health` tells of.
fn turns(config: &AlarmsConfig, steps: u64, health: impl Fn(u64) -> Health) -> Vec<(u64, Change)> {
    let mut alarms = Alarms::new(config);
    let steps = 1..=steps;
    steps
        .flat_map(|step| alarms.after_step(&health(step)).into_iter().map(move |c| (step, c)))
        .collect()
}

/// The same as step, name and whether it was raised.
fn short(
    config: &AlarmsConfig,
    steps: u64,
    health: impl Fn(u64) -> Health,
) -> Vec<(u64, &'static str, bool)> {
    let turns = turns(config, steps, health).into_iter();
    turns.map(|(step, change)| (step, change.signal.name(), change.raised)).collect()
}

#[test]
fn a_run_that_is_well_raises_nothing() {
    assert_eq!(short(&AlarmsConfig::default(), 500, well), []);
}

#[test]
fn each_limit_of_the_published_run_raises_its_own_alarm_after_ten_steps() {
    type Spoil = fn(&mut Health);
    // Just within the limit, and just beyond it.
    let cases: [(&str, Spoil, Spoil); 6] = [
        ("loss", |h| h.loss = 3.99, |h| h.loss = 4.01),
        ("grad_norm", |h| h.grad_norm = 1.99, |h| h.grad_norm = 2.01),
        ("drops", |h| h.drop_fraction = 0.069, |h| h.drop_fraction = 0.071),
        ("entropy", |h| h.entropy_gap = 0.0309, |h| h.entropy_gap = 0.0311),
        ("router_bias", |h| h.bias = 399.0, |h| h.bias = 401.0),
        ("mfu", |h| h.mfu = Some(15.1), |h| h.mfu = Some(14.9)),
    ];
    let config = AlarmsConfig::default();
    for (name, within, beyond) in cases {
        let from = |spoil: Spoil| {
            move |step| {
                let mut health = well(step);
                if step > 200 {
                    spoil(&mut health);
                }
                health
            }
        };
        assert_eq!(short(&config, 400, from(within)), [], "{name} within its limit");
        assert_eq!(short(&config, 400, from(beyond)), [(210, name, true)], "{name} beyond it");
        let nine = |step| if step > 209 { well(step) } else { from(beyond)(step) };
        assert_eq!(short(&config, 400, nine), [], "nine steps of {name}");
    }
}

#[test]
fn an_alarm_stays_up_between_its_limits_and_clears_below_the_lower_one() {
    let drops = |step| {
        let drop_fraction = match step {
            ..=200 => 0.02,
            201..=220 => 0.08,
            221..=300 => 0.05,
            _ => 0.029,
        };
        Health { drop_fraction, ..well(step) }
    };
    let config = AlarmsConfig::default();
    assert_eq!(short(&config, 400, drops), [(210, "drops", true), (310, "drops", false)]);
    let said: Vec<String> = turns(&config, 400, drops).iter().map(|(_, c)| c.to_string()).collect();
    assert_eq!(said[0], "ALARM drops: the share of dropped assignments is 0.0800, beyond 0.0700");
    let cleared =
        "alarm cleared drops: the share of dropped assignments is 0.0290, back within 0.0300";
    assert_eq!(said[1], cleared);
}

#[test]
fn small_batches_and_the_first_steps_are_not_judged_for_uneven_loads() {
    let uneven = |step| Health { drop_fraction: 0.2, entropy_gap: 0.2, ..well(step) };
    let config = AlarmsConfig::default();
    assert_eq!(short(&config, 109, uneven), []);
    assert_eq!(short(&config, 110, uneven), [(110, "drops", true), (110, "entropy", true)]);
    let small = |step| Health { assignments_per_expert: 43.0, ..uneven(step) };
    assert_eq!(short(&config, 500, small), []);
}

#[test]
fn three_skipped_steps_in_a_window_raise_an_alarm_until_the_window_is_free_of_them() {
    let skipped = |at: &'static [u64]| {
        // Nothing else is known of a step whose scores could not be routed.
        move |step| match at.contains(&step) {
            true => Health {
                skipped: true,
                loss: f64::NAN,
                grad_norm: f64::NAN,
                entropy_gap: f64::NAN,
                ..well(step)
            },
            false => well(step),
        }
    };
    let config = AlarmsConfig::default();
    let all: &[u64] = &[200, 201, 202, 203, 204, 205, 206, 207, 208, 209, 210, 211];
    assert_eq!(short(&config, 250, skipped(all)), [(202, "skipped_steps", true)]);
    assert_eq!(short(&config, 500, skipped(&[10, 60, 111])), []);
    let turns = [(109, "skipped_steps", true), (209, "skipped_steps", false)];
    assert_eq!(short(&config, 500, skipped(&[10, 60, 109])), turns);
}

#[test]
fn a_loss_that_is_not_a_number_is_beyond_the_limit_and_no_floor() {
    let nan = |step| Health { loss: if step > 30 { f64::NAN } else { 3.0 }, ..well(step) };
    assert_eq!(short(&AlarmsConfig::default(), 60, nan), [(40, "loss", true)]);
    let early = |step| Health { loss: if step <= 30 { f64::NAN } else { 3.0 }, ..well(step) };
    let turns = [(10, "loss", true), (40, "loss", false)];
    assert_eq!(short(&AlarmsConfig::default(), 200, early), turns);
}

#[test]
fn a_resumed_run_remembers_its_lowest_heldout_loss() {
    let mut alarms = Alarms::new(&AlarmsConfig::default());
    alarms.remember_heldout([f64::NAN, 3.2, 3.0, 3.1].into_iter());
    assert_eq!(alarms.after_evaluation(3.04), None);
    let change = alarms.after_evaluation(3.06).expect("0.06 over the lowest");
    assert!(change.raised && (change.value - 0.06).abs() < 1e-12, "{change}");
}

#[test]
fn a_resumed_run_remembers_its_floor() {
    let mut alarms = Alarms::new(&AlarmsConfig::default());
    alarms.remember((0..100).map(|step| 9.0 - 0.06 * f64::from(step)));
    let high = |step| Health { loss: 4.5, ..well(step) };
    let turned: Vec<u64> =
        (101..130).filter(|step| !alarms.after_step(&high(*step)).is_empty()).collect();
    assert_eq!(turned, [110]);
    assert_eq!(alarms.raised(), ["loss"]);
    assert_eq!(alarms.metrics()["alarm/loss"], 1);
}

#[test]
fn a_held_out_loss_that_rises_is_told_at_once() {
    let mut alarms = Alarms::new(&AlarmsConfig::default());
    let turned = [4.0, 3.5, 3.54, 3.56, 3.54, 3.4]
        .map(|loss| alarms.after_evaluation(loss).map(|change| change.raised));
    assert_eq!(turned, [None, None, None, Some(true), Some(false), None]);
}

#[test]
fn a_limit_of_zero_is_none() {
    let config = AlarmsConfig { grad_norm: 0.0, mfu_percent: 0.0, ..AlarmsConfig::default() };
    let wild = |step| Health { grad_norm: 1e9, mfu: Some(0.1), ..well(step) };
    assert_eq!(short(&config, 100, wild), []);
    let alarms = Alarms::new(&config);
    assert!(!alarms.metrics().contains_key("alarm/grad_norm"));
}

#[test]
fn a_loss_out_of_the_band_of_its_forecast_is_an_alarm_at_once() {
    let mut alarms = Alarms::new(&AlarmsConfig::default());
    assert_eq!(alarms.after_forecast(0.99), None);
    let change = alarms.after_forecast(1.01).expect("above the band");
    assert!(change.raised && change.signal == Signal::Forecast, "{change:?}");
    assert_eq!(alarms.after_forecast(0.95), None, "not cleared at the edge");
    assert!(alarms.after_forecast(-0.3).is_some_and(|change| !change.raised));
    assert!(alarms.after_forecast(f64::NAN).is_some_and(|change| change.raised));
    let off = AlarmsConfig { over_forecast: 0.0, ..AlarmsConfig::default() };
    assert_eq!(Alarms::new(&off).after_forecast(9.0), None);
}
