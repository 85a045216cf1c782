//! What happens to a single head at a single position.

use crate::attention::AttentionOptions;
use crate::rms_norm::cpu::inverse_rms;
use crate::simd::dot;

/// Normalises and rotates heads, and pulls gradients back through both.
pub(super) struct Placement {
    table: Vec<[f32; 2]>,
    pairs: usize,
    eps: f32,
}

impl Placement {
    pub(super) fn new(s: usize, a: usize, options: &AttentionOptions) -> Self {
        let table = options.rotary_table(0..s, a);
        let pairs = if table.is_empty() { 0 } else { a / 4 };
        Self { table, pairs, eps: options.norm_eps as f32 }
    }

    /// `out` = rotation by position `t` of `x` / rms.
    pub(super) fn place(&self, t: usize, x: &[f32], out: &mut [f32]) {
        let inverse = inverse_rms(x, self.eps);
        for (out, x) in out.iter_mut().zip(x) {
            *out = x * inverse;
        }
        self.rotate(t, out, 1.0);
    }

    /// Turns the gradient of `placed`, the result of [`Self::place`], into that of `x`.
    ///
    /// A rotation keeps inner products, so with n the normalised head and dn its gradient, both
    /// still rotated: dx = (dn - n mean(n dn)) / rms, rotated back.
    pub(super) fn pull_back(&self, t: usize, x: &[f32], placed: &[f32], grad: &mut [f32]) {
        let inverse = inverse_rms(x, self.eps);
        let pull = dot(placed, grad) / x.len() as f32;
        for (grad, n) in grad.iter_mut().zip(placed) {
            *grad = inverse * (*grad - n * pull);
        }
        self.rotate(t, grad, -1.0);
    }

    fn rotate(&self, t: usize, x: &mut [f32], direction: f32) {
        let turns = &self.table[t * self.pairs..][..self.pairs];
        for (pair, [cos, sin]) in x.chunks_exact_mut(2).zip(turns) {
            let (even, odd, sin) = (pair[0], pair[1], sin * direction);
            pair[0] = even * cos - odd * sin;
            pair[1] = even * sin + odd * cos;
        }
    }
}

/// `out = y - (y v / (|v|^2 + eps)) v`.
pub(super) fn exclude(y: &[f32], v: &[f32], eps: f32, out: &mut [f32]) {
    let share = dot(y, v) / (dot(v, v) + eps);
    for ((out, y), v) in out.iter_mut().zip(y).zip(v) {
        *out = y - share * v;
    }
}

/// The gradients of [`exclude`]: `dy` is set, `dv` added to.
///
/// With n = |v|^2 + eps: dy = g - (g v / n) v and
/// dv = -(y v / n) g - (g v / n) (y - 2 (y v / n) v).
pub(super) fn exclude_backward(
    [y, v, grad]: [&[f32]; 3],
    eps: f32,
    dy: &mut [f32],
    dv: &mut [f32],
) {
    let inverse = (dot(v, v) + eps).recip();
    let (y_share, grad_share) = (dot(y, v) * inverse, dot(grad, v) * inverse);
    for i in 0..dy.len() {
        dy[i] = grad[i] - grad_share * v[i];
        dv[i] -= y_share * grad[i] + grad_share * (y[i] - 2.0 * y_share * v[i]);
    }
}
