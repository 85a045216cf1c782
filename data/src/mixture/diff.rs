//! What another mixture changes in a run, and whether it leaves alone what was read.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::{MixtureConfig, MixturePlan, MixtureRun, report::epochs};
use crate::{
    BatchPlan, DataError, Result,
    pack::Pages,
    reading::{CellReading, ReadPosition, readings},
};

/// Two mixtures of one run, seen from a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MixtureDiff {
    /// Completed updates.
    pub step: u64,
    /// Steps of the run before and after.
    pub steps: [u64; 2],
    /// First block that differs; none where nothing does.
    pub switch_block: Option<u64>,
    /// The step in which that block begins.
    pub switch_step: Option<u64>,
    /// Cells of either mixture: those of the first in order, then new ones.
    pub cells: Vec<CellDiff>,
}

/// One cell under two mixtures; pairs are before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellDiff {
    /// Its name.
    pub name: String,
    /// Weight from the switch on, over the sum of all.
    pub weight: [f64; 2],
    /// Tokens read by the step, over all epochs; the same under both.
    pub read_now: u64,
    /// Where reading stands at the step; the same under both.
    pub position_now: ReadPosition,
    /// Where reading stands at the switch; the same under both.
    pub position_at_switch: ReadPosition,
    /// Tokens from the switch to the end of the run.
    pub tokens_to_end: [u64; 2],
    /// Epochs at the end of the run.
    pub epochs_at_end: [f64; 2],
    /// Where reading stands at the end of the run.
    pub position_at_end: [ReadPosition; 2],
}

impl CellDiff {
    /// Whether it has weight from the switch on, and had none.
    pub fn is_added(&self) -> bool {
        self.weight[0] == 0.0 && self.weight[1] > 0.0
    }

    /// Whether it has no weight from the switch on, and had some.
    pub fn is_removed(&self) -> bool {
        self.weight[0] > 0.0 && self.weight[1] == 0.0
    }
}

impl MixtureDiff {
    /// Compares what `before` and `after` read from `step` on.
    ///
    /// # Errors
    /// Those of both plans; [`DataError::PastMoves`] if `after` would have read other rows before
    /// `step`.
    pub fn new(before: &MixtureRun, after: &MixtureRun, step: u64) -> Result<Self> {
        let [old, new] = [Side::new(before)?, Side::new(after)?];
        let row = old.batches.rows(step).start;
        let now = Now { step, row, next_block: before.next_block(step)? };
        now.require_same_run(before, after)?;
        let changed = first_difference(&old.mixture, &new.mixture);
        if let Some((block, what)) = &changed
            && *block < now.next_block
        {
            return Err(now.refused(*block, &old.batches, what.clone()));
        }
        now.require_same_cells(&old, &new)?;
        let switch_block = changed.map(|(block, _)| block);
        // Without a change, the figures are those from here on.
        let switch = switch_block.unwrap_or(now.next_block);
        let names = before.cell_names().into_iter();
        let added = after.cells.iter().map(|cell| cell.name.clone());
        let added = added.filter(|name| !old.index.contains_key(name));
        let names = names.chain(added);
        let [at_now, at_switch] =
            [row, old.plan.lengths().rows_of_block(switch).start].map(|row| old.at(row));
        let cells = names.map(|name| {
            let of = |side: &Side, at: &At| side.cell(&name, at);
            let (read_now, position_now) = of(&old, &at_now);
            let (read_at_switch, position_at_switch) = of(&old, &at_switch);
            let ends = [&old, &new].map(|side| side.cell(&name, &side.end));
            CellDiff {
                weight: [&old, &new].map(|side| side.weight(&name, switch)),
                read_now,
                position_now,
                position_at_switch,
                tokens_to_end: ends.map(|(tokens, _)| tokens.saturating_sub(read_at_switch)),
                epochs_at_end: [0, 1].map(|i| epochs(ends[i].0, [&old, &new][i].paged(&name))),
                position_at_end: ends.map(|(_, position)| position),
                name,
            }
        });
        let switch_step = switch_block.map(|block| old.batches.batch_of_block(block));
        let cells = cells.collect();
        Ok(Self { step, steps: [before.steps, after.steps], switch_block, switch_step, cells })
    }
}

