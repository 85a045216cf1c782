//! Training and held-out loss, against the forecast where there is one.

use fulmar_eval::forecast::Band;
use maud::{Markup, html};

use super::{
    TOKENS, by_progress, cell, label, noisy, noisy_note, number, plots, smooth, table, with_marks,
};
use crate::error::TrainError;
use crate::forecast::Preregistration;
use crate::report_page::charts::{Area, Chart, Line, Style, Top, missing};
use crate::report_page::colours::Colour;
use crate::report_page::source::Source;
use crate::telemetry::names;

const NATS: &str = "nats a token";
/// Loss falls too fast at first for one axis: it is drawn up to the highest loss after this share.
const AFTER_START: Top = Top::After(0.04);

/// Loss by tokens, and what was forecast.
pub(in crate::report_page) fn loss(
    runs: &[Source],
    forecast: Option<&Preregistration>,
) -> Result<Markup, TrainError> {
    let target = forecast.and_then(|forecast| Target::among(runs, forecast));
    let mut figures = vec![training(runs)?, heldout(runs, forecast, target.as_ref())?];
    if runs.len() > 1 {
        figures.push(heldout_by_progress(runs)?);
    }
    if let Some(target) = &target {
        figures.push(target.deviation(runs)?);
    }
    Ok(html! {
        (plots(&figures))
        @match (forecast, &target) {
            (None, _) => {
                (missing("Forecast", "no preregistered forecast was given (--forecast FILE)."))
            }
            (Some(forecast), None) => {
                (missing("Forecast", &format!(
                    "the forecast is of the run {:?}, which is not among these.", forecast.target
                )))
            }
            (Some(_), Some(target)) => { (target.table()) }
        }
    })
}

fn training(runs: &[Source]) -> Result<Markup, TrainError> {
    let mut chart = with_marks(Chart::new("Training loss", TOKENS, NATS), runs);
    chart.lines = noisy(runs, names::LOSS, 1.0);
    chart.top = AFTER_START;
    chart.caption = format!(
        "Cross-entropy plus weighted z-loss of each update's own batch (train/loss). {}",
        noisy_note(runs, names::LOSS)
    );
    chart.figure()
}

fn heldout(
    runs: &[Source],
    forecast: Option<&Preregistration>,
    target: Option<&Target<'_>>,
) -> Result<Markup, TrainError> {
    let metric = target.map_or(names::HELDOUT_LOSS, |_| forecast.map_or("", |file| &file.metric));
    let mut chart = with_marks(Chart::new("Held-out loss", TOKENS, NATS), runs);
    chart.lines = smooth(runs, metric, Style::Dots);
    chart.top = AFTER_START;
    chart.caption = format!(
        "Mean over domains of the loss on text that is not trained on, without drops ({metric})."
    );
    if let Some(target) = target {
        let place = |band: &Band| target.tokens(band);
        let bands = || target.forecast.loss_band.iter();
        chart.area = Some(Area {
            name: format!("band of the forecast of {}", target.forecast.target),
            points: bands().map(|band| (place(band), band.low, band.high)).collect(),
        });
        let points = bands().map(|band| (place(band), band.mid)).collect();
        let name = Some("forecast".to_owned());
        chart.lines.insert(0, Line { name, colour: Colour::Forecast, style: Style::Line, points });
        chart.caption +=
            " The band was written down before the run; how it is made is in its file.";
    }
    chart.figure()
}

fn heldout_by_progress(runs: &[Source]) -> Result<Markup, TrainError> {
    let mut chart = Chart::new("Held-out loss at equal progress", "percent of the run", NATS);
    let line = |(run, source): (usize, &Source)| {
        let points = by_progress(source, source.curve(names::HELDOUT_LOSS)?, 1.0);
        let (name, colour) = (Some(label(runs, run)), Colour::Series(run));
        Some(Line { name, colour, style: Style::Dots, points })
    };
    chart.lines = runs.iter().enumerate().filter_map(line).collect();
    chart.top = AFTER_START;
    chart.caption =
        "The same (eval/heldout/macro_loss) by the share of its updates that a run has made: \
        rungs of a ladder compare at equal progress."
            .to_owned();
    chart.figure()
}

/// The run that a forecast is of.
struct Target<'a> {
    run: usize,
    source: &'a Source,
    forecast: &'a Preregistration,
}

impl<'a> Target<'a> {
    fn among(runs: &'a [Source], forecast: &'a Preregistration) -> Option<Self> {
        let run = runs.iter().position(|source| source.name() == forecast.target)?;
        Some(Self { run, source: &runs[run], forecast })
    }

    fn step(&self, band: &Band) -> u64 {
        (band.progress as u64 * self.source.config().schedule.horizon()).div_ceil(100)
    }

    fn tokens(&self, band: &Band) -> f64 {
        self.source.tokens(self.step(band))
    }

    /// What was measured at the first update by which the band's progress is made.
    fn measured(&self, band: &Band) -> Option<f64> {
        let curve = self.source.curve(&self.forecast.metric)?;
        curve.points.get(&self.step(band)).copied().filter(|loss| loss.is_finite())
    }

    fn deviation(&self, runs: &[Source]) -> Result<Markup, TrainError> {
        let mut chart = Chart::new("Distance from the forecast", TOKENS, "nats");
        let bands = || self.forecast.loss_band.iter();
        let points: Vec<_> = bands()
            .filter_map(|band| Some((self.tokens(band), self.measured(band)? - band.mid)))
            .collect();
        let (name, colour) = (Some(label(runs, self.run)), Colour::Series(self.run));
        if !points.is_empty() {
            let ends = bands().map(|band| (self.tokens(band), 0.0)).collect();
            let name = Some("forecast".to_owned());
            let zero = Line { name, colour: Colour::Forecast, style: Style::Line, points: ends };
            chart.lines.push(zero);
            chart.area = Some(Area {
                name: "band".to_owned(),
                points: bands()
                    .map(|band| (self.tokens(band), band.low - band.mid, band.high - band.mid))
                    .collect(),
            });
        }
        chart.lines.push(Line { name, colour, style: Style::Dots, points });
        chart.caption = format!(
            "Measured less forecast loss ({}) at each point of the forecast; below zero is better than \
             forecast.",
            self.forecast.metric
        );
        chart.figure()
    }

    fn table(&self) -> Markup {
        let forecast = self.forecast;
        let row = |band: &Band| {
            let measured = self.measured(band);
            let inside = measured.map(|loss| (band.low..=band.high).contains(&loss));
            vec![
                cell(format!("{}%", band.progress)),
                number(Some(band.low), 4),
                number(Some(band.mid), 4),
                number(Some(band.high), 4),
                number(measured, 4),
                cell(measured.map_or("–".to_owned(), |loss| format!("{:+.4}", loss - band.mid))),
                cell(inside.map_or("not yet", |inside| if inside { "inside" } else { "outside" })),
            ]
        };
        let rows: Vec<_> = forecast.loss_band.iter().map(row).collect();
        let rungs: Vec<&str> = forecast.rungs.iter().map(|rung| rung.name.as_str()).collect();
        html! {
            h3 { "Forecast of " (forecast.target) }
            p.note {
                "Written down on " (super::date(forecast.made_unix_secs)) " from the runs "
                (rungs.join(", ")) ", for a law above " (forecast.asymptote) " nats; digest "
                code { (forecast.digest) } "."
            }
            (table(&["progress", "least", "forecast", "most", "measured", "distance", "band"], 1, &rows))
        }
    }
}
