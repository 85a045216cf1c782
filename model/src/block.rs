//! One layer: attention and MoE, each behind its norm and added to the residual stream.

use burn::module::Module;
use burn::tensor::{Int, Tensor};
use fulmar_ep::{EpError, Keep, TokenDispatcher};

use crate::along::{Along, WholeRows};
use crate::attention::Attention;
use crate::config::{ConvSite, ModelConfig};
use crate::init::Initializer;
use crate::moe::balance::Balancing;
use crate::moe::router::{Router, SigmoidRouter};
use crate::moe::{LayerStats, MoeDecision, MoeLayer, Routed};
use crate::norm::GatedRmsNorm;
use crate::recompute::{BackwardPlan, Outputs, computed_again};
use crate::role::{RoleTable, Roles, join};
use crate::short_conv::ShortConv;

/// `x += conv(attention(norm(x)))`, then `x += conv(moe(norm(x)))` (SPEC section 2).
#[derive(Module, Debug)]
pub struct Block<R: Router = SigmoidRouter> {
    /// Before attention.
    pub attention_norm: GatedRmsNorm,
    /// Attention over the row.
    pub attention: Attention,
    /// On the attention output.
    pub attention_conv: Option<ShortConv>,
    /// Before the MoE.
    pub moe_norm: GatedRmsNorm,
    /// Routed and shared experts.
    pub moe: MoeLayer<R>,
    /// On the MoE output.
    pub moe_conv: Option<ShortConv>,
}

impl Block<SigmoidRouter> {
    /// Layer `layer` with the recipe's router.
    pub fn new(config: &ModelConfig, layer: usize, init: &Initializer) -> Self {
        let router = SigmoidRouter::new(config, &init.scope("moe").scope("router"));
        Self::with_router(config, layer, router, init)
    }
}

impl<R: Router> Block<R> {
    /// Layer `layer` with a router of the caller's.
    pub fn with_router(config: &ModelConfig, layer: usize, router: R, init: &Initializer) -> Self {
        let conv = |site, name| {
            let (taps, d) = (config.short_conv_taps, config.hidden_dim);
            config.has_conv(site).then(|| ShortConv::new(taps, d, &init.scope(name)))
        };
        Self {
            attention_norm: GatedRmsNorm::new(config, &init.scope("attention_norm")),
            attention: Attention::new(config, layer, &init.scope("attention")),
            attention_conv: conv(ConvSite::Attention, "attention_conv"),
            moe_norm: GatedRmsNorm::new(config, &init.scope("moe_norm")),
            moe: MoeLayer::with_router(config, router, &init.scope("moe")),
            moe_conv: conv(ConvSite::Mlp, "moe_conv"),
        }
    }

    /// `x` [b, s, d] to [b, s, d] with the layer's statistics; `segment_ids` [b, s].
    ///
    /// # Errors
    /// If the exchange between tokens and experts fails.
    pub fn forward<D: TokenDispatcher, B: Balancing>(
        &self,
        x: Tensor<3>,
        segment_ids: &Tensor<2, Int>,
        routed: &Routed<'_, D, B>,
    ) -> Result<(Tensor<3>, LayerStats<B::Stats>), EpError> {
        self.mix(self.attend(x, segment_ids), segment_ids, routed)
    }

    /// As [`forward`](Self::forward), for a backward pass by `plan`.
    ///
    /// # Errors
    /// As [`forward`](Self::forward), and if the block is to be computed again with a dispatcher
    /// whose ways cannot be taken again.
    pub fn forward_by<D: TokenDispatcher, B: Balancing>(
        &self,
        plan: &BackwardPlan<'_>,
        x: Tensor<3>,
        segment_ids: &Tensor<2, Int>,
        routed: &Routed<'_, D, B>,
    ) -> Result<(Tensor<3>, LayerStats<B::Stats>), EpError> {
        let Some(keep) = plan.recompute.keep() else {
            return plan.gradients.tapped(self, &x).forward(x, segment_ids, routed);
        };
        let first = |block: &Self, x| {
            let (hidden, mut stats, decision) =
                block.forward_keeping(x, segment_ids, routed, keep)?;
            let outputs = Outputs { hidden, loss: stats.sequence_balance.take() };
            let segment_ids = segment_ids.clone();
            let again = move |block: &Self, x| block.forward_again(x, &segment_ids, &decision);
            Ok::<_, EpError>((outputs, stats, again))
        };
        let (outputs, mut stats) = computed_again(self, x, plan.gradients, first)?;
        stats.sequence_balance = outputs.loss;
        Ok((outputs.hidden, stats))
    }

