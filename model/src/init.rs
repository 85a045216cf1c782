//! Initial weights as a function of seed, path and global expert index.

use std::ops::Range;

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use rayon::prelude::*;

/// Draws beyond this many standard deviations are drawn again (SPEC section 1).
const CUT_SIGMAS: f32 = 3.0;

/// Makes the parameters of a module tree; [`scope`](Self::scope) descends into a field.
///
/// Each matrix, and each expert of a stack, has a generator of its own, so weights depend neither
/// on the order of construction nor on how experts are spread over shards. Burn's own initialisers
/// draw from one process-wide generator, which ranks in threads would share.
#[derive(Debug, Clone)]
pub struct Initializer {
    seed: u64,
    std: f32,
    path: String,
    device: Device,
    /// Global ids of the experts that are made; all of them if `None`.
    experts: Option<Range<usize>>,
}

impl Initializer {
    /// For a tree whose matrices are normal with standard deviation `std`, cut at 3 sigma.
    pub fn new(seed: u64, std: f64, device: &Device) -> Self {
        Self { seed, std: std as f32, path: String::new(), device: device.clone(), experts: None }
    }

    /// For the same tree on a shard that holds the routed experts with the global ids `experts` of
    /// every layer, and all that is shared.
    #[must_use]
    pub fn of_shard(self, experts: Range<usize>) -> Self {
        Self { experts: Some(experts), ..self }
    }

    /// Global ids of the experts of this shard, of `num_experts` in a layer.
    ///
    /// # Panics
    /// If this shard's experts are none, or not among them.
    pub fn local_experts(&self, num_experts: usize) -> Range<usize> {
        let experts = self.experts.clone().unwrap_or(0..num_experts);
        assert!(
            !experts.is_empty() && experts.end <= num_experts,
            "a shard of experts {experts:?}, needed some of 0..{num_experts}"
        );
        experts
    }

    /// The initializer of the submodule in field (or at index) `name`.
    pub fn scope(&self, name: impl ToString) -> Self {
        Self { path: self.path_of(&name.to_string()), ..self.clone() }
    }

    /// A matrix [rows, columns] of cut normal values.
    pub fn matrix(&self, name: &str, shape: [usize; 2]) -> Param<Tensor<2>> {
        let values = self.normal(&self.path_of(name), shape[0] * shape[1]);
        Param::from_data(TensorData::new(values, shape), &self.device)
    }

    /// A stack [experts, rows, columns] of matrices for the experts with the global ids `experts`.
    pub fn experts(
        &self,
        name: &str,
        experts: Range<usize>,
        shape: [usize; 2],
    ) -> Param<Tensor<3>> {
        let (path, len, count) = (self.path_of(name), shape[0] * shape[1], experts.len());
        let mut values = vec![0.0; count * len];
        values.par_chunks_mut(len).zip(experts).for_each(|(matrix, expert)| {
            matrix.copy_from_slice(&self.normal(&format!("{path}.{expert}"), len));
        });
        Param::from_data(TensorData::new(values, [count, shape[0], shape[1]]), &self.device)
    }

    /// A tensor whose entries all are `value`.
    pub fn constant<const D: usize>(&self, shape: [usize; D], value: f32) -> Param<Tensor<D>> {
        let values = vec![value; shape.iter().product()];
        Param::from_data(TensorData::new(values, shape), &self.device)
    }

    /// A tensor of given values.
    pub fn values<const D: usize>(&self, values: Vec<f32>, shape: [usize; D]) -> Param<Tensor<D>> {
        Param::from_data(TensorData::new(values, shape), &self.device)
    }

    fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn normal(&self, path: &str, len: usize) -> Vec<f32> {
        let seed = blake3::hash(format!("{}/{path}", self.seed).as_bytes());
        let mut generator = ChaCha8Rng::from_seed(*seed.as_bytes());
        (0..len).map(|_| self.std * cut_normal(&mut generator)).collect()
    }
}

fn cut_normal(generator: &mut ChaCha8Rng) -> f32 {
    loop {
        let value: f32 = generator.sample(StandardNormal);
        if value.abs() <= CUT_SIGMAS {
            return value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn init() -> Initializer {
        Initializer::new(7, 0.1, &Device::flex()).scope("layers").scope(3)
    }

    fn values<const D: usize>(param: Param<Tensor<D>>) -> Vec<f32> {
        param.val().into_data().iter::<f32>().collect()
    }

    #[test]
    fn an_expert_has_the_same_weights_on_whichever_shard_it_lives() {
        let all = values(init().experts("w", 0..6, [4, 5]));
        let second_shard = values(init().experts("w", 3..6, [4, 5]));
        assert_eq!(all[3 * 20..], second_shard);
    }

    #[test]
    fn matrices_are_cut_normal_of_the_given_deviation_and_differ_by_path_and_seed() {
        let matrix = values(init().matrix("w", [200, 200]));
        let variance = matrix.iter().map(|v| v * v).sum::<f32>() / matrix.len() as f32;
        // The variance of a normal cut at 3 sigma is 0.9733 of the uncut one.
        assert!((variance / 0.01 - 0.9733).abs() < 0.02, "variance {variance}");
        assert!(matrix.iter().all(|v| v.abs() <= 0.3));
        assert_ne!(matrix, values(init().matrix("v", [200, 200])));
        assert_ne!(matrix, values(Initializer { seed: 8, ..init() }.matrix("w", [200, 200])));
    }
}
