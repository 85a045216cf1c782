//! Every parameter, moment and expert exactly once: what a state must hold, and what a checkpoint
//! does.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use burn::tensor::DType;
use fulmar_model::{ModelConfig, Role};

use super::manifest::{FileEntry, Generator, Kind, TensorEntry};
use super::slices;
use super::write::stored_dtype;
use crate::config::RunConfig;
use crate::optim::Optimizer;

/// A tensor that a state must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// What it is.
    pub kind: Kind,
    /// Its type.
    pub dtype: DType,
    /// Its shape over all shards.
    pub shape: Vec<usize>,
    /// Whether it is a stack of experts.
    pub stack: bool,
}

impl Expected {
    /// Bytes over all shards.
    pub(super) fn num_bytes(&self) -> u64 {
        (self.shape.iter().product::<usize>() * self.dtype.size()) as u64
    }
}

/// The name of a layer's pending balance.
pub(crate) fn balance_name(layer: usize) -> String {
    format!("balance.{layer}")
}

/// All that a state holds after `step` updates, by name: each parameter, each trained parameter's
/// moments, each layer's balance. Before the first update there are parameters alone.
pub fn expected(
    optimizer: &Optimizer,
    model: &ModelConfig,
    step: u64,
) -> BTreeMap<String, Expected> {
    let mut all = BTreeMap::new();
    for (path, entry) in optimizer.table().iter() {
        let (stack, shape) = (entry.role == Role::ExpertStack, entry.shape.clone());
        let weight = Expected { kind: Kind::Weight, dtype: DType::F32, shape, stack };
        all.insert(path.clone(), weight);
    }
    if step == 0 {
        return all;
    }
    for (path, name, dtype) in optimizer.state_names() {
        let moment = Expected { kind: Kind::Moment, dtype, ..all[&path].clone() };
        all.insert(name, moment);
    }
    for layer in 0..model.num_layers {
        let (kind, dtype, shape) = (Kind::Balance, DType::F32, vec![model.num_experts]);
        all.insert(balance_name(layer), Expected { kind, dtype, shape, stack: false });
    }
    all
}

/// The generators of a run after `batches` batches. Each draw follows from its seed and its place, so
/// a position is a number that is known beforehand: rows taken, or none after the first weights.
pub fn generators(config: &RunConfig, batches: u64) -> Vec<Generator> {
    let generator =
        |name: &str, position| Generator { name: name.to_owned(), seed: config.seed, position };
    vec![generator("first weights", 0), generator("order of rows", config.rows_taken(batches))]
}

/// What was found of what is expected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census {
    /// Tensors that are whole, of all.
    pub tensors: [usize; 2],
    /// Experts found once in a stack, of all experts of all stacks.
    pub experts: [usize; 2],
    /// What is missing, held twice or belongs to nothing, by name.
    pub problems: Vec<String>,
}

impl fmt::Display for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([tensors, all_tensors], [experts, all_experts]) = (self.tensors, self.experts);
        write!(
            f,
            "{tensors} of {all_tensors} tensors, {experts} of {all_experts} experts in stacks"
        )
    }
}

/// Counts what the files of a checkpoint hold.
pub fn take(files: &BTreeMap<String, FileEntry>, expected: &BTreeMap<String, Expected>) -> Census {
    let mut held: BTreeMap<&str, Vec<(&str, &TensorEntry)>> = BTreeMap::new();
    for (name, tensor) in files.values().flat_map(|file| &file.tensors) {
        held.entry(slices::tensor_of(name)).or_default().push((name, tensor));
    }
    let mut census = Census::default();
    for (name, needed) in expected {
        let parts = held.remove(&name[..]).unwrap_or_default();
        census.tensors[1] += 1;
        let before = census.problems.len();
        for (part, tensor) in &parts {
            census.problems.extend(misfit(part, tensor, needed));
        }
        if needed.stack {
            let slices: Vec<_> = parts.iter().filter_map(|(part, _)| slices::parse(part)).collect();
            let slices = slices.into_iter().map(|(_, experts)| experts);
            census.count_experts(name, needed.shape[0], slices);
        } else if parts.len() != 1 {
            let problem = if parts.is_empty() { "is missing" } else { "is held twice" };
            census.problems.push(format!("`{name}` {problem}"));
        }
        census.tensors[0] += usize::from(census.problems.len() == before);
    }
    for (name, _) in held.into_values().flatten() {
        census.problems.push(format!("`{name}` belongs to no parameter"));
    }
    census
}

impl Census {
    fn count_experts(
        &mut self,
        stack: &str,
        num_experts: usize,
        slices: impl Iterator<Item = Range<usize>>,
    ) {
        let mut times = vec![0usize; num_experts];
        for experts in slices {
            times.get_mut(experts).into_iter().flatten().for_each(|times| *times += 1);
        }
        self.experts[1] += num_experts;
        self.experts[0] += times.iter().filter(|times| **times == 1).count();
        type Wrong = fn(&usize) -> bool;
        let kinds: [(Wrong, &str); 2] = [(|n| *n == 0, "missing"), (|n| *n > 1, "held twice")];
        for (wrong, what) in kinds {
            for range in ranges(&times, wrong) {
                let Range { start, end } = range;
                self.problems.push(format!("`{stack}`: experts {start}..{end} are {what}"));
            }
        }
    }
}

