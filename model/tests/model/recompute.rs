//! Blocks that are computed again, with routers and dispatchers that know nothing of it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar_ep::transport::Group;
use fulmar_ep::{Combined, Demand, Dispatched, EpError, Local, TokenDispatcher};
use fulmar_model::moe::quantile::{MarginRange, MarginStats, QuantileBalancing};
use fulmar_model::moe::router::{Router, Routing, SigmoidRouter};
use fulmar_model::transformer::ForwardOutput;
use fulmar_model::{
    BackwardPlan, GradientSink, Initializer, ModelConfig, ModelError, ModelInput, Preset,
    Recompute, Transformer, weights,
};
use fulmar_tests::compare::assert_same_bits;

const ROWS: usize = 2;
const SEQ_LEN: usize = 24;

fn small() -> ModelConfig {
    ModelConfig {
        vocab_size: 64,
        num_layers: 2,
        num_experts: 12,
        num_experts_per_token: 3,
        max_seq_len: SEQ_LEN,
        sliding_window: 8,
        ..Preset::MiniD96.config()
    }
}

fn input() -> ModelInput {
    let len = ROWS * SEQ_LEN;
    let tokens = (0..len as i32).map(|i| (i * 7 + 3) % 64).collect();
    ModelInput::new(tokens, vec![0; len], vec![true; len], [ROWS, SEQ_LEN], &Device::flex())
}

fn forward<R: Router, D: TokenDispatcher>(
    model: &Transformer<R>,
    dispatcher: &D,
    recompute: Recompute,
    sink: &GradientSink,
) -> Result<ForwardOutput<MarginStats>, ModelError> {
    let balancing = QuantileBalancing { bins: 100, range: MarginRange::OnePass };
    let plan = BackwardPlan { recompute, gradients: sink };
    model.forward_by(Some(&plan), &input(), dispatcher, Some(&balancing))
}

/// A dispatcher of a user's, written before ways could be taken again.
struct Theirs(Local);

impl TokenDispatcher for Theirs {
    type Handle = <Local as TokenDispatcher>::Handle;

    fn local_experts(&self) -> Range<usize> {
        self.0.local_experts()
    }

    fn group(&self) -> &Group {
        self.0.group()
    }

    fn dispatch(
        &self,
        tokens: Tensor<2>,
        selected: Tensor<2, Int>,
        demand: &Demand,
    ) -> Result<Dispatched<Self::Handle>, EpError> {
        self.0.dispatch(tokens, selected, demand)
    }

    fn combine(
        &self,
        outputs: Vec<Tensor<2>>,
        weights: Tensor<2>,
        handle: Self::Handle,
    ) -> Result<Combined, EpError> {
        self.0.combine(outputs, weights, handle)
    }
}

#[test]
fn a_dispatcher_that_takes_a_way_once_is_refused_where_it_is_needed_twice() {
    let model = Transformer::new(&small(), 3, &Device::flex().autodiff()).expect("valid");
    let (theirs, sink) = (Theirs(Local::new(12)), GradientSink::default());
    forward(&model, &theirs, Recompute::None, &sink).expect("all is kept");
    for recompute in [Recompute::Block, Recompute::SaveMoe] {
        let error = forward(&model, &theirs, recompute, &sink).expect_err("refused");
        assert_eq!(
            error.to_string(),
            "layer 0: this dispatcher cannot take a way twice, which computing a block again \
             needs; implement `dispatch_keeping` and `combine_keeping` of `TokenDispatcher`, or \
             keep all activations"
        );
    }
}

/// A router of a user's that knows only how to choose, and counts how often it does.
#[derive(Module, Debug)]
struct Chooser {
    inner: SigmoidRouter,
    #[module(skip)]
    calls: Arc<AtomicUsize>,
    /// The call from which on it chooses otherwise.
    turns_at: usize,
}

