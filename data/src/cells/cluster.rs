//! Domains by k-means.

use std::fmt;
use std::path::Path;

use linfa::DatasetBase;
use linfa::traits::Fit;
use linfa_clustering::KMeans;
use ndarray::{Array2, Axis};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::features::{Features, TextFeatures, head};
use super::model_file::{self, Model};
use super::sample::Sample;
use super::scale::Scale;
use super::{floats, words};
use crate::{Assign, CellKey, DataError, Document, Result};

/// Documents nearest to a centroid that are named.
const NUM_EXAMPLES: usize = 5;

/// Largest change of all centroids together, as a distance, at which an iteration is the last.
const TOLERANCE: f32 = 1e-4;

/// How clusters are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSettings {
    /// Number of clusters, 40 as the published mixture has domains.
    pub num_clusters: usize,
    /// What a document is seen as.
    pub features: Features,
    /// Documents that clusters are made of, drawn from all. Memory while they are made: for each, at
    /// most [`FEATURE_BYTES`](super::FEATURE_BYTES) of its text and 8 bytes a feature.
    pub sample: usize,
    /// Seed of the draw, and by its order of the first centroids.
    pub seed: u64,
    /// Iterations at most.
    pub iterations: u64,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        let features = Features::Text(TextFeatures { max_words: 1, dim: 1_024 });
        Self { num_clusters: 40, features, sample: 20_000, seed: 0, iterations: 50 }
    }
}

/// Clusters of documents: the domain of a document is the nearest centroid's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterModel {
    settings: ClusterSettings,
    documents: u64,
    sampled: u64,
    #[serde(with = "floats::decimal")]
    mean_squared_distance: f64,
    /// None for embeddings, which mean what they mean as they are.
    scale: Option<Scale>,
    clusters: Vec<Cluster>,
}

/// One cluster, the larger ones first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The domain, `c00` and on.
    pub name: String,
    /// Documents of the sample.
    pub documents: u64,
    /// Words that its documents have more often than others.
    pub words: Vec<String>,
    /// `<file>:<record> (<id>)` of the documents nearest to the centroid.
    pub examples: Vec<String>,
    #[serde(with = "floats::hex")]
    centroid: Vec<f32>,
}

impl Model for ClusterModel {
    const KIND: &'static str = "clusters";
}

/// What is kept of a document while clusters are made.
struct Sampled {
    document: Document,
    words: Vec<String>,
}

impl ClusterModel {
    /// Makes clusters of documents. Equal documents in whatever order give equal clusters, whatever
    /// the number of threads.
    ///
    /// # Errors
    /// The first error of `documents`; [`DataError::Setting`]; [`DataError::Unassigned`] if a
    /// document of the sample lacks its embedding.
    pub fn train(
        documents: impl IntoIterator<Item = Result<Document>>,
        settings: &ClusterSettings,
    ) -> Result<Self> {
        settings.validate()?;
        let mut sample = Sample::new(settings.seed, settings.sample);
        for document in documents {
            let document = document?;
            sample.offer(&document, || Sampled {
                words: words::of(&document.text),
                document: Document { text: head(&document.text).to_owned(), ..document.clone() },
            });
        }
        let seen = sample.seen();
        let sampled = sample.into_items();
        if sampled.len() < settings.num_clusters {
            let rule = format!("at most {}, the documents there are", sampled.len());
            return Err(DataError::setting("num_clusters", settings.num_clusters, rule));
        }
        let vectors: Result<Vec<Vec<f32>>> =
            sampled.par_iter().map(|one| settings.features.of(&one.document)).collect();
        let mut vectors = vectors?;
        let is_text = matches!(settings.features, Features::Text(_));
        let scale = is_text.then(|| Scale::of(&vectors));
        if let Some(scale) = &scale {
            vectors.par_iter_mut().for_each(|vector| scale.apply(vector));
        }
        let centroids = centroids(&vectors, settings)?;
        let mut model = Self {
            settings: *settings,
            documents: seen,
            sampled: sampled.len() as u64,
            mean_squared_distance: 0.0,
            scale,
            clusters: Vec::new(),
        };
        model.describe(centroids, &vectors, &sampled);
        Ok(model)
    }

