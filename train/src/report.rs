//! The last words of a run: what was learned, how fast, and where everything lies.

use std::path::Path;

use fulmar_eval::EvalReport;
use fulmar_eval::suite::HELDOUT;

use crate::config::RunConfig;
use crate::plan::grouped;
use crate::plot;
use crate::run::{RunOptions, RunSummary};
use crate::samples::Sample;
use crate::telemetry::console;
use crate::telemetry::memory::{self, Sizes};

/// Prints table, loss plot, samples and places, and draws `loss.svg`; nothing on any but the first
/// rank.
pub fn print(config: &RunConfig, options: &RunOptions, summary: &RunSummary) {
    if !summary.first_rank {
        return;
    }
    println!("\n{}", run_table(config, summary));
    if let Some(heldout) = &summary.heldout {
        let bigram = summary.bigram.as_ref();
        let mut table = suite_table(HELDOUT, heldout, bigram.map(|report| ("bigram", report)));
        if bigram.is_none() {
            table +=
                "  (no bigram: it is off, no step was taken, or the run's rows are too many)\n";
        }
        println!("{table}");
    }
    for (name, report) in &summary.suites {
        println!("{}", suite_table(name, report, None));
    }
    println!("{}", load_table(summary));
    let curve = plot::text(&summary.losses);
    if !curve.is_empty() {
        println!("training loss by step (mean of 10)\n{curve}");
    }
    if !summary.samples.is_empty() {
        print_samples(&summary.samples);
    }
    println!("log         {}", summary.log.display());
    print_plot(&summary.losses, &options.out.join("loss.svg"));
    match &summary.checkpoint {
        Some(place) => println!("checkpoint  {place}"),
        None => println!("checkpoint  none: saving is off"),
    }
}

/// A picture that cannot be drawn is no reason to fail a run that has come to its end.
fn print_plot(losses: &[(u64, f64)], path: &Path) {
    if losses.is_empty() {
        return;
    }
    match plot::svg(losses, path) {
        Ok(()) => println!("loss plot   {}", path.display()),
        Err(error) => println!("loss plot   none: {error}"),
    }
}

/// Says where a run that was stopped by a signal goes on.
pub fn print_stopped(recipe: &Path, options: &RunOptions, summary: &RunSummary) {
    if !summary.first_rank {
        return;
    }
    let step = summary.state.step;
    match &summary.checkpoint {
        Some(place) => println!("stopped after {step} updates, saved in {place}"),
        None => println!("stopped after {step} updates; nothing is saved: saving is off"),
    }
    let (recipe, out) = (recipe.display(), options.out.display());
    println!("go on with: train run {recipe} --out {out} --resume (and the same --set)");
}

fn run_table(config: &RunConfig, summary: &RunSummary) -> String {
    let tokens = summary.state.step * config.tokens_per_step();
    let flops = config.model.step_flops(config.tokens_per_step());
    let speed = summary.tokens_per_second(config);
    let rate = speed / config.tokens_per_step() as f64 * flops;
    let loss = match &summary.last {
        Some(last) => format!("{:.4} (cross-entropy {:.4})", last.loss, last.cross_entropy),
        None => "no step was taken".to_owned(),
    };
    let rows = [
        ("steps", grouped(summary.state.step)),
        ("tokens", grouped(tokens)),
        ("training loss", loss),
        ("skipped steps", summary.skipped.to_string()),
        ("training FLOPs", format!("{:.3e}", flops * summary.state.step as f64)),
        ("tokens/s", format!("{speed:.0} ({:.1} GFLOP/s of the model)", rate / 1e9)),
        ("training time", console::time(summary.train_secs)),
        ("peak memory", peak_memory(&Sizes::of(&summary.state))),
    ];
    rows.map(|(name, value)| format!("{name:<16}{value}\n")).concat()
}

fn peak_memory(sizes: &Sizes) -> String {
    let counted = memory::human(sizes.total());
    let counted = format!("{counted} of weights, gradients and optimizer state a rank");
    match memory::peak_resident_bytes() {
        Some(peak) => format!("{} resident; {counted}", memory::human(peak)),
        None => counted,
    }
}

/// Loss and bits per byte of every tag of a suite, their means and all tokens, with the figures of
/// another scorer or exchange beside it under its name.
pub(crate) fn suite_table(
    suite: &str,
    model: &EvalReport,
    beside: Option<(&str, &EvalReport)>,
) -> String {
    let heading = if suite == HELDOUT { "held-out text" } else { suite };
    let longest = model.domains.keys().map(String::len).max().unwrap_or(0);
    let width = longest.max(heading.len()).max(14);
    let mut text = format!("{heading:<width$}     loss   bits/byte");
    if let Some((name, _)) = beside {
        text += &format!("   {name} loss   bits/byte");
    }
    text.push('\n');
    // Under the last letter of the heading, three spaces and ` loss` being around the name.
    let width_beside = beside.map_or(0, |(name, _)| name.len() + 8);
    let mut row = |name: &str, loss: f64, bits: f64, of_other: Option<(f64, f64)>| {
        text += &format!("  {name:<width$} {loss:6.4}      {bits:6.4}");
        if let Some((loss, bits)) = of_other {
            text += &format!("{loss:>width_beside$.4}      {bits:6.4}");
        }
        text.push('\n');
    };
    let other = beside.map(|(_, report)| report);
    for (domain, tally) in &model.domains {
        let of_other = other.and_then(|report| report.domains.get(domain));
        let of_other = of_other.map(|tally| (tally.loss(), tally.bits_per_byte()));
        row(domain, tally.loss(), tally.bits_per_byte(), of_other);
    }
    let macro_of = |report: &EvalReport| (report.macro_loss(), report.macro_bits_per_byte());
    let (loss, bits) = macro_of(model);
    row("macro", loss, bits, other.map(macro_of));
    let micro_of = |report: &EvalReport| (report.total().loss(), report.total().bits_per_byte());
    let (loss, bits) = micro_of(model);
    row("all tokens", loss, bits, other.map(micro_of));
    let (empty, rejected) = (model.empty_documents, model.rejected_documents);
    if empty + rejected > 0 {
        text += &format!("  (besides {empty} empty documents and {rejected} rejected ones)\n");
    }
    text
}

fn load_table(summary: &RunSummary) -> String {
    let Some(last) = &summary.last else { return String::new() };
    let mut text = String::from("experts in the last step   min  mean   max   entropy  dropped\n");
    for (index, layer) in last.layers.iter().enumerate() {
        let counts = &layer.routing.expert_counts;
        let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        let (min, max) = (counts.iter().min(), counts.iter().max());
        text += &format!(
            "  layer {index:<17} {:>4} {mean:>5.1} {:>5}   {:.4}  {:.4}%\n",
            min.copied().unwrap_or(0),
            max.copied().unwrap_or(0),
            layer.routing.entropy(),
            100.0 * layer.counts.drop_fraction(),
        );
    }
    let uniform = last.layers.first().map_or(1, |layer| layer.routing.expert_counts.len());
    text + &format!("  entropy of equal loads is {:.4}\n", (uniform as f64).ln())
}

fn print_samples(samples: &[Sample]) {
    let temperature = samples.first().map_or(0.0, |sample| sample.temperature);
    println!("samples at temperature {temperature}");
    for Sample { prompt, text, .. } in samples {
        println!("  {prompt}|{}", text.replace('\n', "\n    "));
    }
    println!();
}
