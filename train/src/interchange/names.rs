//! Our parameters and the published names of them (SPEC section 10), from the structure of a model.
//!
//! The table is built the way the model is: module by module, each parameter with its path here, its
//! name there, its role and its shape. Nothing is read out of a path.

use std::collections::BTreeMap;

use fulmar_model::config::ConvSite;
use fulmar_model::role::join;
use fulmar_model::{ModelConfig, Role};

/// A parameter as both sides know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchanged {
    /// Path in our model.
    pub path: String,
    /// Published name.
    pub name: String,
    /// The part it plays, which decides how it lies there.
    pub role: Role,
    /// Shape in our model, of an expert stack with every expert.
    pub shape: Vec<usize>,
    /// The layer it is in.
    pub layer: Option<usize>,
}

impl Exchanged {
    /// Whether its matrices lie the other way round there: ours are (in, out), theirs (out, in).
    /// The embedding is a table of rows on both sides and convolutions are [taps, channels].
    pub fn is_turned(&self) -> bool {
        match self.role {
            Role::Head | Role::Matrix | Role::ExpertStack | Role::Router | Role::HeadGate => true,
            Role::Embedding | Role::RouterBias | Role::Gain | Role::Convolution => false,
        }
    }

    /// Shape in a published checkpoint.
    pub fn shape_there(&self) -> Vec<usize> {
        let mut shape = self.shape.clone();
        if self.is_turned() {
            let rank = shape.len();
            shape.swap(rank - 2, rank - 1);
        }
        shape
    }

    /// Entries.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Every parameter of a model, in the order of the model.
#[derive(Debug, Clone)]
pub struct Names {
    entries: Vec<Exchanged>,
    by_path: BTreeMap<String, usize>,
    by_name: BTreeMap<String, usize>,
}

impl Names {
    /// The parameters of a model of this shape.
    pub fn of(config: &ModelConfig) -> Self {
        let mut table = Table { config, layer: None, entries: Vec::new() };
        table.model();
        let index = |key: fn(&Exchanged) -> &String| -> BTreeMap<String, usize> {
            table.entries.iter().enumerate().map(|(at, entry)| (key(entry).clone(), at)).collect()
        };
        let (by_path, by_name) = (index(|entry| &entry.path), index(|entry| &entry.name));
        Self { by_path, by_name, entries: table.entries }
    }

    /// Every parameter.
    pub fn iter(&self) -> impl Iterator<Item = &Exchanged> {
        self.entries.iter()
    }

    /// The parameter at `path` of our model.
    pub fn at_path(&self, path: &str) -> Option<&Exchanged> {
        self.by_path.get(path).map(|index| &self.entries[*index])
    }

    /// The parameter with the published `name`.
    pub fn of_name(&self, name: &str) -> Option<&Exchanged> {
        self.by_name.get(name).map(|index| &self.entries[*index])
    }
}

/// The tensor whose first dimension is the rank of gated norms, the one size of a model that its
/// `config.json` does not say.
pub(super) const GATED_NORM_RANK: &str = "model.embed_gated_norm.down_proj.weight";

/// Both names of a module.
struct Module {
    path: String,
    name: String,
}

impl Module {
    fn new(path: &str, name: &str) -> Self {
        Self { path: path.to_owned(), name: name.to_owned() }
    }

    fn child(&self, path: &str, name: &str) -> Self {
        Self { path: join(&self.path, path), name: join(&self.name, name) }
    }
}

struct Table<'a> {
    config: &'a ModelConfig,
    /// The layer at hand.
    layer: Option<usize>,
    entries: Vec<Exchanged>,
}

