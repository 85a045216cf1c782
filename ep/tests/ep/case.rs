//! Golden cases of the routed layer over several shards.

use std::path::Path;

use fulmar_tests::golden::{GoldenFile, cases};

use crate::reference::layer::Layer;
use crate::reference::{Problem, Rule};

/// One golden case; f32 as in the file.
///
/// Axis letters: t tokens of one shard, k experts per token, e experts, c width of a row, f inner
/// width of an expert.
#[derive(Debug)]
pub(crate) struct EpCase {
    /// The file's name without its ending.
    pub(crate) name: String,
    pub(crate) rule: Rule,
    pub(crate) num_experts: usize,
    pub(crate) k: usize,
    /// c.
    pub(crate) latent_dim: usize,
    /// f.
    pub(crate) intermediate_dim: usize,
    /// What each shard has of its own.
    pub(crate) shards: Vec<ShardInputs>,
    /// [e, c, 2 f], gate then up.
    pub(crate) w13: Vec<f32>,
    /// [e, f, c].
    pub(crate) w2: Vec<f32>,
    pub(crate) expected: Expected,
}

/// The tokens of one shard.
#[derive(Debug, Clone)]
pub(crate) struct ShardInputs {
    /// [t, c].
    pub(crate) x: Vec<f32>,
    /// [t, k]; entries of padding tokens are ids too.
    pub(crate) selected: Vec<i32>,
    /// [t, k].
    pub(crate) combine: Vec<f32>,
    /// `[t]`.
    pub(crate) valid: Vec<bool>,
    /// [t, c]: the loss is `sum(out * dy)`.
    pub(crate) dy: Vec<f32>,
}

/// What must come out, stacked over shards.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    pub(crate) out: Vec<f32>,
    pub(crate) dx: Vec<f32>,
    pub(crate) dcombine: Vec<f32>,
    pub(crate) dw13: Vec<f32>,
    pub(crate) dw2: Vec<f32>,
    /// [sender, receiver, padding].
    pub(crate) drops: Vec<usize>,
    /// Whether each assignment reached its expert, where the file says; padding did not.
    pub(crate) accepted: Option<Vec<bool>>,
    /// Chunks of a ragged receiver, where the file says.
    pub(crate) expert_chunks: Option<u64>,
}

/// Every case of the golden folder.
pub(crate) fn ep_cases() -> Vec<EpCase> {
    cases("ep_").iter().map(|path| EpCase::read(path)).collect()
}

impl EpCase {
    fn read(path: &Path) -> Self {
        let file = GoldenFile::read(path);
        let (shards, tokens): (usize, usize) =
            (file.setting("shards"), file.setting("tokens_per_shard"));
        let (num_experts, k) = (file.setting("num_experts"), file.setting("top_k"));
        let (latent_dim, intermediate_dim) = (file.shape("x")[1], file.shape("w2")[1]);
        let shape_is = |name: &str, shape: &[usize]| {
            assert_eq!(file.shape(name), shape, "{}: shape of `{name}`", path.display());
        };
        shape_is("x", &[shards * tokens, latent_dim]);
        shape_is("selected", &[shards * tokens, k]);
        shape_is("w13", &[num_experts, latent_dim, 2 * intermediate_dim]);
        Self {
            name: path.file_stem().expect("a file's name").to_string_lossy().into_owned(),
            rule: rule_of(&file),
            num_experts,
            k,
            latent_dim,
            intermediate_dim,
            shards: (0..shards).map(|shard| ShardInputs::read(&file, shard, shards)).collect(),
            w13: file.floats("w13").to_vec(),
            w2: file.floats("w2").to_vec(),
            expected: Expected::read(&file),
        }
    }

    /// The routing decisions of all shards.
    pub(crate) fn problem(&self) -> Problem {
        let ids = |ids: &[i32]| ids.iter().map(|&id| usize::try_from(id).expect("an id")).collect();
        Problem {
            num_experts: self.num_experts,
            k: self.k,
            selected: self.shards.iter().map(|shard| ids(&shard.selected)).collect(),
            valid: self.shards.iter().map(|shard| shard.valid.clone()).collect(),
        }
    }

    /// The layer over the tokens of all shards.
    pub(crate) fn layer(&self) -> Layer {
        let stacked = |part: fn(&ShardInputs) -> &[f32]| {
            widened(&self.shards.iter().flat_map(part).copied().collect::<Vec<f32>>())
        };
        Layer {
            latent_dim: self.latent_dim,
            intermediate_dim: self.intermediate_dim,
            k: self.k,
            x: stacked(|shard| &shard.x),
            combine: stacked(|shard| &shard.combine),
            w13: widened(&self.w13),
            w2: widened(&self.w2),
            dy: stacked(|shard| &shard.dy),
        }
    }
}

impl ShardInputs {
    fn read(file: &GoldenFile, shard: usize, shards: usize) -> Self {
        let floats = |name| share(file.floats(name), shard, shards);
        let integers = |name| share(file.integers(name), shard, shards);
        Self {
            x: floats("x"),
            selected: integers("selected"),
            combine: floats("combine"),
            valid: flags(&integers("valid")),
            dy: floats("dy"),
        }
    }
}

impl Expected {
    fn read(file: &GoldenFile) -> Self {
        let floats = |name| file.floats(name).to_vec();
        let has_accepted = file.names().any(|name| name == "accepted");
        let has_chunks = file.metadata.contains_key("expert_chunks");
        Self {
            out: floats("out"),
            dx: floats("dx"),
            dcombine: floats("dcombine"),
            dw13: floats("dw13"),
            dw2: floats("dw2"),
            drops: file.integers("drops").iter().map(|&count| count as usize).collect(),
            accepted: has_accepted.then(|| flags(file.integers("accepted"))),
            expert_chunks: has_chunks.then(|| file.setting("expert_chunks")),
        }
    }
}

/// The exchange that a file's metadata names.
fn rule_of(file: &GoldenFile) -> Rule {
    // An unused factor is -1 in the files.
    let factor = |name| match file.setting::<f64>(name) {
        factor if factor > 0.0 => factor,
        factor => panic!("{}: `{name}` is {factor}, needed one above 0", file.path.display()),
    };
    let receiver = factor("receiver_capacity");
    match file.setting::<String>("implementation").as_str() {
        "fixed_pooled_wave_all_to_all" => Rule::PooledWave {
            waves: file.setting("waves"),
            sender: factor("sender_capacity"),
            receiver,
        },
        "ragged_all_to_all" => Rule::Ragged { receiver },
        "fixed_all_to_all" => Rule::FixedCells { receiver },
        "ring" => Rule::Ring { receiver },
        other => panic!("{}: no rule for implementation `{other}`", file.path.display()),
    }
}

/// A shard's part of values that are stacked over shards.
fn share<T: Clone>(stacked: &[T], shard: usize, shards: usize) -> Vec<T> {
    let size = stacked.len() / shards;
    stacked[shard * size..(shard + 1) * size].to_vec()
}

fn flags(integers: &[i32]) -> Vec<bool> {
    integers.iter().map(|&integer| integer != 0).collect()
}

fn widened(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}
