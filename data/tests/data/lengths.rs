//! Rows of changing length as arithmetic, without a store.

use fulmar_data::{DataError, LengthChange, LengthPlan, MixturePlan, RowLengths};

use crate::{
    fixture::Test,
    mixture::{cells, config, counted, stage},
};

pub(crate) fn lengths(first: usize, longest: usize, changes: &[(u64, usize)]) -> RowLengths {
    let change = |&(from_block, seq_len)| LengthChange { from_block, seq_len };
    RowLengths { first, longest, changes: changes.iter().map(change).collect() }
}

/// Rows of 4K, 8K near 50%, 65K near 95% and 262K at last, of a run of 390,251 steps.
fn hero() -> Result<LengthPlan, DataError> {
    let changes = [(44_715, 8_192), (84_953, 65_536), (88_539, 262_144)];
    lengths(4_096, 262_144, &changes).plan(49_152)
}

const HERO_BATCH: u64 = 11_264 * 4_096;

#[test]
fn a_block_keeps_its_tokens_when_rows_grow() -> Test {
    let plan = hero()?;
    let block_rows: Vec<u64> = plan.stages().iter().map(|stage| stage.block_rows).collect();
    assert_eq!(block_rows, [49_152, 24_576, 3_072, 768]);
    let mut next_row = 0;
    for block in 0..89_500 {
        let rows = plan.rows_of_block(block);
        assert_eq!(rows.start, next_row);
        let (first, last) = (rows.start, rows.end - 1);
        assert_eq!(plan.block_of_row(first), (block, 0));
        assert_eq!(plan.block_of_row(last), (block, rows.end - rows.start - 1));
        let seq_len = plan.seq_len_at(first);
        assert_eq!(plan.seq_len_at(last), seq_len);
        assert_eq!((rows.end - rows.start) * seq_len as u64, plan.block_tokens());
        assert_eq!(plan.stage_of_row(first), plan.stage_of_block(block));
        next_row = rows.end;
    }
    // By hand: 44,715 blocks of 49,152 rows, then 40,238 of 24,576 and 3,586 of 3,072.
    let firsts = plan.stages().iter().map(|stage| stage.first_row);
    assert!(firsts.eq([0, 2_197_831_680, 3_186_720_768, 3_197_736_960]));
    Ok(())
}

#[test]
fn batches_keep_their_tokens_and_follow_each_other_through_all_lengths() -> Test {
    let plan = hero()?;
    let batches = plan.batches(HERO_BATCH)?;
    let mut next_row = 0;
    for batch in 0..390_251 {
        let rows = batches.rows(batch);
        assert_eq!(rows.start, next_row);
        let seq_len = plan.seq_len_at(rows.start);
        assert_eq!((batches.seq_len(batch), plan.seq_len_at(rows.end - 1)), (seq_len, seq_len));
        assert_eq!((rows.end - rows.start) * seq_len as u64, HERO_BATCH);
        assert_eq!(batches.block(batch), plan.block_of_row(rows.start).0);
        next_row = rows.end;
    }
    let starts = [(0, 4_096), (195_120, 8_192), (370_704, 65_536), (386_352, 262_144)];
    assert!(batches.starts().eq(starts));
    assert_eq!(batches.rows(390_250).end - batches.rows(390_250).start, 176);
    Ok(())
}

#[test]
fn lengths_may_change_every_48_steps_of_11_264_rows_in_blocks_of_49_152() -> Test {
    let batches = hero()?.batches(HERO_BATCH)?;
    for boundary in [0, 48, 108_000, 312_192] {
        assert_eq!(batches.next_boundary(boundary), boundary);
        assert_eq!(batches.next_boundary(boundary + 1), boundary + 48);
        assert_eq!(batches.next_boundary(boundary + 47), boundary + 48);
        assert_eq!(batches.block(boundary) * 49_152, boundary * 11_264);
    }
    // Against a search: the first batch at or behind another that begins with a block.
    for (block_rows, batch_rows) in [(12, 5), (12, 8), (12, 12), (12, 36), (7, 3), (5, 40)] {
        let batches = lengths(4, 4, &[]).plan(block_rows)?.batches(batch_rows * 4)?;
        for batch in 0..40 {
            let begins = |batch: &u64| (batch * batch_rows).is_multiple_of(block_rows);
            assert_eq!(Some(batches.next_boundary(batch)), (batch..).find(begins));
        }
    }
    Ok(())
}

#[test]
fn rows_beyond_2_to_the_42_are_found_at_once() -> Test {
    let plan = hero()?;
    let batches = plan.batches(HERO_BATCH)?;
    let row = 8_600_000_000_000;
    let (block, position) = plan.block_of_row(row);
    assert_eq!(plan.rows_of_block(block).start + position, row);
    let batch = batches.starts().last().ok_or("four lengths")?.0 + (row - 3_197_736_960) / 176;
    assert!(batches.rows(batch).contains(&row));
    // Its last token is beyond 2^60.
    assert!(u128::from(row) * 262_144 > 1 << 60);

    let stages = [stage(0, &[("a/q1", 0.3), ("b/q1", 0.7)])];
    let changes = [(44_715, 8_192), (84_953, 65_536), (88_539, 262_144)];
    let lengths = lengths(4_096, 262_144, &changes);
    let names = cells(&["a/q1", "b/q1"]);
    let mixture = MixturePlan::new(&config(49_152, &stages), &lengths, &names, 1)?;
    let consumed = mixture.consumed(row);
    assert_eq!(consumed.iter().sum::<u64>(), row);
    // A weight is rounded to a row in 65,536 blocks, and the last block may be cut anywhere.
    let bound = row as f64 / (768.0 * 65_536.0) + 768.0;
    assert!((consumed[0] as f64 - 0.3 * row as f64).abs() < bound);
    Ok(())
}

