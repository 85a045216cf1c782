//! The page around its sections.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::colours;
use super::sections;
use super::{Contents, State};
use crate::error::TrainError;

const STYLE: &str = include_str!("style.css");

/// What a browser is to refuse: every request and every script, also if text of a run got into the page
/// as markup.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// A section: what links call it, its heading, and what it has.
type Section = (&'static str, &'static str, Markup);

/// The whole page as HTML.
///
/// # Errors
/// If a plot cannot be drawn.
pub(super) fn page(contents: &Contents) -> Result<String, TrainError> {
    let Contents { runs, forecast, experiments } = contents;
    let forecast = forecast.as_ref();
    let sections: [Section; 13] = [
        ("runs", "Runs", sections::runs(runs)),
        ("loss", "Loss", sections::loss(runs, forecast)?),
        ("gradient", "Gradient norm", sections::gradient(runs, forecast)?),
        ("drops", "Dropped assignments", sections::drops(runs)?),
        ("loads", "Load of experts", sections::loads(runs)?),
        ("speed", "Speed", sections::speed(runs)?),
        ("schedule", "Learning rate, mixture and rows", sections::schedule(runs)?),
        ("evaluations", "Evaluations by tag", sections::evaluations(runs)?),
        ("events", "Events", sections::events(runs)),
        ("flops", "FLOPs", sections::flops(runs)),
        ("lineage", "Lineage", sections::lineage(runs)?),
        ("experiments", "Experiments, also those that failed", sections::experiments(experiments)),
        ("origin", "Where this comes from", sections::origin(runs)),
    ];
    let names: Vec<&str> = runs.iter().map(super::Source::name).collect();
    let title = format!("Report: {}", names.join(", "));
    Ok(html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                // No request for a picture of the page, which a browser else makes.
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(colours::css())) (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (title) }
                    p { (summary(contents)) }
                    nav {
                        @for (id, heading, _) in &sections { a href={ "#" (id) } { (heading) } }
                    }
                }
                main {
                    @for (id, heading, markup) in &sections {
                        section id=(id) { h2 { (heading) } (markup) }
                    }
                }
            }
        }
    }
    .into_string())
}

fn summary(contents: &Contents) -> String {
    let count = |state: State| contents.runs.iter().filter(|run| run.state() == state).count();
    let all = contents.runs.len();
    let runs = if all == 1 { "One run".to_owned() } else { format!("{all} runs") };
    let states = [
        (State::Finished, "finished"),
        (State::Ended, "ended before the horizon"),
        (State::Stopped, "stopped"),
        (State::Open, "going on or cut off"),
        (State::NotBegun, "not begun"),
    ];
    let states = states.into_iter().filter(|(state, _)| count(*state) > 0);
    let states: Vec<String> =
        states.map(|(state, name)| format!("{} {name}", count(state))).collect();
    format!("{runs}: {}. Everything here is read from the runs' own files.", states.join(", "))
}
