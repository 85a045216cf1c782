//! Rates, stages of the mixture and lengths of rows.

use maud::{Markup, html};

use super::{TOKENS, cell, named, plots, smooth, table, with_marks};
use crate::error::TrainError;
use crate::plan::grouped;
use crate::report_page::charts::{Chart, Style};
use crate::report_page::series;
use crate::report_page::source::{MIXTURE_STAGE, RATE_ADAM, RATE_MUONH, SEQ_LEN, Source};

/// Cells of a stage that are named; the others are summed up.
const SHOWN_CELLS: usize = 4;

/// What was in force by tokens, and what is planned.
pub(in crate::report_page) fn schedule(runs: &[Source]) -> Result<Markup, TrainError> {
    let rate = |title: &str, metric: &str| {
        let mut chart = with_marks(Chart::new(title, TOKENS, "rate"), runs);
        chart.lines = smooth(runs, metric, Style::Line);
        chart.from_zero = true;
        chart.caption = format!("The rate of each update, no unit ({metric}).");
        chart.figure()
    };
    let mut figures = vec![
        rate("Learning rate, MuonH and AdamH", RATE_MUONH)?,
        rate("Learning rate, Adam", RATE_ADAM)?,
    ];
    figures.extend(if_it_changes(runs, "Stage of the mixture", MIXTURE_STAGE, "stage, from 0")?);
    figures.extend(if_it_changes(runs, "Length of a row", SEQ_LEN, "tokens")?);
    let plan = |(run, source): (usize, &Source)| {
        let config = source.config();
        vec![
            named(runs, run),
            cell(mixture(source)),
            cell(rows(source)),
            cell(config.parallel.dispatch_at(source.steps()).name()),
            cell(grouped(source.plan.warmup_steps)),
            cell(format!("{:.6}", source.plan.peaks.lr_muonh)),
            cell(format!("{:.6}", source.plan.peaks.lr_adam)),
        ]
    };
    let plans: Vec<_> = runs.iter().enumerate().map(plan).collect();
    let head = [
        "run",
        "mixture",
        "rows",
        "exchange",
        "warm-up updates",
        "peak, MuonH and AdamH",
        "peak, Adam",
    ];
    Ok(html! {
        (plots(&figures))
        h3 { "The plan in force" }
        (table(&head, 4, &plans))
    })
}

/// A metric that is worth a plot only where a run has more than one value of it.
fn if_it_changes(
    runs: &[Source],
    title: &str,
    metric: &str,
    unit: &'static str,
) -> Result<Option<Markup>, TrainError> {
    let changes = |source: &Source| {
        source.curve(metric).is_some_and(|curve| {
            let mut values = curve.points.values();
            let first = values.next();
            values.any(|value| Some(value) != first)
        })
    };
    if !runs.iter().any(changes) {
        return Ok(None);
    }
    let mut chart = with_marks(Chart::new(title, TOKENS, unit), runs);
    chart.lines = smooth(runs, metric, Style::Line);
    for line in &mut chart.lines {
        line.points = series::stairs(&line.points);
    }
    chart.from_zero = true;
    chart.caption = format!("Of each update ({metric}).");
    chart.figure().map(Some)
}

fn mixture(source: &Source) -> String {
    let config = source.config();
    let Some(stages) = &config.data.stages else {
        return "one stage, each cell by its tokens".to_owned();
    };
    let stage = |stage: &fulmar_data::Stage| {
        let step = stage.from_block * config.data.block_rows / config.batch.rows;
        let mut cells: Vec<_> = stage.weights.iter().collect();
        cells.sort_by(|a, b| b.1.total_cmp(a.1));
        let shown =
            cells.iter().take(SHOWN_CELLS).map(|(cell, weight)| format!("{cell} {weight:.3}"));
        let rest = cells.len().saturating_sub(SHOWN_CELLS);
        let rest = (rest > 0).then(|| format!("{rest} others"));
        let cells: Vec<String> = shown.chain(rest).collect();
        format!("from update {}: {}", grouped(step), cells.join(", "))
    };
    stages.iter().map(stage).collect::<Vec<_>>().join("; ")
}

fn rows(source: &Source) -> String {
    let config = source.config();
    let first = format!("{} of {} tokens", grouped(config.batch.rows), config.model.max_seq_len);
    let later = config.context.iter().map(|stage| match stage.opened_at {
        Some(batch) => format!("{} tokens since batch {}", stage.seq_len, grouped(batch)),
        None => {
            format!("{} tokens planned from update {}", stage.seq_len, grouped(stage.from_step))
        }
    });
    std::iter::once(first).chain(later).collect::<Vec<_>>().join("; ")
}
