//! What a mixture amounts to over a run: rows, shares and epochs by stage and cell.

use std::fmt;

use serde::Serialize;

use super::{MixturePlan, MixtureRun};
use crate::{DataError, Result, pack::Pages};

/// The plan of a mixture over a run, by stage and by cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MixtureReport {
    /// Steps of the run.
    pub steps: u64,
    /// Tokens of the run.
    pub tokens: u64,
    /// Tokens of a step.
    pub tokens_per_step: u64,
    /// Rows of a block, of the first length.
    pub block_rows: u64,
    /// Steps after which a step begins with a block, where a stage or a length may begin.
    pub boundary_every: u64,
    /// Tokens of a page.
    pub page_len: u64,
    /// The step that the report is seen from: completed updates.
    pub now: u64,
    /// The cap on epochs.
    pub max_epochs: f64,
    /// Share of each cell that is seen; 1 without simulated epoching.
    pub seen_share: f64,
    /// Cells without a page to see, whose weight another has.
    pub merged: Vec<String>,
    /// The stages, in order.
    pub stages: Vec<StageReport>,
    /// The cells, in order.
    pub cells: Vec<CellReport>,
}

/// One stage of a mixture.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageReport {
    /// First block.
    pub from_block: u64,
    /// Global index of the first row.
    pub first_row: u64,
    /// The step in which it begins.
    pub first_step: u64,
    /// Whether it begins with that step; else inside it.
    pub begins_with_step: bool,
    /// Rows of the run in it.
    pub rows: u64,
    /// Tokens of the run in it.
    pub tokens: u64,
    /// Cells with weight.
    pub num_cells: usize,
    /// Cells with weight that have less than a row of a block of the first length.
    pub under_one_row: Vec<String>,
    /// Cells with weight that get no row of the run in this stage.
    pub without_row: Vec<String>,
}

/// One cell over a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellReport {
    /// Its name.
    pub name: String,
    /// Its tokens.
    pub tokens: u64,
    /// Tokens of the pages that the run reads, once each epoch.
    pub paged_tokens: u64,
    /// Its part in each stage.
    pub stages: Vec<CellShare>,
    /// Tokens read before the step of the report, over all epochs.
    pub read_now: u64,
    /// The same in epochs.
    pub epochs_now: f64,
    /// Tokens read by the end of the run, over all epochs.
    pub read_at_end: u64,
    /// The same in epochs.
    pub epochs_at_end: f64,
}

/// A cell's part in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CellShare {
    /// Its weight over the sum of all.
    pub asked: f64,
    /// Rows of a block of the first length, in the mean.
    pub rows_per_block: f64,
    /// Its share of the stage's tokens in the run; none where the run has none.
    pub realised: Option<f64>,
    /// Its tokens in the stage.
    pub tokens: u64,
}

impl MixtureReport {
    pub(super) fn new(run: &MixtureRun, now: u64) -> Result<Self> {
        let visible = run.visible()?;
        let (plan, batches) = (run.plan()?, run.batches()?);
        let page_len = run.lengths.longest as u64;
        let row_of = |step: u64| batches.rows(step).start;
        let end_row = row_of(run.steps);
        let read_now = plan.consumed_tokens(row_of(now));
        let read_at_end = plan.consumed_tokens(end_row);
        let paged = visible.tokens.iter().map(|tokens| {
            let pages = Pages::of(*tokens, page_len);
            pages.num_pages * page_len
        });
        let cells = run.cells.iter().zip(paged).enumerate();
        let mut cells: Vec<CellReport> = cells
            .map(|(index, (cell, paged_tokens))| CellReport {
                name: cell.name.clone(),
                tokens: cell.tokens,
                paged_tokens,
                stages: Vec::new(),
                read_now: read_now[index],
                epochs_now: epochs(read_now[index], paged_tokens),
                read_at_end: read_at_end[index],
                epochs_at_end: epochs(read_at_end[index], paged_tokens),
            })
            .collect();
        let mut stages = Vec::new();
        let mixture = &visible.mixture;
        for (index, stage) in mixture.stages.iter().enumerate() {
            let first_row = plan.lengths().rows_of_block(stage.from_block).start;
            let next = mixture.stages.get(index + 1);
            let until = next.map_or(end_row, |n| plan.lengths().rows_of_block(n.from_block).start);
            let rows = first_row.min(end_row)..until.min(end_row);
            let sum: f64 = stage.weights.values().sum();
            let dealt = Dealt::new(&plan, rows.clone());
            for (cell, tokens) in cells.iter_mut().zip(&dealt.tokens) {
                let asked = stage.weights.get(&cell.name).copied().unwrap_or(0.0) / sum;
                let realised = (dealt.all > 0).then(|| *tokens as f64 / dealt.all as f64);
                let rows_per_block = asked * run.mixture.block_rows as f64;
                cell.stages.push(CellShare { asked, rows_per_block, realised, tokens: *tokens });
            }
            let first_step = batches.batch_of_block(stage.from_block);
            let begins_with_step = batches.rows(first_step).start == first_row;
            stages.push(StageReport {
                from_block: stage.from_block,
                first_row,
                first_step,
                begins_with_step,
                rows: rows.end - rows.start,
                tokens: dealt.all,
                num_cells: stage.weights.values().filter(|weight| **weight > 0.0).count(),
                under_one_row: names(&cells, index, |part| part.rows_per_block < 1.0),
                without_row: names(&cells, index, |part| part.tokens == 0),
            });
        }
        let share = run
            .epoching
            .as_ref()
            .map(|epoching| epoching.share(run.epoching_tokens.unwrap_or(run.tokens())));
        Ok(Self {
            steps: run.steps,
            tokens: run.tokens(),
            tokens_per_step: run.tokens_per_step,
            block_rows: run.mixture.block_rows,
            boundary_every: batches.next_boundary(1),
            page_len,
            now,
            max_epochs: run.max_epochs,
            seen_share: share.unwrap_or(1.0),
            merged: visible.merged,
            stages,
            cells,
        })
    }

