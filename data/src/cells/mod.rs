//! Cells by computation: a domain by clustering, a quality level by a score.
//!
//! Each is trained once on a bounded sample and kept as a model file; after that the cell of a
//! document is a pure function of the document and of the files ([`Cells`], an
//! [`Assign`](crate::Assign)).
//!
//! - [`ClusterModel`]: k-means over hashed n-grams of the text or over given embeddings; the domains
//!   are `c00`, `c01`, ...
//! - [`QualityModel`]: a given score, or that of a linear model trained on good and bad examples, cut
//!   into buckets of equal size; the levels are 0 (lowest) to 4.

mod assign;
mod cluster;
mod features;
mod floats;
mod model_file;
mod quality;
mod sample;
mod scale;
mod scorer;
mod words;

pub use assign::Cells;
pub use cluster::{Cluster, ClusterModel, ClusterSettings};
pub use features::{FEATURE_BYTES, Features, TextFeatures};
pub use model_file::MODEL_VERSION;
pub use quality::{Cut, QualityModel, QualitySettings};
pub use scorer::{HeldOut, Scorer, ScorerSettings};
