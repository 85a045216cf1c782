use super::*;

const MINI: &str = r#"
name = "mini"
model.preset = "mini_d96"
batch.rows = 8
schedule.steps = 200
"#;

fn refused(text: &str, overrides: &[&str]) -> String {
    let overrides: Vec<String> = overrides.iter().map(|o| (*o).to_owned()).collect();
    parse(text, "mini.toml", &overrides).expect_err("refused").to_string()
}

#[test]
fn a_preset_is_filled_in_and_a_given_field_wins() {
    let config = parse(MINI, "mini.toml", &["model.num_layers=4".to_owned()]).expect("valid");
    assert_eq!((config.model.num_layers, config.model.num_experts), (4, 384));
    assert_eq!(parse(&to_toml(&config), "resolved", &[]).expect("valid"), config);
}

#[test]
fn a_misspelt_field_is_refused_with_the_nearest_known_name() {
    let message = refused(MINI, &["optimizer.momentun=0.9"]);
    assert!(message.contains("`optimizer.momentun`"), "{message}");
    assert!(message.contains("did you mean `momentum`?"), "{message}");
    let message = refused(&format!("{MINI}sede = 3\n"), &[]);
    assert!(message.contains("mini.toml") && message.contains("did you mean `seed`?"), "{message}");
}

#[test]
fn an_impossible_value_is_refused_with_its_rule() {
    for (change, expected) in [
        ("batch.micro_rows=3", "`batch.micro_rows` is 3, needed a divisor of the 8 rows"),
        ("parallel.shards=5", "`shards` is 5, needed a number that divides 384 experts"),
        ("parallel.shards=4", "`kind` is local, needed a kind that exchanges rows, for 4 shards"),
        ("parallel.replicas=3", "`batch.rows` is 8, needed a multiple of 3"),
        ("parallel.context=2", "`parallel.context` is 2, needed 1"),
        ("parallel.deadline_secs=0", "`parallel.deadline_secs` is 0, needed seconds above 0"),
        ("model.head_dim=30", "`head_dim` is 30, needed a multiple of 4"),
        ("schedule.steps=0", "`schedule.steps` is 0, needed at least 1"),
        ("optimizer.beta1=1.5", "`optimizer.beta1` is 1.5, needed at least 0 and below 1"),
        ("model.preset=d99", "needed one of mini_d48, mini_d64, mini_d96, mini_d128, d768"),
        ("model.num_experts_per_token=384", "`num_experts_per_token` is 384, needed below"),
        ("seed=-1", "`seed`"),
        ("seed", "needs the form path=value"),
    ] {
        let message = refused(MINI, &[change]);
        assert!(message.contains(expected), "{change}: {message}");
    }
}

#[test]
fn every_preset_is_a_valid_run_with_the_published_steps() {
    // SPEC section 1.
    let published = [
        ("d768", 11_420),
        ("d1024", 15_276),
        ("d1536", 15_128),
        ("d2048", 20_072),
        ("d6144", 390_251),
    ];
    for (name, steps) in published {
        let preset = Preset::from_name(name).expect("known");
        assert_eq!(RunConfig::preset(preset).schedule.steps, steps, "{name}");
    }
}

#[test]
fn the_first_field_that_needs_bf16_is_named() {
    let field = |overrides: &[&str]| {
        let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
        parse(MINI, "mini.toml", &overrides).expect("valid").bf16_field()
    };
    assert_eq!(field(&[]), None);
    assert_eq!(field(&["model.compute=\"bf16\""]), Some("model.compute"));
    let two = ["optimizer.momentum_dtype=\"bf16\"", "optimizer.newton_schulz=\"bf16\""];
    assert_eq!(field(&two), Some("optimizer.momentum_dtype"));
}
