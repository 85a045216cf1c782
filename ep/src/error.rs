use thiserror::Error;

use crate::counts::DispatchCounts;
use crate::transport::TransportError;
use crate::world::Layout;

/// What can go wrong between tokens and experts.
#[derive(Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum EpError {
    /// The router chose no expert for a valid token, which it does when a score is not finite.
    #[error("token {token} has no expert in slot {slot}: its router scores are not finite")]
    NotRouted {
        /// Position of the token in this shard's batch.
        token: usize,
        /// The empty slot.
        slot: usize,
    },
    /// A chosen expert does not exist.
    #[error("token {token} chose expert {found} in slot {slot}, needed an id below {num_experts}")]
    ExpertId {
        /// Position of the token in this shard's batch.
        token: usize,
        /// The slot.
        slot: usize,
        /// The id found.
        found: i32,
        /// How many experts there are.
        num_experts: usize,
    },
    /// The validity mask does not have one entry for each token.
    #[error("the validity mask has {found} entries, needed one for each of {tokens} tokens")]
    ValidMask {
        /// Entries found.
        found: usize,
        /// Tokens in the batch.
        tokens: usize,
    },
    /// A setting of an exchange that breaks a rule.
    #[error("exchange field `{field}` is {found}, needed {needed}")]
    Config {
        /// The field of [`DispatchConfig`](crate::DispatchConfig), or `shards`.
        field: &'static str,
        /// Its value.
        found: String,
        /// The rule it breaks.
        needed: String,
    },
    /// Another shard of the group found router choices that it cannot route; it says which.
    #[error("shard {shard} cannot route its tokens, so no shard goes on with this layer")]
    PeerNotRouted {
        /// The shard.
        shard: usize,
    },
    /// Something else than an id in the header of an exchange.
    #[error(
        "shard {shard} sent {found} as the id of row {slot}, needed a whole number from -1 to \
         {largest}"
    )]
    Header {
        /// The sender.
        shard: usize,
        /// The row.
        slot: usize,
        /// The value.
        found: f32,
        /// The largest id.
        largest: usize,
    },
    /// More rows than an index can tell apart.
    #[error("an exchange of {found} rows, needed fewer than 2^31; use more micro-batches")]
    TooManyRows {
        /// The rows.
        found: u64,
    },
    /// An exchange with room for everything that dropped something all the same.
    #[error("{dropped} assignments were dropped by an exchange that has room for all")]
    NotDropless {
        /// How many.
        dropped: u64,
    },
    /// A dispatcher whose ways cannot be taken again, in a pass that needs it.
    #[error(
        "this dispatcher cannot take a way twice, which computing a block again needs; implement \
         `dispatch_keeping` and `combine_keeping` of `TokenDispatcher`, or keep all activations"
    )]
    NoRetrace,
    /// Ranks that cannot be laid out so.
    #[error(
        "{} replicas of {} shards, rows over {}: needed {needed}",
        layout.replicas, layout.shards, layout.context
    )]
    Layout {
        /// What was asked for.
        layout: Layout,
        /// What is needed.
        needed: String,
    },
    /// A collective that failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// Experts that the shards cannot share evenly.
    #[error(
        "`num_experts` is {num_experts}, which {shards} shards cannot share; use a multiple of \
         {shards}"
    )]
    SharedExperts {
        /// Experts of the layer.
        num_experts: usize,
        /// Shards.
        shards: usize,
    },
    /// A token that chooses no expert, or more than there are.
    #[error("`experts_per_token` is {found}, needed 1 to {num_experts}, the number of experts")]
    ExpertsPerToken {
        /// Experts of a token.
        found: usize,
        /// Experts of the layer.
        num_experts: usize,
    },
    /// Choices that are not whole tokens, equally many on each shard.
    #[error(
        "{found} choices cannot be those of {shards} shards, {experts_per_token} a token; needed \
         a multiple of {}", shards * experts_per_token
    )]
    SharedTokens {
        /// Choices found.
        found: usize,
        /// Shards.
        shards: usize,
        /// Experts of a token.
        experts_per_token: usize,
    },
    /// Waves that a shard's experts cannot share evenly.
    #[error(
        "`waves` is {waves}, which {local_experts} local experts cannot share; use a divisor of \
         {local_experts}"
    )]
    Waves {
        /// Waves.
        waves: usize,
        /// Experts of a shard.
        local_experts: usize,
    },
    /// A capacity factor that leaves no room, or no limit.
    #[error("the {name} factor is {found}, needed a number above 0 and up to {most}")]
    Factor {
        /// Whose room it is: `sender` or `receiver`.
        name: &'static str,
        /// The factor.
        found: f64,
        /// The largest of use.
        most: f64,
    },
    /// Counts that do not add up: an assignment was lost or invented.
    #[error("assignments do not add up: {0:?}")]
    CountIdentity(DispatchCounts),
}
