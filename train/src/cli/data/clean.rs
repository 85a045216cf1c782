//! `train data clean`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use fulmar_data::clean::{
    CleanSettings, CleanSource, Cleaned, ContaminationSettings, EvaluationTexts, FuzzySettings,
    Shingle, clean,
};
use fulmar_data::{Pool, Reason, Source};

use super::files::{Files, Reading};
use crate::error::TrainError;
use crate::plan::grouped;

/// Flags of `data clean`.
#[derive(Debug, Args)]
pub struct CleanArgs {
    /// What is cleaned.
    #[command(flatten)]
    pub files: Files,
    /// The decisions file to write.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Evaluation texts to look for; may be repeated.
    #[arg(long, value_name = "FILE")]
    pub evaluation: Vec<String>,
    /// Words of a run that is looked for.
    #[arg(long, value_name = "N", default_value_t = 13)]
    pub ngram: usize,
    /// Runs of one evaluation text that a document may not share.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub min_count: usize,
    /// Share of the text's runs that it may not hold.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub min_share: f64,
    /// Look for equal texts alone, not for similar ones.
    #[arg(long, conflicts_with_all = ["shingle", "threshold", "seed"])]
    pub exact_only: bool,
    /// What similarity is of: words:N or characters:N.
    #[arg(long, value_name = "UNIT:N", default_value_t = Shingle::Words(5))]
    pub shingle: Shingle,
    /// Estimated Jaccard similarity of near duplicates.
    #[arg(long, value_name = "X", default_value_t = 0.75)]
    pub threshold: f64,
    /// Keep what is `duplicate`, `near_duplicate` or `contaminated`.
    #[arg(long, value_name = "FILE=WHY,..")]
    pub exempt: Vec<Exemption>,
    /// Seed of the hash functions.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// A file and what is kept of it.
#[derive(Clone, Debug)]
pub struct Exemption {
    file: String,
    reasons: Vec<Reason>,
}

impl FromStr for Exemption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const REASONS: [Reason; 3] =
            [Reason::Duplicate, Reason::NearDuplicate, Reason::Contaminated];
        let (file, names) = text.rsplit_once('=').ok_or("need FILE=REASON,..")?;
        let reason = |name: &str| {
            let found = REASONS.into_iter().find(|reason| reason.name() == name);
            found.ok_or_else(|| {
                format!("no reason `{name}`: duplicate, near_duplicate or contaminated")
            })
        };
        let reasons = names.split(',').map(reason).collect::<Result<_, _>>()?;
        Ok(Self { file: file.into(), reasons })
    }
}

impl CleanArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        let evaluation = self.evaluation()?;
        let reading = self.files.open()?;
        let sources = self.clean_sources(&reading)?;
        let Cleaned { decisions, report } = clean(&self.settings(), evaluation.as_ref(), sources)?;
        decisions.write(&self.out)?;
        if self.json {
            println!("{}", report.to_json());
        } else {
            print!("{report}");
            reading.say_left_out();
            let left_out = grouped(decisions.all().len() as u64);
            println!("{left_out} documents left out, in {}", self.out.display());
        }
        Ok(())
    }

    fn settings(&self) -> CleanSettings {
        let Self { shingle, threshold, seed, .. } = *self;
        let fuzzy = FuzzySettings { shingle, threshold, seed, ..FuzzySettings::default() };
        let fuzzy = (!self.exact_only).then_some(fuzzy);
        CleanSettings { fuzzy, ..CleanSettings::default() }
    }

    fn evaluation(&self) -> Result<Option<EvaluationTexts>, TrainError> {
        if self.evaluation.is_empty() {
            return Ok(None);
        }
        let Self { ngram, min_count, min_share, .. } = *self;
        let settings = ContaminationSettings { ngram, min_count, min_share };
        Ok(Some(EvaluationTexts::new(settings, Reading::open(&self.evaluation)?.documents())?))
    }

    fn clean_sources(&self, reading: &Reading) -> Result<Vec<CleanSource<'static>>, TrainError> {
        let Pool { sources, options } = &reading.pool;
        let named = |exempt: &&Exemption| sources.iter().any(|it| it.name() == exempt.file);
        if let Some(stranger) = self.exempt.iter().find(|exempt| !named(exempt)) {
            let found = &stranger.file;
            return Err(TrainError::config("--exempt", found, "one of the files that are cleaned"));
        }
        let source = |source: &Source| {
            let own = self.exempt.iter().filter(|exempt| exempt.file == source.name());
            let extra: Vec<Reason> = own.flat_map(|exempt| exempt.reasons.clone()).collect();
            CleanSource::new(source, *options, &extra, &reading.left_out)
        };
        Ok(sources.iter().map(source).collect::<Result<_, _>>()?)
    }
}
