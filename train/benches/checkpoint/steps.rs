//! Steps of the miniature, alone and while a save is under way.

use std::sync::Arc;

use burn::tensor::Device;
use fulmar_ep::{Local, World};
use fulmar_model::Preset;
use fulmar_tests::made_up::batch;
use fulmar_train::RunConfig;
use fulmar_train::background::{Pace, give_way};
use fulmar_train::checkpoint::{Run, Snapshot};
use fulmar_train::optim::Schedule;
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
    let (mut ratios, mut last) = (Vec::new(), String::new());
    for _ in 0..rounds {
        let alone: Vec<f64> = (0..STEPS).map(|_| seconds(|| step(&config, &mut state))).collect();
        let snapshot = Snapshot::new(&Run::new(storage, &config, "made up"), &state, &world);
        let bytes = snapshot.num_bytes();
        let to = storage.clone();
        let save = std::thread::spawn(move || {
            give_way();
            snapshot.write(&*to, &Pace::default())
        });
        // The first of them makes the copy of the state.
        let mut beside = Vec::new();
        while beside.is_empty() || !save.is_finished() {
            beside.push(seconds(|| step(&config, &mut state)));
        }
        save.join().expect("no panic").expect("written");
        let count = beside.len();
        let [alone, beside] = [alone, beside].map(|secs| 1e3 * mean(&secs));
        ratios.push(beside / alone);
        last = format!(
            "{alone:.1} ms alone, {beside:.1} ms in {count} steps beside a save of {}",
            human(bytes)
        );
    }
    ratios.sort_by(f64::total_cmp);
    let (least, median) = (ratios[0], ratios[ratios.len() / 2]);
    println!("a step of the miniature, last of {rounds} rounds: {last}");
    println!("beside a save: {median:.3} times as long, {least:.3} at best; target 1.1");
}

fn mean(secs: &[f64]) -> f64 {
    secs.iter().sum::<f64>() / secs.len() as f64
}

fn step(config: &RunConfig, state: &mut TrainState) {
    let (device, world) = (Device::flex(), World::solo());
    let (dispatcher, balancing) = (Local::new(config.model.num_experts), balancing(config));
    let context = StepContext::new(config, &world, &dispatcher, &balancing, &device);
    let rates = state.optimizer.rates(&Schedule::new(2), 1);
    let rows = batch(&config.model, config.batch.rows as usize);
    assert!(state.step(&rows, rates, &context).expect("a step").updated, "a finite step");
}