/// One of the two mixtures, ready to be asked.
struct Side {
    plan: MixturePlan,
    batches: BatchPlan,
    mixture: MixtureConfig,
    readings: Vec<CellReading>,
    index: BTreeMap<String, usize>,
    end: At,
}

/// Rows and tokens of each cell before a row.
struct At {
    stage: usize,
    rows: Vec<u64>,
    tokens: Vec<u64>,
}

impl Side {
    fn new(run: &MixtureRun) -> Result<Self> {
        let (visible, plan, batches) = (run.visible()?, run.plan()?, run.batches()?);
        let page_len = run.lengths.longest as u64;
        let pages = run.cells.iter().zip(&visible.tokens);
        let pages = pages.map(|(cell, seen)| (Pages::of(cell.tokens, page_len), *seen));
        let readings = readings(&plan, &run.cell_names(), pages);
        let index = run.cell_names().into_iter().zip(0..).collect();
        let end = At { stage: 0, rows: Vec::new(), tokens: Vec::new() };
        let mut side = Self { plan, batches, mixture: visible.mixture, readings, index, end };
        side.end = side.at(side.batches.rows(run.steps).start);
        Ok(side)
    }

    fn at(&self, row: u64) -> At {
        let stage = self.plan.lengths().stage_of_row(row);
        At { stage, rows: self.plan.consumed(row), tokens: self.plan.consumed_tokens(row) }
    }

    fn cell(&self, name: &str, at: &At) -> (u64, ReadPosition) {
        let Some(&index) = self.index.get(name) else { return (0, ReadPosition::default()) };
        (at.tokens[index], self.readings[index].position(at.stage, at.rows[index]))
    }

    fn paged(&self, name: &str) -> u64 {
        let pages = self.index.get(name).map(|&index| self.readings[index].pages);
        pages.map_or(0, |pages| pages.num_pages * pages.page_len)
    }

    fn weight(&self, name: &str, block: u64) -> f64 {
        let stage = self.mixture.stage_at(block);
        let sum: f64 = stage.weights.values().sum();
        stage.weights.get(name).copied().unwrap_or(0.0) / sum
    }
}

/// Where the run stands.
struct Now {
    step: u64,
    row: u64,
    /// First block that is not begun.
    next_block: u64,
}

impl Now {
    fn require_same_run(&self, before: &MixtureRun, after: &MixtureRun) -> Result<()> {
        let figures = |run: &MixtureRun| {
            [
                ("`block_rows`", run.mixture.block_rows),
                ("the first row length", run.lengths.first as u64),
                ("the longest row", run.lengths.longest as u64),
                ("the tokens of a step", run.tokens_per_step),
                ("the seed", run.seed),
            ]
        };
        for ((what, old), (_, new)) in figures(before).into_iter().zip(figures(after)) {
            if old != new && self.row > 0 {
                return Err(self.refused(
                    0,
                    &before.batches()?,
                    format!("{what}, {old} then {new},"),
                ));
            }
        }
        let begun = |run: &MixtureRun| {
            let changes = run.lengths.changes.iter();
            changes
                .filter(|change| change.from_block < self.next_block)
                .copied()
                .collect::<Vec<_>>()
        };
        let (old, new) = (begun(before), begun(after));
        let differs = old.iter().zip(&new).find(|(a, b)| a != b).map(|(a, _)| a);
        let differs = differs.or(old.get(new.len())).or(new.get(old.len()));
        match differs {
            Some(change) => {
                let what = format!("the row length {}", change.seq_len);
                Err(self.refused(change.from_block, &before.batches()?, what))
            }
            None => Ok(()),
        }
    }

