//! One update of every parameter.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Tensor, TensorData};
use fulmar_ep::transport::{Group, or_unwind};
use fulmar_kernels::adam::{AdamOptions, adam_step, adamh_step};
use fulmar_kernels::muonh::{MuonHNorm, MuonHOptions, muonh_step};
use fulmar_kernels::newton_schulz::Precision;
use fulmar_model::Role;
use fulmar_model::weights::{Held, emptied};

use super::gradients::Gradients;
use super::joint::muonh_step_over_shards;
use super::rule::{OptimizerTable, Rule};
use super::{MuonHNormKind, NewtonSchulzKind, OptimizerConfig, Peaks};
use crate::error::TrainError;

/// What one update multiplies directions with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepRates {
    /// Rate of Adam.
    pub adam: f64,
    /// Rate of MuonH and AdamH.
    pub muonh: f64,
    /// Decay of head gates and router weights.
    pub gate_router_decay: f64,
}

/// The optimizer's table, constants and state.
#[derive(Debug)]
pub struct Optimizer {
    table: OptimizerTable,
    config: OptimizerConfig,
    peaks: Peaks,
    /// Updates done; bias corrections of the next use one more.
    updates: u64,
    /// Moments by path, flat.
    moments: BTreeMap<String, Moments>,
}

#[derive(Debug, Clone)]
struct Moments {
    /// MuonH's momentum, or the first moment of Adam and AdamH.
    first: Tensor<1>,
    /// The second moment of Adam and AdamH.
    second: Option<Tensor<1>>,
}

impl Optimizer {
    /// An optimizer whose moments are zero.
    pub fn new(table: OptimizerTable, config: OptimizerConfig, peaks: Peaks) -> Self {
        Self { table, config, peaks, updates: 0, moments: BTreeMap::new() }
    }

    /// The table of parameters.
    pub fn table(&self) -> &OptimizerTable {
        &self.table
    }

    /// Peak rates and constants.
    pub fn peaks(&self) -> &Peaks {
        &self.peaks
    }

    /// Rates of an update whose schedule stands at `factor` of the peak, `progress` of the run
    /// being done.
    pub fn rates(&self, factor: f64, progress: f64) -> StepRates {
        StepRates {
            adam: self.peaks.lr_adam * factor,
            muonh: self.peaks.lr_muonh * factor,
            gate_router_decay: self.config.gate_router_decay * (1.0 - progress).max(0.0),
        }
    }

    /// Updates the model, parameter by parameter and in place where nothing else holds its weights;
    /// each gradient is freed once it is used. `shards` are the ranks that share its experts.
    ///
    /// # Errors
    /// [`TrainError::MissingGradient`] for a trained parameter that the loss does not reach; model
    /// and state are as they were then.
    ///
    /// # Panics
    /// Unwinds if a peer is lost in the middle of an update; the model is lost then.
    pub fn step<M: Module>(
        &mut self,
        model: &mut M,
        gradients: Gradients,
        rates: StepRates,
        shards: &Group,
    ) -> Result<(), TrainError> {
        let reached = |path: &&String| gradients.0.contains_key(*path);
        let trained = self.table.iter().filter(|(_, entry)| entry.rule != Rule::Fixed);
        if let Some(path) = trained.map(|(path, _)| path).find(|path| !reached(path)) {
            return Err(TrainError::MissingGradient { path: path.clone() });
        }
        self.updates += 1;
        // A mapper takes a module by value; what stays behind meanwhile must hold no weights, or
        // they would be copied to be updated.
        let husk = emptied(model);
        let given = std::mem::replace(model, husk);
        *model = given.map(&mut Updater {
            optimizer: self,
            gradients: gradients.0,
            rates,
            shards,
            path: Vec::new(),
        });
        Ok(())
    }

    /// Bytes of state for each entry of a parameter.
    pub fn state_bytes(&self, rule: Rule) -> u64 {
        self.config.state_bytes(rule)
    }

