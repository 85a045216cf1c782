//! The forecast of one run.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::error::refused;
use super::{ForecastError, Ladder, NUM_POINTS, PowerLaw, Rung};

/// Rungs that a forecast needs: two fix a law, the third shows whether it holds.
pub const MIN_RUNGS: usize = 3;

/// Distances of other asymptotes that are looked at, in nats.
pub const SWEEP: [f64; 3] = [-0.1, 0.0, 0.1];

/// The forecast at one point of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct At {
    /// Progress in percent.
    pub progress: usize,
    /// FLOPs that the run has spent by then.
    pub flops: f64,
    /// The law through the rungs at this progress.
    pub law: PowerLaw,
    /// The loss it gives.
    pub predicted: f64,
    /// Rungs that stopped before, whose loss here is a line.
    pub extrapolated: Vec<String>,
}

/// The end of the run, forecast without one of the rungs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The rung that was left out.
    pub rung: String,
    /// The forecast.
    pub predicted: f64,
    /// What it says of that rung's own end, and what that was.
    pub own: (f64, f64),
}

/// What a run will reach.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// The run.
    pub target: String,
    /// Its points, each 5%, as far as there are rungs enough.
    pub points: Vec<At>,
    /// The end without each of the rungs.
    pub left_out: Vec<LeftOut>,
    /// Asymptotes, and the end with each.
    pub sweep: Vec<(f64, f64)>,
}

impl Forecast {
    /// Forecasts a run of the ladder's table from all that have losses.
    ///
    /// # Errors
    /// An unknown run; fewer than three rungs; two of equal FLOPs; a loss that is not a number above the
    /// asymptote, or of other asymptotes of the sweep.
    pub fn new(ladder: &Ladder, target: &str, asymptote: f64) -> Result<Self, ForecastError> {
        let flops = ladder.flops(target)?;
        let rungs = rungs_but(ladder, target)?;
        check(&rungs, asymptote)?;
        let points = (0..NUM_POINTS)
            .map(|point| at(&rungs, point, flops, asymptote))
            .collect::<Result<Vec<_>, _>>()?;
        let end = NUM_POINTS - 1;
        let left_out = (0..rungs.len()).map(|left| without(&rungs, left, flops, asymptote));
        let mut sweep = Vec::new();
        for step in SWEEP {
            let other = asymptote + step;
            check(&rungs, other)?;
            sweep.push((other, at(&rungs, end, flops, other)?.predicted));
        }
        Ok(Self { target: target.to_owned(), points, left_out: left_out.collect(), sweep })
    }

    /// The forecast at 100%.
    pub fn end(&self) -> &At {
        &self.points[NUM_POINTS - 1]
    }

    /// The least and the largest end with a rung left out.
    pub fn range(&self) -> (f64, f64) {
        let ends = self.left_out.iter().map(|left| left.predicted);
        ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), end| {
            (low.min(end), high.max(end))
        })
    }
}

/// The rungs of a table without the run that is to be forecast.
pub(super) fn rungs_but(ladder: &Ladder, target: &str) -> Result<Vec<Rung>, ForecastError> {
    Ok(ladder.rungs()?.into_iter().filter(|rung| rung.name != target).collect())
}

pub(super) fn check(rungs: &[Rung], asymptote: f64) -> Result<(), ForecastError> {
    if rungs.len() < MIN_RUNGS {
        let (found, progress) = (rungs.len(), 100);
        return Err(ForecastError::TooFew { found, progress, needed: MIN_RUNGS });
    }
    rungs.iter().try_for_each(|rung| rung.check(asymptote))?;
    match rungs.windows(2).find(|pair| pair[0].flops == pair[1].flops) {
        None => Ok(()),
        Some(pair) => Err(ForecastError::EqualCompute {
            first: pair[0].name.clone(),
            second: pair[1].name.clone(),
            flops: pair[0].flops,
        }),
    }
}

/// FLOPs spent and losses, and the names of rungs whose loss is extrapolated.
pub(super) type Losses = (Vec<(f64, f64)>, Vec<String>);

/// The rungs at a point.
pub(super) fn losses(
    rungs: &[Rung],
    point: usize,
    asymptote: f64,
) -> Result<Losses, ForecastError> {
    let (mut points, mut extrapolated) = (Vec::new(), Vec::new());
    for rung in rungs {
        let Some(at) = rung.at(point) else { continue };
        if at.loss <= asymptote {
            let what = format!("extrapolated loss at {}%", progress(point));
            let needed = format!("a number above the asymptote, {asymptote}");
            return Err(refused(&rung.name, what, at.loss, needed));
        }
        points.push((spent(rung.flops, point), at.loss));
        if at.extrapolated {
            extrapolated.push(rung.name.clone());
        }
    }
    if points.len() < MIN_RUNGS {
        let (found, progress) = (points.len(), progress(point));
        return Err(ForecastError::TooFew { found, progress, needed: MIN_RUNGS });
    }
    Ok((points, extrapolated))
}

fn at(rungs: &[Rung], point: usize, flops: f64, asymptote: f64) -> Result<At, ForecastError> {
    let (points, extrapolated) = losses(rungs, point, asymptote)?;
    let (law, flops) = (PowerLaw::fit(&points, asymptote), spent(flops, point));
    Ok(At { progress: progress(point), flops, law, predicted: law.loss(flops), extrapolated })
}