/// Weights change inside a length, a length inside weights, and once both together.
fn mixed() -> Result<MixturePlan, DataError> {
    let stages = [
        stage(0, &[("a/q1", 0.5), ("b/q1", 0.31), ("c/q1", 0.19)]),
        stage(5, &[("a/q1", 0.07), ("c/q1", 0.93)]),
        stage(9, &[("b/q1", 0.71), ("c/q1", 0.29)]),
    ];
    let lengths = lengths(4, 16, &[(3, 8), (7, 16), (9, 4)]);
    MixturePlan::new(&config(32, &stages), &lengths, &cells(&["a/q1", "b/q1", "c/q1"]), 9)
}

/// First blocks of equal weights and length in [`mixed`], weights and rows of a block.
const SPANS: [(u64, [f64; 3], u64); 5] = [
    (0, [0.5, 0.31, 0.19], 32),
    (3, [0.5, 0.31, 0.19], 16),
    (5, [0.07, 0.0, 0.93], 16),
    (7, [0.07, 0.0, 0.93], 8),
    (9, [0.0, 0.71, 0.29], 32),
];

#[test]
fn every_row_is_dealt_once_and_consumed_counts_agree_across_lengths() -> Test {
    let plan = mixed()?;
    let mut dealt: Vec<Vec<u64>> = vec![Vec::new(); 3];
    for row in 0..plan.lengths().rows_of_block(14).start {
        let found: Vec<u64> = dealt.iter().map(|rows| rows.len() as u64).collect();
        assert_eq!(plan.consumed(row), found, "before row {row}");
        let slot = plan.locate(row);
        dealt[slot.cell as usize].push(slot.index);
        let block = plan.lengths().block_of_row(row).0 as usize;
        assert_eq!(plan.stage_of(row), [0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2][block]);
    }
    for mut rows in dealt {
        rows.sort_unstable();
        assert!(rows.iter().copied().eq(0..rows.len() as u64));
    }
    Ok(())
}

#[test]
fn blocks_of_every_length_are_exact_with_the_error_carried_on() -> Test {
    let plan = mixed()?;
    for (index, (from, weights, block_rows)) in SPANS.into_iter().enumerate() {
        let end = SPANS.get(index + 1).map_or(from + 100, |next| next.0);
        let mut given = [0; 3];
        for block in from..end {
            let rows = plan.lengths().rows_of_block(block);
            assert_eq!(rows.end - rows.start, block_rows);
            let counts = plan.block_counts(block);
            assert_eq!(counts.iter().sum::<u64>(), block_rows);
            assert_eq!(counted(&plan, rows), counts);
            for cell in 0..3 {
                given[cell] += counts[cell];
                let due = weights[cell] * ((block - from + 1) * block_rows) as f64;
                let error = (given[cell] as f64 - due).abs();
                assert!(error < 1.0, "cell {cell} is {error} rows off behind block {block}");
            }
        }
    }
    // A weight of 0.07 is half a row of a block of 8: it gets one in one of two blocks.
    assert_eq!(plan.block_counts(7)[0] + plan.block_counts(8)[0], 1);
    Ok(())
}

#[test]
fn any_order_of_requests_gives_the_same_slots_across_lengths() -> Test {
    let plan = mixed()?;
    let end = plan.lengths().rows_of_block(14).start;
    let forward: Vec<_> = (0..end).map(|row| plan.locate(row)).collect();
    let plan = mixed()?;
    // 181 is prime and does not divide the number of rows: every row once, in a mixed order.
    for row in (0..end).rev().map(|i| i * 181 % end) {
        assert_eq!(plan.locate(row), forward[row as usize], "row {row}");
    }
    Ok(())
}

#[test]
fn an_appended_length_moves_no_earlier_row() -> Test {
    let names = cells(&["a/q1", "b/q1"]);
    let mixture = config(16, &[stage(0, &[("a/q1", 0.37), ("b/q1", 0.63)])]);
    let of = |changes| MixturePlan::new(&mixture, &lengths(4, 16, changes), &names, 1);
    let (none, one, two) = (of(&[])?, of(&[(3, 8)])?, of(&[(3, 8), (5, 16)])?);
    assert!((0..48).all(|row| none.locate(row) == one.locate(row)));
    assert!((0..64).all(|row| one.locate(row) == two.locate(row)));
    assert_eq!(one.lengths().rows_of_block(5).start, 64);
    Ok(())
}