    /// State by name: `<path>.momentum`, `<path>.m`, `<path>.v`, in the shape of the parameter
    /// here: of an expert stack, the experts of this shard. A copy of all of it.
    pub fn export(&self) -> BTreeMap<String, TensorData> {
        self.hold().into_iter().map(|(name, held)| (name, held.read())).collect()
    }

    /// Handles on what [`export`](Self::export) copies.
    pub fn hold(&self) -> BTreeMap<String, Held> {
        let mut state = BTreeMap::new();
        for (path, moments) in &self.moments {
            let parts: Vec<(&str, &Tensor<1>)> = match &moments.second {
                None => vec![("momentum", &moments.first)],
                Some(second) => vec![("m", &moments.first), ("v", second)],
            };
            let shape = self.table.get(path).map_or_else(Vec::new, |entry| entry.shape.clone());
            for (name, tensor) in parts {
                let shape = shape_here(&shape, tensor.dims()[0]);
                state.insert(format!("{path}.{name}"), Held::new(shape, tensor.clone()));
            }
        }
        state
    }

    /// Replaces the state with what [`export`](Self::export) gave after `updates` updates; of none
    /// there is no state.
    ///
    /// # Errors
    /// [`TrainError::MissingState`] for a trained parameter that `source` has no state for, and
    /// [`TrainError::StateType`] where it is stored as another type than the configuration's.
    pub fn import(
        &mut self,
        updates: u64,
        device: &burn::tensor::Device,
        mut source: impl FnMut(&str) -> Option<TensorData>,
    ) -> Result<(), TrainError> {
        if updates == 0 {
            (self.moments, self.updates) = (BTreeMap::new(), 0);
            return Ok(());
        }
        let mut load = |name: String, needed: DType| match source(&name) {
            Some(data) if data.dtype() != needed => {
                Err(TrainError::StateType { name, found: data.dtype(), needed })
            }
            Some(data) => {
                let len = data.num_elements();
                Ok(Tensor::<1>::from_data(reshaped(data, &[len]), (device, needed)))
            }
            None => Err(TrainError::MissingState { name }),
        };
        let of_muonh = self.config.momentum_dtype.dtype();
        let mut moments = BTreeMap::new();
        for (path, entry) in self.table.iter() {
            let loaded = match entry.rule {
                Rule::Fixed => continue,
                Rule::MuonH => {
                    Moments { first: load(format!("{path}.momentum"), of_muonh)?, second: None }
                }
                Rule::Adam | Rule::AdamH => Moments {
                    first: load(format!("{path}.m"), DType::F32)?,
                    second: Some(load(format!("{path}.v"), DType::F32)?),
                },
            };
            moments.insert(path.clone(), loaded);
        }
        self.moments = moments;
        self.updates = updates;
        Ok(())
    }

    fn muonh_options(&self, rates: StepRates) -> MuonHOptions {
        MuonHOptions {
            lr: rates.muonh,
            momentum: self.config.momentum,
            precision: match self.config.newton_schulz {
                NewtonSchulzKind::F32 => Precision::F32,
                NewtonSchulzKind::Bf16 => Precision::Bf16,
            },
            norm: match self.config.muonh_norm {
                MuonHNormKind::PerExpert => MuonHNorm::PerMatrix,
                MuonHNormKind::Joint => MuonHNorm::Joint,
            },
        }
    }

    fn adam_options(&self, lr: f64, weight_decay: f64) -> AdamOptions {
        AdamOptions {
            lr,
            beta1: self.config.beta1,
            beta2: self.peaks.beta2,
            eps: self.peaks.epsilon,
            step: self.updates,
            weight_decay,
        }
    }
}

struct Updater<'a> {
    optimizer: &'a mut Optimizer,
    gradients: BTreeMap<String, Tensor<1>>,
    rates: StepRates,
    shards: &'a Group,
    path: Vec<String>,
}

