//! Rows of several lengths as one input, and the same rows with their ends in line.

use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar_kernels::attention::UNREADABLE;

use crate::transformer::ModelInput;

/// The segment of what fills a row up; no document has it.
const PADDING: i32 = -1;

/// The beginning of a row, which a model goes on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// Token ids.
    pub tokens: Vec<i32>,
    /// Which document each token belongs to, 0 or more; what follows belongs to the last one's.
    pub segment_ids: Vec<i32>,
}

impl Prompt {
    /// One document.
    pub fn of_document(tokens: &[u32]) -> Self {
        let tokens: Vec<i32> = tokens.iter().map(|token| *token as i32).collect();
        Self { segment_ids: vec![0; tokens.len()], tokens }
    }

    /// Whether each token belongs to the last one's document.
    fn is_read_on(&self) -> impl Iterator<Item = bool> {
        let last = self.segment_ids.last();
        self.segment_ids.iter().map(move |id| Some(id) == last)
    }
}

/// All prompts of a pass, filled up at their ends: what is behind a token changes nothing for it.
pub(super) fn input(prompts: &[Prompt], device: &Device) -> ModelInput {
    let longest = prompts.iter().map(|prompt| prompt.tokens.len()).max().unwrap_or(0);
    let (mut tokens, mut segments, mut valid) = (Vec::new(), Vec::new(), Vec::new());
    for (row, prompt) in prompts.iter().enumerate() {
        let (len, ids) = (prompt.tokens.len(), &prompt.segment_ids);
        assert!(
            len > 0 && ids.len() == len && ids.iter().all(|id| *id >= 0),
            "read: prompt {row} has {len} tokens in documents {ids:?}, needed at least one token and \
             a document of 0 or more for each"
        );
        let end = tokens.len() + longest;
        tokens.extend(&prompt.tokens);
        tokens.resize(end, 0);
        segments.extend(ids);
        segments.resize(end, PADDING);
        valid.resize(valid.len() + len, true);
        valid.resize(end, false);
    }
    ModelInput::new(tokens, segments, valid, [prompts.len(), longest], device)
}

/// Where the rows of a pass lie in time: the last token of each at the same one.
#[derive(Debug, Clone)]
pub(super) struct Alignment {
    /// The time of each row's first token `[b]`.
    pub(super) offsets: Vec<usize>,
    /// Times, as many as the longest row has tokens.
    pub(super) len: usize,
    /// Index into [b len] of the token at each time; the row's first one before it.
    places: Tensor<1, Int>,
    /// 1 where the token at a time can be read by what follows, else 0, [b, len, 1].
    pub(super) read_on: Tensor<3>,
    /// 0 where it can, [`UNREADABLE`] where not, [b, len].
    pub(super) bias: Tensor<2>,
    /// Index into [b len] of each row's last token `[b]`.
    pub(super) last: Tensor<1, Int>,
}

impl Alignment {
    pub(super) fn new(prompts: &[Prompt], device: &Device) -> Self {
        let lengths: Vec<usize> = prompts.iter().map(|prompt| prompt.tokens.len()).collect();
        let (b, len) = (lengths.len(), lengths.iter().copied().max().unwrap_or(0));
        let offsets: Vec<usize> = lengths.iter().map(|of_row| len - of_row).collect();
        let place =
            |row: usize, time: usize| (row * len + time.saturating_sub(offsets[row])) as i32;
        let places = (0..b).flat_map(|row| (0..len).map(move |time| place(row, time)));
        let places: Vec<i32> = places.collect();
        let last: Vec<i32> = (0..b).map(|row| place(row, len - 1)).collect();
        let read_on = prompts.iter().zip(&offsets).flat_map(|(prompt, offset)| {
            std::iter::repeat_n(false, *offset).chain(prompt.is_read_on())
        });
        let read_on: Vec<bool> = read_on.collect();
        let bias = read_on.iter().map(|read| if *read { 0.0 } else { UNREADABLE });
        let bias: Vec<f32> = bias.collect();
        let read_on: Vec<f32> = read_on.iter().map(|read| f32::from(u8::from(*read))).collect();
        let integers = |values: Vec<i32>| Tensor::from_data(TensorData::from(&values[..]), device);
        Self {
            places: integers(places),
            last: integers(last),
            read_on: Tensor::from_data(TensorData::new(read_on, [b, len, 1]), device),
            bias: Tensor::from_data(TensorData::new(bias, [b, len]), device),
            offsets,
            len,
        }
    }

    /// `x` [b, s, w] of a pass in times.
    pub(super) fn aligned(&self, x: Tensor<3>) -> Tensor<3> {
        if self.offsets.iter().all(|offset| *offset == 0) {
            return x;
        }
        let [b, s, w] = x.dims();
        x.reshape([b * s, w]).select(0, self.places.clone()).reshape([b, s, w])
    }
}