/// Maximal ranges of entries for which `holds`.
fn ranges(times: &[usize], holds: fn(&usize) -> bool) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (expert, _) in times.iter().enumerate().filter(|(_, times)| holds(times)) {
        match ranges.last_mut().filter(|range| range.end == expert) {
            Some(range) => range.end += 1,
            None => ranges.push(expert..expert + 1),
        }
    }
    ranges
}

/// Where a tensor of a file is of another type or shape than needed.
fn misfit(name: &str, found: &TensorEntry, needed: &Expected) -> Option<String> {
    let mut shape = needed.shape.clone();
    let mut units = 1;
    if needed.stack {
        let Some((_, experts)) = slices::parse(name) else {
            return Some(format!("`{name}` is no slice of experts"));
        };
        if experts.is_empty() || experts.end > shape[0] {
            return Some(format!("`{name}` has no experts among {}", shape[0]));
        }
        (shape[0], units) = (experts.len(), experts.len());
    }
    let dtype = stored_dtype(needed.dtype);
    let bytes = (shape.iter().product::<usize>() * needed.dtype.size()) as u64;
    if found.dtype != dtype || found.shape != shape || found.kind != needed.kind {
        let TensorEntry { kind, dtype: of, shape: dims, .. } = found;
        let needed = format!("{:?} {dtype:?} {shape:?}", needed.kind);
        return Some(format!("`{name}` is {kind:?} {of:?} {dims:?}, needed {needed}"));
    }
    let Range { start, end } = found.bytes;
    if end.checked_sub(start) != Some(bytes) || found.units.len() != units {
        let given = found.units.len();
        return Some(format!(
            "`{name}` has bytes {start}..{end} and {given} checksums, needed {bytes} and {units}"
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::manifest::Header;
    use crate::checkpoint::slices::slice_name;

    fn needed() -> BTreeMap<String, Expected> {
        let of = |shape: &[usize], stack| Expected {
            kind: Kind::Weight,
            dtype: DType::F32,
            shape: shape.to_vec(),
            stack,
        };
        BTreeMap::from([("gain".to_owned(), of(&[4], false)), ("w".to_owned(), of(&[6, 2], true))])
    }

    fn tensor(shape: &[usize], units: usize) -> TensorEntry {
        TensorEntry {
            kind: Kind::Weight,
            dtype: safetensors::Dtype::F32,
            shape: shape.to_vec(),
            bytes: 0..4 * shape.iter().product::<usize>() as u64,
            units: vec![String::new(); units],
        }
    }

    /// A checkpoint of one file a list.
    fn files(lists: &[&[(String, TensorEntry)]]) -> BTreeMap<String, FileEntry> {
        let file = |(index, list): (usize, &&[(String, TensorEntry)])| {
            let header = Header { bytes: 0, blake3: String::new() };
            let entry = FileEntry { bytes: 0, header, tensors: list.iter().cloned().collect() };
            (index.to_string(), entry)
        };
        lists.iter().enumerate().map(file).collect()
    }

    fn slice(experts: Range<usize>) -> (String, TensorEntry) {
        let len = experts.len();
        (slice_name("w", experts), tensor(&[len, 2], len))
    }

    fn gain() -> (String, TensorEntry) {
        ("gain".to_owned(), tensor(&[4], 1))
    }

    #[test]
    fn six_experts_in_slices_of_any_size_are_found_once() {
        for cuts in [vec![0, 6], vec![0, 2, 4, 6], vec![0, 1, 2, 3, 4, 5, 6], vec![0, 5, 6]] {
            let slices: Vec<_> = cuts.windows(2).map(|w| slice(w[0]..w[1])).collect();
            let census = take(&files(&[&[gain()], &slices]), &needed());
            let all = Census { tensors: [2, 2], experts: [6, 6], problems: Vec::new() };
            assert_eq!(census, all);
        }
    }

    #[test]
    fn what_is_missing_held_twice_or_strange_is_named() {
        let strange = ("other.m".to_owned(), tensor(&[1], 1));
        let census =
            take(&files(&[&[slice(0..2)], &[slice(1..2), slice(4..6), strange]]), &needed());
        assert_eq!(
            census.problems,
            [
                "`gain` is missing",
                "`w`: experts 2..4 are missing",
                "`w`: experts 1..2 are held twice",
                "`other.m` belongs to no parameter",
            ]
        );
        assert_eq!((census.tensors, census.experts), ([0, 2], [3, 6]));
        let census = take(&files(&[&[gain(), slice(0..6)], &[gain()]]), &needed());
        assert_eq!(census.problems, ["`gain` is held twice"]);
    }

    #[test]
    fn another_type_or_shape_is_named() {
        let mut half = slice(0..6);
        half.1.dtype = safetensors::Dtype::BF16;
        let flat = ("gain".to_owned(), tensor(&[2, 2], 1));
        let census = take(&files(&[&[half, flat]]), &needed());
        assert_eq!(
            census.problems,
            [
                "`gain` is Weight F32 [2, 2], needed Weight F32 [4]",
                "`w@0..6` is Weight BF16 [6, 2], needed Weight F32 [6, 2]",
            ]
        );
        assert_eq!(census.to_string(), "0 of 2 tensors, 6 of 6 experts in stacks");
    }
}
