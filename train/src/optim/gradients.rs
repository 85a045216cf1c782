//! The gradients of a step.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use fulmar_model::GradientSink;

use super::update::reshaped;

/// Gradients of a step by path, flat, outside every graph.
#[derive(Debug, Default)]
pub struct Gradients(pub(super) BTreeMap<String, Tensor<1>>);

impl Gradients {
    /// The gradients of every trained parameter of `model`.
    pub fn of<M: Module>(model: &M, grads: burn::tensor::Gradients) -> Self {
        let mut gradients = Self::default();
        gradients.add(model, grads);
        gradients
    }

    /// Takes the gradient of every trained parameter of `model` and adds it to those held.
    pub fn add<M: Module>(&mut self, model: &M, mut grads: burn::tensor::Gradients) {
        let source = Source::Graph(&mut grads);
        model.visit(&mut Collector { path: Vec::new(), source, sums: &mut self.0 });
    }

    /// Takes the sum of every parameter of `model` out of `sink` and adds it to those held; without
    /// a copy where none is.
    pub fn add_from<M: Module>(&mut self, model: &M, sink: &GradientSink) {
        let source = Source::Sink(sink);
        model.visit(&mut Collector { path: Vec::new(), source, sums: &mut self.0 });
    }

    /// The weights themselves in the place of gradients, for timing an update.
    pub fn of_weights<M: Module>(model: &M) -> Self {
        let device = burn::tensor::Device::flex();
        let weights = fulmar_model::weights::export(model).into_iter();
        let flat = weights.map(|(path, data)| {
            let len = data.num_elements();
            (path, Tensor::from_data(reshaped(data, &[len]), &device))
        });
        Self(flat.collect())
    }

    /// Euclidean norm over all entries; not finite if any entry is not.
    pub fn norm(&self) -> f64 {
        self.0.values().map(squares).sum::<f64>().sqrt()
    }

    /// The gradient at `path`, flat.
    pub fn get(&self, path: &str) -> Option<&Tensor<1>> {
        self.0.get(path)
    }
}

/// Where gradients come from.
enum Source<'a> {
    Graph(&'a mut burn::tensor::Gradients),
    Sink(&'a GradientSink),
}

impl Source<'_> {
    /// The gradient of `param`, flat.
    fn take<const D: usize>(&mut self, param: &Param<Tensor<D>>) -> Option<Tensor<1>> {
        match self {
            Self::Graph(grads) => Some(param.val().grad_remove(grads)?.flatten(0, D - 1)),
            Self::Sink(sink) => sink.take(param.id),
        }
    }
}

/// Entries whose squares are held at once: a small part of a large gradient, never a copy of it.
const SQUARES_HELD: usize = 1 << 16;

/// The sum of squares; not finite if a square, in f32, or an entry is not.
pub(super) fn squares(gradient: &Tensor<1>) -> f64 {
    let [len] = gradient.dims();
    let of_part = |start: usize| {
        let part = gradient.clone().narrow(0, start, SQUARES_HELD.min(len - start));
        f64::from((part.clone() * part).sum().into_scalar::<f32>())
    };
    (0..len).step_by(SQUARES_HELD).map(of_part).sum()
}

struct Collector<'a> {
    path: Vec<String>,
    source: Source<'a>,
    sums: &'a mut BTreeMap<String, Tensor<1>>,
}

impl ModuleVisitor for Collector<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(grad) = self.source.take(param) else { return };
        let path = self.path.join(".");
        let sum = match self.sums.remove(&path) {
            Some(sum) => sum + grad,
            None => grad,
        };
        self.sums.insert(path, sum);
    }
}
