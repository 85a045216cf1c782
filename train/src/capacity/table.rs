//! A plan to read, at most 100 columns wide.

use std::fmt;

use super::compare::{Comparison, HIT, Verdict};
use super::documents::Documents;
use super::fit::Fit;
use super::record::Part;
use super::report::{Block, Origin, Report};
use super::settings::{Drawn, Exchange};
use super::sweep::{ALARM, GOAL, Gate, Line};
use crate::plan::grouped;

const GIB: f64 = (1_u64 << 30) as f64;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.exchange)?;
        match &self.origin {
            Origin::Drawn { settings, concentration, fit, blocks, record } => {
                drawn(f, settings, *concentration, fit.as_ref())?;
                legend(f)?;
                blocks.iter().try_for_each(|block| write!(f, "\n{block}"))?;
                comparisons(f, record)
            }
            Origin::Recorded { file, layers, lines } => {
                let plural = if *layers == 1 { "layer" } else { "layers" };
                writeln!(f, "  choices    {layers} {plural} recorded in {file}")?;
                legend(f)?;
                writeln!(f)?;
                table(f, lines)
            }
        }
    }
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [self.shards, self.tokens, self.num_experts, self.experts_per_token];
        let [shards, tokens, experts, k] = counts.map(|count| grouped(count as u64));
        writeln!(f, "{shards} shards of {tokens} tokens; {experts} experts, {k} a token")?;
        let width = grouped(self.payload.width);
        writeln!(
            f,
            "  payload    rows of {width} elements of {} bytes",
            self.payload.element_bytes
        )?;
        writeln!(
            f,
            "  factor     that of senders and of receivers; pooled-wave in {} waves",
            self.waves
        )
    }
}

fn drawn(
    f: &mut fmt::Formatter<'_>,
    settings: &Drawn,
    concentration: f64,
    fit: Option<&Fit>,
) -> fmt::Result {
    let documents = match settings.synthetic.documents {
        Documents::Row => "one a row, the worst case".to_owned(),
        Documents::Fixed(tokens) => format!("of {} tokens", grouped(tokens as u64)),
        Documents::LogNormal { median, sigma } => {
            format!("log-normal, {median} tokens in the median, sigma {sigma}")
        }
    };
    let balanced = match settings.synthetic.balanced {
        true => "by biases that even out the batch before",
        false => "only over all documents there could be",
    };
    writeln!(f, "  documents  {documents}; seed {}", settings.synthetic.seed)?;
    writeln!(f, "  balanced   {balanced}")?;
    write!(f, "  topics     concentration {concentration:.4}, ")?;
    match fit {
        None => writeln!(f, "as given"),
        Some(fit) => writeln!(
            f,
            "fitted to pooled-wave {} at rows of {}: {} ({} replays)",
            fit.factor,
            grouped(fit.row_tokens as u64),
            percent(fit.reached),
            fit.probes
        ),
    }
}

fn legend(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let [goal, alarm] = [GOAL, ALARM].map(percent);
    writeln!(
        f,
        "  drops      of all valid assignments; goal: at most {goal}, ALARM: above {alarm}"
    )?;
    writeln!(f, "  memory     GiB of one shard in one layer's forward pass: buffers, wire")?;
    writeln!(f, "  padding    expert rows without an assignment; header: its share of the wire")
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [row, documents] = [self.row_tokens, self.documents].map(|n| grouped(n as u64));
        writeln!(f, "rows of {row} tokens, {documents} documents")?;
        table(f, &self.lines)
    }
}

fn table(f: &mut fmt::Formatter<'_>, lines: &[Line]) -> fmt::Result {
    writeln!(
        f,
        "  rule         factor   dropped    sender  receiver         buffers  padding   wire   \
         header"
    )?;
    let mut last = "";
    for line in lines {
        let rule = if line.rule == last { "" } else { line.rule };
        last = line.rule;
        let gate = match line.gate {
            Gate::Goal => "goal",
            Gate::Between => "",
            Gate::Alarm => "ALARM",
        };
        let footprint = &line.footprint;
        writeln!(
            f,
            "  {rule:<12} {:>6.2} {:>9} {:>9} {:>9}  {gate:<5} {:>8.2} {:>8} {:>6.2} {:>8}",
            line.factor,
            percent(line.drop_fraction),
            percent(line.sender_drop_fraction),
            percent(line.receiver_drop_fraction),
            footprint.buffer_bytes as f64 / GIB,
            percent(line.padding_share),
            footprint.wire_bytes as f64 / GIB,
            percent(footprint.header_bytes as f64 / footprint.wire_bytes.max(1) as f64),
        )?;
    }
    Ok(())
}

fn comparisons(f: &mut fmt::Formatter<'_>, record: &[Comparison]) -> fmt::Result {
    if record.is_empty() {
        return writeln!(f, "\nthe public record is of another setting, and is left out");
    }
    writeln!(
        f,
        "\nthe public record, each run in its own setting; within a factor {HIT} is a hit\n  \
         run                        rule       factor  drops        recorded predicted"
    )?;
    for case in record {
        let part = match case.part {
            Part::Total => "all",
            Part::Sender => "sender",
            Part::Receiver => "receiver",
        };
        let verdict = match case.verdict {
            Verdict::Hit => "hit",
            Verdict::Miss => "MISS",
            Verdict::Fitted => "fitted",
        };
        writeln!(
            f,
            "  {:<26} {:<11} {:>5.2}  {part:<8} {:>12} {:>9}  {verdict:<6} {}",
            case.what,
            case.rule,
            case.factor,
            recorded(case),
            percent(case.predicted),
            case.source
        )?;
    }
    let count = |verdict| record.iter().filter(|case| case.verdict == verdict).count();
    writeln!(f, "  {} hit, {} missed", count(Verdict::Hit), count(Verdict::Miss))
}

/// A range as it was recorded: `3.4-3.5%`, `18.05%`, `<=0.01%`.
fn recorded(case: &Comparison) -> String {
    // Three decimals hold what was recorded and no rounding of percent to share and back.
    let [low, high] = [case.recorded_low, case.recorded_high].map(|share| {
        let percent = format!("{:.3}", 100.0 * share);
        percent.trim_end_matches('0').trim_end_matches('.').to_owned()
    });
    match case.recorded_low {
        0.0 => format!("<={high}%"),
        _ if low == high => format!("{high}%"),
        _ => format!("{low}-{high}%"),
    }
}

/// A share in percent, with digits enough for small ones; exactly none is `0`.
fn percent(share: f64) -> String {
    match 100.0 * share {
        0.0 => "0".to_owned(),
        percent if percent < 0.1 => format!("{percent:.4}%"),
        percent if percent < 10.0 => format!("{percent:.2}%"),
        percent => format!("{percent:.1}%"),
    }
}