    /// Orders and names the clusters, and says what is in them.
    fn describe(&mut self, mut centroids: Vec<Vec<f32>>, vectors: &[Vec<f32>], of: &[Sampled]) {
        let nearest = |centroids: &[Vec<f32>]| -> Vec<(usize, f64)> {
            vectors.par_iter().map(|vector| nearest(vector, centroids)).collect()
        };
        let mut sizes = vec![0_u64; centroids.len()];
        nearest(&centroids).iter().for_each(|&(cluster, _)| sizes[cluster] += 1);
        let mut order: Vec<usize> = (0..centroids.len()).collect();
        order.sort_by_key(|&cluster| std::cmp::Reverse(sizes[cluster]));
        centroids =
            order.into_iter().map(|cluster| std::mem::take(&mut centroids[cluster])).collect();
        // Anew, since of equally near ones the first counts.
        let near = nearest(&centroids);
        let sum: f64 = near.iter().map(|(_, distance)| distance).sum();
        self.mean_squared_distance = sum / vectors.len() as f64;
        let memberships: Vec<usize> = near.iter().map(|(cluster, _)| *cluster).collect();
        let lists: Vec<&[String]> = of.iter().map(|one| &one.words[..]).collect();
        let telling = words::telling(&lists, &memberships, centroids.len());
        let digits = (centroids.len() - 1).to_string().len().max(2);
        let clusters = centroids.into_iter().zip(telling).enumerate();
        self.clusters = clusters
            .map(|(index, (centroid, words))| Cluster {
                name: format!("c{index:0digits$}"),
                documents: memberships.iter().filter(|&&cluster| cluster == index).count() as u64,
                words,
                examples: examples(index, &near, of),
                centroid,
            })
            .collect();
    }

    /// The clusters, the larger ones first.
    pub fn clusters(&self) -> &[Cluster] {
        &self.clusters
    }

    /// How they were made.
    pub fn settings(&self) -> &ClusterSettings {
        &self.settings
    }

    /// Mean of the squared distance to the nearest centroid over the sample; vectors have length 1.
    pub fn mean_squared_distance(&self) -> f64 {
        self.mean_squared_distance
    }

    /// The cluster of a document.
    ///
    /// # Errors
    /// [`DataError::Unassigned`] if it lacks its embedding.
    pub fn cluster(&self, document: &Document) -> Result<&Cluster> {
        let mut vector = self.settings.features.of(document)?;
        if let Some(scale) = &self.scale {
            scale.apply(&mut vector);
        }
        let nearest =
            nearest_of(&vector, self.clusters.iter().map(|cluster| &cluster.centroid[..]));
        Ok(&self.clusters[nearest.0])
    }

    /// Writes the model file, all of it or nothing; an earlier one is replaced.
    ///
    /// # Errors
    /// [`DataError::Io`].
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        model_file::write(path.as_ref(), self)
    }

    /// Reads a model file.
    ///
    /// # Errors
    /// [`DataError::Io`]; [`DataError::ModelFile`] if it is of another kind or version, or was
    /// altered.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let model: Self = model_file::read(path.as_ref())?;
        let dim = model.settings.features.dim();
        let fits = |numbers: &[f32]| numbers.len() == dim;
        let is_whole = !model.clusters.is_empty()
            && model.scale.as_ref().is_none_or(|scale| scale.dim() == Some(dim))
            && model.clusters.iter().all(|cluster| fits(&cluster.centroid));
        if is_whole {
            return Ok(model);
        }
        let reason = format!("a vector in it has not the {dim} numbers of its features");
        Err(DataError::ModelFile { path: path.as_ref().to_owned(), reason })
    }
}

