use thiserror::Error;

/// What can be wrong with a model's configuration, its weights or its router scores.
#[derive(Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ModelError {
    /// A field breaks a rule of the architecture.
    #[error("model field `{field}` is {found}, needed {rule}")]
    Config {
        /// The field of [`ModelConfig`](crate::ModelConfig).
        field: &'static str,
        /// Its value.
        found: String,
        /// The rule it breaks.
        rule: String,
    },
    /// The shards could not agree on what to route.
    #[error(transparent)]
    Demand(fulmar_ep::EpError),
    /// A layer's exchange failed.
    #[error("layer {layer}: {source}")]
    Dispatch {
        /// Index of the layer, from 0.
        layer: usize,
        /// What failed.
        source: fulmar_ep::EpError,
    },
    /// A weight that the model has and the source lacks.
    #[error("weight `{path}` is missing, needed shape {needed:?}")]
    MissingWeight {
        /// Path of the parameter.
        path: String,
        /// Its shape in the model.
        needed: Vec<usize>,
    },
    /// A weight of another shape than the model's.
    #[error("weight `{path}` has shape {found:?}, needed {needed:?}")]
    WeightShape {
        /// Path of the parameter.
        path: String,
        /// Shape in the source.
        found: Vec<usize>,
        /// Shape in the model.
        needed: Vec<usize>,
    },
}
