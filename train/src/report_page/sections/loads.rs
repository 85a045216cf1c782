//! How often each expert is chosen.

use maud::{Markup, html};

use super::{TOKENS, by_tokens, label, noisy_note, plots};
use crate::error::TrainError;
use crate::plan::grouped;
use crate::report_page::charts::{Chart, Line, Style, missing};
use crate::report_page::colours::Colour;
use crate::report_page::heat::{Heat, LOAD};
use crate::report_page::series;
use crate::report_page::source::{ENTROPY, Source};
use crate::telemetry::loads::{LOADS_FILE, Loads};

/// Loads at the last evaluation, the busiest expert over time, and entropy.
pub(in crate::report_page) fn loads(runs: &[Source]) -> Result<Markup, TrainError> {
    let mut figures = Vec::new();
    for (run, source) in runs.iter().enumerate() {
        let name = label(runs, run);
        match source.loads.last() {
            Some(last) => {
                figures.push(by_expert(source, &name, last)?);
                figures.push(busiest(source, &name)?);
            }
            None => {
                let why = format!(
                    "the run has no {LOADS_FILE}, which is written at each evaluation; its entropy is below."
                );
                figures.push(missing(&format!("Load by layer and expert: {name}"), &why));
            }
        }
    }
    figures.push(entropy(runs)?);
    Ok(html! { (plots(&figures)) })
}

/// Loads of a layer over their mean.
fn over_mean(counts: &[u64]) -> Vec<f64> {
    let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    counts.iter().map(|count| *count as f64 / mean).collect()
}

fn by_expert(source: &Source, name: &str, last: &Loads) -> Result<Markup, TrainError> {
    let experts = last.counts.first().map_or(0, Vec::len);
    let shards = source.config().parallel.shards;
    let of_shard = experts / shards.max(1);
    let (updates, step) = (grouped(last.updates), grouped(last.step));
    let borders = match shards {
        1 => String::new(),
        _ => format!(" Upright lines part the {shards} shards that hold them."),
    };
    Heat {
        title: format!("Load by layer and expert: {name}"),
        caption: format!(
            "How often each expert was chosen in the {updates} updates up to {step}, over all ranks and \
             before drops, over the mean of its layer ({LOADS_FILE}). 1 is balance.{borders}"
        ),
        x: "expert",
        y: "layer",
        edges: (0..=experts).map(|expert| expert as f64).collect(),
        rows: last.counts.iter().map(|counts| over_mean(counts)).collect(),
        scale: LOAD,
        borders: (1..shards).map(|shard| (shard * of_shard) as f64).collect(),
    }
    .figure()
}

fn busiest(source: &Source, name: &str) -> Result<Markup, TrainError> {
    let layers = source.loads.iter().map(|loads| loads.counts.len()).max().unwrap_or(0);
    let most = |layer: usize| {
        let of = |loads: &Loads| match loads.counts.get(layer) {
            Some(counts) => over_mean(counts).into_iter().fold(f64::NAN, f64::max),
            None => f64::NAN,
        };
        source.loads.iter().map(of).collect()
    };
    let ends = source.loads.iter().map(|loads| source.tokens(loads.step));
    Heat {
        title: format!("Busiest expert of each layer: {name}"),
        caption: format!(
            "The highest of those figures in each layer, from one evaluation to the next ({LOADS_FILE})."
        ),
        x: TOKENS,
        y: "layer",
        edges: std::iter::once(0.0).chain(ends).collect(),
        rows: (0..layers).map(most).collect(),
        scale: LOAD,
        borders: Vec::new(),
    }
    .figure()
}

fn entropy(runs: &[Source]) -> Result<Markup, TrainError> {
    let mut chart = Chart::new("Distance from equal loads", TOKENS, "nats");
    for (run, source) in runs.iter().enumerate() {
        let Some(curve) = source.curve(ENTROPY) else { continue };
        let equal = (source.config().model.num_experts as f64).ln();
        let gap: Vec<_> = by_tokens(source, curve, 1.0)
            .into_iter()
            .map(|(tokens, entropy)| (tokens, equal - entropy))
            .collect();
        let points = series::moving_mean(&gap, series::window(gap.len()));
        let (name, colour) = (Some(label(runs, run)), Colour::Series(run));
        chart.lines.push(Line { name, colour, style: Style::Line, points });
    }
    chart.from_zero = true;
    let note = noisy_note(runs, ENTROPY).replace("Pale: each update. ", "");
    chart.caption = format!(
        "Entropy that equal loads of all experts would have, less that of the loads of an update, mean \
         over layers ({ENTROPY}). 0 is balance; few tokens in an update keep it above. {note}"
    );
    chart.figure()
}
