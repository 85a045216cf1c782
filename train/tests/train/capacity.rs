//! The capacity planner, as a library and as a command.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use fulmar_ep::replay::RowFormat;
use fulmar_train::capacity::{
    Concentration, Documents, Drawn, Exchange, Line, Origin, Synthetic, plan, plan_recorded,
};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::Value;

const SMALL: [&str; 12] = [
    "--shards",
    "8",
    "--experts",
    "48",
    "--top-k",
    "4",
    "--tokens",
    "1024",
    "--rows",
    "256,4096",
    "--factors",
    "1,1.15",
];

fn exchange() -> Exchange {
    Exchange {
        shards: 8,
        num_experts: 48,
        experts_per_token: 4,
        tokens: 1_024,
        waves: 3,
        payload: RowFormat { width: 16, element_bytes: 2 },
        factors: vec![1.0, 1.15],
    }
}

fn drawn(concentration: Concentration) -> Drawn {
    let synthetic = Synthetic { documents: Documents::Fixed(100), balanced: true, seed: 4 };
    Drawn { rows: vec![256, 4_096], synthetic, concentration }
}

/// What the command printed, and whether it succeeded.
fn capacity(arguments: &[&str]) -> (bool, String, String) {
    let command = Command::new(env!("CARGO_BIN_EXE_train"))
        .arg("capacity")
        .args(arguments)
        .output()
        .expect("the train binary starts");
    let [out, err] =
        [command.stdout, command.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (command.status.success(), out, err)
}

fn refused(arguments: &[&str]) -> String {
    let (success, out, err) = capacity(arguments);
    assert!(!success && out.is_empty(), "{arguments:?} was not refused:\n{out}");
    err
}

#[test]
fn the_fit_reaches_its_target_and_the_same_seed_gives_the_same_plan() {
    let report = plan(&exchange(), &drawn(Concentration::Fit(0.05))).expect("a plan");
    let Origin::Drawn { concentration, fit: Some(fit), .. } = &report.origin else {
        panic!("no fit in {report:?}");
    };
    assert!((fit.reached / 0.05 - 1.0).abs() < 0.01, "{fit:?}");
    assert_eq!(fit.row_tokens, 4_096);
    // The sweep's own line in the same setting is the fitted one.
    let given = plan(&exchange(), &drawn(Concentration::Given(*concentration))).expect("a plan");
    let lines = lines(&given.origin, 1);
    let line = lines.iter().find(|line| line.rule == "pooled-wave" && line.factor == 1.15);
    assert_eq!(line.map(|line| line.drop_fraction), Some(fit.reached));
}

fn lines(origin: &Origin, block: usize) -> &[Line] {
    match origin {
        Origin::Drawn { blocks, .. } => &blocks[block].lines,
        Origin::Recorded { lines, .. } => lines,
    }
}

#[test]
fn a_share_that_no_concentration_leads_to_is_refused_with_the_nearest() {
    let error = plan(&exchange(), &drawn(Concentration::Fit(0.99))).expect_err("out of reach");
    let error = error.to_string();
    assert!(error.contains("field `--fit` is 0.99, needed a share that documents"), "{error}");
    assert!(error.contains("the nearest is"), "{error}");
}

#[test]
fn json_has_every_count_and_they_add_up() {
    let (success, out, err) = capacity(&[&SMALL[..], &["--json", "--fit", "0.05"]].concat());
    assert!(success, "{err}");
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(report["exchange"]["num_experts"], 48);
    assert_eq!(report["origin"], "drawn");
    assert_eq!(report["settings"]["documents"], "row");
    assert!(report["fit"]["reached"].is_f64() && report["concentration"].is_f64());
    assert_eq!(report["record"], Value::Array(Vec::new()), "another setting than the record's");
    let blocks = report["blocks"].as_array().expect("blocks");
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        assert!(block["row_tokens"].is_u64() && block["documents"].is_u64());
        let lines = block["lines"].as_array().expect("lines");
        assert_eq!(lines.len(), 4 * 2);
        lines.iter().for_each(is_whole);
    }
}