impl Updater<'_> {
    /// Moments leave the map while they are updated, so that buffers are owned once and the
    /// kernels can write in place.
    fn update(&mut self, path: &str, weight: Tensor<1>, gradient: Tensor<1>) -> Tensor<1> {
        let entry = self.optimizer.table.get(path).expect("step checked the table").clone();
        let zeros = |dtype: DType| Tensor::zeros(weight.dims(), (&weight.device(), dtype));
        let moments = self.optimizer.moments.remove(path);
        let (first, second) = moments.map_or((None, None), |m| (Some(m.first), m.second));
        let (weight, moments) = if entry.rule == Rule::MuonH {
            let dtype = self.optimizer.config.momentum_dtype.dtype();
            let first = first.unwrap_or_else(|| zeros(dtype));
            self.muonh(&entry.shape, weight, gradient, first)
        } else {
            let first = first.unwrap_or_else(|| zeros(DType::F32));
            let second = second.unwrap_or_else(|| zeros(DType::F32));
            let (step, options) = self.adam_rule(entry.rule, entry.role);
            let (weight, first, second) = step(weight, gradient, first, second, &options);
            (weight, Moments { first, second: Some(second) })
        };
        self.optimizer.moments.insert(path.to_owned(), moments);
        weight
    }

    fn muonh(
        &self,
        shape: &[usize],
        weight: Tensor<1>,
        gradient: Tensor<1>,
        momentum: Tensor<1>,
    ) -> (Tensor<1>, Moments) {
        let (rows, columns) = (shape[shape.len() - 2], shape[shape.len() - 1]);
        let stack = [weight.dims()[0] / (rows * columns), rows, columns];
        let options = self.optimizer.muonh_options(self.rates);
        let spread = shape.len() == 3 && self.shards.size() > 1;
        let [weight, gradient, momentum] =
            [weight, gradient, momentum].map(|tensor| tensor.reshape(stack));
        let (weight, momentum) = if spread && options.norm == MuonHNorm::Joint {
            let shards = self.shards;
            or_unwind(muonh_step_over_shards(weight, gradient, momentum, &options, shards))
        } else {
            muonh_step(weight, gradient, momentum, &options)
        };
        (weight.flatten(0, 2), Moments { first: momentum.flatten(0, 2), second: None })
    }

    fn adam_rule(&self, rule: Rule, role: Role) -> (AdamStep, AdamOptions) {
        if rule == Rule::AdamH {
            return (adamh_step, self.optimizer.adam_options(self.rates.muonh, 0.0));
        }
        let decay = match role {
            Role::HeadGate | Role::Router => self.rates.gate_router_decay,
            _ => 0.0,
        };
        (adam_step, self.optimizer.adam_options(self.rates.adam, decay))
    }
}

type AdamStep = fn(
    Tensor<1>,
    Tensor<1>,
    Tensor<1>,
    Tensor<1>,
    &AdamOptions,
) -> (Tensor<1>, Tensor<1>, Tensor<1>);

impl ModuleMapper for Updater<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let path = self.path.join(".");
        let Some(gradient) = self.gradients.remove(&path) else { return param };
        let (id, weight, mapper) = param.consume();
        let dims = weight.dims();
        let weight = weight.inner().flatten::<1>(0, D - 1);
        let updated = self.update(&path, weight, gradient).reshape(dims);
        Param::from_mapped_value(id, Tensor::from_inner(updated).require_grad(), mapper)
    }
}

/// The shape of a parameter of `len` entries here, of which the table knows the shape over all
/// shards: they share the first axis of stacks.
fn shape_here(shape: &[usize], len: usize) -> Vec<usize> {
    let mut here = shape.to_vec();
    if let [experts, of_expert @ ..] = &mut here[..] {
        let of_expert: usize = of_expert.iter().product();
        *experts = len.checked_div(of_expert).unwrap_or(0);
    }
    here
}

pub(super) fn reshaped(data: TensorData, shape: &[usize]) -> TensorData {
    let (bytes, _, dtype) = data.into_parts();
    TensorData::from_bytes(bytes, shape, dtype)
}
