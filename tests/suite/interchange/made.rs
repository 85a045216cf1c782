//! Checkpoints to export.

use std::collections::BTreeMap;

use burn::tensor::TensorData;
use fulmar::ep::World;
use fulmar::model::{Role, Transformer, weights};
use fulmar::train::interchange::{
    ExportDtype, ExportOptions, Exported, ImportOptions, Saved, export,
};
use fulmar::train::{RunConfig, checkpoint, state};
use serde_json::json;

use crate::tiny::{Bench, Tiny};

/// Shapes that differ wherever the layout has a choice.
pub(super) const VARIATIONS: [(&str, &[&str]); 7] = [
    ("as the hero", &[]),
    (
        "more local heads",
        &["model.num_heads=4", "model.local_kv_heads=2", "model.global_kv_heads=1"],
    ),
    (
        "more global heads, three layers",
        &[
            "model.num_heads=4",
            "model.local_kv_heads=1",
            "model.global_kv_heads=4",
            "model.num_layers=3",
            "model.global_every=2",
        ],
    ),
    ("convolutions everywhere", &["model.short_conv_sites=[\"k\",\"v\",\"attn\",\"mlp\"]"]),
    ("convolutions on values alone", &["model.short_conv_sites=[\"v\"]"]),
    (
        "no convolution, no shared expert",
        &["model.short_conv_sites=[]", "model.num_shared_experts=0"],
    ),
    (
        "three shared experts, every side of its own",
        &[
            "model.num_shared_experts=3",
            "model.shared_intermediate_dim=24",
            "model.latent_dim=20",
            "model.intermediate_dim=12",
            "model.qk_mult=1.7",
            "model.short_conv_taps=3",
        ],
    ),
];

/// A checkpoint after two steps of a tiny run whose every weight is moved off its initial value,
/// and whose first two experts of a layer score alike.
pub(super) struct Made {
    pub(super) tiny: Tiny,
    pub(super) config: RunConfig,
    pub(super) saved: Saved,
    /// The weights that evaluation sees.
    pub(super) values: BTreeMap<String, TensorData>,
}

impl Made {
    pub(super) fn new(overrides: &[&str]) -> Self {
        let tiny = Tiny::new();
        let mut bench = Bench::new(tiny.config(overrides));
        bench.step();
        bench.step();
        move_weights(&mut bench);
        let folder = tiny.path("run");
        let storage = tiny.storage("run");
        let run = checkpoint::Run::new(&storage, &bench.config, &bench.data.digest);
        checkpoint::save(&run, &bench.state, &World::solo()).expect("saved");
        let balancing = state::balancing(&bench.config);
        let values = weights::export(&bench.state.evaluation_model(&balancing));
        let saved = Saved::find(&folder.join("checkpoints"), None).expect("just saved");
        Self { tiny, config: bench.config, saved, values }
    }

    pub(super) fn export(&self, out: &str, dtype: ExportDtype, max_shard_bytes: u64) -> Exported {
        let options = self.options(out, dtype, max_shard_bytes);
        export(&self.saved, &options).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(super) fn options(
        &self,
        out: &str,
        dtype: ExportDtype,
        max_shard_bytes: u64,
    ) -> ExportOptions {
        ExportOptions { out: self.tiny.path(out), dtype, max_shard_bytes, check: true }
    }

    pub(super) fn import_options(&self, folder: &str, out: &str) -> ImportOptions {
        let mut set: Vec<String> = Vec::new();
        for (field, value) in [
            ("data.sources", json!([self.tiny.path("corpus.jsonl")])),
            ("data.heldout", json!([self.tiny.path("corpus.jsonl")])),
            ("data.cache", json!(self.tiny.path("cache"))),
            ("data.block_rows", json!(16)),
        ] {
            set.push(format!("{field}={value}"));
        }
        ImportOptions {
            folder: self.tiny.path(folder),
            out: self.tiny.path(out),
            recipe: None,
            rows: Some(4),
            steps: Some(10),
            set,
        }
    }
}

/// Adds to every weight something of its own, and makes two experts' columns of each router equal.
fn move_weights(bench: &mut Bench) {
    let mut values = weights::export(&bench.state.model);
    for (at, (path, data)) in values.iter_mut().enumerate() {
        let shape = data.shape().to_vec();
        let noise = |i: usize| 0.02 * ((i * 37 + at * 101) as f32 * 0.618).sin();
        let mut moved: Vec<f32> =
            data.iter::<f32>().enumerate().map(|(i, v)| v + noise(i)).collect();
        if bench.state.optimizer.table().get(path).expect("in the table").role == Role::Router {
            moved.chunks_mut(shape[1]).for_each(|row| row[1] = row[0]);
        }
        *data = TensorData::new(moved, shape);
    }
    let model = bench.state.model.clone();
    bench.state.model = weights::import(model, |path| values.remove(path)).expect("all weights");
}

fn bits(data: &TensorData) -> Vec<u32> {
    data.iter::<f32>().map(f32::to_bits).collect()
}

pub(super) fn assert_same_weights(
    what: &str,
    found: &Transformer,
    needed: &BTreeMap<String, TensorData>,
) {
    let found = weights::export(found);
    assert_eq!(found.keys().collect::<Vec<_>>(), needed.keys().collect::<Vec<_>>(), "{what}");
    for (path, data) in &found {
        assert_eq!(data.shape(), needed[path].shape(), "{what}: {path}");
        assert_eq!(bits(data), bits(&needed[path]), "{what}: {path}");
    }
}
