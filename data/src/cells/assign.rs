//! Domain and quality together.

use super::{ClusterModel, QualityModel};
use crate::{Assign, CellKey, Document, Result};

/// The cell of a document by model files; without one, domain or quality are the document's own.
#[derive(Clone, Debug, Default)]
pub struct Cells {
    /// Chooses the domain.
    pub clusters: Option<ClusterModel>,
    /// Chooses the quality.
    pub quality: Option<QualityModel>,
}

impl Assign for Cells {
    fn cell(&self, document: &Document) -> Result<CellKey> {
        let domain = match &self.clusters {
            Some(clusters) => clusters.cluster(document)?.name.clone(),
            None => document.domain.clone(),
        };
        let quality = match &self.quality {
            Some(quality) => quality.level(document)?,
            None => document.quality,
        };
        Ok(CellKey { domain, quality })
    }

    fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for digest in
            [self.clusters.as_ref().map(Assign::digest), self.quality.as_ref().map(Assign::digest)]
        {
            hasher.update(digest.as_deref().unwrap_or("none").as_bytes());
            hasher.update(b"\n");
        }
        hasher.finalize().to_hex().to_string()
    }
}
