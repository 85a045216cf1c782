//! Plans of mixtures without data: stages, shares, epochs, empty cells, simulated epoching.

use fulmar_data::{
    DataError, RowLengths,
    mixture::{CellSize, CellTable, MixtureFile, MixtureReport, MixtureRun, SimulatedEpoching},
};

use crate::{
    fixture::Test,
    mixture::{config, stage},
};

/// The Harrier mixture over the hero run.
pub(crate) fn harrier() -> Result<MixtureRun, DataError> {
    let (file, cells) = MixtureFile::harrier()?;
    file.run_of_table(&cells)
}

/// Cells `a/q1`, `b/q1` and `c/q1` in blocks of 32 rows of 4 tokens, 8 rows a step.
pub(crate) fn small(tokens: [u64; 3], steps: u64) -> MixtureRun {
    let cells = ["a/q1", "b/q1", "c/q1"].into_iter().zip(tokens);
    let stages = [
        stage(0, &[("a/q1", 0.5), ("b/q1", 0.25), ("c/q1", 0.25)]),
        stage(10, &[("a/q1", 0.01), ("b/q1", 0.99)]),
    ];
    MixtureRun {
        cells: cells.map(|(name, tokens)| CellSize { name: name.to_owned(), tokens }).collect(),
        mixture: config(32, &stages),
        lengths: RowLengths::constant(4),
        tokens_per_step: 32,
        steps,
        seed: 3,
        epoching: None,
        epoching_tokens: None,
        max_epochs: 8.0,
    }
}

fn largest(report: &MixtureReport) -> String {
    report.largest_epochs().map_or(String::new(), |cell| format!("{:.4}", cell.epochs_at_end))
}

#[test]
fn the_harrier_mixture_repeats_no_cell_more_than_2_0931_times() -> Test {
    let (mut file, cells) = MixtureFile::harrier()?;
    assert_eq!(cells.cells().len(), 200);
    assert_eq!(cells.cells().iter().map(|cell| cell.tokens).sum::<u64>(), 23_106_103_007_622);
    file.longest_row = None;
    let hero = file.run_of_table(&cells)?.report(0)?;
    assert_eq!((hero.tokens, hero.boundary_every), (18_005_144_633_344, 48));
    assert_eq!(hero.stages[1].first_step, 312_192);
    assert!(hero.stages[1].begins_with_step);
    assert_eq!(largest(&hero), "2.0099");
    hero.require_epochs()?;

    (file.steps, file.tokens) = (None, Some(18_750_000_000_000));
    let whole = file.run_of_table(&cells)?.report(0)?;
    assert_eq!((whole.steps, whole.stages[1].first_step), (406_395, 325_104));
    assert_eq!(largest(&whole), "2.0931");
    Ok(())
}

#[test]
fn ten_harrier_cells_have_less_than_a_row_of_a_block_then_eleven() -> Test {
    // Whole blocks: of a block that is cut, the counts are those of a sample.
    let report = MixtureRun { steps: 390_240, ..harrier()? }.report(0)?;
    let counts = report.stages.iter().map(|stage| stage.under_one_row.len());
    assert_eq!(counts.collect::<Vec<_>>(), [10, 11]);
    for stage in &report.stages {
        assert_eq!((stage.num_cells, stage.without_row.len()), (200, 0));
    }
    for (index, stage) in report.stages.iter().enumerate() {
        let rows: f64 = report.cells.iter().map(|cell| cell.stages[index].rows_per_block).sum();
        assert!((rows - 49_152.0).abs() < 1e-6, "{rows} rows a block");
        let tokens: u64 = report.cells.iter().map(|cell| cell.stages[index].tokens).sum();
        assert_eq!(tokens, stage.tokens);
        for cell in &report.cells {
            let part = cell.stages[index];
            let realised = part.realised.ok_or("the stage has rows")?;
            // Less than a row is open at the end, and weights are rounded to a row in 65,536 blocks.
            let bound = 1.0 / stage.rows as f64 + 1.0 / (65_536.0 * 49_152.0);
            assert!((realised - part.asked).abs() <= bound, "{}: {part:?}", cell.name);
        }
    }
    Ok(())
}

