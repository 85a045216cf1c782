//! `train data cluster`.

use std::path::PathBuf;

use clap::Args;
use fulmar_data::Assign as _;
use fulmar_data::cells::{ClusterModel, ClusterSettings, Features, TextFeatures};
use serde_json::json;

use super::files::Files;
use crate::error::TrainError;

/// Flags of `data cluster`.
#[derive(Debug, Args)]
pub struct ClusterArgs {
    /// What is clustered.
    #[command(flatten)]
    pub files: Files,
    /// The model file to write.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Number of clusters, which become domains c00, c01, ...
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub clusters: usize,
    /// Places that words are hashed into.
    #[arg(long, value_name = "N", default_value_t = 1_024)]
    pub dim: usize,
    /// Words of the longest n-gram.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub max_words: usize,
    /// Cluster given embeddings of so many numbers instead of words.
    #[arg(long, value_name = "DIM", conflicts_with_all = ["dim", "max_words"])]
    pub embedding: Option<usize>,
    /// Documents that clusters are made of, drawn from all.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub sample: usize,
    /// Iterations at most.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub iterations: u64,
    /// Seed of the draw and of the first centroids.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl ClusterArgs {
    pub(super) fn execute(&self) -> Result<(), TrainError> {
        let reading = self.files.open()?;
        let model = ClusterModel::train(reading.documents(), &self.settings())?;
        model.write(&self.out)?;
        if self.json {
            let of = |c: &fulmar_data::cells::Cluster| {
                json!({
                    "name": c.name, "documents": c.documents, "words": c.words,
                    "examples": c.examples,
                })
            };
            let clusters: Vec<_> = model.clusters().iter().map(of).collect();
            let distance = model.mean_squared_distance();
            let (out, digest) = (&self.out, model.digest());
            let report = json!({
                "out": out, "digest": digest, "mean_squared_distance": distance,
                "clusters": clusters, "left_out": reading.left_out(),
            });
            println!("{report:#}");
        } else {
            print!("{model}");
            reading.say_left_out();
            println!("written to {}, digest {}", self.out.display(), model.digest());
        }
        Ok(())
    }

    fn settings(&self) -> ClusterSettings {
        let Self { clusters, max_words, dim, sample, seed, iterations, .. } = *self;
        let features = match self.embedding {
            Some(dim) => Features::Embedding(dim),
            None => Features::Text(TextFeatures { max_words, dim }),
        };
        ClusterSettings { num_clusters: clusters, features, sample, seed, iterations }
    }
}
