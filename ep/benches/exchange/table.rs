//! What is printed.

use fulmar_ep::capacity::FixedCellCapacity;
use fulmar_ep::{DispatchCounts, WireBytes};

use super::copies::{copied_bytes, pooled_wave};
use super::layer::Rule;
use super::{Case, FACTOR, K, NUM_EXPERTS, RANKS, TOKENS, WAVES};

/// A rank's measurements of one case.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) case: Case,
    /// Of each timed repetition.
    pub(crate) secs: Vec<f64>,
    /// The most that all ranks allocated together in one repetition.
    pub(crate) extra_bytes: usize,
    /// Bytes that left the rank.
    pub(crate) wire: WireBytes,
    pub(crate) counts: DispatchCounts,
}

impl Line {
    pub(crate) fn new(case: Case) -> Self {
        let (wire, counts) = Default::default();
        Self { case, secs: Vec::new(), extra_bytes: 0, wire, counts }
    }
}

/// A case over all ranks.
struct Row {
    name: &'static str,
    secs: f64,
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
        let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
        Self {
            name,
            secs: median(&lines[0].secs),
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
    let secs = |name: &str| rows.iter().find(|row| row.name == name).map_or(1.0, |row| row.secs);
    println!("c = {width}: {RANKS} ranks, {TOKENS} tokens each, {K} of {NUM_EXPERTS} experts");
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
        println!(
            "{:<17}{:>9.2}{:>12.0}{:>7.2}{:>9.2}{:>9.2}{:>14.2}{:>7.2}%{:>11.1}{:>14.1}",
            row.name,
            row.secs * 1e3,
            (RANKS * TOKENS) as f64 / row.secs,
            row.gigabytes / row.secs,
            row.secs / secs("copy"),
            row.secs / secs("local"),
            row.secs / secs("pooled_wave"),
            100.0 * row.dropped,
            row.extra_mib,
            row.analytic_mib,
        );
    }
    println!();
}

/// Rows that are there at once, of all ranks together: of each wave what it keeps from one half to
/// the other, and both ends of one exchange.
fn analytic_rows(rule: Rule, width: usize) -> usize {
    let n = TOKENS * K;
    let of_rank = |waves: usize, rows: usize| RANKS * (waves + 2) * rows;
    match rule {
        Rule::Local => 2 * RANKS * n,
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

fn median(secs: &[f64]) -> f64 {
    let mut secs = secs.to_vec();
    secs.sort_by(f64::total_cmp);
    secs[secs.len() / 2]
}