fn is_whole(line: &Value) {
    let count = |name: &str| line[name].as_u64().unwrap_or_else(|| panic!("{name} in {line}"));
    assert_eq!(count("assignments"), 8 * 1_024 * 4);
    assert_eq!(count("valid") + count("padding"), count("assignments"));
    let dropped = count("sender_dropped") + count("receiver_dropped");
    assert_eq!(count("kept") + dropped, count("valid"));
    let share = |name: &str| line[name].as_f64().unwrap_or_else(|| panic!("{name} in {line}"));
    assert_eq!(share("drop_fraction"), dropped as f64 / count("valid") as f64);
    let parts = share("sender_drop_fraction") + share("receiver_drop_fraction");
    assert!((share("drop_fraction") - parts).abs() < 1e-12);
    assert!((0.0..1.0).contains(&share("padding_share")) && share("factor") >= 1.0);
    assert!(count("buffer_bytes") > 0 && count("expert_rows") > 0);
    assert!(count("wire_bytes") > count("header_bytes"));
    assert!(line["rule"].is_string() && line["gate"].is_string());
}

#[test]
fn table_and_help_fit_a_screen() {
    let (success, table, err) = capacity(&[&SMALL[..], &["--concentration", "0.3"]].concat());
    assert!(success, "{err}");
    for needed in ["rows of 256 tokens, 32 documents", "pooled-wave", "ragged", "ring", "as given"]
    {
        assert!(table.contains(needed), "{needed} in:\n{table}");
    }
    let (_, help, _) = capacity(&["--help"]);
    assert!(help.contains("Example: train capacity"), "{help}");
    assert!(help.lines().count() < 40, "{help}");
    for line in table.lines().chain(help.lines()) {
        assert!(line.chars().count() <= 100, "too wide: {line}");
    }
}

#[test]
fn bad_flags_are_refused_by_name_value_and_need() {
    let cases: [(&[&str], &str); 12] = [
        (&["--shards", "5"], "`num_experts` is 384, which 5 shards cannot share; use a multiple"),
        (&["--shards", "0"], "which 0 shards cannot share"),
        (&["--top-k", "400"], "`experts_per_token` is 400, needed 1 to 384"),
        (&["--waves", "4"], "`waves` is 4, which 6 local experts cannot share; use a divisor of 6"),
        (&["--factors", "1,0"], "the sender factor is 0, needed a number above 0 and up to"),
        (&["--factors", "NaN"], "the sender factor is NaN, needed a number above 0 and up to"),
        (&["--factors=-1.15"], "the sender factor is -1.15, needed a number above 0 and up to"),
        (&["--rows", "5000"], "`--rows` is 5000, needed a divisor of a shard's 65536 tokens, or"),
        (&["--concentration", "0"], "`--concentration` is 0, needed a finite number above 0"),
        (&["--fit", "3"], "`--fit` is 3, needed a share between 0 and 1"),
        (&["--shards", "1", "--waves", "1"], "`--experts` is 384, 384 a shard, needed at most 255"),
        (&["--documents", "long"], "needed `row`, a number of tokens, or `lognormal:MEDIAN:SIGMA`"),
    ];
    for (arguments, needed) in cases {
        let error = refused(arguments);
        assert!(error.contains(needed), "{arguments:?}: {error}");
    }
}

/// A tensor of a file of choices: name, type, shape, bytes.
type Tensor<'a> = (&'a str, Dtype, Vec<usize>, Vec<u8>);

fn write(folder: &Path, name: &str, tensors: &[Tensor]) -> PathBuf {
    let path = folder.join(name);
    let view = |(name, dtype, shape, bytes): &'_ Tensor| {
        let (name, bytes) = ((*name).to_owned(), bytes.clone());
        (name, *dtype, shape.clone(), bytes)
    };
    let owned: Vec<_> = tensors.iter().map(view).collect();
    let views: BTreeMap<&str, TensorView> = owned
        .iter()
        .map(|(name, dtype, shape, bytes)| {
            let view = TensorView::new(*dtype, shape.clone(), bytes).expect("a tensor");
            (name.as_str(), view)
        })
        .collect();
    safetensors::serialize_to_file(views, None, &path).expect("written");
    path
}

fn ints(values: impl IntoIterator<Item = i32>) -> Vec<u8> {
    values.into_iter().flat_map(i32::to_le_bytes).collect()
}