    /// A cell of which rows were read must have kept its pages.
    fn require_same_cells(&self, old: &Side, new: &Side) -> Result<()> {
        let at = old.at(self.row);
        for (name, &index) in &old.index {
            if at.rows[index] == 0 {
                continue;
            }
            let here = new.index.get(name).map(|&index| &new.readings[index]);
            let pages = old.readings[index].pages_of();
            if here.is_none_or(|reading| reading.pages_of() != pages) {
                let what = format!("the pages of cell `{name}`, of which rows were read,");
                return Err(self.refused(0, &old.batches, what));
            }
        }
        Ok(())
    }

    fn refused(&self, block: u64, batches: &BatchPlan, what: String) -> DataError {
        DataError::PastMoves {
            what,
            block,
            at_block_step: batches.batch_of_block(block),
            step: self.step,
            next_block: self.next_block,
        }
    }
}

/// The first block at which two mixtures deal other rows, and what differs there.
///
/// A stage begins its counts anew, so that one more is a difference whatever its weights are.
fn first_difference(before: &MixtureConfig, after: &MixtureConfig) -> Option<(u64, String)> {
    let pairs = before.stages.iter().zip(&after.stages).enumerate();
    for (index, (old, new)) in pairs {
        if old.from_block != new.from_block {
            let block = old.from_block.min(new.from_block);
            return Some((block, format!("the start of stage {index}")));
        }
        if old.weights != new.weights {
            return Some((old.from_block, format!("the weights of stage {index}")));
        }
    }
    let common = before.stages.len().min(after.stages.len());
    let more = before.stages.get(common).or(after.stages.get(common))?;
    Some((more.from_block, format!("stage {common}, which only one of them has,")))
}

impl fmt::Display for MixtureDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.switch_block, self.switch_step) {
            (Some(block), Some(step)) => {
                writeln!(
                    f,
                    "seen from step {}: other rows from block {block}, step {step}",
                    self.step
                )?;
            }
            _ => writeln!(f, "seen from step {}: no row differs", self.step)?,
        }
        if self.steps[0] != self.steps[1] {
            writeln!(f, "steps of the run: {} -> {}", self.steps[0], self.steps[1])?;
        }
        let width = self.cells.iter().map(|cell| cell.name.len()).max().unwrap_or(0).max(4);
        writeln!(
            f,
            "  {:<width$} {:>24} {:>16} {:>24} {:>24} {:>32} {:>18} {:>50}",
            "cell",
            "weight",
            "read so far",
            "position now",
            "at the switch",
            "tokens to the end",
            "epochs at the end",
            "position at the end"
        )?;
        for cell in &self.cells {
            let mark = match (cell.is_added(), cell.is_removed()) {
                (true, _) => '+',
                (_, true) => '-',
                _ if cell.weight[0] != cell.weight[1] => '*',
                _ => ' ',
            };
            writeln!(
                f,
                "{mark} {:<width$} {:>24} {:>16} {:>24} {:>24} {:>32} {:>18} {:>50}",
                cell.name,
                pair(&cell.weight.map(|weight| format!("{:.6}%", 100.0 * weight))),
                cell.read_now,
                cell.position_now.to_string(),
                cell.position_at_switch.to_string(),
                pair(&cell.tokens_to_end),
                pair(&cell.epochs_at_end.map(|epochs| format!("{epochs:.4}"))),
                pair(&cell.position_at_end),
            )?;
        }
        let count = |is: fn(&CellDiff) -> bool| self.cells.iter().filter(|cell| is(cell)).count();
        writeln!(
            f,
            "{} cells added, {} removed, {} of other weight; a position is epoch:page/pages",
            count(CellDiff::is_added),
            count(CellDiff::is_removed),
            count(|cell| cell.weight[0] != cell.weight[1]),
        )
    }
}

/// `before -> after`, or one of them where they are equal.
fn pair<T: fmt::Display + PartialEq>([before, after]: &[T; 2]) -> String {
    if before == after { before.to_string() } else { format!("{before} -> {after}") }
}