/// The end without rung `left`; all have an end, which was checked before.
fn without(rungs: &[Rung], left: usize, flops: f64, asymptote: f64) -> LeftOut {
    let end = |rung: &Rung| rung.at(NUM_POINTS - 1).map_or(f64::NAN, |at| at.loss);
    let others = rungs.iter().enumerate().filter(|(index, _)| *index != left);
    let points: Vec<(f64, f64)> = others.map(|(_, rung)| (rung.flops, end(rung))).collect();
    let (law, rung) = (PowerLaw::fit(&points, asymptote), &rungs[left]);
    let own = (law.loss(rung.flops), end(rung));
    LeftOut { rung: rung.name.clone(), predicted: law.loss(flops), own }
}

/// Progress at a point, in percent.
pub(super) fn progress(point: usize) -> usize {
    100 / NUM_POINTS * (point + 1)
}

/// FLOPs that a run has spent at a point.
pub(super) fn spent(flops: f64, point: usize) -> f64 {
    flops * (point + 1) as f64 / NUM_POINTS as f64
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, points, left_out, sweep } = self;
        let law = &self.end().law;
        writeln!(f, "{target}, L = {} + A C^-alpha at equal progress", law.asymptote)?;
        writeln!(f, "C: FLOPs spent so far, without the output head")?;
        writeln!(f, "progress         FLOPs          A     alpha  forecast  extrapolated")?;
        for At { progress, flops, law, predicted, extrapolated } in points {
            let (amplitude, exponent) = (law.amplitude, law.exponent);
            let line = format!(
                "{progress:>7}%  {flops:>12.5e}  {amplitude:>9.4}  {exponent:.6}  {predicted:>8.4}  {}",
                extrapolated.join(", ")
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        let (low, high) = self.range();
        writeln!(f, "end {:.6}; without one rung {low:.4} to {high:.4}:", self.end().predicted)?;
        for LeftOut { rung, predicted, own: (law, reached) } in left_out {
            writeln!(
                f,
                "  without {rung}: {predicted:.4}, and {law:.4} for {rung}, which reached {reached:.4}"
            )?;
        }
        let ends = sweep.iter().map(|(asymptote, end)| format!("{asymptote:.1}: {end:.4}"));
        writeln!(f, "by asymptote: {}", ends.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_golden_ladder_is_reproduced_to_every_printed_digit() {
        let ladder = Ladder::published().expect("the shipped table");
        let forecast = Forecast::new(&ladder, "d6144", 1.5).expect("four rungs");
        let At { law, predicted, .. } = forecast.end();
        assert_eq!(format!("{predicted:.6}"), "2.038785");
        assert_eq!(format!("{:.6}", law.amplitude), "84.787593");
        assert_eq!(format!("{:.7}", law.exponent), "0.0899757");
        let (low, high) = forecast.range();
        assert_eq!(format!("{low:.4} {high:.4}"), "2.0378 2.0415");
        let sweep: Vec<String> =
            forecast.sweep.iter().map(|(_, end)| format!("{end:.4}")).collect();
        assert_eq!(sweep, ["2.0227", "2.0388", "2.0571"]);
        let rungs = ladder.rungs().expect("with FLOPs");
        assert_eq!(format!("{:.7}", rungs[3].at(19).expect("a line").loss), "2.4087081");
        // By progress, in thousandths (the public record's own table).
        let by_progress: Vec<String> =
            forecast.points.iter().map(|at| format!("{:.4}", at.predicted)).collect();
        let published = "2.3921 2.3261 2.2872 2.2571 2.2402 2.2234 2.2142 2.1853 2.1918 2.1724 \
                         2.1491 2.1352 2.1237 2.1105 2.0971 2.0852 2.0775 2.0643 2.0505 2.0388";
        assert_eq!(by_progress.join(" "), published);
        let marked: Vec<usize> = forecast
            .points
            .iter()
            .filter(|at| !at.extrapolated.is_empty())
            .map(|at| at.progress)
            .collect();
        assert_eq!(marked, [85, 90, 95, 100]);
        assert_eq!(forecast.end().extrapolated, ["d2048"]);
    }

    fn altered(change: impl FnOnce(&mut Ladder)) -> ForecastError {
        let mut ladder = Ladder::published().expect("the shipped table");
        change(&mut ladder);
        Forecast::new(&ladder, "d6144", 1.5).expect_err("a bad ladder")
    }

    #[test]
    fn what_cannot_be_forecast_is_said() {
        let said = |change: fn(&mut Ladder)| altered(change).to_string();
        let few = said(|ladder| {
            ladder.values.remove("d768");
            ladder.values.remove("d1024");
        });
        assert!(few.contains("found 2 rung(s)") && few.contains("needed 3"), "{few}");
        let equal = said(|ladder| {
            let flops = ladder.flops_without_head["d768"];
            ladder.flops_without_head.insert("d1024".to_owned(), flops);
        });
        assert!(equal.contains("`d1024` and `d768`") || equal.contains("`d768` and `d1024`"));
        let empty = said(|ladder| {
            ladder.values.insert("d768".to_owned(), Vec::new());
            ladder.values.remove("d1024");
        });
        assert!(empty.contains("at 5% of their run"), "{empty}");
        let nan = said(|ladder| ladder.values.get_mut("d768").expect("there")[3] = f64::NAN);
        assert!(nan.contains("rung `d768`: loss at 20% is NaN"), "{nan}");
        let unknown = said(|ladder| ladder.flops_without_head.retain(|run, _| run != "d6144"));
        assert!(unknown.contains("no FLOPs of `d6144`"), "{unknown}");
        // An asymptote that the sweep raises above a loss.
        let ladder = Ladder::published().expect("the shipped table");
        let high = Forecast::new(&ladder, "d6144", 2.45).expect_err("too high").to_string();
        assert!(high.contains("above the asymptote"), "{high}");
    }
}
