//! Grouped-query attention with a short convolution on its keys and a gate on its heads.

use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor};
use fulmar_kernels::attention::AttentionOptions;
use fulmar_kernels::gated::head_gate;

use crate::along::{Along, WholeRows};
use crate::compute::Compute;
use crate::config::{ConvSite, ModelConfig};
use crate::init::Initializer;
use crate::role::{Role, RoleTable, Roles, join};
use crate::short_conv::ShortConv;

/// Added to the mean square when queries and keys are normalised (SPEC section 2, step 3).
const QK_NORM_EPS: f64 = 1e-6;
/// Added to |v|^2 in exclusive self-attention (SPEC section 2, step 6).
const EXCLUSIVE_EPS: f64 = 1e-6;

/// One layer's attention (SPEC section 2). Weights are (in, out).
#[derive(Module, Debug)]
pub struct Attention {
    /// `[d, heads x head_dim]`.
    pub w_q: Param<Tensor<2>>,
    /// `[d, stored kv heads x head_dim]`.
    pub w_k: Param<Tensor<2>>,
    /// `[d, stored kv heads x head_dim]`.
    pub w_v: Param<Tensor<2>>,
    /// `[heads x head_dim, d]`.
    pub w_o: Param<Tensor<2>>,
    /// [d, heads]; zero at the start, which is a gate of 1.
    pub gate: Param<Tensor<2>>,
    /// On the flat keys.
    pub conv_k: Option<ShortConv>,
    /// On the flat values.
    pub conv_v: Option<ShortConv>,
    num_heads: usize,
    stored_kv_heads: usize,
    head_dim: usize,
    #[module(skip)]
    options: AttentionOptions,
    #[module(skip)]
    compute: Compute,
}

impl Attention {
    /// The attention of layer `layer`, local or global by the configuration.
    pub fn new(config: &ModelConfig, layer: usize, init: &Initializer) -> Self {
        let d = config.hidden_dim;
        let (q, kv) =
            (config.num_heads * config.head_dim, config.stored_kv_heads() * config.head_dim);
        let conv = |site, name| {
            let taps = config.short_conv_taps;
            config.has_conv(site).then(|| ShortConv::new(taps, kv, &init.scope(name)))
        };
        Self {
            w_q: init.matrix("w_q", [d, q]),
            w_k: init.matrix("w_k", [d, kv]),
            w_v: init.matrix("w_v", [d, kv]),
            w_o: init.matrix("w_o", [q, d]),
            gate: init.constant([d, config.num_heads], 0.0),
            conv_k: conv(ConvSite::K, "conv_k"),
            conv_v: conv(ConvSite::V, "conv_v"),
            num_heads: config.num_heads,
            stored_kv_heads: config.stored_kv_heads(),
            head_dim: config.head_dim,
            options: options(config, layer),
            compute: config.compute,
        }
    }

    /// Scales the queries by `qk_mult` from now on.
    pub fn set_qk_mult(&mut self, qk_mult: f64) {
        self.options.qk_mult = qk_mult;
    }

    /// `u` [b, s, d], normalised, to [b, s, d]; `segment_ids` [b, s] name the documents.
    pub fn forward(&self, u: Tensor<3>, segment_ids: Tensor<2, Int>) -> Tensor<3> {
        self.forward_along(u, &mut WholeRows { segment_ids: &segment_ids })
    }

    /// As [`forward`](Self::forward), with what `along` reaches of the rows.
    pub(crate) fn forward_along(&self, u: Tensor<3>, along: &mut impl Along) -> Tensor<3> {
        let [b, s, d] = u.dims();
        let compute = self.compute;
        let flat = compute.operand(u.reshape([b * s, d]));
        let project = |weight: &Param<Tensor<2>>| {
            let projected = compute.product(flat.clone(), weight.val());
            let width = projected.dims()[1];
            projected.reshape([b, s, width])
        };
        let heads = |x: Tensor<3>, count| x.reshape([b, s, count, self.head_dim]);

        let q = heads(project(&self.w_q), self.num_heads);
        let k = along.convolve_if(ConvSite::K, &self.conv_k, project(&self.w_k));
        let v = along.convolve_if(ConvSite::V, &self.conv_v, project(&self.w_v));
        let [k, v] = [k, v].map(|x| heads(x, self.stored_kv_heads));
        let qkv = [q, k, v].map(|x| compute.operand(x));
        let y = compute.result(along.attend(qkv, &self.options));

        let gate = compute.product(flat, self.gate.val());
        let y = head_gate(y.reshape([b * s, self.num_heads, self.head_dim]), gate);
        let merged = y.reshape([b * s, self.num_heads * self.head_dim]);
        compute.product(merged, self.w_o.val()).reshape([b, s, d])
    }
}

/// Local layers rotate half of each head and see a window; global ones do neither.
fn options(config: &ModelConfig, layer: usize) -> AttentionOptions {
    let local = !config.is_global(layer);
    AttentionOptions {
        own_kv_heads: config.own_kv_heads(layer),
        window: local.then_some(config.sliding_window),
        rope_base: local.then_some(config.rope_theta),
        qk_mult: config.qk_mult,
        norm_eps: QK_NORM_EPS,
        exclusive_eps: EXCLUSIVE_EPS,
    }
}

impl Roles for Attention {
    fn declare_roles(&self, path: &str, table: &mut RoleTable) {
        for matrix in ["w_q", "w_k", "w_v", "w_o"] {
            table.declare(path, matrix, Role::Matrix);
        }
        table.declare(path, "gate", Role::HeadGate);
        self.conv_k.declare_roles(&join(path, "conv_k"), table);
        self.conv_v.declare_roles(&join(path, "conv_v"), table);
    }
}
