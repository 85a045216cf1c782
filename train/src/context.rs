//! Longer rows in the course of a run (SPEC section 9).
//!
//! Tokens of a step stay the same, so a step has fewer rows. A stage is planned for a step and opens
//! at the first boundary of blocks from then on at which few enough assignments were dropped; when it
//! did is part of the plan in force, so that the rows of a step remain a function of plan and step.

use fulmar_data::{LengthChange, RowLengths};
use serde::{Deserialize, Serialize};

use crate::config::RunConfig;
use crate::error::TrainError;

/// Growth of `qk_mult` with the logarithm of the row length (SPEC section 9).
const QK_MULT_SLOPE: f64 = 0.1;

/// Rows of another length from some step on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextStage {
    /// Completed updates from which it may open.
    pub from_step: u64,
    /// Tokens of a row.
    pub seq_len: usize,
    /// Rows of one forward pass of a rank; must divide the rank's share, which it is when absent.
    #[serde(default)]
    pub micro_rows: Option<u64>,
    /// The gate: the largest share of assignments that may have been dropped since the boundary
    /// before. SPEC section 9 has a goal of 3% and an alarm at 7%.
    #[serde(default = "goal")]
    pub max_drop_fraction: f64,
    /// Batches taken when it opened; written by the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened_at: Option<u64>,
}

fn goal() -> f64 {
    0.03
}

impl ContextStage {
    /// A stage behind the recipe's gate.
    pub fn new(from_step: u64, seq_len: usize) -> Self {
        let max_drop_fraction = goal();
        Self { from_step, seq_len, micro_rows: None, max_drop_fraction, opened_at: None }
    }
}

/// The smallest `n` such that `n` batches are whole blocks of the mixture: a boundary of blocks lies
/// at its multiples.
///
/// # Errors
/// If blocks or batches have no rows.
pub fn boundary_every(config: &RunConfig) -> Result<u64, TrainError> {
    let lengths = RowLengths::constant(config.model.max_seq_len).plan(config.data.block_rows)?;
    Ok(lengths.batches(config.tokens_per_step())?.next_boundary(1))
}

impl RunConfig {
    /// The longest row of the plan, the unit in which data are shuffled.
    pub fn longest_row(&self) -> usize {
        let planned = self.context.iter().map(|stage| stage.seq_len);
        let longest = planned.chain([self.model.max_seq_len]).max().expect("at least one");
        self.data.longest_row.unwrap_or(longest)
    }

    /// The lengths of rows so far.
    pub fn row_lengths(&self) -> RowLengths {
        let change = |stage: &ContextStage| {
            let from_block = stage.opened_at? * self.batch.rows / self.data.block_rows;
            Some(LengthChange { from_block, seq_len: stage.seq_len })
        };
        RowLengths {
            first: self.model.max_seq_len,
            longest: self.longest_row(),
            changes: self.context.iter().map_while(change).collect(),
        }
    }

    /// Rows taken by the first `batches` batches, of all lengths.
    ///
    /// # Panics
    /// If the plan was not validated.
    pub fn rows_taken(&self, batches: u64) -> u64 {
        let lengths = self.row_lengths().plan(self.data.block_rows);
        let batches_of = lengths.and_then(|lengths| lengths.batches(self.tokens_per_step()));
        batches_of.expect("a validated plan").rows(batches).start
    }

    /// Batches after which each stage opened that is open at a position in the data.
    pub fn opened(&self, batches: u64) -> Vec<u64> {
        let opened = self.context.iter().map_while(|stage| stage.opened_at);
        opened.take_while(|at| *at <= batches).collect()
    }

    /// How many stages are open at a position in the data.
    pub fn open_stages(&self, batches: u64) -> usize {
        self.opened(batches).len()
    }

    /// The run as it is with `stages` of its context stages open: row length, rows, micro-batch
    /// and `qk_mult` (1.3 x (1 + 0.1 ln(L / first L)) for the recipe's 1.3).
    pub fn with_open_stages(&self, stages: usize) -> Self {
        let mut config = self.clone();
        let Some(stage) = stages.checked_sub(1).map(|last| &self.context[last]) else {
            return config;
        };
        let growth = (stage.seq_len as f64 / self.model.max_seq_len as f64).ln();
        config.model.qk_mult = self.model.qk_mult * (1.0 + QK_MULT_SLOPE * growth);
        config.model.max_seq_len = stage.seq_len;
        config.batch.rows = self.tokens_per_step() / stage.seq_len as u64;
        config.batch.micro_rows = stage.micro_rows;
        config
    }

    /// Checks every context stage by itself and against batch, ranks and blocks.
    ///
    /// # Errors
    /// The first broken rule, naming field, value and rule.
    pub(crate) fn validate_context(&self) -> Result<(), TrainError> {
        let longest = self.longest_row();
        let first = self.model.max_seq_len;
        if longest < first || !longest.is_multiple_of(first) {
            let rule = format!("a multiple of `model.max_seq_len` = {first}");
            return Err(TrainError::config("data.longest_row", longest, rule));
        }
        let (mut from, mut may_be_open, mut opened, mut before) = (1, true, 0, first);
        for (index, stage) in self.context.iter().enumerate() {
            let field = |name: &str| format!("context[{index}].{name}");
            if stage.from_step < from {
                let rule = format!("at least {from}: after the first step and the stage before");
                return Err(TrainError::config(field("from_step"), stage.from_step, rule));
            }
            from = stage.from_step;
            if stage.seq_len == before {
                let rule = "another length than that of the stage before";
                return Err(TrainError::config(field("seq_len"), before, rule));
            }
            before = stage.seq_len;
            self.validate_rows(stage, &field)?;
            if !(0.0..=1.0).contains(&stage.max_drop_fraction) {
                let (name, found) = (field("max_drop_fraction"), stage.max_drop_fraction);
                return Err(TrainError::config(name, found, "0 to 1"));
            }
            if let Some(at) = stage.opened_at {
                let every = boundary_every(self)?;
                if !may_be_open || !at.is_multiple_of(every) || (index > 0 && at <= opened) {
                    let rule =
                        format!("a multiple of {every} above the stage before, which is open");
                    return Err(TrainError::config(field("opened_at"), at, rule));
                }
                opened = at;
            }
            may_be_open = stage.opened_at.is_some();
        }
        Ok(())
    }