impl Assign for ClusterModel {
    /// The nearest cluster as the domain; the quality is the document's own.
    fn cell(&self, document: &Document) -> Result<CellKey> {
        let domain = self.cluster(document)?.name.clone();
        Ok(CellKey { domain, quality: document.quality })
    }

    fn digest(&self) -> String {
        model_file::digest(self)
    }
}

impl ClusterSettings {
    fn validate(&self) -> Result<()> {
        self.features.validate()?;
        if self.num_clusters == 0 {
            return Err(DataError::setting("num_clusters", 0, "at least 1"));
        }
        if self.iterations == 0 {
            return Err(DataError::setting("iterations", 0, "at least 1"));
        }
        if self.sample < self.num_clusters {
            let rule = format!("at least {}, the number of clusters", self.num_clusters);
            return Err(DataError::setting("sample", self.sample, rule));
        }
        Ok(())
    }
}

/// Lloyd's algorithm from k-means++ centroids.
///
/// The library's generator always starts alike: the seed acts through the order of the vectors.
fn centroids(vectors: &[Vec<f32>], settings: &ClusterSettings) -> Result<Vec<Vec<f32>>> {
    let shape = (vectors.len(), settings.features.dim());
    let observations = Array2::from_shape_vec(shape, vectors.concat()).expect("rows of one length");
    let fitted = KMeans::params(settings.num_clusters)
        .n_runs(1)
        .max_n_iterations(settings.iterations)
        .tolerance(TOLERANCE)
        .fit(&DatasetBase::from(observations))
        .map_err(|source| DataError::Fit { what: "clusters", source: Box::new(source) })?;
    Ok(fitted.centroids().axis_iter(Axis(0)).map(|row| row.to_vec()).collect())
}

fn nearest(vector: &[f32], centroids: &[Vec<f32>]) -> (usize, f64) {
    nearest_of(vector, centroids.iter().map(Vec::as_slice))
}

/// The nearest centroid, of equals the first, and its squared distance.
fn nearest_of<'a>(vector: &[f32], centroids: impl Iterator<Item = &'a [f32]>) -> (usize, f64) {
    let squared = |centroid: &[f32]| -> f64 {
        vector.iter().zip(centroid).map(|(a, b)| f64::from(a - b).powi(2)).sum()
    };
    let distances = centroids.map(squared).enumerate();
    let least = distances.min_by(|a, b| a.1.total_cmp(&b.1));
    least.expect("a model has at least one cluster")
}

fn examples(cluster: usize, near: &[(usize, f64)], sampled: &[Sampled]) -> Vec<String> {
    let mut own: Vec<(f64, usize)> = near
        .iter()
        .enumerate()
        .filter(|(_, nearest)| nearest.0 == cluster)
        .map(|(index, nearest)| (nearest.1, index))
        .collect();
    own.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let name = |&(_, index): &(f64, usize)| {
        let Document { file, record, id, .. } = &sampled[index].document;
        format!("{file}:{record} ({id})")
    };
    own.iter().take(NUM_EXAMPLES).map(name).collect()
}

impl fmt::Display for ClusterModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sampled, documents) = (self.sampled, self.documents);
        let distance = self.mean_squared_distance;
        let count = self.clusters.len();
        writeln!(f, "{count} clusters of {sampled} documents drawn from {documents}")?;
        writeln!(f, "mean squared distance to the centroid {distance:.4} of at most 1")?;
        writeln!(f, "{:<6} {:>10} {:>7}  words", "domain", "documents", "share")?;
        for Cluster { name, documents, words, .. } in &self.clusters {
            let share = 100.0 * *documents as f64 / sampled as f64;
            writeln!(f, "{name:<6} {documents:>10} {share:>6.2}%  {}", words.join(" "))?;
        }
        Ok(())
    }
}
