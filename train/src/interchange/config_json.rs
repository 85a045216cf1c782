//! `config.json`: the shape of a model as readers of the published layout know it (SPEC section 10).

use std::path::Path;

use fulmar_model::config::{ConvSite, RouterBalance, RouterDot};
use fulmar_model::{Compute, ModelConfig};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::TrainError;

/// The published class and type of the model.
const ARCHITECTURE: &str = "GrugMoeForCausalLM";
const MODEL_TYPE: &str = "grug_moe";
const SCHEMA_VERSION: u64 = 2;
/// What combine weights sum to; the published layout has no field for it (SPEC section 2).
const ROUTING_SUM: f64 = 2.5;

/// Fields of other writers that change nothing that we compute.
const WITHOUT_MEANING: [&str; 9] = [
    "dtype",
    "torch_dtype",
    "transformers_version",
    "_name_or_path",
    "auto_map",
    "use_cache",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
];

/// Type of the weights in a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum ExportDtype {
    /// The bits of the checkpoint.
    #[default]
    F32,
    /// Rounded to nearest, ties to even; router biases stay f32.
    Bf16,
}

/// The fields of SPEC section 10 that have a value of their own in every model, as they stand there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Fields {
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: usize,
    head_dim: usize,
    max_position_embeddings: usize,
    sliding_window: usize,
    rms_norm_eps: f64,
    initializer_range: f64,
    rope_theta: f64,
    num_experts: usize,
    num_experts_per_tok: usize,
    moe_intermediate_size: usize,
    shared_expert_intermediate_size: usize,
    num_shared_experts: usize,
    latent_dim: usize,
    qk_mult: f64,
    local_kv_heads: usize,
    global_kv_heads: usize,
    global_every: usize,
    sconv: bool,
    sconv_kernel: usize,
    sconv_sites: Vec<ConvSite>,
}

