//! The page of an experiment, for people: rendered from its files, and never read.

use std::fmt::Write as _;

use chrono::DateTime;

use super::conclusion::Conclusion;
use super::measure::{By, Criterion};
use super::protocol::{PROTOCOL_FILE, Protocol, Source};
use super::seal::{Seal, recipe_file};

/// Name of the page in an experiment's folder.
pub const README_FILE: &str = "README.md";

/// The page as Markdown.
pub fn render(protocol: &Protocol, seal: &Seal, conclusion: Option<&Conclusion>) -> String {
    let mut page = Page::default();
    page.line(&format!("# {}", protocol.title));
    page.line(&status(protocol, seal, conclusion));
    page.section("Hypothesis", &protocol.hypothesis);
    page.section("Plan", &protocol.plan);
    page.section("Acceptance rule", &protocol.acceptance);
    page.criteria(protocol, conclusion);
    page.runs(protocol, conclusion);
    page.measures(protocol, conclusion);
    page.facts(protocol);
    if let Some(conclusion) = conclusion {
        page.section(&format!("Result: {}", conclusion.verdict), &conclusion.text);
    }
    page.line(&format!(
        "This page is rendered from `{PROTOCOL_FILE}` and what the program wrote beside it; \
         `train experiment list` checks all of it."
    ));
    page.0
}

fn status(protocol: &Protocol, seal: &Seal, conclusion: Option<&Conclusion>) -> String {
    let sealed = format!("sealed {} as `{:.16}`", date(seal.sealed_unix_secs), seal.digest);
    let written = match protocol.source {
        Source::Runs => "hypothesis, plan and rule were written before the first step",
        Source::PublicRecord => {
            "a public record: what others did, written down afterwards, with our own figures beside it"
        }
    };
    match conclusion {
        None => format!("**Open**, {sealed}: {written}."),
        Some(Conclusion { verdict, closed_unix_secs, .. }) => {
            let mut verdict = verdict.to_string();
            verdict[..1].make_ascii_uppercase();
            format!("**{verdict}**, closed {}, {sealed}: {written}.", date(*closed_unix_secs))
        }
    }
}

/// A page that grows.
#[derive(Default)]
struct Page(String);

impl Page {
    /// A paragraph or a title.
    fn line(&mut self, text: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.0 += text.trim();
        self.0.push('\n');
    }

    fn section(&mut self, title: &str, text: &str) {
        self.line(&format!("## {title}"));
        self.line(text);
    }

