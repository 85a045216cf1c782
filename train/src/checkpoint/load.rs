//! Files back into a state, at any layout of ranks.
//!
//! Each byte of a checkpoint is read and verified once over all ranks: shared tensors are dealt over
//! all of them and broadcast, the experts of a shard are split by its replicas and gathered. A rank
//! reads its parts ahead on threads of its own, and ranks go from tensor to tensor together, so that
//! all stop where one finds damage.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use burn::tensor::{DType, Device, TensorData};
use fulmar_ep::World;
use fulmar_ep::transport::{Buffer, Collective, TransportError};
use fulmar_model::weights;

use super::census::{self, Census, Expected};
use super::dealing::Dealing;
use super::manifest::Manifest;
use super::read::{self, Index, Stretch};
use super::save::Run;
use super::{RECIPE, same_run, snapshot, step_name};
use crate::error::TrainError;
use crate::state::TrainState;
use crate::storage::Storage;

/// How a restore ended, on every rank alike.
#[derive(Debug)]
pub enum Restored {
    /// The state is that of the checkpoint, and this is what was found in it.
    Whole(Census),
    /// The checkpoint is damaged. The state is of no use any more.
    Damaged(TrainError),
}

/// Replaces everything in `state` by what a checkpoint holds; every rank calls it. `run.consumed` is
/// what the run takes up to the checkpoint's place in the data.
///
/// # Errors
/// If the checkpoint is not of this run: another recipe, seed, data, optimizer table or place in the
/// data; the state is as it was then. If a peer is lost.
pub fn restore(
    manifest: &Manifest,
    run: &Run<'_>,
    world: &World,
    device: &Device,
    state: &mut TrainState,
) -> Result<Restored, TrainError> {
    let storage = &**run.storage;
    let recipe = match recipe_for_all(storage, manifest, world)? {
        Ok(recipe) => recipe,
        Err(damage) => return Ok(Restored::Damaged(damage)),
    };
    same_run::check(manifest, &recipe, run, state.optimizer.table())?;
    let expected = census::expected(&state.optimizer, &run.config.model, manifest.step);
    let census = census::take(&manifest.files, &expected);
    if let Some(problem) = census.problems.first() {
        let path = storage.locate(&step_name(manifest.step)).into();
        let problem = format!("{problem}; found {census}");
        return Ok(Restored::Damaged(TrainError::Checkpoint { path, problem }));
    }
    if let Err(damage) = together(world, headers(storage, manifest, world))? {
        return Ok(Restored::Damaged(damage));
    }
    let num_experts = run.config.model.num_experts;
    let dealing = snapshot::dealing(&expected, world.layout, num_experts);
    let plan = Plan { expected: &expected, dealing, num_experts, world };
    let order = order(state, run, manifest.step);
    let items = plan.items(&Index::new(manifest), &order);
    std::thread::scope(|scope| {
        let (parts, arriving) = sync_channel(0);
        scope.spawn(move || read_parts(storage, &items, &parts));
        let mut arrivals =
            Arrivals { plan: &plan, parts: arriving, failure: None, lost: None, stopped: false };
        let filled = fill(state, manifest, &mut arrivals, (run, device));
        let Arrivals { failure, lost, .. } = arrivals;
        if let Some(lost) = lost {
            return Err(lost.into());
        }
        // What one rank found out comes before what others could not do for lack of it.
        let found = together(world, failure.map_or(Ok(()), Err))?;
        Ok(match found.and(together(world, filled)?) {
            Ok(()) => Restored::Whole(census),
            Err(damage) => Restored::Damaged(damage),
        })
    })
}

/// The first failure of any rank, on every rank.
fn together<T>(
    world: &World,
    own: Result<T, TrainError>,
) -> Result<Result<T, TrainError>, TransportError> {
    let said = own.as_ref().err().map(TrainError::chain).unwrap_or_default();
    let all = world.all.gather_bytes("restored", said.as_bytes())?;
    Ok(match all.into_iter().find(|said| !said.is_empty()) {
        None => own,
        Some(reason) => {
            let reason = String::from_utf8_lossy(&reason).into_owned();
            Err(TrainError::Damaged { reason })
        }
    })
}

