//! Layers whose products are in bf16, beside the same layers in f32.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use fulmar_ep::ExpertRows;
use fulmar_kernels::grouped_swiglu::Groups;
use fulmar_model::attention::Attention;
use fulmar_model::moe::experts::Experts;
use fulmar_model::moe::latent::Latent;
use fulmar_model::moe::router::{Router as _, SigmoidRouter};
use fulmar_model::moe::shared::SharedExpert;
use fulmar_model::norm::GatedRmsNorm;
use fulmar_model::{Compute, Initializer, ModelConfig, Preset};
use fulmar_tests::compare::{assert_close, assert_same_bits};

/// Half the distance of 1 to the next bf16: the relative error of one rounding.
const ROUNDING: f32 = 1.0 / 256.0;
const TOKENS: usize = 48;

fn config(compute: Compute) -> ModelConfig {
    ModelConfig { num_experts: 6, num_experts_per_token: 2, compute, ..Preset::MiniD96.config() }
}

fn init() -> Initializer {
    Initializer::new(5, 0.1, &Device::flex().autodiff())
}

/// Values of about a normal deviation of 1 [t, width].
fn input(name: &str, width: usize) -> Tensor<2> {
    let values = Initializer::new(9, 1.0, &Device::flex()).matrix(name, [TOKENS, width]);
    Tensor::from_inner(values.val().inner()).require_grad()
}

/// Takes the gradients of a module's parameters, all of which must be f32.
struct Take<'a> {
    grads: &'a mut burn::tensor::Gradients,
    taken: Vec<Vec<f32>>,
}

impl ModuleVisitor for Take<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        assert_eq!(param.val().dtype(), DType::F32, "weights are f32");
        if let Some(grad) = param.val().grad_remove(self.grads) {
            assert_eq!(grad.dtype(), DType::F32, "gradients of f32 weights are f32");
            self.taken.push(grad.into_data().iter::<f32>().collect());
        }
    }
}

/// The result of a layer, the gradient of its input and those of its weights.
fn run<M: Module>(
    make: &impl Fn(&ModelConfig) -> M,
    width: impl Fn(&ModelConfig) -> usize,
    forward: &impl Fn(&M, Tensor<2>) -> Tensor<2>,
    compute: Compute,
) -> Vec<Vec<f32>> {
    let config = config(compute);
    let (layer, x) = (make(&config), input("x", width(&config)));
    let out = forward(&layer, x.clone());
    assert_eq!(out.dtype(), DType::F32, "between layers all is f32");
    let upstream = input("upstream", out.dims()[1]).inner();
    let mut grads = (out.clone() * Tensor::from_inner(upstream)).sum().backward();
    let dx = x.grad(&grads).expect("dx");
    let mut take = Take { grads: &mut grads, taken: Vec::new() };
    layer.visit(&mut take);
    let floats = |x: Tensor<2>| x.into_data().iter::<f32>().collect();
    let mut results = vec![floats(out.inner()), floats(dx)];
    results.append(&mut take.taken);
    results
}

/// Fails unless a layer in bf16 has results and gradients within `roundings` of those in f32, and
/// none with the same bits; the results in bf16.
fn assert_rounds<M: Module>(
    name: &str,
    make: impl Fn(&ModelConfig) -> M,
    width: impl Fn(&ModelConfig) -> usize,
    forward: impl Fn(&M, Tensor<2>) -> Tensor<2>,
    roundings: f32,
) -> Vec<Vec<f32>> {
    let found = run(&make, &width, &forward, Compute::Bf16);
    let expected = run(&make, &width, &forward, Compute::F32);
    assert_eq!(found.len(), expected.len(), "{name}: gradients");
    for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_ne!(found, expected, "{name} {i}: products are rounded");
        assert_close(&format!("{name} {i}"), found, expected, roundings * ROUNDING);
    }
    found
}

fn is_bf16(values: &[f32]) -> bool {
    values.iter().all(|value| value.to_bits() & 0xffff == 0)
}

fn hidden(config: &ModelConfig) -> usize {
    config.hidden_dim
}

// The tolerances count the rounded operands and results between the values compared; errors are
// of the size of the largest entry that went in, and hardly ever all of one sign.

#[test]
fn projections_to_and_from_the_latent_space_are_rounded() {
    let down = |latent: &Latent, u: Tensor<2>| latent.compress(u);
    let both = |latent: &Latent, u: Tensor<2>| latent.expand(latent.compress(u));
    let make = |config: &ModelConfig| Latent::new(config, &init());
    let found = run(&make, hidden, &down, Compute::Bf16);
    assert!(!is_bf16(&found[0]), "the norm after the product is f32");
    let found = assert_rounds("latent", make, hidden, both, 5.0);
    // The product's own results; a weight's gradient is one too.
    assert!(is_bf16(&found[0]) && is_bf16(&found[4]), "results of products");
}

#[test]
fn the_gate_of_a_norm_is_rounded_and_the_norm_is_not() {
    let make = |config: &ModelConfig| GatedRmsNorm::new(config, &init());
    let found = assert_rounds("norm", make, hidden, GatedRmsNorm::forward, 4.0);
    assert!(!is_bf16(&found[0]) && !is_bf16(&found[1]));
}

#[test]
fn products_of_experts_are_rounded() {
    let make = |config: &ModelConfig| SharedExpert::new(config, &init());
    let found = assert_rounds("shared expert", make, hidden, SharedExpert::forward, 6.0);
    assert!(is_bf16(&found[0]));

    let make = |config: &ModelConfig| Experts::new(config, &init());
    let forward = |experts: &Experts, rows: Tensor<2>| {
        let groups = Groups::from_counts(&[5, 0, 20, 1, 12, 10]);
        experts.forward(ExpertRows { rows, groups })
    };
    let found = assert_rounds("routed experts", make, |config| config.latent_dim, forward, 6.0);
    assert!(found.iter().all(|values| is_bf16(values)));
}

#[test]
fn products_of_attention_are_rounded_on_local_and_global_layers() {
    let ids: Vec<i32> = (0..TOKENS as i32).map(|t| t / 30).collect();
    let segments = Tensor::<2, Int>::from_data(TensorData::new(ids, [1, TOKENS]), &Device::flex());
    for layer in [0, 7] {
        let make = |config: &ModelConfig| Attention::new(config, layer, &init());
        let forward = |attention: &Attention, u: Tensor<2>| {
            let [t, d] = u.dims();
            attention.forward(u.reshape([1, t, d]), segments.clone()).reshape([t, d])
        };
        let found = assert_rounds(&format!("layer {layer}"), make, hidden, forward, 10.0);
        assert!(is_bf16(&found[0]));
    }
}

#[test]
fn the_router_is_f32_whatever_the_rest_computes_in() {
    let routed = |compute| {
        let config = config(compute);
        let routing = SigmoidRouter::new(&config, &init()).route(input("x", config.hidden_dim));
        let logits: Vec<f32> = routing.logits.inner().into_data().iter::<f32>().collect();
        let weights: Vec<f32> = routing.combine_weights.inner().into_data().iter::<f32>().collect();
        (logits, weights)
    };
    let (found, expected) = (routed(Compute::Bf16), routed(Compute::F32));
    assert_same_bits("logits", &found.0, &expected.0);
    assert_same_bits("combine weights", &found.1, &expected.1);
    assert!(!is_bf16(&found.0));
}
