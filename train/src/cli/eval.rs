//! `train eval`.

use std::path::PathBuf;

use clap::Args;
use fulmar_eval::SuiteConfig;
use fulmar_eval::suite::DocumentLines;

use crate::device::DeviceChoice;
use crate::error::TrainError;
use crate::evaluate::{self, EvaluateOptions, evaluate};

/// Flags of `eval`.
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// Folders of runs, checkpoints or exports.
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// Completed updates of the checkpoints; those of the newest when absent.
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    pub step: Vec<u64>,
    /// JSON-lines files of held-out text instead of the recipe's.
    #[arg(long, value_name = "FILE,..", value_delimiter = ',', conflicts_with = "heldout_store")]
    pub heldout: Vec<PathBuf>,
    /// A store of held-out text instead of the recipe's.
    #[arg(long, value_name = "DIR")]
    pub heldout_store: Option<PathBuf>,
    /// A suite instead of the recipe's: a folder with a file or folder a tag.
    #[arg(long, value_name = "NAME=DIR", value_parser = suite)]
    pub suite: Vec<SuiteConfig>,
    /// Write the summed loss of every document to a file of JSON lines.
    #[arg(long, value_name = "FILE")]
    pub documents: Option<PathBuf>,
    /// Where stores of files are cached.
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Rows of a forward pass, instead of the recipe's; changes no figure.
    #[arg(long, value_name = "N")]
    pub batch_rows: Option<usize>,
    /// Evaluate with the exchange of training too, which may drop.
    #[arg(long)]
    pub as_trained: bool,
    /// Append each evaluation to evaluations.jsonl in the run's folder.
    #[arg(long)]
    pub record: bool,
    /// auto, cpu, wgpu or cuda.
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub device: DeviceChoice,
    /// Print JSON, a line an evaluation.
    #[arg(long)]
    pub json: bool,
}

impl EvalArgs {
    pub(super) fn execute(self) -> Result<(), TrainError> {
        let options = EvaluateOptions {
            steps: self.step,
            device: self.device,
            heldout: self.heldout,
            heldout_store: self.heldout_store,
            suites: self.suite,
            cache: self.cache,
            batch_rows: self.batch_rows,
            as_trained: self.as_trained,
        };
        let documents = self.documents.as_deref().map(DocumentLines::create);
        let mut documents = documents.transpose()?;
        evaluate(&self.runs, &options, &mut |run, evaluation| {
            if self.json {
                let line = serde_json::to_string(&evaluation.metrics());
                println!("{}", line.expect("plain values"));
            } else {
                println!("{}", evaluation.table());
            }
            if let Some(lines) = &mut documents {
                evaluation.write_documents(lines)?;
            }
            if self.record { evaluate::record(run, &evaluation) } else { Ok(()) }
        })
    }
}

fn suite(text: &str) -> Result<SuiteConfig, String> {
    let Some((name, folder)) = text.split_once('=') else {
        return Err("needed a name and a folder, such as paloma=texts/paloma".to_owned());
    };
    let suite = SuiteConfig::of_folder(name, folder);
    suite.validate().map_err(|error| error.to_string())?;
    Ok(suite)
}