#[test]
fn the_plan_of_the_hero_says_the_same_at_every_step_and_sums_to_what_was_read() -> Test {
    let run = harrier()?;
    for step in [0, 1, 190_650, 312_192, 390_251] {
        let report = run.report(step)?;
        let read: u64 = report.cells.iter().map(|cell| cell.read_now).sum();
        assert_eq!(read, step * run.tokens_per_step);
        let end: u64 = report.cells.iter().map(|cell| cell.read_at_end).sum();
        assert_eq!(end, run.tokens());
    }
    Ok(())
}

#[test]
fn row_8_600_000_000_000_of_the_hero_is_found_without_data() -> Test {
    let plan = harrier()?.plan()?;
    // The row of step 190,650 is beyond 2^31, the other one beyond 2^42.
    for row in [190_650 * 11_264, 8_600_000_000_000] {
        let slot = plan.locate(row);
        let consumed = plan.consumed(row);
        assert_eq!(consumed.iter().sum::<u64>(), row);
        assert_eq!(plan.consumed_tokens(row).iter().sum::<u64>(), row * 4_096);
        let after = plan.consumed(row + 1);
        let dealt: Vec<usize> = (0..200).filter(|&cell| after[cell] > consumed[cell]).collect();
        assert_eq!(dealt, [slot.cell as usize]);
    }
    // Pinned: what a run has read follows from it.
    let slots = [0, 2_147_481_600, 8_600_000_000_000].map(|row| plan.locate(row));
    let slots = slots.map(|slot| (slot.cell, slot.index));
    assert_eq!(slots, [(86, 78), (16, 12354917), (73, 238324724633)]);
    Ok(())
}

#[test]
fn any_order_of_requests_gives_the_same_rows_of_the_hero() -> Test {
    let mut state = 7_u64;
    let mut draw = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 20) % below
    };
    // Few blocks, some of them twice, on both sides of the second phase.
    let rows = |draw: &mut dyn FnMut(u64) -> u64| {
        let block = [0, 1, 63, 64, 71_543, 71_544, 71_545, 65_536][draw(8) as usize];
        block * 49_152 + draw(49_152)
    };
    let mut rows: Vec<u64> = (0..1_000).map(|_| rows(&mut draw)).collect();
    let plan = harrier()?.plan()?;
    let found: Vec<_> = rows.iter().map(|row| plan.locate(*row)).collect();
    let mut pairs: Vec<_> = rows.iter().copied().zip(found).collect();
    pairs.sort_by_key(|(row, _)| *row);
    rows.sort_unstable();
    let plan = harrier()?.plan()?;
    for (row, slot) in pairs {
        assert_eq!(plan.locate(row), slot, "row {row}");
    }
    Ok(())
}

#[test]
fn a_report_counts_what_the_rows_of_the_run_take() -> Test {
    let run = small([4_000, 400, 300], 100);
    let report = run.report(45)?;
    let plan = run.plan()?;
    let counted = |rows: std::ops::Range<u64>| crate::mixture::counted(&plan, rows);
    let (now, end) = (counted(0..45 * 8), counted(0..800));
    for (index, cell) in report.cells.iter().enumerate() {
        assert_eq!((cell.read_now, cell.read_at_end), (now[index] * 4, end[index] * 4));
        let epochs = [cell.epochs_now, cell.epochs_at_end];
        let expected = [cell.read_now, cell.read_at_end].map(|t| t as f64 / cell.tokens as f64);
        assert_eq!(epochs, expected);
    }
    // Block 10 is row 320, step 40.
    let second = &report.stages[1];
    assert_eq!((second.first_row, second.first_step, second.rows), (320, 40, 480));
    assert_eq!(second.under_one_row, ["a/q1"]);
    assert_eq!(report.cells[0].stages[0].rows_per_block, 16.0);
    assert!(report.stages.iter().all(|stage| stage.without_row.is_empty()));
    // Two blocks of the second stage hold no row of 0.32 a block.
    let short = small([4_000, 400, 300], 44).report(0)?;
    assert_eq!(short.stages[1].without_row, ["a/q1"]);
    // A run that ends before the second stage has nothing in it.
    let shorter = small([4_000, 400, 300], 10).report(0)?;
    assert_eq!((shorter.stages[1].rows, shorter.cells[0].stages[1].realised), (0, None));
    Ok(())
}

