//! The end of an experiment: what came out, by the rule that was written before.

use std::path::{Path, PathBuf};

use super::conclusion::{CONCLUSION_FILE, Conclusion, CriterionFinding, MeasureFinding, Verdict};
use super::findings::MadeRun;
use super::protocol::{Protocol, Source};
use super::readme::{README_FILE, render};
use super::seal::{Seal, as_json, digest_without, now, write};
use crate::error::TrainError;

/// How an experiment is closed.
#[derive(Debug, Clone)]
pub struct CloseOptions {
    /// Folder in which the runs' folders lie, by their names.
    pub runs: PathBuf,
    /// The verdict; that of the criteria when absent.
    pub verdict: Option<Verdict>,
    /// What was learnt.
    pub text: String,
}

/// Closes the experiment in `folder`, once: reads its runs, applies its criteria, writes the result.
///
/// # Errors
/// If the seal does not hold, a run was not made, not for this experiment or not as planned, or the
/// verdict is not that of the criteria; `inconclusive` may lack runs. Nothing is written then.
pub fn close(folder: &Path, options: &CloseOptions) -> Result<Conclusion, TrainError> {
    let seal = Seal::checked(folder)?;
    if folder.join(CONCLUSION_FILE).exists() {
        let problem = "it is closed already; what is learnt later is another experiment";
        return Err(TrainError::experiment(folder, problem));
    }
    if options.text.trim().is_empty() {
        return Err(TrainError::config("--text", "empty", "what was learnt"));
    }
    let protocol = Protocol::read(folder)?;
    let mut conclusion = Conclusion {
        verdict: Verdict::Inconclusive,
        text: options.text.trim().to_owned(),
        closed_unix_secs: now(),
        release: env!("CARGO_PKG_VERSION").to_owned(),
        seal: seal.digest.clone(),
        runs: Vec::new(),
        missing: Vec::new(),
        measures: Vec::new(),
        criteria: Vec::new(),
        page: String::new(),
        digest: String::new(),
    };
    if protocol.source == Source::Runs {
        read_runs(&mut conclusion, &protocol, folder, &seal, &options.runs)?;
    }
    conclusion.verdict = verdict(&conclusion, &protocol, folder, options)?;
    let page = render(&protocol, &seal, Some(&conclusion));
    conclusion.page = digest_without(&page, "");
    conclusion.digest = digest_without(&as_json(&conclusion), "");
    write(&folder.join(CONCLUSION_FILE), &as_json(&conclusion))?;
    write(&folder.join(README_FILE), &page)?;
    Ok(conclusion)
}

/// Every run, measure and criterion into the conclusion.
fn read_runs(
    conclusion: &mut Conclusion,
    protocol: &Protocol,
    folder: &Path,
    seal: &Seal,
    runs: &Path,
) -> Result<(), TrainError> {
    let mut made = Vec::new();
    for planned in &protocol.runs {
        let (name, place) = (&planned.name, runs.join(&planned.name));
        match MadeRun::read(name, place, folder, seal, &protocol.measures)? {
            Some(run) => made.push(run),
            None => conclusion.missing.push(name.clone()),
        }
    }
    for (index, measure) in protocol.measures.iter().enumerate() {
        let value = |run: &MadeRun| (run.evidence.name.clone(), run.value(index, measure));
        let values = made.iter().map(value).collect();
        conclusion.measures.push(MeasureFinding { name: measure.name.clone(), values });
    }
    for criterion in &protocol.criteria {
        let finding = conclusion.measures.iter().find(|finding| finding.name == criterion.measure);
        let of_run = |run: &str| *finding?.values.get(run)?;
        let value = criterion.value(of_run).filter(|value| value.is_finite());
        let (text, met) = (criterion.text.clone(), criterion.is_met(value));
        conclusion.criteria.push(CriterionFinding { text, value, met });
    }
    conclusion.runs = made.into_iter().map(|run| run.evidence).collect();
    Ok(())
}

/// The verdict that is asked for, where it may be given.
fn verdict(
    conclusion: &Conclusion,
    protocol: &Protocol,
    folder: &Path,
    options: &CloseOptions,
) -> Result<Verdict, TrainError> {
    if protocol.source == Source::PublicRecord {
        let problem = || TrainError::config("--verdict", "absent", "that of the public record");
        return options.verdict.ok_or_else(problem);
    }
    if options.verdict == Some(Verdict::Inconclusive) {
        return Ok(Verdict::Inconclusive);
    }
    complete(conclusion, folder)?;
    let all_met = conclusion.criteria.iter().all(|criterion| criterion.met);
    let by_rule = if all_met { Verdict::Accepted } else { Verdict::Rejected };
    match options.verdict {
        Some(asked) if asked != by_rule => {
            let rule = format!("`{by_rule}`, which is what the criteria say, or `inconclusive`");
            Err(TrainError::config("--verdict", asked, rule))
        }
        _ => Ok(by_rule),
    }
}

/// Whether every planned run was made and logged what is measured. One that did not come to its end
/// meets no criterion.
fn complete(conclusion: &Conclusion, folder: &Path) -> Result<(), TrainError> {
    let advice = "make it, or close with `--verdict inconclusive` and say why";
    let refuse = |problem: String| Err(TrainError::experiment(folder, problem));
    if let Some(name) = conclusion.missing.first() {
        return refuse(format!("the planned run {name} was not made; {advice}"));
    }
    for finding in &conclusion.measures {
        for run in conclusion.runs.iter().filter(|run| run.is_finished()) {
            if finding.values[&run.name].is_none() {
                let measure = &finding.name;
                return refuse(format!("the run {} logged nothing of {measure:?}", run.name));
            }
        }
    }
    Ok(())
}