#[test]
fn a_length_for_which_a_weight_gets_no_row_is_refused() -> Test {
    let names = cells(&["a/q1", "b/q1"]);
    let weights = [("a/q1", 4e-7), ("b/q1", 1.0 - 4e-7)];
    let mixture = config(64, &[stage(0, &weights)]);
    // 4e-7 of 64 rows a block is 1.7 rows in 65,536 blocks; of one row a block it is 0.03.
    MixturePlan::new(&mixture, &lengths(4, 256, &[]), &names, 0)?;
    let error = MixturePlan::new(&mixture, &lengths(4, 256, &[(2, 256)]), &names, 0)
        .expect_err("0.03 rows a period")
        .to_string();
    for part in ["`stages[0].weights.a/q1` is 0.0000004", "of 1 rows of 256 tokens"] {
        assert!(error.contains(part), "{error}");
    }
    Ok(())
}

#[track_caller]
fn assert_refused(found: Result<impl std::fmt::Debug, DataError>, parts: &[&str]) {
    let error = found.expect_err("the lengths are bad").to_string();
    for part in parts {
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    }
}

#[test]
fn bad_lengths_are_refused_by_field_value_and_rule() {
    let plan = |first, longest, changes: &[_]| lengths(first, longest, changes).plan(32);
    assert_refused(plan(1, 4, &[]), &["`seq_len` is 1", "2 or more"]);
    assert_refused(plan(4, 0, &[]), &["`longest` is 0", "multiple of `first`, 4"]);
    assert_refused(plan(4, 2, &[]), &["`longest` is 2"]);
    assert_refused(plan(4, 18, &[]), &["`longest` is 18"]);
    assert_refused(plan(4, 16, &[(0, 8)]), &["`changes[0].from_block` is 0", "`first`"]);
    let again = plan(4, 16, &[(2, 8), (2, 16)]);
    assert_refused(again, &["`changes[1].from_block` is 2", "3 or more"]);
    let field = "`changes[0].seq_len`";
    assert_refused(plan(4, 16, &[(2, 12)]), &[field, "is 12", "divisor of `longest`, 16"]);
    assert_refused(plan(4, 16, &[(2, 32)]), &[field, "is 32", "divisor of `longest`, 16"]);
    assert_refused(plan(4, 16, &[(2, 1)]), &[field, "is 1;"]);
    assert_refused(plan(4, 16, &[(2, 0)]), &[field, "is 0;"]);
    assert_refused(plan(4, 16, &[(2, 4)]), &[field, "is 4", "other than the one before"]);
    // 128 tokens a block.
    assert_refused(plan(4, 256, &[(2, 256)]), &[field, "is 256", "128 tokens (32 rows of 4)"]);
    let thirds = lengths(4, 12, &[(2, 12)]).plan(32);
    assert_refused(thirds, &[field, "is 12", "whole rows"]);
    let many = lengths(4, 4, &[]).plan(0);
    assert_refused(many, &["`block_rows` is 0"]);
    let short = lengths(4, 4, &[(1, 2)]).plan(1 << 30);
    assert_refused(short, &[field, "is 2", "1 to 1073741824 whole rows"]);
    let far = lengths(4, 8, &[(u64::MAX / 100, 8)]).plan(32);
    assert_refused(far, &["`changes[0].from_block`", "2^64 tokens"]);
}

#[test]
fn batches_that_cut_rows_or_hold_two_lengths_are_refused() -> Test {
    // 64 tokens a block.
    let plan = lengths(4, 16, &[(3, 8), (6, 16)]).plan(16)?;
    plan.batches(64)?;
    plan.batches(32)?;
    plan.batches(192)?;
    assert_refused(plan.batches(0), &["0"]);
    assert_refused(plan.batches(24), &["24 tokens", "rows of 16 tokens", "multiple of 16"]);
    // Batches of one and a half blocks: block 3 begins with batch 2, block 6 with batch 4.
    plan.batches(96)?;
    let inside = plan.batches(128);
    let parts = ["rows of 8 tokens", "block 3", "inside batch 1 of 128", "block 4", "batch 2"];
    assert_refused(inside, &parts);
    Ok(())
}

#[test]
fn lengths_are_read_from_toml_and_unknown_fields_are_refused() -> Test {
    let text = "first = 4096\nlongest = 262144\n";
    assert_eq!(toml::from_str::<RowLengths>(text)?, lengths(4_096, 262_144, &[]));
    let more = "[[changes]]\nfrom_block = 7\nseq_len = 8192\n";
    let read: RowLengths = toml::from_str(&format!("{text}{more}"))?;
    assert_eq!(read, lengths(4_096, 262_144, &[(7, 8_192)]));
    assert_eq!(toml::from_str::<RowLengths>(&toml::to_string(&read)?)?, read);
    for (text, field) in
        [(format!("fist = 1\n{text}"), "fist"), (format!("{text}{more}x = 1"), "x")]
    {
        let error = toml::from_str::<RowLengths>(&text);
        assert!(error.is_err_and(|error| error.to_string().contains(field)));
    }
    assert_eq!(RowLengths::constant(16), lengths(16, 16, &[]));
    Ok(())
}
