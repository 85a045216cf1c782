mod kernel;

use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::{cast, into_contiguous, slice};
use burn_cubecl::tensor::CubeTensor;
use std::ops::Range;

use super::{CrossEntropyKernel, HiddenAndHead, Sums};
use crate::bridge::Bridge;
use crate::cube::{
    dims, empty, float, floats, ids, per_element, per_row, product, reshaped, sum_rows, zeros,
};

/// Logits held at once at most: 256 MiB. A token of a larger vocabulary is held alone.
const BUFFER: usize = 1 << 26;

/// Tokens taken at a time at most: products with more rows are no faster.
const TOKENS: usize = 1 << 10;

/// Columns of the gradient of the head formed at a time, so that what is added to it stays small.
const COLUMNS: usize = 1 << 15;

impl CrossEntropyKernel for CubeBackend {
    fn forward(
        hidden: CubeTensor,
        head: CubeTensor,
        targets: CubeTensor,
        weight: CubeTensor,
        z_coefficient: f64,
    ) -> Sums<Self> {
        let problem = Problem::weighted(hidden, head, targets, weight, z_coefficient);
        problem.sums(problem.run(Losses::Weighted, None))
    }

    fn forward_and_gradients(
        hidden: CubeTensor,
        head: CubeTensor,
        targets: CubeTensor,
        weight: CubeTensor,
        z_coefficient: f64,
    ) -> (Sums<Self>, HiddenAndHead<Self>) {
        let problem = Problem::weighted(hidden, head, targets, weight, z_coefficient);
        let mut gradients = Gradients::new(&problem);
        let losses = problem.run(Losses::Weighted, Some(&mut gradients));
        (problem.sums(losses), gradients.finish(&problem))
    }

    fn forward_tokens(
        hidden: CubeTensor,
        head: CubeTensor,
        targets: CubeTensor,
    ) -> (CubeTensor, CubeTensor) {
        let [t, _] = dims(&hidden);
        let weight = Self::lower(Tensor::<1>::ones(
            [t],
            (&Self::lift::<2>(hidden.clone()).device(), DType::F32),
        ));
        let problem = Problem::new("token_losses", hidden, head, targets, weight, 0.0);
        let losses = Self::lift::<2>(problem.run(Losses::ByToken, None));
        let column = |which| Self::lower(losses.clone().narrow(1, which, 1).reshape([t]));
        (column(0), column(1))
    }
}

/// What is kept of the losses of a token.
#[derive(Clone, Copy, PartialEq)]
enum Losses {
    /// The terms of the two sums.
    Weighted,
    /// Cross-entropy and log-sum-exp.
    ByToken,
}

/// The inputs, in order in memory.
struct Problem {
    hidden: CubeTensor,
    head: CubeTensor,
    targets: CubeTensor,
    /// In f32.
    weight: CubeTensor,
    z_coefficient: f64,
    t: usize,
    d: usize,
    v: usize,
}

impl Problem {
    fn new(
        op: &str,
        hidden: CubeTensor,
        head: CubeTensor,
        targets: CubeTensor,
        weight: CubeTensor,
        z_coefficient: f64,
    ) -> Self {
        let [hidden, head] = floats(op, [("hidden", hidden), ("head", head)]);
        let targets = ids(op, "targets", targets);
        let of_weight = weight.dtype;
        let weight = cast(float(op, "weight", weight, ("weight", of_weight)), DType::F32);
        let ([t, d], [_, v]) = (dims(&hidden), dims(&head));
        Self { hidden, head, targets, weight, z_coefficient, t, d, v }
    }

    /// A problem whose ignored tokens have hidden states of zeros.
    fn weighted(
        hidden: CubeTensor,
        head: CubeTensor,
        targets: CubeTensor,
        weight: CubeTensor,
        z_coefficient: f64,
    ) -> Self {
        let mut problem = Self::new("cross_entropy", hidden, head, targets, weight, z_coefficient);
        if problem.t * problem.d > 0 {
            let ignored = CubeBackend::lift::<1>(problem.weight.clone()).equal_elem(0.0);
            let ignored = ignored.unsqueeze_dim::<2>(1).expand([problem.t, problem.d]);
            // Masked, not multiplied by 0: what is ignored may be NaN.
            let hidden = CubeBackend::lift::<2>(problem.hidden).mask_fill(ignored, 0.0);
            problem.hidden = into_contiguous(CubeBackend::lower(hidden));
        }
        problem
    }