/// Fields that have the same value in every model of this kind.
fn constants() -> [(&'static str, Value); 5] {
    [
        ("architectures", json!([ARCHITECTURE])),
        ("model_type", json!(MODEL_TYPE)),
        ("tie_word_embeddings", json!(false)),
        ("rope_fused", json!(true)),
        ("grugmoe_artifact_schema_version", json!(SCHEMA_VERSION)),
    ]
}

/// Fields that other writers add and that have this value in every model of this kind.
fn optional_constants() -> [(&'static str, Value); 5] {
    [
        ("qk_mult_long_scale", json!(1.0)),
        ("disable_pko", json!(true)),
        ("disable_long_rope", json!(true)),
        ("rope_scaling", Value::Null),
        ("grugmoe_attention_mode", json!("production")),
    ]
}

/// The `config.json` of a model whose weights are stored as `dtype`, with the ids of the marks
/// before and after a document.
///
/// # Errors
/// [`TrainError::Config`] for a setting that readers of the layout could not know about.
pub fn to_json(
    model: &ModelConfig,
    dtype: ExportDtype,
    [bos, eos]: [u32; 2],
) -> Result<String, TrainError> {
    if model.routing_sum != ROUTING_SUM {
        let rule = format!("{ROUTING_SUM}: the published layout has no field for it");
        return Err(TrainError::config("model.routing_sum", model.routing_sum, rule));
    }
    let fields = Fields {
        vocab_size: model.vocab_size,
        hidden_size: model.hidden_dim,
        num_hidden_layers: model.num_layers,
        num_attention_heads: model.num_heads,
        num_key_value_heads: model.stored_kv_heads(),
        head_dim: model.head_dim,
        max_position_embeddings: model.max_seq_len,
        sliding_window: model.sliding_window,
        rms_norm_eps: model.norm_eps,
        initializer_range: model.initial_std(),
        rope_theta: model.rope_theta,
        num_experts: model.num_experts,
        num_experts_per_tok: model.num_experts_per_token,
        moe_intermediate_size: model.intermediate_dim,
        shared_expert_intermediate_size: model.shared_intermediate_dim,
        num_shared_experts: model.num_shared_experts,
        latent_dim: model.latent_dim,
        qk_mult: model.qk_mult,
        local_kv_heads: model.local_kv_heads,
        global_kv_heads: model.global_kv_heads,
        global_every: model.global_every,
        sconv: !model.short_conv_sites.is_empty(),
        sconv_kernel: model.short_conv_taps,
        sconv_sites: model.short_conv_sites.clone(),
    };
    let Value::Object(mut all) = serde_json::to_value(&fields).expect("plain values") else {
        unreachable!("a struct is an object")
    };
    all.extend(constants().map(|(field, value)| (field.to_owned(), value)));
    let dtype = match dtype {
        ExportDtype::F32 => "float32",
        ExportDtype::Bf16 => "bfloat16",
    };
    all.insert("torch_dtype".to_owned(), dtype.into());
    all.insert("bos_token_id".to_owned(), bos.into());
    all.insert("eos_token_id".to_owned(), eos.into());
    Ok(serde_json::to_string_pretty(&all).expect("plain values") + "\n")
}

/// The model that the `config.json` at `origin` describes, with gated norms of the rank that its
/// tensors have. What only training reads has the recipe's values.
///
/// # Errors
/// The first field that is missing, unknown, of another type, or against another field or a rule of
/// the architecture.
pub fn from_json(
    text: &str,
    origin: &Path,
    gated_norm_rank: usize,
) -> Result<ModelConfig, TrainError> {
    let refused = |problem: String| TrainError::interchange(origin, problem);
    let mut all: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| refused(format!("no JSON object ({error})")))?;
    for (field, needed) in constants() {
        match all.remove(field) {
            Some(found) if same(&found, &needed) => {}
            Some(found) => return Err(refused(differs(field, &found, &needed))),
            None => return Err(refused(format!("field `{field}` is missing, needed {needed}"))),
        }
    }
    for (field, needed) in optional_constants() {
        if let Some(found) = all.remove(field).filter(|found| !same(found, &needed)) {
            return Err(refused(differs(field, &found, &needed)));
        }
    }
    all.retain(|field, _| !WITHOUT_MEANING.contains(&field.as_str()));
    let layer_types = all.remove("layer_types");
    let fields = read_fields(all).map_err(&refused)?;
    let model = fields.model(gated_norm_rank);
    fields.contradiction(&model).map_or(Ok(()), |problem| Err(refused(problem)))?;
    model.validate().map_err(|error| refused(error.to_string()))?;
    if let Some(found) = layer_types {
        let needed = layer_types_of(&model);
        if found != needed {
            return Err(refused(differs("layer_types", &found, &needed)));
        }
    }
    Ok(model)
}

/// What some writers say beside `global_every`.
fn layer_types_of(model: &ModelConfig) -> Value {
    let of_layer = |layer| match model.is_global(layer) {
        true => "full_attention",
        false => "sliding_attention",
    };
    (0..model.num_layers).map(of_layer).collect()
}

/// Numbers are compared as numbers: some writers put 1.0 where others put 1.
fn same(found: &Value, needed: &Value) -> bool {
    match (found.as_f64(), needed.as_f64()) {
        (Some(found), Some(needed)) => found == needed,
        _ => found == needed,
    }
}

fn differs(field: &str, found: &Value, needed: &Value) -> String {
    format!("field `{field}` is {found}, needed {needed}")
}

fn read_fields(all: Map<String, Value>) -> Result<Fields, String> {
    let names = all.keys().cloned().collect::<Vec<_>>();
    let fields: Fields = serde_path_to_error::deserialize(Value::Object(all)).map_err(|error| {
        let (path, cause) = (error.path().to_string(), error.inner().to_string());
        if path == "." { cause } else { format!("field `{path}`: {cause}") }
    })?;
    let Value::Object(known) = serde_json::to_value(&fields).expect("plain values") else {
        unreachable!("a struct is an object")
    };
    // So that no product of two sizes overflows.
    let too_large = |value: &Value| value.as_u64().is_some_and(|size| size > u64::from(u32::MAX));
    if let Some((field, value)) = known.iter().find(|(_, value)| too_large(value)) {
        return Err(format!("field `{field}` is {value}, needed below 2^32"));
    }
    match names.into_iter().find(|name| !known.contains_key(name)) {
        Some(unknown) => {
            Err(format!("field `{unknown}` is unknown; remove it if it means nothing"))
        }
        None => Ok(fields),
    }
}

impl Fields {
    fn model(&self, gated_norm_rank: usize) -> ModelConfig {
        // Exact for scales that were decimal: the range is rounded when it is formed and written.
        let scale = self.initializer_range * (self.hidden_size as f64).sqrt();
        let initial_scale = (scale * 1e12).round() / 1e12;
        let short_conv_sites = if self.sconv { self.sconv_sites.clone() } else { Vec::new() };
        ModelConfig {
            vocab_size: self.vocab_size,
            hidden_dim: self.hidden_size,
            num_layers: self.num_hidden_layers,
            num_heads: self.num_attention_heads,
            local_kv_heads: self.local_kv_heads,
            global_kv_heads: self.global_kv_heads,
            head_dim: self.head_dim,
            num_experts: self.num_experts,
            num_experts_per_token: self.num_experts_per_tok,
            intermediate_dim: self.moe_intermediate_size,
            latent_dim: self.latent_dim,
            shared_intermediate_dim: self.shared_expert_intermediate_size,
            num_shared_experts: self.num_shared_experts,
            max_seq_len: self.max_position_embeddings,
            sliding_window: self.sliding_window,
            global_every: self.global_every,
            short_conv_sites,
            short_conv_taps: self.sconv_kernel,
            gated_norm_rank,
            qk_mult: self.qk_mult,
            rope_theta: self.rope_theta,
            norm_eps: self.rms_norm_eps,
            routing_sum: ROUTING_SUM,
            z_loss: 1e-4,
            sequence_balance_loss: 0.0,
            balance: RouterBalance::Quantile,
            quantile_bins: 10_000,
            initial_scale,
            router_dot: RouterDot::F32,
            compute: Compute::F32,
        }
    }

    /// What one field says against another.
    fn contradiction(&self, model: &ModelConfig) -> Option<String> {
        let (found, stored) = (self.num_key_value_heads, model.stored_kv_heads());
        if found != stored {
            return Some(format!(
                "field `num_key_value_heads` is {found}, needed {stored}, the larger of \
                 `local_kv_heads` and `global_kv_heads`"
            ));
        }
        if self.sconv && self.sconv_sites.is_empty() {
            return Some("field `sconv` is true, needed false: `sconv_sites` is empty".to_owned());
        }
        None
    }
}

/// The first field of the model in which a recipe says other than a `config.json`: its name, what
/// the recipe says and what the file does. Of what only training reads, nothing is compared.
pub fn first_contradiction(
    recipe: &ModelConfig,
    described: &ModelConfig,
) -> Option<(String, String, String)> {
    let described = ModelConfig {
        z_loss: recipe.z_loss,
        sequence_balance_loss: recipe.sequence_balance_loss,
        balance: recipe.balance,
        quantile_bins: recipe.quantile_bins,
        initial_scale: recipe.initial_scale,
        router_dot: recipe.router_dot,
        compute: recipe.compute,
        // Taps of convolutions that are nowhere.
        short_conv_taps: match described.short_conv_sites.is_empty() {
            true => recipe.short_conv_taps,
            false => described.short_conv_taps,
        },
        short_conv_sites: in_the_order_of(&recipe.short_conv_sites, &described.short_conv_sites),
        ..described.clone()
    };
    let value = |model: &ModelConfig| serde_json::to_value(model).expect("plain values");
    let (recipe, described) = (value(recipe), value(&described));
    let fields = recipe.as_object().expect("a struct").iter();
    let mut differing = fields.filter(|(field, value)| described[field.as_str()] != **value);
    differing.next().map(|(field, value)| {
        (format!("model.{field}"), value.to_string(), described[field.as_str()].to_string())
    })
}

/// Sites are a set; two lists of the same ones are made equal.
fn in_the_order_of(order: &[ConvSite], sites: &[ConvSite]) -> Vec<ConvSite> {
    let same = order.len() == sites.len() && order.iter().all(|site| sites.contains(site));
    if same { order.to_vec() } else { sites.to_vec() }
}
