//! What is printed.

use std::time::Instant;

use fulmar_ep::capacity::FixedCellCapacity;
use fulmar_ep::{DispatchCounts, WireBytes};

use super::copies::{copied_bytes, pooled_wave};
use super::layer::Rule;
use super::{Case, FACTOR, K, NUM_EXPERTS, RANKS, TOKENS, WAVES};

/// A rank's measurements of one case.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) case: Case,
    /// Begin and end of each timed repetition on this rank.
    pub(crate) spans: Vec<(Instant, Instant)>,
    /// The most that all ranks allocated together in one repetition.
    pub(crate) extra_bytes: usize,
    /// Bytes that left the rank.
    pub(crate) wire: WireBytes,
    pub(crate) counts: DispatchCounts,
}

impl Line {
    pub(crate) fn new(case: Case) -> Self {
        let (wire, counts) = Default::default();
        Self { case, spans: Vec::new(), extra_bytes: 0, wire, counts }
    }
}

/// A case over all ranks.
struct Row {
    name: &'static str,
    /// Of each timed repetition.
    secs: Vec<f64>,
    gigabytes: f64,
    dropped: f64,
    extra_mib: f64,
    analytic_mib: f64,
}

impl Row {
    fn new(lines: Vec<&Line>, width: usize) -> Self {
        let (mut bytes, mut counts) = (0, DispatchCounts::default());
        for line in &lines {
            bytes += line.wire.payload + line.wire.header;
            counts += line.counts;
        }
        let (name, rows) = match lines[0].case {
            Case::Copy => {
                bytes = (RANKS * copied_bytes(width)) as u64;
                ("copy", 0)
            }
            Case::Layer(rule) => (rule.name(), analytic_rows(rule, width)),
        };
        if lines[0].case == Case::Layer(Rule::PooledWave) {
            // A rank's own part is copied too, and is on no wire.
            let needed = (RANKS - 1) * copied_bytes(width);
            assert_eq!(bytes, needed as u64, "the bytes of `copy` are those of `pooled_wave`");
        }
        let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
        Self {
            name,
            secs: (0..lines[0].spans.len()).map(|i| elapsed(&lines, i)).collect(),
            gigabytes: bytes as f64 / 1e9,
            dropped: counts.drop_fraction(),
            extra_mib: mib(lines.iter().map(|line| line.extra_bytes).max().unwrap_or(0)),
            analytic_mib: mib(rows * width * size_of::<f32>()),
        }
    }
}

/// The table of one width; a column of `ranks` is a case.
pub(crate) fn print(width: usize, ranks: &[Vec<Line>]) {
    let cases = 0..ranks[0].len();
    let rows: Vec<Row> =
        cases.map(|case| Row::new(ranks.iter().map(|rank| &rank[case]).collect(), width)).collect();
    let ratio = |row: &Row, name: &str| {
        let base = rows.iter().find(|row| row.name == name).expect("a case of that name");
        median(row.secs.iter().zip(&base.secs).map(|(secs, base)| secs / base).collect())
    };
    println!("c = {width}: {RANKS} ranks, {TOKENS} tokens each, {K} of {NUM_EXPERTS} experts");
    println!("analytic: (waves + 2 ends of an exchange) x rows of a wave x c x 4 bytes, all ranks");
    println!(
        "{:<17}{:>9}{:>12}{:>7}{:>9}{:>9}{:>14}{:>8}{:>11}{:>14}",
        "",
        "ms",
        "tokens/s",
        "GB/s",
        "x copy",
        "x local",
        "x pooled_wave",
        "drops",
        "peak MiB",
        "analytic MiB"
    );
    for row in &rows {
        let secs = median(row.secs.clone());
        println!(
            "{:<17}{:>9.2}{:>12.0}{:>7.2}{:>9.2}{:>9.2}{:>14.2}{:>7.2}%{:>11.1}{:>14.1}",
            row.name,
            secs * 1e3,
            (RANKS * TOKENS) as f64 / secs,
            row.gigabytes / secs,
            ratio(row, "copy"),
            ratio(row, "local"),
            ratio(row, "pooled_wave"),
            100.0 * row.dropped,
            row.extra_mib,
            row.analytic_mib,
        );
    }
    println!();
}

/// Rows that are there at once, of all ranks together: those that each wave keeps from one half to
/// the other, and those at both ends of one exchange. A wave has as many as its sent rows or its
/// experts' rows, whichever are more.
fn analytic_rows(rule: Rule, width: usize) -> usize {
    let n = TOKENS * K;
    let of_rank = |waves: usize, rows: usize| RANKS * (waves + 2) * rows;
    match rule {
        Rule::Local => RANKS * n,
        Rule::PooledWave => {
            let capacity = pooled_wave();
            let header_rows = capacity.pool_rows.div_ceil(width as u64);
            let frame = RANKS as u64 * (capacity.pool_rows + header_rows);
            let experts = NUM_EXPERTS as u64 / RANKS as u64 * capacity.expert_rows;
            of_rank(WAVES, frame.max(experts) as usize)
        }
        Rule::Ragged { .. } => of_rank(1, n),
        Rule::FixedCells => {
            let capacity = FixedCellCapacity::new(n as u64, NUM_EXPERTS as u64, FACTOR);
            of_rank(1, NUM_EXPERTS * capacity.cell_rows as usize)
        }
        Rule::Ring => of_rank(1, n.max(RANKS * TOKENS)),
    }
}

/// Seconds of a repetition, from the first rank's begin to the last one's end.
fn elapsed(lines: &[&Line], repetition: usize) -> f64 {
    let begin = lines.iter().map(|line| line.spans[repetition].0).min();
    let end = lines.iter().map(|line| line.spans[repetition].1).max();
    match (begin, end) {
        (Some(begin), Some(end)) => (end - begin).as_secs_f64(),
        _ => 0.0,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