impl Table<'_> {
    /// Field `path` of a module of ours, the weight of `name` there.
    fn put(&mut self, of: &Module, [path, name]: [&str; 2], role: Role, shape: &[usize]) {
        self.put_named(of, [path, &format!("{name}.weight")], role, shape);
    }

    /// As [`put`](Self::put) with the whole of the published name.
    fn put_named(&mut self, of: &Module, [path, name]: [&str; 2], role: Role, shape: &[usize]) {
        let (path, name) = (join(&of.path, path), join(&of.name, name));
        let (shape, layer) = (shape.to_vec(), self.layer);
        self.entries.push(Exchanged { path, name, role, shape, layer });
    }

    fn model(&mut self) {
        let (v, d) = (self.config.vocab_size, self.config.hidden_dim);
        let (outside, model) = (Module::new("", ""), Module::new("", "model"));
        let embedding = ["embedding.weight", "embed_tokens"];
        self.put(&model, embedding, Role::Embedding, &[v, d]);
        self.gated_norm(&model, "embedding_norm", ["embed_norm", "embed_gated_norm"]);
        for layer in 0..self.config.num_layers {
            self.layer = Some(layer);
            let place = format!("layers.{layer}");
            self.layer(&model.child(&place, &place));
        }
        self.layer = None;
        self.gated_norm(&model, "final_norm", ["norm", "final_gated_norm"]);
        self.put(&outside, ["head.weight", "lm_head"], Role::Head, &[d, v]);
    }

    fn layer(&mut self, layer: &Module) {
        let d = self.config.hidden_dim;
        self.gated_norm(layer, "attention_norm", ["input_layernorm", "attn_gated_norm"]);
        self.attention(&layer.child("attention", "self_attn"));
        self.conv(layer, ConvSite::Attention, ["attention_conv.weight", "sconv_attn"], d);
        self.gated_norm(layer, "moe_norm", ["post_attention_layernorm", "mlp_gated_norm"]);
        self.moe(layer);
        self.conv(layer, ConvSite::Mlp, ["moe_conv.weight", "sconv_mlp"], d);
    }

    /// One module here, two there: the gain, and the gate beside it.
    fn gated_norm(&mut self, of: &Module, path: &str, [norm, gate]: [&str; 2]) {
        let (d, rank) = (self.config.hidden_dim, self.config.gated_norm_rank);
        self.put(of, [&join(path, "gain"), norm], Role::Gain, &[d]);
        let gate = of.child(path, gate);
        self.put(&gate, ["down", "down_proj"], Role::Matrix, &[d, rank]);
        self.put(&gate, ["up", "up_proj"], Role::Matrix, &[rank, d]);
    }

    fn attention(&mut self, of: &Module) {
        let config = self.config;
        let (d, heads) = (config.hidden_dim, config.num_heads);
        let (q, kv) = (heads * config.head_dim, config.stored_kv_heads() * config.head_dim);
        self.put(of, ["w_q", "q_proj"], Role::Matrix, &[d, q]);
        self.put(of, ["w_k", "k_proj"], Role::Matrix, &[d, kv]);
        self.put(of, ["w_v", "v_proj"], Role::Matrix, &[d, kv]);
        self.put(of, ["w_o", "o_proj"], Role::Matrix, &[q, d]);
        self.put(of, ["gate", "attn_gate"], Role::HeadGate, &[d, heads]);
        self.conv(of, ConvSite::K, ["conv_k.weight", "sconv_k"], kv);
        self.conv(of, ConvSite::V, ["conv_v.weight", "sconv_v"], kv);
    }

    fn moe(&mut self, layer: &Module) {
        let config = self.config;
        let [d, c, f] = [config.hidden_dim, config.latent_dim, config.intermediate_dim];
        let (e, inner) = (config.num_experts, config.shared_intermediate_dim);
        let moe = layer.child("moe", "mlp");
        self.put(&moe, ["router.weight", "router"], Role::Router, &[d, e]);
        self.put_named(&moe, ["router.bias", "router.bias"], Role::RouterBias, &[e]);
        self.put(&moe, ["latent.down", "latent_down_proj"], Role::Matrix, &[d, c]);
        self.put(&moe, ["latent.gain", "latent_norm"], Role::Gain, &[c]);
        self.put(&moe, ["latent.up", "latent_up_proj"], Role::Matrix, &[c, d]);
        let experts = moe.child("experts", "experts");
        self.put(&experts, ["w_gate", "gate_proj"], Role::ExpertStack, &[e, c, f]);
        self.put(&experts, ["w_up", "up_proj"], Role::ExpertStack, &[e, c, f]);
        self.put(&experts, ["w_down", "down_proj"], Role::ExpertStack, &[e, f, c]);
        for index in 0..config.num_shared_experts {
            let [path, name] = [format!("moe.shared.{index}"), format!("shared_experts.{index}")];
            let shared = layer.child(&path, &name);
            self.put(&shared, ["w_gate", "gate_proj"], Role::Matrix, &[d, inner]);
            self.put(&shared, ["w_up", "up_proj"], Role::Matrix, &[d, inner]);
            self.put(&shared, ["w_down", "down_proj"], Role::Matrix, &[inner, d]);
        }
    }

    fn conv(&mut self, of: &Module, site: ConvSite, names: [&str; 2], channels: usize) {
        if self.config.has_conv(site) {
            let shape = [self.config.short_conv_taps, channels];
            self.put(of, names, Role::Convolution, &shape);
        }
    }
}