impl Router for Chooser {
    fn route(&self, u: Tensor<2>) -> Routing {
        let mut routing = self.inner.route(u);
        if self.calls.fetch_add(1, Ordering::Relaxed) >= self.turns_at {
            routing.selected = routing.selected.flip([1]);
        }
        routing
    }
}

fn with_chooser(turns_at: usize) -> Transformer<Chooser> {
    let config = small();
    let init = Initializer::new(3, config.initial_std(), &Device::flex().autodiff());
    let router = |config: &ModelConfig, init: &Initializer| Chooser {
        inner: SigmoidRouter::new(config, init),
        calls: Arc::default(),
        turns_at,
    };
    Transformer::with_router(&config, &init, router).expect("valid")
}

/// The gradients of a model by path.
fn gradients<R: Router>(model: &Transformer<R>, recompute: Recompute) -> Vec<(String, Vec<f32>)> {
    let (sink, len) = (GradientSink::default(), ROWS * SEQ_LEN);
    let output = forward(model, &Local::new(12), recompute, &sink).expect("forward");
    let targets = Tensor::from_data(TensorData::new(vec![5i32; len], [len]), &Device::flex());
    let weight = Tensor::ones([len], &Device::flex());
    let plan = BackwardPlan { recompute, gradients: &sink };
    model.loss_by(&plan, output.hidden, targets, weight, 1e-4).total.backward();
    let mut taken = Vec::new();
    model.visit(&mut Taker { sink: &sink, taken: &mut taken });
    let paths = weights::shapes(model).into_keys();
    let mut paths: Vec<String> = paths.filter(|path| !path.ends_with("bias")).collect();
    paths.sort();
    assert_eq!(taken.len(), paths.len(), "a gradient for each of {paths:?}");
    taken
}

struct Taker<'a> {
    sink: &'a GradientSink,
    taken: &'a mut Vec<(String, Vec<f32>)>,
}

impl burn::module::ModuleVisitor for Taker<'_> {
    fn visit_float<const D: usize>(&mut self, param: &burn::module::Param<Tensor<D>>) {
        if let Some(gradient) = self.sink.take(param.id) {
            let name = format!("parameter {}", self.taken.len());
            self.taken.push((name, gradient.into_data().iter::<f32>().collect()));
        }
    }
}

#[test]
fn a_router_that_only_routes_routes_again() {
    let model = with_chooser(usize::MAX);
    let needed = gradients(&model, Recompute::None);
    assert_eq!(model.layers[0].moe.router.calls.load(Ordering::Relaxed), 1);
    let found = gradients(&model, Recompute::Block);
    assert_eq!(model.layers[0].moe.router.calls.load(Ordering::Relaxed), 3);
    for ((name, found), (_, needed)) in found.iter().zip(&needed) {
        assert_same_bits(name, found, needed);
    }
}

#[test]
#[should_panic(expected = "a router that chooses other experts for the same input")]
fn a_router_that_chooses_otherwise_the_second_time_is_found_out() {
    gradients(&with_chooser(1), Recompute::Block);
}

#[test]
fn a_block_whose_input_is_not_trained_trains_all_the_same() {
    let mut model = Transformer::new(&small(), 3, &Device::flex().autodiff()).expect("valid");
    model.embedding = model.embedding.no_grad();
    model.embedding_norm = model.embedding_norm.no_grad();
    let trained = |model: &Transformer, recompute| {
        let sink = GradientSink::default();
        let output = forward(model, &Local::new(12), recompute, &sink).expect("forward");
        output.hidden.sum().backward();
        let mut taken = Vec::new();
        model.visit(&mut Taker { sink: &sink, taken: &mut taken });
        taken
    };
    let needed = trained(&model, Recompute::None);
    let found = trained(&model, Recompute::Block);
    assert_eq!(found.len(), needed.len());
    assert!(needed.len() > 40, "{}", needed.len());
    for ((name, found), (_, needed)) in found.iter().zip(&needed) {
        assert_same_bits(name, found, needed);
    }
}