#[test]
fn recorded_choices_are_replayed_as_drawn_ones_are() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (exchange, drawn) = (exchange(), drawn(Concentration::Given(0.3)));
    let report = plan(&exchange, &drawn).expect("a plan");
    let shape = fulmar_train::capacity::Shape {
        world: exchange.world(),
        tokens: exchange.tokens,
        row_tokens: 4_096,
    };
    let selected = drawn.synthetic.choices(&shape, 0.3);
    let once = ints(selected.iter().map(|&expert| i32::from(expert)));

    let one = ("selected", Dtype::I32, vec![8, 1_024, 4], once.clone());
    let file = write(folder.path(), "one.safetensors", &[one]);
    let one = plan_recorded(&exchange, &file).expect("a plan");
    assert_eq!(lines(&one.origin, 0), lines(&report.origin, 1));

    let two = ("selected", Dtype::I32, vec![2, 8, 1_024, 4], [once.clone(), once].concat());
    let file = write(folder.path(), "two.safetensors", &[two]);
    let two = plan_recorded(&exchange, &file).expect("a plan");
    for (two, one) in lines(&two.origin, 0).iter().zip(lines(&one.origin, 0)) {
        assert_eq!(two.counts.kept, 2 * one.counts.kept);
        assert_eq!((two.footprint, two.padding_share), (one.footprint, one.padding_share));
    }
}

#[test]
fn padding_of_recorded_choices_takes_no_room_and_needs_no_ids() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let selected = ("selected", Dtype::I32, vec![2, 2, 1], ints([0, -1, 1, 9]));
    let exchange = Exchange { num_experts: 2, waves: 1, ..exchange() };
    for (dtype, mask) in [(Dtype::BOOL, vec![1, 0, 1, 0]), (Dtype::I32, ints([1, 0, 1, 0]))] {
        let valid = ("valid", dtype, vec![2, 2], mask);
        let file = write(folder.path(), "padded.safetensors", &[selected.clone(), valid]);
        let report = plan_recorded(&exchange, &file).expect("a plan");
        for line in lines(&report.origin, 0) {
            assert_eq!((line.counts.padding, line.counts.kept), (2, 2), "{}", line.rule);
        }
    }
}

#[test]
fn a_bad_file_of_choices_is_refused_by_file_and_tensor() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    let good = ("selected", Dtype::I32, vec![2, 2, 1], ints([0, 1, 2, 3]));
    let renamed = ("chosen", good.1, good.2.clone(), good.3.clone());
    let floats = ("selected", Dtype::F32, vec![2, 2, 1], vec![0; 16]);
    let flat = ("selected", Dtype::I32, vec![4, 1], good.3.clone());
    let outside = ("selected", Dtype::I32, vec![2, 2, 1], ints([0, 1, 2, 384]));
    let short = ("valid", Dtype::U8, vec![3], vec![1; 3]);
    let three = ("selected", Dtype::I32, vec![5, 1, 1], ints([0; 5]));
    let cases: [(&str, &[Tensor], &str); 6] = [
        ("renamed", &[renamed], "has no tensor `selected`, found [\"chosen\"]"),
        ("floats", &[floats], "tensor `selected` is F32 [2, 2, 1], needed I32 [shards, tokens, k]"),
        ("flat", &[flat], "tensor `selected` is I32 [4, 1], needed I32 [shards, tokens, k]"),
        (
            "outside",
            &[outside],
            "has expert 384 at layer 0, shard 1, token 1, slot 0, needed an id",
        ),
        ("short", &[good, short], "tensor `valid` is U8 [3], needed BOOL, U8 or I32 [2, 2]"),
        ("five", &[three], "`--experts` is 384, and the choices have 5 shards, needed a multiple"),
    ];
    for (name, tensors, needed) in cases {
        let file = write(folder, name, tensors);
        let error = refused(&["--choices", &file.display().to_string(), "--experts", "384"]);
        assert!(error.contains(needed), "{name}: {error}");
        assert!(name == "five" || error.contains(&file.display().to_string()), "{name}: {error}");
    }
    let text = folder.join("text");
    std::fs::write(&text, "not a tensor").expect("written");
    let error = refused(&["--choices", &text.display().to_string(), "--experts", "384"]);
    assert!(error.contains("is no safetensors file"), "{error}");
    let absent = folder.join("absent").display().to_string();
    let error = refused(&["--choices", &absent, "--experts", "384"]);
    assert!(error.contains("could not read choices") && error.contains("absent"), "{error}");
    let error = refused(&["--choices", "x"]);
    assert!(error.contains("required") && error.contains("--experts <N>"), "{error}");
    let error = refused(&["--choices", "x", "--experts", "384", "--rows", "4096"]);
    assert!(error.contains("cannot be used with"), "{error}");
}
