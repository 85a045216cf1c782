//! Records of experiments, whatever came of them.

use std::path::Path;

use maud::{Markup, html};

use crate::error::TrainError;
use crate::experiment::{Conclusion, Protocol, Seal, Source, Standing};
use crate::report_page::charts::missing;

/// What the page shows of a record.
#[derive(Debug, Clone)]
pub(in crate::report_page) struct Experiment {
    protocol: Protocol,
    standing: Standing,
    conclusion: Option<Conclusion>,
}

impl Experiment {
    /// The record in `folder`; what does not check in it is shown, not refused.
    ///
    /// # Errors
    /// If its protocol cannot be read, or it is altered while it is read.
    pub(in crate::report_page) fn read(folder: &Path) -> Result<Self, TrainError> {
        let (protocol, standing) = (Protocol::read(folder)?, Standing::of(folder));
        let conclusion = match standing.verdict {
            Some(_) => Conclusion::checked(folder, &Seal::checked(folder)?.digest)?,
            None => None,
        };
        Ok(Self { protocol, standing, conclusion })
    }
}

/// A card a record, negative results like others.
pub(in crate::report_page) fn experiments(records: &Option<Vec<Experiment>>) -> Markup {
    let title = "Experiments";
    match records {
        None => missing(title, "no folder of experiment records was given (--experiments DIR)."),
        Some(records) if records.is_empty() => {
            missing(title, "the folder that was given has no experiment record.")
        }
        Some(records) => html! {
            @for record in records { (card(record)) }
        },
    }
}

fn card(record: &Experiment) -> Markup {
    let Experiment { protocol, standing, conclusion } = record;
    html! {
        div.card {
            h3 { (protocol.title) " — " (standing.state()) }
            @if let Some(problem) = &standing.problem {
                p.plain { b { "Does not check: " } (problem) }
            }
            p.plain { b { "Expected: " } (protocol.hypothesis) }
            p.plain { b { "Counts as right when: " } (protocol.acceptance) }
            @if let Some(conclusion) = conclusion {
                p.plain { b { "Came out: " } (conclusion.text) }
                ul {
                    @for criterion in &conclusion.criteria {
                        li {
                            (criterion.text) ": "
                            @match criterion.value {
                                Some(value) => { (format!("{value:.5}")) }
                                None => { "no value" }
                            }
                            @if criterion.met { ", met" } @else { ", not met" }
                        }
                    }
                }
                @if !conclusion.missing.is_empty() {
                    p.plain { "Planned runs that were not made: " (conclusion.missing.join(", ")) }
                }
            }
            @if !protocol.facts.is_empty() {
                ul {
                    @for fact in &protocol.facts {
                        li {
                            (fact.what) ": " (fact.public)
                            @if !fact.ours.is_empty() { "; ours: " (fact.ours) }
                        }
                    }
                }
            }
            p { code { (standing.folder.display()) }
                @if protocol.source == Source::PublicRecord { ", from the public record" } }
        }
    }
}