    fn forward_keeping<D: TokenDispatcher, B: Balancing>(
        &self,
        x: Tensor<3>,
        segment_ids: &Tensor<2, Int>,
        routed: &Routed<'_, D, B>,
        keep: Keep,
    ) -> Result<(Tensor<3>, LayerStats<B::Stats>, MoeDecision), EpError> {
        let x = self.attend(x, segment_ids);
        let (mixed, stats, decision) =
            self.moe.forward_keeping(self.router_input(&x), routed, keep)?;
        Ok((self.mixed_into(x, mixed, segment_ids), stats, decision))
    }

    fn forward_again(
        &self,
        x: Tensor<3>,
        segment_ids: &Tensor<2, Int>,
        decision: &MoeDecision,
    ) -> Outputs {
        let x = self.attend(x, segment_ids);
        let (mixed, loss) = self.moe.forward_again(self.router_input(&x), decision);
        Outputs { hidden: self.mixed_into(x, mixed, segment_ids), loss }
    }

    /// The first half: `x + conv(attention(norm(x)))`.
    pub fn attend(&self, x: Tensor<3>, segment_ids: &Tensor<2, Int>) -> Tensor<3> {
        self.attend_along(x, &mut WholeRows { segment_ids })
    }

    fn attend_along(&self, x: Tensor<3>, along: &mut impl Along) -> Tensor<3> {
        let dims = x.dims();
        let u = normed(&self.attention_norm, &x).reshape(dims);
        let attended = self.attention.forward_along(u, along);
        x + along.convolve_if(ConvSite::Attention, &self.attention_conv, attended)
    }

    /// What the router and the experts read [t, d], from the output of [`attend`](Self::attend).
    pub fn router_input(&self, x: &Tensor<3>) -> Tensor<2> {
        normed(&self.moe_norm, x)
    }

    /// The second half: `x + conv(moe(norm(x)))`.
    ///
    /// # Errors
    /// If the exchange between tokens and experts fails.
    pub fn mix<D: TokenDispatcher, B: Balancing>(
        &self,
        x: Tensor<3>,
        segment_ids: &Tensor<2, Int>,
        routed: &Routed<'_, D, B>,
    ) -> Result<(Tensor<3>, LayerStats<B::Stats>), EpError> {
        let (mixed, stats) = self.moe.forward(self.router_input(&x), routed)?;
        Ok((self.mixed_into(x, mixed, segment_ids), stats))
    }

    /// As [`forward`](Self::forward) without its statistics, with what `along` reaches of the rows.
    pub(crate) fn forward_along<D: TokenDispatcher, B: Balancing>(
        &self,
        x: Tensor<3>,
        along: &mut impl Along,
        routed: &Routed<'_, D, B>,
    ) -> Result<Tensor<3>, EpError> {
        let x = self.attend_along(x, along);
        let (mixed, _) = self.moe.forward(self.router_input(&x), routed)?;
        Ok(self.mixed_into_along(x, mixed, along))
    }

    fn mixed_into(
        &self,
        x: Tensor<3>,
        mixed: Tensor<2>,
        segment_ids: &Tensor<2, Int>,
    ) -> Tensor<3> {
        self.mixed_into_along(x, mixed, &mut WholeRows { segment_ids })
    }

    fn mixed_into_along(
        &self,
        x: Tensor<3>,
        mixed: Tensor<2>,
        along: &mut impl Along,
    ) -> Tensor<3> {
        let dims = x.dims();
        x + along.convolve_if(ConvSite::Mlp, &self.moe_conv, mixed.reshape(dims))
    }
}

fn normed(norm: &GatedRmsNorm, x: &Tensor<3>) -> Tensor<2> {
    let [b, s, d] = x.dims();
    norm.forward(x.clone().reshape([b * s, d]))
}

impl<R: Router + Roles> Roles for Block<R> {
    fn declare_roles(&self, path: &str, table: &mut RoleTable) {
        self.attention_norm.declare_roles(&join(path, "attention_norm"), table);
        self.attention.declare_roles(&join(path, "attention"), table);
        self.attention_conv.declare_roles(&join(path, "attention_conv"), table);
        self.moe_norm.declare_roles(&join(path, "moe_norm"), table);
        self.moe.declare_roles(&join(path, "moe"), table);
        self.moe_conv.declare_roles(&join(path, "moe_conv"), table);
    }
}