/// The recipe of a checkpoint, which the first rank reads.
fn recipe_for_all(
    storage: &dyn Storage,
    manifest: &Manifest,
    world: &World,
) -> Result<Result<String, TrainError>, TransportError> {
    let own = match world.is_first() {
        true => read::header(storage, manifest, RECIPE),
        false => Ok(Vec::new()),
    };
    let own = match together(world, own)? {
        Ok(own) => own,
        Err(damage) => return Ok(Err(damage)),
    };
    let text = world.all.bytes_of_first("recipe of a checkpoint", &own)?;
    Ok(Ok(String::from_utf8_lossy(&text).into_owned()))
}

/// Verifies the beginnings of files, each by one rank.
fn headers(storage: &dyn Storage, manifest: &Manifest, world: &World) -> Result<(), TrainError> {
    let files = manifest.files.keys().filter(|file| *file != RECIPE).enumerate();
    let mut own = files.filter(|(index, _)| index % world.layout.ranks() == world.rank());
    own.try_for_each(|(_, file)| read::header(storage, manifest, file).map(drop))
}

/// The names of all tensors of a state in the order in which they are replaced.
fn order(state: &TrainState, run: &Run<'_>, step: u64) -> Vec<String> {
    let mut names = Vec::new();
    weights::visit(&state.model, |path, _| names.push(path.to_owned()));
    if step > 0 {
        names.extend(state.optimizer.state_names().into_iter().map(|(_, name, _)| name));
        names.extend((0..run.config.model.num_layers).map(census::balance_name));
    }
    names
}

/// Replaces all of a state by what arrives.
fn fill(
    state: &mut TrainState,
    manifest: &Manifest,
    arrivals: &mut Arrivals<'_>,
    (run, device): (&Run<'_>, &Device),
) -> Result<(), TrainError> {
    // Given away, so that each old weight is freed when the new one is there.
    let husk = weights::emptied(&state.model);
    let given = std::mem::replace(&mut state.model, husk);
    state.model = weights::import(given, |path| arrivals.take(path))?;
    let device = device.clone().inner();
    state.optimizer.import(manifest.step, &device, |name| arrivals.take(name))?;
    let layers = if manifest.step == 0 { 0 } else { run.config.model.num_layers };
    let balance = |layer| {
        let name = census::balance_name(layer);
        let data = arrivals.take(&name).ok_or(TrainError::MissingState { name })?;
        Ok(data.iter::<f32>().collect())
    };
    state.pending = (0..layers).map(balance).collect::<Result<_, TrainError>>()?;
    (state.step, state.batches) = (manifest.step, manifest.batches);
    state.since_boundary = manifest.since_boundary;
    Ok(())
}

/// Which rank reads what.
struct Plan<'a> {
    expected: &'a BTreeMap<String, Expected>,
    dealing: Dealing,
    num_experts: usize,
    world: &'a World,
}

/// What a rank reads of one tensor.
struct Item {
    stretches: Vec<Stretch>,
    bytes: u64,
}

impl Plan<'_> {
    /// What this rank reads, in the order in which tensors are replaced.
    fn items(&self, index: &Index<'_>, order: &[String]) -> Vec<Item> {
        let own = self.dealing.experts(self.world.rank());
        let read = order.iter().filter(|name| self.reads(name));
        let items = read.map(|name| {
            let stack = self.expected.get(name).is_some_and(|tensor| tensor.stack);
            let stretches = index.stretches(name, stack.then_some(&own));
            let bytes = stretches.iter().map(Stretch::num_bytes).sum();
            Item { stretches, bytes }
        });
        items.collect()
    }

    /// Whether this rank reads some of a tensor.
    fn reads(&self, name: &str) -> bool {
        let rank = self.world.rank();
        match self.expected.get(name) {
            Some(tensor) if tensor.stack => !self.dealing.experts(rank).is_empty(),
            Some(_) => self.owner(name) == rank,
            None => false,
        }
    }

    /// The rank that reads a shared tensor; the first one reads what is not dealt.
    fn owner(&self, name: &str) -> usize {
        self.dealing.owner(name).unwrap_or(0)
    }

    /// The bytes that each replica has of this shard's experts of a stack.
    fn replica_bytes(&self, stack: &Expected) -> Vec<usize> {
        let of_expert = stack.num_bytes() as usize / self.num_experts;
        let shards = self.world.layout.shards;
        let ranks =
            (0..self.world.layout.replicas).map(|replica| replica * shards + self.world.shard());
        ranks.map(|rank| self.dealing.experts(rank).len() * of_expert).collect()
    }

    fn experts(&self) -> Range<usize> {
        self.world.experts(self.num_experts)
    }
}

