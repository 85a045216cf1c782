//! What another mixture changes, and what it must leave alone.

use fulmar_data::{
    DataError, LengthChange,
    mixture::{CellSize, MixtureDiff, MixtureRun},
};

use crate::{
    fixture::Test,
    mixture::stage,
    mixture_plan::{harrier, small},
};

/// Steps of 8 rows in blocks of 32: block 10 begins with step 40.
fn before() -> MixtureRun {
    small([4_000, 400, 300], 100)
}

fn with_stage(from_block: u64, weights: &[(&str, f64)]) -> MixtureRun {
    let mut run = before();
    run.mixture.stages.truncate(1);
    run.mixture.stages.push(stage(from_block, weights));
    run
}

#[test]
fn a_later_switch_shows_tokens_epochs_and_positions_before_and_after() -> Test {
    let (old, new) = (before(), with_stage(10, &[("a/q1", 0.5), ("c/q1", 0.5)]));
    let diff = MixtureDiff::new(&old, &new, 37)?;
    assert_eq!((diff.switch_block, diff.switch_step), (Some(10), Some(40)));
    let [a, b, c] = &diff.cells[..] else { return Err("three cells".into()) };
    assert_eq!((a.weight, b.weight, c.weight), ([0.01, 0.5], [0.99, 0.0], [0.0, 0.5]));
    assert!(b.is_removed() && c.is_added() && !a.is_added() && !a.is_removed());
    for (index, cell) in diff.cells.iter().enumerate() {
        let now = old.report(37)?.cells[index].read_now;
        assert_eq!(cell.read_now, now);
        let pages = old.cells[index].tokens / 4;
        let turn = now / 4;
        let position = cell.position_now;
        assert_eq!((position.epoch, position.page), (turn / pages, turn % pages));
        assert_eq!((position.num_pages, position.offset), (pages, 0));
        // Ten whole blocks: 160, 80 and 80 rows.
        let turn = [160, 80, 80][index];
        let switch = cell.position_at_switch;
        assert_eq!((switch.epoch, switch.page), (turn / pages, turn % pages));
        for (side, run) in [&old, &new].into_iter().enumerate() {
            let report = &run.report(100)?.cells[index];
            assert_eq!(cell.tokens_to_end[side], report.read_at_end - turn * 4);
            assert_eq!(cell.epochs_at_end[side], report.epochs_at_end);
            let turn = report.read_at_end / 4;
            let end = cell.position_at_end[side];
            assert_eq!((end.epoch, end.page), (turn / pages, turn % pages));
        }
    }
    let said = diff.to_string();
    for part in [
        "seen from step 37: other rows from block 10, step 40",
        "+ c/q1",
        "- b/q1",
        "* a/q1",
        "1 cells added, 1 removed, 3 of other weight",
    ] {
        assert!(said.contains(part), "{said}");
    }
    Ok(())
}

#[test]
fn a_new_cell_may_join_and_a_cell_that_was_not_read_may_change() -> Test {
    let mut new = with_stage(12, &[("a/q1", 0.5), ("d/q1", 0.5)]);
    new.cells.push(CellSize { name: "d/q1".to_owned(), tokens: 80 });
    // Stage 1 of before begins with block 10.
    let diff = MixtureDiff::new(&before(), &new, 30)?;
    assert_eq!(diff.switch_block, Some(10));
    let added = diff.cells.iter().find(|cell| cell.name == "d/q1").ok_or("the new cell")?;
    assert_eq!((added.read_now, added.tokens_to_end[0]), (0, 0));
    assert!(added.tokens_to_end[1] > 0 && added.epochs_at_end[1] > 1.0);
    Ok(())
}

#[test]
fn no_difference_is_said_as_such() -> Test {
    let diff = MixtureDiff::new(&harrier()?, &harrier()?, 190_650)?;
    assert_eq!((diff.switch_block, diff.cells.len()), (None, 200));
    assert!(diff.cells.iter().all(|cell| cell.tokens_to_end[0] == cell.tokens_to_end[1]));
    assert!(diff.to_string().contains("no row differs"));
    Ok(())
}

#[test]
fn the_heros_second_phase_may_change_until_it_begins() -> Test {
    let (old, mut new) = (harrier()?, harrier()?);
    let weights = new.mixture.stages[0].weights.clone();
    new.mixture.stages[1].weights = weights;
    let diff = MixtureDiff::new(&old, &new, 312_192)?;
    assert_eq!(diff.switch_step, Some(312_192));
    let error = MixtureDiff::new(&old, &new, 312_193).expect_err("a step too late").to_string();
    for part in [
        "the weights of stage 1 at block 71544 (step 312192), before step 312193",
        "block 71545 or later",
    ] {
        assert!(error.contains(part), "{error}");
    }
    Ok(())
}

#[track_caller]
fn assert_moves_the_past(new: &MixtureRun, parts: &[&str]) {
    let error = MixtureDiff::new(&before(), new, 45).expect_err("the past").to_string();
    for part in parts {
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    }
}

#[test]
fn a_change_that_moves_the_past_is_refused_by_what_differs_and_where() {
    let refused = |change: fn(&mut MixtureRun), parts: &[&str]| {
        let mut new = before();
        change(&mut new);
        assert_moves_the_past(&new, parts);
    };
    refused(
        |run| {
            run.mixture.stages[0].weights.insert("a/q1".to_owned(), 0.4);
            run.mixture.stages[0].weights.insert("b/q1".to_owned(), 0.35);
        },
        &["the weights of stage 0 at block 0"],
    );
    refused(|run| run.mixture.stages[1].from_block = 11, &["the start of stage 1 at block 10"]);
    refused(
        |run| _ = run.mixture.stages.pop(),
        &["stage 1, which only one of them has", "(step 40)"],
    );
    refused(
        |run| run.mixture.stages.push(stage(11, &[("a/q1", 1.0)])),
        // Step 45 is in block 11.
        &["stage 2, which only one of them has, at block 11 (step 44)", "block 12 or later"],
    );
    refused(|run| run.mixture.block_rows = 16, &["`block_rows`, 32 then 16,"]);
    refused(|run| run.seed = 4, &["the seed, 3 then 4,"]);
    refused(|run| run.cells[1].tokens = 500, &["the pages of cell `b/q1`"]);
    refused(|run| run.lengths.longest = 8, &["the longest row, 4 then 8,"]);
    refused(
        |run| {
            run.lengths.changes.push(LengthChange { from_block: 11, seq_len: 2 });
        },
        &["the row length 2 at block 11"],
    );
    let mut gone = before();
    gone.cells.remove(2);
    let error = MixtureDiff::new(&before(), &gone, 45).expect_err("a cell of stage 0");
    assert!(matches!(error, DataError::UnknownCell { stage: 0, .. }), "{error}");
}
