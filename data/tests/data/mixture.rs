use std::collections::BTreeMap;

use fulmar_data::{DataError, MixtureConfig, MixturePlan, RowLengths, Stage};

use crate::fixture::{Folder, Test, corpus, store_of};

pub(crate) fn stage(from_block: u64, weights: &[(&str, f64)]) -> Stage {
    let weights: BTreeMap<_, _> = weights.iter().map(|(n, w)| ((*n).to_owned(), *w)).collect();
    Stage { from_block, weights }
}

pub(crate) fn config(block_rows: u64, stages: &[Stage]) -> MixtureConfig {
    MixtureConfig { block_rows, stages: stages.to_vec() }
}

pub(crate) fn cells(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A plan whose rows keep their length.
fn plan_of(config: &MixtureConfig, cells: &[String], seed: u64) -> Result<MixturePlan, DataError> {
    MixturePlan::new(config, &RowLengths::constant(16), cells, seed)
}

/// Counts of cells among some rows, looked up one by one.
pub(crate) fn counted(plan: &MixturePlan, rows: std::ops::Range<u64>) -> Vec<u64> {
    let mut counts = vec![0; plan.num_cells()];
    for row in rows {
        counts[plan.locate(row).cell as usize] += 1;
    }
    counts
}

#[test]
fn blocks_hold_exact_counts_of_29_57_and_14() -> Test {
    let config = config(100, &[stage(0, &[("a/q1", 0.29), ("b/q1", 0.57), ("c/q1", 0.14)])]);
    let plan = plan_of(&config, &cells(&["a/q1", "b/q1", "c/q1"]), 3)?;
    for block in [0, 1, 99, 1 << 20] {
        assert_eq!(plan.block_counts(block), [29, 57, 14]);
        assert_eq!(counted(&plan, block * 100..(block + 1) * 100), [29, 57, 14]);
    }
    Ok(())
}

#[test]
fn a_rare_cell_gets_its_4_rows_of_10_000() -> Test {
    let config = config(100, &[stage(0, &[("a/q1", 0.0004), ("b/q1", 0.9996)])]);
    let plan = plan_of(&config, &cells(&["a/q1", "b/q1"]), 3)?;
    assert_eq!(counted(&plan, 0..10_000), [4, 9_996]);
    assert_eq!(plan.consumed(10_000), [4, 9_996]);
    Ok(())
}

#[test]
fn every_row_of_a_cell_is_dealt_once_and_consumed_counts_agree() -> Test {
    let stages = [
        stage(0, &[("a/q1", 0.5), ("b/q1", 0.31), ("c/q1", 0.19)]),
        stage(3, &[("a/q1", 0.05), ("c/q1", 0.95)]),
        stage(5, &[("b/q1", 1.0)]),
    ];
    let plan = plan_of(&config(37, &stages), &cells(&["a/q1", "b/q1", "c/q1"]), 9)?;
    let mut dealt: Vec<Vec<u64>> = vec![Vec::new(); 3];
    for row in 0..7 * 37 {
        let found: Vec<u64> = dealt.iter().map(|rows| rows.len() as u64).collect();
        assert_eq!(plan.consumed(row), found, "before row {row}");
        let slot = plan.locate(row);
        dealt[slot.cell as usize].push(slot.index);
        assert_eq!(plan.stage_of(row), [0, 0, 0, 1, 1, 2, 2][(row / 37) as usize]);
    }
    for mut rows in dealt {
        rows.sort_unstable();
        assert!(rows.iter().copied().eq(0..rows.len() as u64));
    }
    Ok(())
}

#[test]
fn an_appended_stage_moves_no_earlier_row() -> Test {
    let names = cells(&["a/q1", "b/q1"]);
    let first = stage(0, &[("a/q1", 0.7), ("b/q1", 0.3)]);
    let before = plan_of(&config(10, std::slice::from_ref(&first)), &names, 1)?;
    let later = stage(4, &[("a/q1", 0.1), ("b/q1", 0.9)]);
    let after = plan_of(&config(10, &[first, later]), &names, 1)?;
    assert!((0..40).all(|row| before.locate(row) == after.locate(row)));
    assert_eq!(after.consumed(50), [29, 21]);
    Ok(())
}

#[test]
fn rows_beyond_2_to_the_33_are_found_at_once() -> Test {
    let weights: Vec<(String, f64)> =
        (0..200).map(|i| (format!("c{i:02}/q1"), f64::from(i + 1) / 20_100.0)).collect();
    let names: Vec<String> = weights.iter().map(|(name, _)| name.clone()).collect();
    let stages = [Stage { from_block: 0, weights: weights.into_iter().collect() }];
    let plan = plan_of(&config(49_152, &stages), &names, 5)?;
    for row in [(1_u64 << 33) + 12_345, 8_600_000_000_000] {
        let slot = plan.locate(row);
        assert_eq!(plan.locate(row), slot);
        let consumed = plan.consumed(row);
        assert_eq!(consumed.iter().sum::<u64>(), row);
        // Within a block of what the weight asks for.
        let due = (slot.cell as f64 + 1.0) / 20_100.0 * row as f64;
        assert!((slot.index as f64 - due).abs() < 49_152.0, "{slot:?} {due}");
        assert!((consumed[slot.cell as usize] as f64 - due).abs() < 49_152.0);
    }
    Ok(())
}

#[test]
fn seeds_change_the_order_but_not_the_counts() -> Test {
    let config = config(1_000, &[stage(0, &[("a/q1", 0.5), ("b/q1", 0.5)])]);
    let names = cells(&["a/q1", "b/q1"]);
    let (one, two) = (plan_of(&config, &names, 1)?, plan_of(&config, &names, 2)?);
    let same = (0..1_000).filter(|&row| one.locate(row) == two.locate(row)).count();
    assert!(same < 50, "{same} of 1000 rows are the same");
    assert_eq!(one.block_counts(0), two.block_counts(0));
    Ok(())
}

#[track_caller]
fn assert_refused(config: &MixtureConfig, parts: &[&str]) {
    let error = plan_of(config, &cells(&["Poetry/q1", "b/q1"]), 0)
        .expect_err("the mixture is bad")
        .to_string();
    for part in parts {
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    }
}

#[test]
fn bad_mixtures_are_refused_by_field_value_and_rule() {
    let good = || stage(0, &[("b/q1", 1.0)]);
    let of = |weights: &[(&str, f64)]| config(100, &[stage(0, weights)]);
    assert_refused(&config(0, &[good()]), &["`block_rows` is 0"]);
    assert_refused(&config(100, &[]), &["`stages` is empty"]);
    assert_refused(&config(100, &[stage(1, &[("b/q1", 1.0)])]), &["`stages[0].from_block` is 1"]);
    let again = config(100, &[good(), stage(5, &[("b/q1", 1.0)]), stage(5, &[("b/q1", 1.0)])]);
    assert_refused(&again, &["`stages[2].from_block` is 5", "6 or more"]);
    assert_refused(&of(&[("b/q1", 0.9)]), &["`stages[0].weights`", "sum 0.9", "sum of 1"]);
    assert_refused(&of(&[]), &["sum 0"]);
    let negative = of(&[("b/q1", 1.5), ("Poetry/q1", -0.5)]);
    assert_refused(&negative, &["`stages[0].weights.Poetry/q1` is -0.5"]);
    assert_refused(&of(&[("b/q1", f64::NAN)]), &["`stages[0].weights.b/q1` is NaN"]);
    assert_refused(&of(&[("poetry/q1", 1.0)]), &["`poetry/q1`", "did you mean `Poetry/q1`"]);
    assert_refused(&of(&[("x/q1", 1.0)]), &["`x/q1`", "it has Poetry/q1, b/q1"]);
    let lost = of(&[("b/q1", 1.0), ("Poetry/q1", 1e-12)]);
    assert_refused(&lost, &["`stages[0].weights.Poetry/q1`", "one row in 65536 blocks"]);
}

#[test]
fn a_mixture_is_read_from_toml_and_unknown_fields_are_refused() -> Test {
    let text = "[[stages]]\nfrom_block = 0\nweights = { \"verse/q1\" = 1.0 }\n";
    let config: MixtureConfig = toml::from_str(text)?;
    assert_eq!(config.block_rows, 49_152);
    config.validate()?;
    let error = toml::from_str::<MixtureConfig>(&format!("block_row = 1\n{text}"));
    assert!(error.is_err_and(|error| error.to_string().contains("block_row")));
    Ok(())
}

#[test]
fn proportional_weights_follow_tokens_and_leave_out_cells_without_a_row() -> Test {
    let folder = Folder::new();
    let store = store_of(&folder, "store", &corpus());
    let config = MixtureConfig::proportional(&store, 16, 100);
    config.validate()?;
    let total = store.manifest().num_tokens() as f64;
    for cell in store.cells() {
        let weight = config.stages[0].weights[cell.name()];
        assert!((weight - cell.num_tokens() as f64 / total).abs() < 1e-12);
    }
    let smallest = store.cells().iter().map(|cell| cell.num_tokens()).min().unwrap_or(0);
    let config = MixtureConfig::proportional(&store, smallest as usize + 1, 100);
    config.validate()?;
    assert!(config.stages[0].weights.values().any(|weight| *weight == 0.0));
    Ok(())
}
