//! A model as a scorer of held-out rows.

use std::ops::Range;

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar_data::Batch;
use fulmar_ep::TokenDispatcher;
use fulmar_ep::transport::Group;
use fulmar_model::moe::quantile::QuantileBalancing;
use fulmar_model::moe::router::Router;
use fulmar_model::{DecodeCache, ModelInput, Prompt, Transformer};

use crate::error::EvalError;

/// A model outside every graph, with what its forward pass needs.
///
/// Its dispatcher decides whether assignments may be dropped; with one that cannot, losses do not
/// depend on the batch size.
#[derive(Debug)]
pub struct ModelScorer<'a, D, R: Router> {
    model: Transformer<R>,
    dispatcher: &'a D,
    device: Device,
}

impl<'a, D: TokenDispatcher, R: Router> ModelScorer<'a, D, R> {
    /// Scores with the weights `model` has now.
    pub fn new(model: &Transformer<R>, dispatcher: &'a D, device: &Device) -> Self {
        Self { model: model.clone().valid(), dispatcher, device: device.clone().without_autodiff() }
    }

    /// The shards that the model's experts lie on.
    pub fn shards(&self) -> &Group {
        self.dispatcher.group()
    }

    /// Nats of every target `[num_rows x seq_len]`; meaningless where the weight is 0.
    ///
    /// # Errors
    /// If the forward pass fails.
    pub fn nats(&self, batch: &Batch) -> Result<Vec<f32>, EvalError> {
        let hidden = self.hidden(batch)?;
        let targets = batch.targets.clone();
        let len = targets.len();
        let targets = Tensor::<1, Int>::from_data(TensorData::new(targets, [len]), &self.device);
        let losses = self.model.token_losses(hidden, targets);
        Ok(losses.nll.into_data().iter::<f32>().collect())
    }

    /// Scores [rows, v] of the tokens that may follow position `position` of each row.
    ///
    /// # Errors
    /// If the forward pass fails.
    pub fn next_logits(&self, batch: &Batch, position: usize) -> Result<Tensor<2>, EvalError> {
        self.logits(batch, position..position + 1)
    }

    /// Scores [rows x positions, v] of the tokens that may follow each of `positions` of each row.
    ///
    /// # Errors
    /// If the forward pass fails.
    pub fn logits(&self, batch: &Batch, positions: Range<usize>) -> Result<Tensor<2>, EvalError> {
        let hidden = self.hidden(batch)?;
        let d = hidden.dims()[1];
        let hidden = hidden.reshape([batch.num_rows, batch.seq_len, d]);
        let len = positions.len();
        let hidden = hidden.narrow(1, positions.start, len).reshape([batch.num_rows * len, d]);
        Ok(self.model.logits(hidden))
    }

    /// Reads prompts with room for rows of `capacity` tokens: the scores `[v]` of what may follow each,
    /// and what [`read_on`](Self::read_on) goes on with.
    ///
    /// # Errors
    /// If the forward pass fails.
    ///
    /// # Panics
    /// As [`Transformer::read`].
    pub fn read(
        &self,
        prompts: &[Prompt],
        capacity: usize,
    ) -> Result<(Vec<Vec<f32>>, DecodeCache), EvalError> {
        let (hidden, cache) = self.model.read(prompts, capacity, self.dispatcher)?;
        Ok((self.scores(hidden), cache))
    }

    /// One more token of each row that was read: the scores `[v]` of what may follow it, which mean
    /// nothing where a row is not `live`.
    ///
    /// # Errors
    /// If the forward pass fails.
    ///
    /// # Panics
    /// As [`Transformer::read_on`].
    pub fn read_on(
        &self,
        cache: &mut DecodeCache,
        tokens: &[u32],
        live: &[bool],
    ) -> Result<Vec<Vec<f32>>, EvalError> {
        Ok(self.scores(self.model.read_on(cache, tokens, live, self.dispatcher)?))
    }

    fn scores(&self, hidden: Tensor<2>) -> Vec<Vec<f32>> {
        let logits = self.model.logits(hidden);
        let [_, v] = logits.dims();
        let logits: Vec<f32> = logits.into_data().iter::<f32>().collect();
        logits.chunks(v).map(<[f32]>::to_vec).collect()
    }

    fn hidden(&self, batch: &Batch) -> Result<Tensor<2>, EvalError> {
        let input = ModelInput::new(
            batch.tokens.clone(),
            batch.segment_ids.clone(),
            batch.token_valid.clone(),
            [batch.num_rows, batch.seq_len],
            &self.device,
        );
        let no_balancing: Option<&QuantileBalancing> = None;
        Ok(self.model.forward(&input, self.dispatcher, no_balancing)?.hidden)
    }
}