    fn validate_rows(
        &self,
        stage: &ContextStage,
        field: &dyn Fn(&str) -> String,
    ) -> Result<(), TrainError> {
        let (tokens, longest) = (self.tokens_per_step(), self.longest_row());
        let (len, found) = (stage.seq_len as u64, stage.seq_len);
        if found < 2 || !longest.is_multiple_of(found) {
            let rule = format!("2 or more and a divisor of {longest}, the longest row planned");
            return Err(TrainError::config(field("seq_len"), found, rule));
        }
        let ranks = self.parallel.num_ranks();
        if !tokens.is_multiple_of(len * ranks) {
            let rule =
                format!("a length of which {ranks} ranks take whole rows of {tokens} tokens");
            return Err(TrainError::config(field("seq_len"), found, rule));
        }
        let block_tokens = self.data.block_rows * self.model.max_seq_len as u64;
        if !block_tokens.is_multiple_of(len) {
            let rule = format!("a divisor of {block_tokens}, the tokens of a block of the mixture");
            return Err(TrainError::config(field("seq_len"), found, rule));
        }
        let rows = tokens / len / ranks;
        match stage.micro_rows {
            Some(micro) if micro == 0 || !rows.is_multiple_of(micro) => {
                let rule = format!("a divisor of the {rows} rows that a rank takes");
                Err(TrainError::config(field("micro_rows"), micro, rule))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe;

    const RECIPE: &str = "\
name = \"long\"
model.preset = \"mini_d96\"
batch.rows = 8
schedule.steps = 200
data.block_rows = 24
[[context]]
from_step = 100
seq_len = 512
[[context]]
from_step = 190
seq_len = 2048
";

    fn parse(change: &str) -> Result<RunConfig, TrainError> {
        recipe::parse(&RECIPE.replace("from_step = 100", change), "long.toml", &[])
    }

    #[test]
    fn a_stage_has_fewer_rows_of_as_many_tokens_and_a_larger_qk_mult() {
        let config = parse("from_step = 100").expect("valid");
        assert_eq!((config.longest_row(), boundary_every(&config).expect("valid")), (2_048, 3));
        let last = config.with_open_stages(2);
        assert_eq!((last.model.max_seq_len, last.batch.rows), (2_048, 1));
        assert_eq!(last.tokens_per_step(), config.tokens_per_step());
        // Published for x8: 1.5703 (SPEC's rule, issue 6811 of the public record).
        assert!((last.model.qk_mult - 1.5703).abs() < 5e-5, "{}", last.model.qk_mult);
        assert_eq!(config.with_open_stages(0), config);
    }

    #[test]
    fn stages_open_in_order_and_from_their_batch_on() {
        let mut config = parse("from_step = 100").expect("valid");
        config.context[0].opened_at = Some(102);
        config.validate().expect("open at a boundary");
        assert_eq!([101, 102, 190].map(|batches| config.open_stages(batches)), [0, 1, 1]);
    }

    #[test]
    fn the_hero_changes_length_every_48_steps_at_most() {
        let hero = RunConfig::preset(fulmar_model::Preset::D6144);
        assert_eq!(boundary_every(&hero).expect("valid"), 48);
    }

    #[test]
    fn stages_against_a_rule_are_named() {
        for (change, needed) in [
            ("from_step = 191", "`context[1].from_step` is 190, needed at least 191"),
            (
                "from_step = 1\nmicro_rows = 3",
                "`context[0].micro_rows` is 3, needed a divisor of the 4",
            ),
            ("from_step = 1\nmax_drop_fraction = 1.5", "`context[0].max_drop_fraction` is 1.5"),
            ("from_step = 1\nopened_at = 4", "`context[0].opened_at` is 4, needed a multiple of 3"),
            ("from_step = 1\nseq_lem = 4", "seq_lem"),
        ] {
            let error = parse(change).expect_err(needed).to_string();
            assert!(error.contains(needed), "{error}");
        }
        let refused = |from: &str, to: &str, needed: &str| {
            let text = RECIPE.replace(from, to);
            let error = recipe::parse(&text, "long.toml", &[]).expect_err(needed).to_string();
            assert!(error.contains(needed), "{error}");
        };
        refused(
            "seq_len = 2048",
            "seq_len = 4096",
            "`context[1].seq_len` is 4096, needed a length",
        );
        refused("seq_len = 512", "seq_len = 768", "`context[0].seq_len` is 768, needed 2 or more");
        refused(
            "block_rows = 24",
            "block_rows = 4",
            "`context[1].seq_len` is 2048, needed a divisor of 1024",
        );
        let second = "`context[1].opened_at` is 3, needed a multiple of 3 above the stage before";
        refused("seq_len = 2048", "seq_len = 2048\nopened_at = 3", second);
    }
}
