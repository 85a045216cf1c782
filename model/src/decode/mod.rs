//! Writing on: a prompt is read at once, then each token of its continuation in one pass over that
//! token alone.
//!
//! A cache keeps of each layer the keys and values that later tokens can read (the window of a local
//! layer, everything of a global one) and the last inputs of its short convolutions. Hidden states are
//! those of [`Transformer::forward`] but for the order of f32 sums in attention and in products of
//! other sizes.

mod layer;
mod prompt;
mod ring;

use burn::tensor::{Int, Tensor, TensorData};
use fulmar_ep::TokenDispatcher;

pub use prompt::Prompt;

use crate::along::WholeRows;
use crate::error::ModelError;
use crate::moe::Routed;
use crate::moe::quantile::QuantileBalancing;
use crate::moe::router::Router;
use crate::transformer::Transformer;
use layer::{LayerCache, Reading, Step};
use prompt::Alignment;

/// What a model has read of some rows.
#[derive(Debug)]
pub struct DecodeCache {
    layers: Vec<LayerCache>,
    /// The time of each row's first token `[b]`; the newest token of every row is at the same time.
    offsets: Vec<usize>,
    len: usize,
    capacity: usize,
}

impl DecodeCache {
    /// Whether there is no room for another token: the row that was the longest is `capacity` long.
    pub fn is_full(&self) -> bool {
        self.len == self.capacity
    }
}

impl<R: Router> Transformer<R> {
    /// Reads prompts, with room for rows of `capacity` tokens: the head's input [b, d] for what follows
    /// each, and what [`read_on`](Self::read_on) needs. A token's result depends neither on the other
    /// prompts nor on their lengths, but for the order of sums.
    ///
    /// Over several shards every one of them reads as many tokens in all.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    ///
    /// # Panics
    /// If there is no prompt, one without tokens, with a document below 0 or without one for each token,
    /// or one longer than `capacity`.
    pub fn read<D: TokenDispatcher>(
        &self,
        prompts: &[Prompt],
        capacity: usize,
        dispatcher: &D,
    ) -> Result<(Tensor<2>, DecodeCache), ModelError> {
        let device = self.embedding.weight.val().device();
        let (input, alignment) =
            (prompt::input(prompts, &device), Alignment::new(prompts, &device));
        let (b, len) = (prompts.len(), alignment.len);
        assert!(
            b > 0 && len <= capacity,
            "read: {b} prompts of up to {len} tokens, needed some of up to {capacity}"
        );
        let demand = dispatcher.demand(&input.token_valid).map_err(ModelError::Demand)?;
        let balancing: Option<&QuantileBalancing> = None;
        let routed = Routed { dispatcher, balancing, demand: &demand, seq_len: len };
        let mut x = self.embed(&input.tokens, None);
        let mut layers = Vec::with_capacity(self.layers.len());
        for (layer, block) in self.layers.iter().enumerate() {
            let mut cache = LayerCache::default();
            let rows = WholeRows { segment_ids: &input.segment_ids };
            let mut along = Reading { rows, alignment: &alignment, capacity, cache: &mut cache };
            let out = block.forward_along(x, &mut along, &routed);
            x = out.map_err(|source| ModelError::Dispatch { layer, source })?;
            layers.push(cache);
        }
        let hidden = self.final_norm.forward(layer::at(x, &alignment.last));
        Ok((hidden, DecodeCache { layers, offsets: alignment.offsets, len, capacity }))
    }

    /// One more token `[b]` of each row: the head's input [b, d] for what follows it. A row that is not
    /// `live` `[b]` has come to its end: it takes no expert, and its result means nothing.
    ///
    /// # Errors
    /// As [`forward`](Self::forward); the cache is of no use then.
    ///
    /// # Panics
    /// If there is not one token for each row, or the cache is full.
    pub fn read_on<D: TokenDispatcher>(
        &self,
        cache: &mut DecodeCache,
        tokens: &[u32],
        live: &[bool],
        dispatcher: &D,
    ) -> Result<Tensor<2>, ModelError> {
        let (b, found) = (cache.offsets.len(), [tokens.len(), live.len()]);
        assert_eq!(found, [b, b], "read_on: `tokens` and `live` have {found:?}, needed {b} each");
        let (time, capacity) = (cache.len, cache.capacity);
        assert!(time < capacity, "read_on: {time} tokens were read, needed less than {capacity}");
        let positions: Vec<usize> = cache.offsets.iter().map(|offset| time - offset).collect();
        let demand = dispatcher.demand(live).map_err(ModelError::Demand)?;
        let balancing: Option<&QuantileBalancing> = None;
        let routed = Routed { dispatcher, balancing, demand: &demand, seq_len: 1 };
        let tokens: Vec<i32> = tokens.iter().map(|token| *token as i32).collect();
        let device = self.embedding.weight.val().device();
        let tokens: Tensor<2, Int> = Tensor::from_data(TensorData::new(tokens, [b, 1]), &device);
        let mut x = self.embed(&tokens, None);
        for (layer, (block, cache)) in self.layers.iter().zip(&mut cache.layers).enumerate() {
            let mut along = Step { time, positions: &positions, cache };
            let out = block.forward_along(x, &mut along, &routed);
            x = out.map_err(|source| ModelError::Dispatch { layer, source })?;
        }
        cache.len += 1;
        let d = x.dims()[2];
        Ok(self.final_norm.forward(x.reshape([b, d])))
    }
}
