//! Tokens a second, the share of the hardware that is used, and where time goes.

use maud::{Markup, html};

use super::{TOKENS, cell, noisy, noisy_note, plots, table, with_marks};
use crate::error::TrainError;
use crate::report_page::charts::Chart;
use crate::report_page::source::{MFU, Source, phases};
use crate::telemetry::names;

/// Speed by tokens and time by phase.
pub(in crate::report_page) fn speed(runs: &[Source]) -> Result<Markup, TrainError> {
    let mut tokens = with_marks(Chart::new("Speed", TOKENS, "tokens a second"), runs);
    tokens.lines = noisy(runs, names::TOKENS_PER_SECOND, 1.0);
    tokens.from_zero = true;
    tokens.caption = format!(
        "Tokens of an update over its seconds, from batch to updated weights, all ranks together ({}). {}",
        names::TOKENS_PER_SECOND,
        noisy_note(runs, names::TOKENS_PER_SECOND)
    );
    let mut mfu =
        with_marks(Chart::new("Use of the hardware (MFU)", TOKENS, "percent of peak"), runs);
    mfu.lines = noisy(runs, MFU, 1.0);
    mfu.from_zero = true;
    mfu.caption = format!(
        "Training FLOPs of the model, output head included and nothing counted twice, over those that the \
         device could do in the same time ({MFU}); whether that peak was given or measured says \
         throughput/peak_source of the log. {}",
        noisy_note(runs, MFU)
    );
    Ok(html! {
        (plots(&[tokens.figure()?, mfu.figure()?]))
        h3 { "Where time goes" }
        (by_phase(runs))
        p.note {
            "Sums of " code { "throughput/*_time" } " over the updates that count, as shares of all of them."
        }
    })
}

fn by_phase(runs: &[Source]) -> Markup {
    let sums = |source: &Source| -> Vec<(String, f64)> {
        phases(source)
            .map(|(phase, curve)| {
                let secs = curve.points.values().filter(|secs| secs.is_finite()).sum();
                (phase.replace('_', " "), secs)
            })
            .collect()
    };
    let of_runs: Vec<_> = runs.iter().map(sums).collect();
    let mut names: Vec<&String> = of_runs.iter().flatten().map(|(phase, _)| phase).collect();
    names.sort();
    names.dedup();
    let labels: Vec<String> = (0..runs.len()).map(|run| super::label(runs, run)).collect();
    let head: Vec<&str> =
        std::iter::once("phase").chain(labels.iter().map(String::as_str)).collect();
    let share = |sums: &[(String, f64)], phase: &str| {
        let total: f64 = sums.iter().map(|(_, secs)| secs).sum();
        let own = sums.iter().find(|(name, _)| name == phase).map(|(_, secs)| *secs);
        let share = own.filter(|_| total > 0.0).map(|secs| 100.0 * secs / total);
        cell(share.map_or("–".to_owned(), |share| format!("{share:.1}%")))
    };
    let row = |phase: &&String| {
        let shares = of_runs.iter().map(|sums| share(sums, phase));
        std::iter::once(cell(phase)).chain(shares).collect()
    };
    let mut rows: Vec<Vec<Markup>> = names.iter().map(row).collect();
    let totals = of_runs.iter().map(|sums| {
        let secs: f64 = sums.iter().map(|(_, secs)| secs).sum();
        cell(crate::telemetry::console::time(secs))
    });
    rows.push(std::iter::once(cell("all")).chain(totals).collect());
    table(&head, 1, &rows)
}
