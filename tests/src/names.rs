//! The golden files' names of our parameters.

/// The name in a golden file of the parameter at `path`.
///
/// # Panics
/// For a path that the golden files do not have.
pub fn golden_name(path: &str) -> String {
    if let Some(rest) = path.strip_prefix("layers.") {
        let (layer, field) = rest.split_once('.').expect("a layer's field");
        return format!("layers.{layer}.{}", layer_field(field));
    }
    let name = match path {
        "embedding.weight" => "embed",
        "embedding_norm.gain" => "embed_norm",
        "embedding_norm.down" => "embed_gn_down",
        "embedding_norm.up" => "embed_gn_up",
        "final_norm.gain" => "final_norm",
        "final_norm.down" => "final_gn_down",
        "final_norm.up" => "final_gn_up",
        "head.weight" => "head",
        other => panic!("no golden name for `{other}`"),
    };
    name.to_owned()
}

fn layer_field(field: &str) -> String {
    let name = match field {
        "attention_norm.gain" => "rms_attn",
        "attention_norm.down" => "attn_gn_down",
        "attention_norm.up" => "attn_gn_up",
        "attention.w_q" => "w_q",
        "attention.w_k" => "w_k",
        "attention.w_v" => "w_v",
        "attention.w_o" => "w_o",
        "attention.gate" => "attn_gate",
        "attention.conv_k.weight" => "sconv_k",
        "attention.conv_v.weight" => "sconv_v",
        "attention_conv.weight" => "sconv_attn",
        "moe_norm.gain" => "rms_mlp",
        "moe_norm.down" => "mlp_gn_down",
        "moe_norm.up" => "mlp_gn_up",
        "moe.router.weight" => "router",
        "moe.router.bias" => "router_bias",
        "moe.latent.down" => "w_latent_down",
        "moe.latent.gain" => "latent_norm",
        "moe.latent.up" => "w_latent_up",
        "moe.experts.w_gate" => "w_gate",
        "moe.experts.w_up" => "w_up",
        "moe.experts.w_down" => "w_down",
        "moe_conv.weight" => "sconv_mlp",
        other => {
            let shared = other.strip_prefix("moe.shared.").and_then(|rest| rest.split_once(".w_"));
            let Some((index, part)) = shared else { panic!("no golden name for `{other}`") };
            return format!("shared{index}_{part}");
        }
    };
    name.to_owned()
}
