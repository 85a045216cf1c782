//! The whole step, and those of its parts that need its model.

use std::time::Instant;

use burn::tensor::Device;
use fulmar_data::Batch;
use fulmar_ep::transport::Group;
use fulmar_ep::{Local, World};
use fulmar_tests::made_up::batch;
use fulmar_train::RunConfig;
use fulmar_train::optim::{Gradients, Optimizer, OptimizerTable, Schedule};
use fulmar_train::state::{TrainState, balancing};
use fulmar_train::step::{StepContext, StepReport};

use super::parts::Part;
use super::seconds;
use super::timing::least;

/// A whole training step on one repeated batch.
pub(crate) struct WholeStep<'a> {
    config: &'a RunConfig,
    state: TrainState,
    batch: Batch,
    device: Device,
    report: Option<StepReport>,
}

impl<'a> WholeStep<'a> {
    pub(crate) fn new(config: &'a RunConfig) -> Self {
        let device = Device::flex();
        let state = TrainState::new(config, &World::solo(), &device).expect("state");
        let batch = batch(&config.model, config.batch.rows as usize);
        Self { config, state, batch, device, report: None }
    }

    pub(crate) fn once(&mut self) {
        let dispatcher = Local::new(self.config.model.num_experts);
        let balancing = balancing(self.config);
        let world = World::solo();
        let context = StepContext::new(self.config, &world, &dispatcher, &balancing, &self.device);
        let rates = self.state.optimizer.rates(&Schedule::new(2), 1);
        let report = self.state.step(&self.batch, rates, &context).expect("step");
        assert!(report.updated, "a step on random tokens is finite");
        self.report = Some(report);
    }

    pub(crate) fn config(&self) -> &RunConfig {
        self.config
    }

    pub(crate) fn state(&self) -> &TrainState {
        &self.state
    }

    pub(crate) fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Of the last step.
    pub(crate) fn report(&self) -> &StepReport {
        self.report.as_ref().expect("a step was taken")
    }

    pub(crate) fn table(&self) -> &OptimizerTable {
        self.state.optimizer.table()
    }

    /// The update, and the norm of all gradients.
    pub(crate) fn parts(&self, repeats: usize) -> [Part; 2] {
        let gradients = Gradients::of_weights(&self.state.model);
        let norm = least((0..repeats).map(|_| seconds(&mut || _ = gradients.norm())));
        drop(gradients);
        [Part::new("gradient norm", norm), Part::new("optimizer", self.optimizer_secs(repeats))]
    }

    /// The update alone, with the weights as gradients.
    fn optimizer_secs(&self, repeats: usize) -> f64 {
        let table = self.state.optimizer.table().clone();
        let peaks = *self.state.optimizer.peaks();
        let mut optimizer = Optimizer::new(table, self.config.optimizer.clone(), peaks);
        let rates = optimizer.rates(&Schedule::new(2), 1);
        let mut model = self.state.model.clone();
        let mut once = || {
            let gradients = Gradients::of_weights(&model);
            let started = Instant::now();
            optimizer.step(&mut model, gradients, rates, &Group::solo()).expect("update");
            started.elapsed().as_secs_f64()
        };
        // The first update allocates the moments.
        once();
        least((0..repeats).map(|_| once()))
    }
}
