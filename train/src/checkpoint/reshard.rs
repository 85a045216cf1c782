//! A checkpoint at another layout of ranks, without a model: files into files.

use std::collections::BTreeMap;
use std::ops::Range;

use burn::tensor::{Bytes, DType};
use fulmar_ep::Layout;
use safetensors::Dtype;

use super::census::{self, Expected};
use super::manifest::{Kind, Manifest};
use super::read::{self, Index, Stretch};
use super::save::Files;
use super::write::{Planned, Source, Take, stored_dtype, write_plain, write_tensors};
use super::{BALANCE, RECIPE, digest, file_name, part_file, slices, snapshot, step_name};
use crate::background::Pace;
use crate::error::TrainError;
use crate::storage::Storage;

/// Writes the checkpoint of `manifest` to another storage as the ranks of `layout` would have saved
/// it, byte for byte, and returns its manifest. A few pieces of a tensor are held at a time.
///
/// # Errors
/// If something is wrong with the checkpoint, naming the file; if the layout does not divide its
/// experts; if that storage has a checkpoint of this step, or cannot be written.
pub fn reshard(
    from: &dyn Storage,
    manifest: &Manifest,
    layout: Layout,
    to: &dyn Storage,
) -> Result<Manifest, TrainError> {
    let step = manifest.step;
    let tensors = tensors_of(manifest);
    let census = census::take(&manifest.files, &tensors);
    let refuse = |storage: &dyn Storage, problem: String| {
        let path = storage.locate(&step_name(step)).into();
        Err(TrainError::Checkpoint { path, problem })
    };
    if let Some(problem) = census.problems.first() {
        return refuse(from, format!("{problem}; found {census}"));
    }
    let there = to.list(&step_name(step));
    if !there.map_err(TrainError::storage("list", to, &step_name(step)))?.is_empty() {
        return refuse(to, "something is there, needed an empty place".to_owned());
    }
    let stacks = tensors.values().filter(|tensor| tensor.stack);
    let num_experts = stacks.map(|tensor| tensor.shape[0]).max().unwrap_or(0);
    let Layout { replicas, shards, .. } = layout;
    if replicas == 0 || shards == 0 || !num_experts.is_multiple_of(shards) {
        let rule = format!("at least 1 replica and a divisor of {num_experts} experts");
        return Err(TrainError::config("layout", format!("{replicas} x {shards}"), rule));
    }
    let plan = Plan { from, index: Index::new(manifest) };
    let dealing = snapshot::dealing(&tensors, layout, num_experts);
    let mut files = Files::new();
    for rank in 0..layout.ranks() {
        let experts = dealing.experts(rank);
        let part = tensors.iter().filter_map(|(name, tensor)| match tensor.kind {
            Kind::Balance => None,
            _ if tensor.stack => plan.slice(name, tensor, &experts),
            _ => (dealing.owner(name) == Some(rank)).then(|| plan.whole(name, tensor)),
        });
        let file = part_file(rank, layout.ranks());
        let entry = write_tensors(to, &file_name(step, &file), part.collect(), &Pace::none())?;
        files.insert(file, entry);
    }
    let balance = tensors.iter().filter(|(_, tensor)| tensor.kind == Kind::Balance);
    let balance: Vec<_> = balance.map(|(name, tensor)| plan.whole(name, tensor)).collect();
    if !balance.is_empty() {
        let entry = write_tensors(to, &file_name(step, BALANCE), balance, &Pace::none())?;
        files.insert(BALANCE.to_owned(), entry);
    }
    let recipe = read::header(from, manifest, RECIPE)?;
    files.insert(RECIPE.to_owned(), write_plain(to, &file_name(step, RECIPE), &recipe)?);
    let digest::Digests { weights, state } = digest::of_files(&files);
    if [&weights, &state] != [&manifest.weights, &manifest.state] {
        return refuse(to, format!("digest of the state {state}, needed {}", manifest.state));
    }
    let written = Manifest { layout: layout.into(), files, ..manifest.clone() };
    written.clone().write(to)?;
    Ok(written)
}

/// All tensors that a checkpoint holds, as wholes.
fn tensors_of(manifest: &Manifest) -> BTreeMap<String, Expected> {
    let mut tensors: BTreeMap<String, Expected> = BTreeMap::new();
    for (name, entry) in manifest.files.values().flat_map(|file| &file.tensors) {
        let slice = slices::parse(name);
        let mut shape = entry.shape.clone();
        if let Some((_, experts)) = &slice {
            shape[0] = experts.end;
        }
        let dtype = if entry.dtype == Dtype::BF16 { DType::BF16 } else { DType::F32 };
        let found = Expected { kind: entry.kind, dtype, shape, stack: slice.is_some() };
        let whole = tensors.entry(slices::tensor_of(name).to_owned()).or_insert(found.clone());
        if whole.stack && whole.shape[0] < found.shape[0] {
            whole.shape[0] = found.shape[0];
        }
    }
    tensors
}

/// Where the tensors of a checkpoint are.
struct Plan<'a> {
    from: &'a dyn Storage,
    index: Index<'a>,
}

impl<'a> Plan<'a> {
    fn whole(&self, name: &str, tensor: &Expected) -> Planned<Stored<'a>> {
        let source = Stored { from: self.from, stretches: self.index.stretches(name, None) };
        let (kind, dtype) = (tensor.kind, stored_dtype(tensor.dtype));
        let (name, shape) = (name.to_owned(), tensor.shape.clone());
        Planned { name, kind, dtype, shape, units: 1, source }
    }

    /// The slice of a rank, if it has experts.
    fn slice(
        &self,
        stack: &str,
        tensor: &Expected,
        experts: &Range<usize>,
    ) -> Option<Planned<Stored<'a>>> {
        if experts.is_empty() {
            return None;
        }
        let stretches = self.index.stretches(stack, Some(experts));
        let mut slice = self.whole(stack, tensor);
        slice.source.stretches = stretches;
        slice.name = slices::slice_name(stack, experts.clone());
        (slice.shape[0], slice.units) = (experts.len(), experts.len());
        Some(slice)
    }
}

/// Parts of a tensor in other files.
struct Stored<'a> {
    from: &'a dyn Storage,
    stretches: Vec<Stretch>,
}

impl Source for Stored<'_> {
    fn pieces(self, each: &mut Take<'_>) -> Result<(), TrainError> {
        read::read(self.from, &self.stretches, |_, piece| each(Bytes::from_bytes_vec(piece)))
    }
}