#[test]
fn a_cell_over_the_cap_is_refused_by_name_with_its_epochs() -> Test {
    let run = small([4_000, 400, 30], 100);
    let error = run.report(0)?.require_epochs().expect_err("80 rows of 7 pages").to_string();
    for part in ["1 cells", "more than 8 times", "c/q1 (11.43)", "`max_epochs`"] {
        assert!(error.contains(part), "{error}");
    }
    MixtureRun { max_epochs: 12.0, ..run }.report(0)?.require_epochs()?;
    Ok(())
}

#[test]
fn all_cells_without_a_page_are_named_at_once() {
    let error = small([4_000, 3, 2], 100).report(0).expect_err("two cells").to_string();
    for part in ["2 cells", "one whole page of 4 tokens", "b/q1, c/q1", "100.0000%"] {
        assert!(error.contains(part), "{error}");
    }
    let mut run = small([4_000, 3, 400], 100);
    for stage in &mut run.mixture.stages {
        let moved = stage.weights.remove("b/q1").unwrap_or(0.0);
        *stage.weights.entry("a/q1".to_owned()).or_default() += moved;
    }
    run.report(0).expect("the small cell has no weight");
}

/// A run of a hundredth of the full one.
fn short(tail: Option<&str>, tokens: [u64; 3]) -> MixtureRun {
    let tail = tail.map(str::to_owned);
    let epoching = Some(SimulatedEpoching { full_tokens: 320_000, tail });
    MixtureRun { epoching, ..small(tokens, 100) }
}

#[test]
fn a_short_run_repeats_its_cells_as_often_as_the_full_one() -> Test {
    let tokens = [400_000, 120_000, 40_000];
    let full = MixtureRun { steps: 10_000, ..small(tokens, 100) };
    // Stages are at the same share of both runs.
    let mut full = full;
    full.mixture.stages[1].from_block = 1_000;
    let (full, short) = (full.report(0)?, short(None, tokens).report(0)?);
    assert_eq!(short.seen_share, 0.01);
    for (full, short) in full.cells.iter().zip(&short.cells) {
        assert_eq!(short.paged_tokens * 100, full.paged_tokens);
        assert!((full.epochs_at_end - short.epochs_at_end).abs() < 0.02, "{full:?} {short:?}");
    }
    Ok(())
}

#[test]
fn cells_that_a_short_run_would_not_see_are_refused_or_merged_into_the_tail() -> Test {
    let tokens = [400_000, 399, 40_000];
    let error = short(None, tokens).report(0).expect_err("3 of 399 tokens").to_string();
    for part in ["1 cells", "at 1.0000% of their tokens: b/q1", "name a tail cell"] {
        assert!(error.contains(part), "{error}");
    }
    let merged = short(Some("c/q1"), tokens);
    let visible = merged.visible()?;
    assert_eq!((visible.tokens, visible.merged), (vec![4_000, 3, 400], vec!["b/q1".to_owned()]));
    let weights = &visible.mixture.stages[1].weights;
    assert_eq!((weights.get("b/q1"), weights["c/q1"]), (None, 0.99));
    let report = merged.report(0)?;
    assert_eq!((report.cells[1].read_at_end, report.merged), (0, vec!["b/q1".to_owned()]));
    let read: u64 = report.cells.iter().map(|cell| cell.read_at_end).sum();
    assert_eq!(read, merged.tokens());
    for (tail, part) in [("b/q1", "1 cells"), ("d/q1", "`simulated_epoching.tail` is d/q1")] {
        let error = short(Some(tail), tokens).report(0).expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    }
    // A run as long as the full one sees everything.
    let long = MixtureRun { steps: 20_000, ..short(None, tokens) };
    assert_eq!(long.visible()?.tokens, tokens);
    Ok(())
}

