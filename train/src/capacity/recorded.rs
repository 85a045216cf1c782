//! Choices that a run wrote down.

use std::path::{Path, PathBuf};

use memmap2::Mmap;
use rayon::prelude::*;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::settings::Exchange;
use crate::error::TrainError;

/// Bytes of an int32.
const ID_BYTES: usize = 4;
const SELECTED: &str = "selected";
const VALID: &str = "valid";

/// A file of choices, with shapes checked; ids are checked layer by layer.
pub(super) struct Recorded {
    path: PathBuf,
    map: Mmap,
    /// Where the ids begin.
    data_start: usize,
    pub(super) layers: usize,
    shards: usize,
    tokens: usize,
    experts_per_token: usize,
    /// One entry a token, the same for all layers.
    pub(super) valid: Option<Vec<bool>>,
}

/// Opens a safetensors file with `selected` (int32, `[shards, tokens, k]` or `[layers, shards,
/// tokens, k]`) and maybe `valid` (bool, uint8 or int32, `[shards, tokens]`).
pub(super) fn open(path: &Path) -> Result<Recorded, TrainError> {
    let file = std::fs::File::open(path).map_err(TrainError::io("read choices", path))?;
    // SAFETY: as for every memory map, the file must not be cut short while it is read; choices
    // are read once, at once, and written by nobody here.
    let map = unsafe { Mmap::map(&file) }.map_err(TrainError::io("read choices", path))?;
    let bad = |problem: String| TrainError::choices(path, problem);
    let tensors = SafeTensors::deserialize(&map)
        .map_err(|error| bad(format!("is no safetensors file: {error}")))?;
    let selected = tensors.tensor(SELECTED).map_err(|_| {
        let found: Vec<&str> = tensors.names();
        bad(format!("has no tensor `{SELECTED}`, found {found:?}"))
    })?;
    let [layers, shards, tokens, experts_per_token] = match *selected.shape() {
        [shards, tokens, k] => [1, shards, tokens, k],
        [layers, shards, tokens, k] => [layers, shards, tokens, k],
        _ => [0; 4],
    };
    if selected.dtype() != Dtype::I32 || layers * shards * tokens * experts_per_token == 0 {
        let needed = "I32 [shards, tokens, k] or [layers, shards, tokens, k], none of them 0";
        return Err(bad(mismatch(SELECTED, &selected, needed)));
    }
    let valid = match tensors.tensor(VALID) {
        Err(_) => None,
        Ok(valid) => {
            let needed = format!("BOOL, U8 or I32 [{shards}, {tokens}]");
            let is_shaped = valid.shape() == [shards, tokens];
            let mask = mask(&valid).filter(|_| is_shaped);
            Some(mask.ok_or_else(|| bad(mismatch(VALID, &valid, &needed)))?)
        }
    };
    let data_start = selected.data().as_ptr().addr() - map.as_ptr().addr();
    let path = path.to_owned();
    Ok(Recorded { path, map, data_start, layers, shards, tokens, experts_per_token, valid })
}

impl Recorded {
    /// `exchange` with the file's own sizes.
    pub(super) fn exchange(&self, exchange: &Exchange) -> Result<Exchange, TrainError> {
        if !exchange.num_experts.is_multiple_of(self.shards) {
            let found =
                format!("{}, and the choices have {} shards", exchange.num_experts, self.shards);
            return Err(TrainError::config("--experts", found, "a multiple of the shards"));
        }
        Ok(Exchange {
            shards: self.shards,
            tokens: self.tokens,
            experts_per_token: self.experts_per_token,
            ..exchange.clone()
        })
    }

    /// Ids of a layer, `[shards, tokens, k]`; padding, whose ids nobody reads, has 0 where it has
    /// no id.
    pub(super) fn layer(&self, layer: usize, num_experts: usize) -> Result<Vec<u16>, TrainError> {
        let per_layer = self.shards * self.tokens * self.experts_per_token;
        let start = self.data_start + layer * per_layer * ID_BYTES;
        let ids = self.map[start..][..per_layer * ID_BYTES].par_chunks_exact(ID_BYTES).map(id);
        let is_id = |id: i32| usize::try_from(id).is_ok_and(|expert| expert < num_experts);
        let is_valid = |token: usize| self.valid.as_ref().is_none_or(|valid| valid[token]);
        let is_bad = |(i, id): (usize, i32)| !is_id(id) && is_valid(i / self.experts_per_token);
        if let Some(i) = ids.clone().enumerate().position_first(is_bad) {
            let found = id(&self.map[start + i * ID_BYTES..][..ID_BYTES]);
            return Err(self.bad_id(layer, i, found, num_experts));
        }
        Ok(ids.map(|id| if is_id(id) { id as u16 } else { 0 }).collect())
    }

    fn bad_id(&self, layer: usize, i: usize, found: i32, num_experts: usize) -> TrainError {
        let (token, slot) = (i / self.experts_per_token, i % self.experts_per_token);
        let (shard, token) = (token / self.tokens, token % self.tokens);
        let problem = format!(
            "tensor `{SELECTED}` has expert {found} at layer {layer}, shard {shard}, \
             token {token}, slot {slot}, needed an id from 0 to {} (--experts {num_experts})",
            num_experts - 1
        );
        TrainError::choices(&self.path, problem)
    }
}

fn id(bytes: &[u8]) -> i32 {
    i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn mismatch(name: &str, found: &TensorView, needed: &str) -> String {
    format!("tensor `{name}` is {:?} {:?}, needed {needed}", found.dtype(), found.shape())
}

fn mask(tensor: &TensorView) -> Option<Vec<bool>> {
    let data = tensor.data();
    match tensor.dtype() {
        Dtype::BOOL | Dtype::U8 => Some(data.iter().map(|byte| *byte != 0).collect()),
        Dtype::I32 => Some(data.chunks_exact(4).map(|entry| entry != [0; 4]).collect()),
        _ => None,
    }
}
