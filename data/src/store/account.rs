//! What became of the documents of every file, as text.

use super::manifest::SourceEntry;
use crate::{Ledger, Reason};

/// Lines of a table with a column for each reason that left anything out.
pub(super) fn table(sources: &[SourceEntry]) -> String {
    let reasons: Vec<Reason> = Reason::ALL
        .into_iter()
        .filter(|&reason| sources.iter().any(|source| source.ledger.left_out(reason) > 0))
        .collect();
    let mut rows = vec![heading(&reasons)];
    rows.extend(
        sources.iter().map(|source| row(&source.name, &source.ledger, source.num_tokens, &reasons)),
    );
    if sources.len() > 1 {
        let all = sources.iter().fold(Ledger::default(), |sum, source| sum.and(&source.ledger));
        let tokens = sources.iter().map(|source| source.num_tokens).sum();
        rows.push(row(&format!("all {} files", sources.len()), &all, tokens, &reasons));
    }
    align(&rows)
}

fn heading(reasons: &[Reason]) -> Vec<String> {
    let reasons = reasons.iter().map(|reason| reason.name());
    let before = ["file", "documents"].into_iter();
    before.chain(reasons).chain(["kept", "bytes", "tokens"]).map(str::to_owned).collect()
}

fn row(name: &str, ledger: &Ledger, tokens: u64, reasons: &[Reason]) -> Vec<String> {
    let left_out = reasons.iter().map(|&reason| ledger.left_out(reason));
    let counts = [ledger.documents].into_iter().chain(left_out);
    let counts = counts.chain([ledger.kept, ledger.text_bytes, tokens]);
    [name.to_owned()].into_iter().chain(counts.map(|count| count.to_string())).collect()
}

/// Columns as wide as their widest entry: the first to the left, numbers to the right.
fn align(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..rows[0].len()).filter_map(width).collect();
    let mut text = String::new();
    for row in rows {
        text += &format!("{:<1$}", row[0], widths[0]);
        for (entry, width) in row.iter().zip(&widths).skip(1) {
            text += &format!("  {entry:>width$}");
        }
        text.push('\n');
    }
    text
}