    /// The losses of all tokens [t, 2], a chunk of tokens after the other; with `gradients`, those
    /// of the weighted sum are left there.
    fn run(&self, losses: Losses, mut gradients: Option<&mut Gradients>) -> CubeTensor {
        let values = empty(&self.hidden, [self.t, 2], DType::F32);
        let chunk = (BUFFER / self.v.max(1)).clamp(1, TOKENS);
        for first in (0..self.t).step_by(chunk) {
            let tokens = first..(first + chunk).min(self.t);
            let hidden = slice(self.hidden.clone(), &[tokens.clone(), 0..self.d]);
            let logits = self.logits(hidden.clone());
            self.losses(tokens, &logits, &values, losses, gradients.is_some());
            if let Some(gradients) = gradients.as_deref_mut() {
                gradients.add(self, hidden, logits);
            }
        }
        values
    }

    /// The logits of some hidden states in f32.
    fn logits(&self, hidden: CubeTensor) -> CubeTensor {
        let [tokens, _] = dims(&hidden);
        if self.d * self.v == 0 {
            // A device has no empty buffers.
            return zeros(&hidden, [tokens, self.v.max(1)], DType::F32);
        }
        product::<2>(hidden, self.head.clone(), DType::F32)
    }

    /// Writes the losses of a range of tokens; with `slopes`, `logits` become their gradient.
    fn losses(
        &self,
        tokens: Range<usize>,
        logits: &CubeTensor,
        values: &CubeTensor,
        losses: Losses,
        slopes: bool,
    ) {
        let client = logits.client.clone();
        let (cubes, units) = per_row(&client, tokens.len(), self.v);
        kernel::losses::launch(
            &client,
            cubes,
            units,
            logits.clone().into_buffer_arg(),
            self.targets.clone().into_buffer_arg(),
            self.weight.clone().into_buffer_arg(),
            values.clone().into_buffer_arg(),
            tokens.start,
            tokens.len(),
            self.v,
            self.z_coefficient as f32,
            f32::NAN,
            losses == Losses::Weighted,
            slopes,
            units.num_elems() as usize,
        );
    }

    /// `total`, `cross_entropy_sum` and `z_sum` of weighted losses.
    fn sums(&self, losses: CubeTensor) -> Sums<CubeBackend> {
        let sums = sum_rows(reshaped(losses, [1, self.t, 2]), DType::F32);
        let sums = CubeBackend::lift::<2>(sums).reshape([2]);
        let [cross_entropy, z]: [Tensor<1>; 2] = [0, 1].map(|i| sums.clone().narrow(0, i, 1));
        let total = cross_entropy.clone() + z.clone().mul_scalar(self.z_coefficient);
        (CubeBackend::lower(total), CubeBackend::lower(cross_entropy), CubeBackend::lower(z))
    }
}

/// The gradients of the weighted sum.
struct Gradients {
    /// Of chunks of tokens.
    hidden: Vec<CubeTensor>,
    /// In f32, added to.
    head: CubeTensor,
}

impl Gradients {
    fn new(problem: &Problem) -> Self {
        let head = zeros(&problem.head, [problem.d, problem.v], DType::F32);
        Self { hidden: vec![], head }
    }

    /// Adds those of a chunk, with the gradient of its logits.
    fn add(&mut self, problem: &Problem, hidden: CubeTensor, slopes: CubeTensor) {
        if problem.d * problem.v == 0 {
            return;
        }
        let slopes = cast(slopes, hidden.dtype);
        let [head, transposed] = [problem.head.clone(), hidden.clone()]
            .map(|matrix| CubeBackend::float_swap_dims(matrix, 0, 1));
        self.hidden.push(product::<2>(slopes.clone(), head, hidden.dtype));
        let [tokens, v] = dims(&slopes);
        for first in (0..v).step_by(COLUMNS) {
            let columns = first..(first + COLUMNS).min(v);
            let slopes = slice(slopes.clone(), &[0..tokens, columns.clone()]);
            let part = product::<2>(transposed.clone(), slopes, DType::F32);
            self.add_columns(part, columns);
        }
    }

    fn add_columns(&self, part: CubeTensor, columns: Range<usize>) {
        let (client, [_, v]) = (part.client.clone(), dims(&self.head));
        let len = part.meta.num_elements();
        let (cubes, units) = per_element(&client, len);
        kernel::add_columns::launch(
            &client,
            cubes,
            units,
            part.into_buffer_arg(),
            self.head.clone().into_buffer_arg(),
            columns.len(),
            columns.start,
            v,
            len,
        );
    }

    fn finish(self, problem: &Problem) -> HiddenAndHead<CubeBackend> {
        let hidden = if self.hidden.is_empty() {
            zeros(&problem.hidden, [problem.t, problem.d], problem.hidden.dtype)
        } else {
            let parts = self.hidden.into_iter().map(CubeBackend::lift::<2>).collect();
            CubeBackend::lower(Tensor::cat(parts, 0))
        };
        (hidden, cast(self.head, problem.head.dtype))
    }
}