    /// The cell that is read most often by the end of the run.
    pub fn largest_epochs(&self) -> Option<&CellReport> {
        self.cells.iter().max_by(|a, b| a.epochs_at_end.total_cmp(&b.epochs_at_end))
    }

    /// Refuses a plan that repeats a cell too often.
    ///
    /// # Errors
    /// [`DataError::TooManyEpochs`] naming all such cells.
    pub fn require_epochs(&self) -> Result<()> {
        let over = self.cells.iter().filter(|cell| cell.epochs_at_end > self.max_epochs);
        let cells: Vec<String> =
            over.map(|cell| format!("{} ({:.2})", cell.name, cell.epochs_at_end)).collect();
        if cells.is_empty() {
            return Ok(());
        }
        Err(DataError::TooManyEpochs { max_epochs: self.max_epochs, cells })
    }
}

/// Tokens by cell of a stretch of rows.
struct Dealt {
    tokens: Vec<u64>,
    all: u64,
}

impl Dealt {
    fn new(plan: &MixturePlan, rows: std::ops::Range<u64>) -> Self {
        let (before, after) = (plan.consumed_tokens(rows.start), plan.consumed_tokens(rows.end));
        let tokens: Vec<u64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
        let all = tokens.iter().sum();
        Self { tokens, all }
    }
}

pub(super) fn epochs(tokens: u64, of: u64) -> f64 {
    if tokens == 0 { 0.0 } else { tokens as f64 / of as f64 }
}

fn names(cells: &[CellReport], stage: usize, is: impl Fn(&CellShare) -> bool) -> Vec<String> {
    let weighted = cells.iter().filter(|cell| cell.stages[stage].asked > 0.0);
    weighted.filter(|cell| is(&cell.stages[stage])).map(|cell| cell.name.clone()).collect()
}

impl fmt::Display for MixtureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} steps of {} tokens, {:.4}T tokens; blocks of {} rows, a boundary each {} steps",
            self.steps,
            self.tokens_per_step,
            self.tokens as f64 / 1e12,
            self.block_rows,
            self.boundary_every
        )?;
        if self.seen_share < 1.0 {
            writeln!(f, "simulated epoching: {:.6}% of each cell", 100.0 * self.seen_share)?;
        }
        if !self.merged.is_empty() {
            let (count, names) = (self.merged.len(), self.merged.join(" "));
            writeln!(f, "{count} cells without a page, their weight in the tail cell: {names}")?;
        }
        self.fmt_stages(f)?;
        self.fmt_cells(f)?;
        if let Some(cell) = self.largest_epochs() {
            let (name, epochs) = (&cell.name, cell.epochs_at_end);
            writeln!(f, "largest epochs: {epochs:.4} of {name}, cap {}", self.max_epochs)?;
        }
        Ok(())
    }
}

impl MixtureReport {
    fn fmt_stages(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<6}{:>12}{:>12}{:>16}{:>16}{:>20}{:>7}{:>14}",
            "stage",
            "from block",
            "from step",
            "from row",
            "rows",
            "tokens",
            "cells",
            "under a row"
        )?;
        for (index, stage) in self.stages.iter().enumerate() {
            let inside = if stage.begins_with_step { "" } else { " (inside)" };
            writeln!(
                f,
                "{index:<6}{:>12}{:>12}{:>16}{:>16}{:>20}{:>7}{:>14}{inside}",
                stage.from_block,
                stage.first_step,
                stage.first_row,
                stage.rows,
                stage.tokens,
                stage.num_cells,
                stage.under_one_row.len()
            )?;
        }
        for (index, stage) in self.stages.iter().enumerate() {
            if !stage.under_one_row.is_empty() {
                let names = stage.under_one_row.join(" ");
                writeln!(f, "stage {index}, under one row a block: {names}")?;
            }
            if !stage.without_row.is_empty() {
                let names = stage.without_row.join(" ");
                writeln!(f, "stage {index}, without a row in this run: {names}")?;
            }
        }
        Ok(())
    }

    fn fmt_cells(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.cells.iter().map(|cell| cell.name.len()).max().unwrap_or(0).max(4);
        write!(f, "{:<width$}{:>20}", "cell", "tokens")?;
        for stage in 0..self.stages.len() {
            write!(f, "{:>14}{:>12}{:>12}", format!("rows/block {stage}"), "asked", "realised")?;
        }
        writeln!(f, "{:>16}{:>12}", format!("epochs@{}", self.now), "at the end")?;
        for cell in &self.cells {
            write!(f, "{:<width$}{:>20}", cell.name, cell.tokens)?;
            for part in &cell.stages {
                let realised =
                    part.realised.map_or("-".to_owned(), |r| format!("{:.6}%", 100.0 * r));
                let asked = format!("{:.6}%", 100.0 * part.asked);
                write!(f, "{:>14.3}{asked:>12}{realised:>12}", part.rows_per_block)?;
            }
            writeln!(f, "{:>16.4}{:>12.4}", cell.epochs_now, cell.epochs_at_end)?;
        }
        Ok(())
    }
}
