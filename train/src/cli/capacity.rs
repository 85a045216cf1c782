//! `train capacity`.

use std::path::PathBuf;

use clap::{ArgAction, Args};
use fulmar_ep::replay::RowFormat;

use crate::capacity::{self, Concentration, Documents, Drawn, Exchange, Synthetic};
use crate::error::TrainError;

/// Flags of `capacity`; the defaults are the published run's.
#[derive(Debug, Args)]
pub struct CapacityArgs {
    /// Shards that exchange.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub shards: usize,
    /// Experts of a layer.
    #[arg(long, value_name = "N", default_value_t = 384)]
    pub experts: usize,
    /// Experts of a token.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub top_k: usize,
    /// Tokens of a shard.
    #[arg(long, value_name = "N", default_value_t = 65_536)]
    pub tokens: usize,
    /// Tokens of a row.
    #[arg(
        long,
        value_name = "N,..",
        value_delimiter = ',',
        default_value = "4096,8192,65536,262144"
    )]
    pub rows: Vec<usize>,
    /// Capacity factors.
    #[arg(
        long,
        value_name = "X,..",
        value_delimiter = ',',
        default_value = "1,1.05,1.1,1.15,1.25,1.33"
    )]
    pub factors: Vec<f64>,
    /// Waves of the pooled-wave rule.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub waves: usize,
    /// Elements of a row that travels.
    #[arg(long, value_name = "N", default_value_t = 3_072)]
    pub latent: u64,
    /// Bytes of an element.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub element_bytes: u64,
    /// Document tokens: row (all), N or lognormal:MEDIAN:SIGMA.
    #[arg(long, value_name = "LENGTH", default_value_t = Documents::Row)]
    pub documents: Documents,
    /// Whether biases that even out the batch before apply.
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        action = ArgAction::Set,
        hide_possible_values = true
    )]
    pub balanced: bool,
    /// How much documents resemble each other; fitted when absent.
    #[arg(long, value_name = "X", conflicts_with = "fit")]
    pub concentration: Option<f64>,
    /// Share that pooled-wave drops at 1.15 in rows of 4,096.
    #[arg(long, value_name = "SHARE", default_value_t = 0.03)]
    pub fit: f64,
    /// Seed of all that is drawn.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Replay recorded choices: safetensors, int32 `selected` and maybe `valid`.
    #[arg(long, value_name = "FILE", requires = "experts", conflicts_with_all = DRAWN)]
    pub choices: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Flags that say nothing about recorded choices.
const DRAWN: [&str; 9] =
    ["shards", "top_k", "tokens", "rows", "documents", "balanced", "concentration", "fit", "seed"];

impl CapacityArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        let report = match &self.choices {
            Some(file) => capacity::plan_recorded(&self.exchange(), file)?,
            None => capacity::plan(&self.exchange(), &self.drawn())?,
        };
        if self.json {
            println!("{}", report.to_json());
        } else {
            print!("{report}");
        }
        Ok(())
    }

    /// Who exchanges.
    pub fn exchange(&self) -> Exchange {
        Exchange {
            shards: self.shards,
            num_experts: self.experts,
            experts_per_token: self.top_k,
            tokens: self.tokens,
            waves: self.waves,
            payload: RowFormat { width: self.latent, element_bytes: self.element_bytes },
            factors: self.factors.clone(),
        }
    }

    /// What is drawn.
    pub fn drawn(&self) -> Drawn {
        let Self { documents, balanced, seed, .. } = *self;
        Drawn {
            rows: self.rows.clone(),
            synthetic: Synthetic { documents, balanced, seed },
            concentration: match self.concentration {
                Some(given) => Concentration::Given(given),
                None => Concentration::Fit(self.fit),
            },
        }
    }
}