/// Reads the parts of a rank in order and hands on each as words; after an error, nothing more.
fn read_parts(
    storage: &dyn Storage,
    items: &[Item],
    parts: &SyncSender<Result<Vec<u32>, TrainError>>,
) {
    for item in items {
        let bytes = item.bytes as usize;
        let mut words = vec![0u32; bytes.div_ceil(4)];
        let place: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        let read = read::read_into(storage, &item.stretches, &mut place[..bytes]);
        let failed = read.is_err();
        // If nobody is there to take it, another rank has failed before.
        if parts.send(read.map(|()| words)).is_err() || failed {
            return;
        }
    }
}

/// Tensors as they come from this rank's reader and from the others.
struct Arrivals<'a> {
    plan: &'a Plan<'a>,
    parts: Receiver<Result<Vec<u32>, TrainError>>,
    failure: Option<TrainError>,
    lost: Option<TransportError>,
    stopped: bool,
}

impl Arrivals<'_> {
    /// The next tensor, the same on all ranks; none once any rank has failed.
    fn take(&mut self, name: &str) -> Option<TensorData> {
        if self.stopped {
            return None;
        }
        let arrived = self.arrive(name);
        self.stopped = !matches!(arrived, Ok(Some(_)));
        arrived.unwrap_or_else(|lost| {
            self.lost = Some(lost);
            None
        })
    }

    fn arrive(&mut self, name: &str) -> Result<Option<TensorData>, TransportError> {
        let (plan, world) = (self.plan, self.plan.world);
        let own = if plan.reads(name) { self.own_part() } else { Some(Vec::new()) };
        let failed = world.all.sum_u64("parts of a checkpoint", &[u64::from(own.is_none())])?[0];
        let (Some(own), 0, Some(needed)) = (own, failed, plan.expected.get(name)) else {
            return Ok(None);
        };
        let mut shape = needed.shape.clone();
        if !needed.stack {
            let num_bytes = needed.num_bytes() as usize;
            let words = match world.layout.ranks() {
                1 => own,
                _ => {
                    let (root, words) = (plan.owner(name), num_bytes.div_ceil(4));
                    let send = Buffer::host(own);
                    let broadcast = Collective::Broadcast { root, send, words };
                    world.all.run("a tensor of a checkpoint", broadcast)?
                }
            };
            return Ok(Some(tensor(&[num_bytes], words, shape, needed.dtype)));
        }
        shape[0] = plan.experts().len();
        let parts = plan.replica_bytes(needed);
        let words = match parts.len() {
            1 => own,
            _ => {
                let words = parts.iter().map(|bytes| bytes.div_ceil(4)).collect();
                let gather = Collective::AllGather { send: Buffer::host(own), words };
                world.replica.run("experts of a checkpoint", gather)?
            }
        };
        Ok(Some(tensor(&parts, words, shape, needed.dtype)))
    }

    fn own_part(&mut self) -> Option<Vec<u32>> {
        match self.parts.recv() {
            Ok(Ok(part)) => Some(part),
            Ok(Err(error)) => {
                self.failure.get_or_insert(error);
                None
            }
            Err(_) => None,
        }
    }
}

/// A tensor of parts that each begin with a word of their own.
fn tensor(parts: &[usize], words: Vec<u32>, shape: Vec<usize>, dtype: DType) -> TensorData {
    if dtype == DType::F32 {
        return TensorData::new(bytemuck::cast_vec::<u32, f32>(words), shape);
    }
    let bytes: &[u8] = bytemuck::cast_slice(&words);
    let mut whole = Vec::with_capacity(parts.iter().sum());
    let mut start = 0;
    for part in parts {
        whole.extend_from_slice(&bytes[start..start + part]);
        start += part.next_multiple_of(4);
    }
    TensorData::from_bytes_vec(whole, shape, dtype)
}
