use thiserror::Error;

/// What can stop an evaluation.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EvalError {
    /// The forward pass failed.
    #[error(transparent)]
    Model(#[from] fulmar_model::ModelError),
    /// A collective that failed.
    #[error(transparent)]
    Transport(#[from] fulmar_ep::transport::TransportError),
    /// A loss that is not finite.
    #[error("document `{document}`: loss {found}, needed a finite number")]
    NotFinite {
        /// Id of the document.
        document: String,
        /// The summed loss.
        found: f64,
    },
    /// The prompt does not fit the model.
    #[error("prompt has {found} tokens, needed 1 to {needed}")]
    Prompt {
        /// Tokens of the prompt.
        found: usize,
        /// Longest prompt.
        needed: usize,
    },
}
