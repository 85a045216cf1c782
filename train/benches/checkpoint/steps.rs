//! Steps of the miniature, alone and while a save is under way.

use std::sync::Arc;

use burn::tensor::Device;
use fulmar_ep::{Local, World};
use fulmar_model::Preset;
use fulmar_tests::made_up::batch;
use fulmar_train::RunConfig;
use fulmar_train::checkpoint::{Run, Snapshot};
use fulmar_train::state::{TrainState, balancing};
use fulmar_train::step::StepContext;
use fulmar_train::storage::Storage;
use fulmar_train::telemetry::memory::human;

use super::seconds;

/// Steps of a round without a save; a save lasts about as long.
const STEPS: usize = 6;

/// Rounds of steps alone and of steps while one save is written, in turns.
pub(crate) fn beside_saves(storage: &Arc<dyn Storage>, rounds: usize) {
    let mut config = RunConfig::preset(Preset::MiniD96);
    config.schedule.steps = 1_000;
    let world = World::solo();
    let mut state = TrainState::new(&config, &world, &Device::flex()).expect("a state");
    step(&config, &mut state);
    let (mut alone, mut beside, mut bytes) = (Vec::new(), Vec::new(), 0);
    for _ in 0..rounds {
        alone.extend((0..STEPS).map(|_| seconds(|| step(&config, &mut state))));
        let snapshot = Snapshot::new(&Run::new(storage, &config, "made up"), &state, &world);
        bytes = snapshot.num_bytes();
        let to = storage.clone();
        let save = std::thread::spawn(move || snapshot.write(&*to));
        // The first step beside a save makes the copy of the state.
        while beside.is_empty() || !save.is_finished() {
            beside.push(seconds(|| step(&config, &mut state)));
        }
        save.join().expect("no panic").expect("written");
    }
    let mean = |secs: &[f64]| secs.iter().sum::<f64>() / secs.len() as f64;
    let (alone, beside, count) = (median(&mut alone), mean(&beside), beside.len());
    println!(
        "a step of the miniature: {:.1} ms alone, {:.1} ms beside a save of {} ({count} steps in \
         {rounds} saves): {:.3} times, target 1.1",
        1e3 * alone,
        1e3 * beside,
        human(bytes),
        beside / alone,
    );
}

fn median(secs: &mut [f64]) -> f64 {
    secs.sort_by(f64::total_cmp);
    secs[secs.len() / 2]
}

fn step(config: &RunConfig, state: &mut TrainState) {
    let (device, world) = (Device::flex(), World::solo());
    let (dispatcher, balancing) = (Local::new(config.model.num_experts), balancing(config));
    let context = StepContext::new(config, &world, &dispatcher, &balancing, &device);
    let rates = state.optimizer.rates(0.5, 0.1);
    let rows = batch(&config.model, config.batch.rows as usize);
    assert!(state.step(&rows, rates, &context).expect("a step").updated, "a finite step");
}
