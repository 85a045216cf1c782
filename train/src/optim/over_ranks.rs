//! Gradients of a step, summed over the ranks that share a parameter.

use std::collections::BTreeMap;

use burn::tensor::{Tensor, TensorData};
use fulmar_ep::World;
use fulmar_ep::transport::{Group, TransportError};
use fulmar_model::Role;

use super::{Gradients, OptimizerTable};

/// Floats that are summed in one collective: few enough that the copy is small beside a model,
/// enough that waiting for peers does not cost more than the sum.
const BUCKET_FLOATS: usize = 1 << 22;

impl Gradients {
    /// Sums the gradients of shared parameters over all ranks and those of expert stacks over
    /// replicas: a shard's experts have seen the tokens of all its replica's ranks already.
    ///
    /// Sums are formed in the order of ranks, so every rank has the same bits.
    ///
    /// # Errors
    /// If a peer is lost or has other parameters.
    pub fn over_ranks(self, table: &OptimizerTable, world: &World) -> Result<Self, TransportError> {
        let is_stack = |path: &String| is_stack(table, path);
        let (experts, shared): (BTreeMap<_, _>, _) =
            self.0.into_iter().partition(|(path, _)| is_stack(path));
        let mut sums = summed("gradients", shared, &world.all)?;
        sums.extend(summed("expert gradients", experts, &world.replica)?);
        Ok(Self(sums))
    }
}

fn is_stack(table: &OptimizerTable, path: &str) -> bool {
    table.get(path).is_some_and(|entry| entry.role == Role::ExpertStack)
}

fn summed(
    label: &'static str,
    gradients: BTreeMap<String, Tensor<1>>,
    group: &Group,
) -> Result<BTreeMap<String, Tensor<1>>, TransportError> {
    if group.size() == 1 {
        return Ok(gradients);
    }
    let (mut sums, mut bucket, mut floats) = (BTreeMap::new(), Vec::new(), 0);
    for (path, gradient) in gradients {
        floats += gradient.dims()[0];
        bucket.push((path, gradient));
        if floats >= BUCKET_FLOATS {
            sums.extend(sum_bucket(label, std::mem::take(&mut bucket), group)?);
            floats = 0;
        }
    }
    sums.extend(sum_bucket(label, bucket, group)?);
    Ok(sums)
}

fn sum_bucket(
    label: &'static str,
    bucket: Vec<(String, Tensor<1>)>,
    group: &Group,
) -> Result<Vec<(String, Tensor<1>)>, TransportError> {
    let mut flat = Vec::with_capacity(bucket.iter().map(|(_, g)| g.dims()[0]).sum());
    for (_, gradient) in &bucket {
        let data = gradient.clone().into_data();
        flat.extend_from_slice(data.as_slice::<f32>().expect("gradients are f32"));
    }
    let flat = group.sum_f32(label, flat)?;
    let mut rest = flat.as_slice();
    let sums = bucket.into_iter().map(|(path, gradient)| {
        let len = gradient.dims()[0];
        let (sum, after) = rest.split_at(len);
        rest = after;
        let sum = TensorData::new(sum.to_vec(), [len]);
        (path, Tensor::from_data(sum, &gradient.device()))
    });
    Ok(sums.collect())
}
