//! Norms of the whole model, of each role and of each layer.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use fulmar_ep::World;
use fulmar_ep::transport::TransportError;
use fulmar_model::{Role, Transformer};

use super::gradients::squares;
use super::{Gradients, OptimizerTable, Rule};

/// Euclidean norms of gradients or of trained parameters, over all shards: the same on every rank
/// wherever experts live.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Norms {
    /// Of all of them.
    pub total: f64,
    /// Of those of a role.
    pub groups: BTreeMap<Role, f64>,
    /// Of those of a layer.
    pub layers: Vec<f64>,
}

impl Norms {
    /// Of the trained parameters of a rank's model; of expert stacks it has its shard's.
    ///
    /// # Errors
    /// If a peer is lost.
    pub fn of_parameters(
        model: &Transformer,
        table: &OptimizerTable,
        world: &World,
    ) -> Result<Self, TransportError> {
        let mut squares = Squares { path: Vec::new(), sums: BTreeMap::new() };
        model.visit(&mut squares);
        Self::over_ranks("parameter norm", squares.sums.into_iter(), table, world)
    }

    /// Joins the sums of squares of each path: each shard adds those of the experts it owns, the
    /// shared ones count once. One reduction, of a few numbers.
    fn over_ranks(
        label: &'static str,
        sums: impl Iterator<Item = (String, f64)>,
        table: &OptimizerTable,
        world: &World,
    ) -> Result<Self, TransportError> {
        let num_layers = table.iter().filter_map(|(path, _)| layer_of(path)).max();
        let num_layers = num_layers.map_or(0, |last| last + 1);
        // The total first, then each layer: those of shared parameters, and those of experts.
        let (mut shared, mut experts) = (vec![0.0; num_layers + 1], vec![0.0; num_layers + 1]);
        let mut groups: BTreeMap<Role, f64> = BTreeMap::new();
        for (path, sum) in sums {
            let Some(entry) = table.get(&path).filter(|entry| entry.rule != Rule::Fixed) else {
                continue;
            };
            let is_stack = entry.role == Role::ExpertStack;
            let into = if is_stack { &mut experts } else { &mut shared };
            into[0] += sum;
            if let Some(layer) = layer_of(&path) {
                into[1 + layer] += sum;
            }
            if !is_stack {
                *groups.entry(entry.role).or_default() += sum;
            }
        }
        let experts = world.expert.sum_f64(label, &experts)?;
        groups.insert(Role::ExpertStack, experts[0]);
        let norm = |index: usize| (shared[index] + experts[index]).sqrt();
        Ok(Self {
            total: norm(0),
            groups: groups.into_iter().map(|(role, sum)| (role, sum.sqrt())).collect(),
            layers: (1..=num_layers).map(norm).collect(),
        })
    }
}

impl Gradients {
    /// Norms of the whole model's gradient, those of shards joined.
    ///
    /// # Errors
    /// If a peer is lost.
    pub fn norms_over_ranks(
        &self,
        table: &OptimizerTable,
        world: &World,
    ) -> Result<Norms, TransportError> {
        let sums = self.0.iter().map(|(path, gradient)| (path.clone(), squares(gradient)));
        Norms::over_ranks("gradient norm", sums, table, world)
    }
}

/// `layers.3.attention.q` is of layer 3.
fn layer_of(path: &str) -> Option<usize> {
    path.strip_prefix("layers.")?.split('.').next()?.parse().ok()
}

/// Sums of squares by path, a small part of a parameter at a time.
struct Squares {
    path: Vec<String>,
    sums: BTreeMap<String, f64>,
}

impl ModuleVisitor for Squares {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let flat = param.val().inner().flatten(0, D - 1);
        self.sums.insert(self.path.join("."), squares(&flat));
    }
}