#[test]
fn the_harrier_cells_that_a_laptop_run_would_not_see_are_all_named() -> Test {
    let (mut file, cells) = MixtureFile::harrier()?;
    (file.steps, file.longest_row) = (Some(600), None);
    (file.batch_rows, file.seq_len, file.block_rows) = (8, 256, 512);
    file.simulated_epoching = Some(SimulatedEpoching::default());
    let DataError::EmptyCells { cells: empty, share, .. } =
        file.run_of_table(&cells)?.report(0).expect_err("most cells")
    else {
        return Err("another error".into());
    };
    let run_tokens = 600.0 * 2_048.0;
    assert!((share - run_tokens / 18.75e12).abs() < 1e-15);
    let small = cells.cells().iter().filter(|c| (c.tokens as f64 * share) < 256.0);
    assert_eq!(empty.len(), small.count());
    assert!(!empty.is_empty());
    Ok(())
}

#[test]
fn a_table_of_cells_is_refused_by_line_and_problem() {
    let head = "cell\ttokens\tw\n";
    let of = |lines: &str| CellTable::parse(&format!("{head}{lines}"), "cells.tsv");
    for (table, needed) in [
        (CellTable::parse("", "cells.tsv"), "line 1: the head is \"\""),
        (CellTable::parse("name\ttokens\n", "cells.tsv"), "the head is \"name\\ttokens\""),
        (of(""), "no line behind the head"),
        (of("a/q1\t5\n"), "line 2: found 2 fields, need 3"),
        (of("a/q1\tmany\t0.5\n"), "line 2: `tokens` is \"many\""),
        (of("# a note\n\na/q1\t5\t-0.5\n"), "line 4: `w` is \"-0.5\", need a finite number"),
        (of("a/q1\t5\tNaN\n"), "`w` is \"NaN\""),
        (of("a/q1\t5\t0.5\na/q1\t5\t0.5\n"), "line 3: cell `a/q1` is there twice"),
        (of("a/q1\t5\t0.5\nA/q1\t5\t0.5\n"), "`a/q1` and `A/q1` differ only in case"),
        (of("a\t5\t0.5\n"), "cell name is \"a\""),
    ] {
        let error = table.expect_err(needed).to_string();
        assert!(error.contains(needed), "{error}");
    }
    let table = of("a/q1\t5\t0.5\n").expect("a good table");
    let error = table.weights("v").expect_err("no column").to_string();
    assert!(error.contains("no column `v`; columns of weights are w"), "{error}");
}

#[test]
fn a_mixture_file_is_refused_by_what_it_contradicts() -> Test {
    let text = "seq_len = 4\nbatch_rows = 8\nsteps = 100\nblock_rows = 32\n";
    let phases = "[[phases]]\nshare = 1.0\nweights = { \"a/q1\" = 1.0 }\n";
    let cells = || vec![CellSize { name: "a/q1".to_owned(), tokens: 400 }];
    let run = |text: &str| MixtureFile::parse(text, "m.toml")?.run_over(cells());
    run(&format!("{text}{phases}"))?.report(0)?;
    let more = |text: &str| format!("{text}{phases}");
    for (text, needed) in [
        (format!("stps = 1\n{}", more(text)), "`m.toml`"),
        (text.to_owned(), "`phases` is empty"),
        (more(&format!("{text}tokens = 100\n")), "`steps` is absent or beside `tokens`"),
        (more(&format!("{text}max_epochs = 0.0\n")), "`max_epochs` is 0"),
        (more(&format!("{text}stages = [{{ from_block = 0, weights = {{}} }}]\n")), "`stages`"),
        (more(text).replace("{ \"a/q1\" = 1.0 }", "\"w\""), "column `w`"),
        (more(text).replace("= 1.0 }", "= 0.9 }"), "sum 0.9"),
        (more(text).replace("= 1.0 }", "= 1.5, \"b/q1\" = -0.5 }"), "b/q1` is -0.5"),
        (more(text).replace("share = 1.0", "share = 0.5"), "`phases` is 0.5"),
    ] {
        let error = run(&text).expect_err(needed).to_string();
        assert!(error.contains(needed), "{error}");
    }
    let other_case = more(text).replace("a/q1", "A/q1");
    let error = run(&other_case)?.report(0).expect_err("another case").to_string();
    assert!(
        error.contains("names cell `A/q1`") && error.contains("did you mean `a/q1`"),
        "{error}"
    );
    Ok(())
}
