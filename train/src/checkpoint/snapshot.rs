//! The state of a rank at a step, by handles: what a save will write, whatever becomes of the state
//! meanwhile.
//!
//! An update changes in place only what nobody else holds. So while a snapshot lives, each tensor is
//! copied by the update that changes it, and each handle that is let go ends that: at most one copy
//! of the state, made as training goes on and freed as it is written.

use std::collections::BTreeMap;
use std::ops::Range;

use burn::tensor::{Device, Tensor, TensorData};
use fulmar_ep::World;
use fulmar_model::Role;
use fulmar_model::weights::{self, Held};

use super::census::{self, Expected};
use super::dealing::Dealing;
use super::manifest::{Kind, Manifest};
use super::save::Run;
use super::slices::slice_name;
use super::write::{HeldEntries, Planned, stored_dtype};
use super::{FORMAT_VERSION, part_file};
use crate::recipe;
use crate::state::TrainState;

/// What one rank writes of a checkpoint.
pub struct Snapshot {
    pub(super) part: Vec<Planned<HeldEntries>>,
    pub(super) part_file: String,
    /// The first rank's: pending balance, and the recipe.
    pub(super) balance: Vec<Planned<HeldEntries>>,
    pub(super) recipe: Option<String>,
    pub(super) facts: Facts,
}

/// What a checkpoint says beside its tensors, and what it must hold.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The manifest without files and digests.
    pub(super) manifest: Manifest,
    pub(super) expected: BTreeMap<String, Expected>,
}

impl Facts {
    /// The step whose state it is.
    pub fn step(&self) -> u64 {
        self.manifest.step
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({}, step {})", self.part_file, self.facts.manifest.step)
    }
}

impl Snapshot {
    /// Takes handles on the part of `state` that this rank is to write.
    pub fn new(run: &Run<'_>, state: &TrainState, world: &World) -> Self {
        let model = &run.config.model;
        let expected = census::expected(&state.optimizer, model, state.step);
        let held = hold(state);
        let dealing = dealing(&expected, world.layout, model.num_experts);
        let own = dealing.experts(world.rank());
        let first = world.experts(model.num_experts).start;
        let part = held.into_iter().filter_map(|(name, (kind, role, held))| {
            if role == Some(Role::ExpertStack) {
                return (!own.is_empty()).then(|| slice(&name, kind, held, own.clone(), first));
            }
            let owner = dealing.owner(&name).unwrap_or(0);
            (owner == world.rank()).then(|| whole(name, kind, held))
        });
        let manifest = facts(run, state, world);
        Self {
            part: part.collect(),
            part_file: part_file(world.rank(), world.layout.ranks()),
            balance: if world.is_first() { balance(&state.pending) } else { Vec::new() },
            recipe: world.is_first().then(|| recipe::to_toml(run.config)),
            facts: Facts { manifest, expected },
        }
    }

    /// Bytes of the tensors that this rank writes.
    pub fn num_bytes(&self) -> u64 {
        self.part.iter().chain(&self.balance).map(|tensor| tensor.num_bytes() as u64).sum()
    }
}

/// How a state is dealt over the ranks of a layout.
pub(super) fn dealing(
    expected: &BTreeMap<String, Expected>,
    layout: fulmar_ep::Layout,
    num_experts: usize,
) -> Dealing {
    let of_ranks = expected.iter().filter(|(_, tensor)| tensor.kind != Kind::Balance);
    let (stacks, shared): (Vec<_>, Vec<_>) = of_ranks.partition(|(_, tensor)| tensor.stack);
    let all = stacks.iter().map(|(_, tensor)| tensor.num_bytes()).sum::<u64>();
    let shared = shared.into_iter().map(|(name, tensor)| (name.clone(), tensor.num_bytes()));
    Dealing::new(layout, num_experts, all / num_experts.max(1) as u64, &shared.collect())
}

type HeldByName = BTreeMap<String, (Kind, Option<Role>, Held)>;

fn hold(state: &TrainState) -> HeldByName {
    let role = |path: &str| state.optimizer.table().get(path).map(|entry| entry.role);
    let mut held = HeldByName::new();
    for (path, weight) in weights::hold(&state.model) {
        held.insert(path.clone(), (Kind::Weight, role(&path), weight));
    }
    for (name, moment) in state.optimizer.hold() {
        let of = role(parameter_of(&name));
        held.insert(name, (Kind::Moment, of, moment));
    }
    held
}

/// The path of the parameter that a moment's name belongs to.
fn parameter_of(moment: &str) -> &str {
    moment.rsplit_once('.').map_or(moment, |(path, _)| path)
}

fn whole(name: String, kind: Kind, held: Held) -> Planned<HeldEntries> {
    let (dtype, shape) = (stored_dtype(held.dtype()), held.shape().to_vec());
    let entries = 0..shape.iter().product();
    Planned { name, kind, dtype, shape, units: 1, source: HeldEntries { held, entries } }
}

/// The experts `own` of a stack whose first one is `first`.
fn slice(
    name: &str,
    kind: Kind,
    held: Held,
    own: Range<usize>,
    first: usize,
) -> Planned<HeldEntries> {
    let (dtype, mut shape) = (stored_dtype(held.dtype()), held.shape().to_vec());
    shape[0] = own.len();
    let of_expert: usize = shape[1..].iter().product();
    let entries = (own.start - first) * of_expert..(own.end - first) * of_expert;
    let (units, name) = (own.len(), slice_name(name, own));
    Planned { name, kind, dtype, shape, units, source: HeldEntries { held, entries } }
}

fn balance(pending: &[Vec<f32>]) -> Vec<Planned<HeldEntries>> {
    let layers = pending.iter().enumerate().map(|(layer, pending)| {
        let values = Tensor::from_data(TensorData::from(&pending[..]), &Device::flex());
        let held = Held::new(vec![pending.len()], values);
        whole(census::balance_name(layer), Kind::Balance, held)
    });
    layers.collect()
}

fn facts(run: &Run<'_>, state: &TrainState, world: &World) -> Manifest {
    Manifest {
        format_version: FORMAT_VERSION,
        step: state.step,
        batches: state.batches,
        since_boundary: state.since_boundary,
        opened: run.config.opened(state.batches),
        seed: run.config.seed,
        generators: census::generators(run.config, state.batches),
        consumed: run.consumed.clone(),
        recipe: run.config.digest(),
        optimizer_table: state.optimizer.table().digest(),
        data: run.data.to_owned(),
        exchange: run.exchange.to_owned(),
        layout: world.layout.into(),
        attempt: run.attempt,
        parent: run.config.parent.clone(),
        weights: String::new(),
        state: String::new(),
        files: BTreeMap::new(),
    }
}