    /// A table: its head, and a row a row of cells.
    fn table(&mut self, head: &[&str], rows: impl Iterator<Item = Vec<String>>) {
        let row = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| cell_text(cell)).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let head: Vec<String> = head.iter().map(ToString::to_string).collect();
        let mut text = row(&head) + &format!("|{}\n", "---|".repeat(head.len()));
        rows.for_each(|cells| text += &row(&cells));
        self.line(&text);
    }

    fn criteria(&mut self, protocol: &Protocol, conclusion: Option<&Conclusion>) {
        if protocol.criteria.is_empty() {
            return;
        }
        let row = |(index, criterion): (usize, &Criterion)| {
            let mut cells = vec![criterion.text.clone(), compared(criterion), limits(criterion)];
            if let Some(finding) = conclusion.and_then(|all| all.criteria.get(index)) {
                cells.push(finding.value.map_or("none".to_owned(), figure));
                cells.push(if finding.met { "yes" } else { "no" }.to_owned());
            }
            cells
        };
        let head = ["criterion", "what is compared", "needed", "found", "met"];
        let head = &head[..if conclusion.is_some() { 5 } else { 3 }];
        self.table(head, protocol.criteria.iter().enumerate().map(row));
    }

    fn runs(&mut self, protocol: &Protocol, conclusion: Option<&Conclusion>) {
        if protocol.runs.is_empty() {
            return;
        }
        self.line("## Runs");
        let head = ["run", "changes", "steps", "first start", "log (BLAKE3)"];
        let head = &head[..if conclusion.is_some() { 5 } else { 2 }];
        let rows = protocol.runs.iter().map(|run| {
            let link = format!("[{}]({})", run.name, recipe_file(&run.name));
            let recipe = run.recipe.file_name().unwrap_or_default().to_string_lossy();
            let changes: Vec<String> = run.set.iter().map(|set| format!("`{set}`")).collect();
            let mut cells = vec![link, format!("`{recipe}` {}", changes.join(" "))];
            let Some(conclusion) = conclusion else { return cells };
            match conclusion.runs.iter().find(|made| made.name == run.name) {
                Some(made) => cells.extend([
                    format!("{} of {}", made.steps, made.horizon),
                    date(made.started_unix_secs),
                    format!("`{:.12}`", made.log.digest),
                ]),
                None => cells.extend(["not made".to_owned(), String::new(), String::new()]),
            }
            cells
        });
        self.table(head, rows);
    }

    fn measures(&mut self, protocol: &Protocol, conclusion: Option<&Conclusion>) {
        if protocol.measures.is_empty() {
            return;
        }
        self.line("## Measures");
        let said = protocol.measures.iter().map(|measure| {
            let from = match measure.from {
                0.0 => String::new(),
                share => format!(", beyond {}% of the run", 100.0 * share),
            };
            format!("- {}: {} of `{}`{from}", measure.name, measure.take.name(), measure.metric)
        });
        let said: Vec<String> = said.collect();
        self.line(&said.join("\n"));
        let Some(conclusion) = conclusion else { return };
        let names = protocol.measures.iter().map(|measure| measure.name.as_str());
        let head: Vec<&str> = std::iter::once("run").chain(names).collect();
        let rows = conclusion.runs.iter().map(|run| {
            let values = conclusion.measures.iter().map(|finding| {
                finding.values.get(&run.name).copied().flatten().map_or("none".to_owned(), figure)
            });
            std::iter::once(run.name.clone()).chain(values).collect()
        });
        self.table(&head, rows);
    }

    fn facts(&mut self, protocol: &Protocol) {
        if protocol.facts.is_empty() {
            return;
        }
        self.line("## Figures");
        let rows = protocol.facts.iter().map(|fact| {
            let public = format!("{} ({})", fact.public, fact.source);
            let ours = if fact.how.is_empty() {
                fact.ours.clone()
            } else {
                format!("{} ({})", fact.ours, fact.how)
            };
            vec![fact.what.clone(), public, ours]
        });
        self.table(&["what", "public record", "ours"], rows);
    }
}

/// One line, whose bars end no cell.
fn cell_text(cell: &str) -> String {
    cell.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn compared(criterion: &Criterion) -> String {
    let Criterion { measure, of, against, by, .. } = criterion;
    let runs = |names: &[String]| names.join(", ");
    match (against.is_empty(), by) {
        (true, _) => format!("{measure}: {}", runs(of)),
        (false, By::Difference) => format!("{measure}: {} less {}", runs(of), runs(against)),
        (false, By::Ratio) => format!("{measure}: {} divided by {}", runs(of), runs(against)),
    }
}

fn limits(criterion: &Criterion) -> String {
    let mut text = String::new();
    for (words, limit) in [("at least", criterion.at_least), ("at most", criterion.at_most)] {
        if let Some(limit) = limit {
            let comma = if text.is_empty() { "" } else { ", " };
            write!(text, "{comma}{words} {limit}").expect("text");
        }
    }
    text
}

fn figure(value: f64) -> String {
    format!("{value:.5}")
}

/// `2026-01-31 12:00 UTC`.
fn date(unix_secs: u64) -> String {
    let date = i64::try_from(unix_secs).ok().and_then(|secs| DateTime::from_timestamp(secs, 0));
    date.map_or("at an unknown time".to_owned(), |date| {
        date.format("%Y-%m-%d %H:%M UTC").to_string()
    })
}
