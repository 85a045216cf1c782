/// The largest `|qk_mult| sqrt(a)` accepted. Normalised q and k bound every score by it, so that
/// kernels may sum plain `exp(score)`: e^64 over millions of keys stays far below the largest f32.
const MAX_SCORE: f64 = 64.0;

/// What [`attention`](super::attention()) does beyond its tensors.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionOptions {
    /// How many of the stored kv heads this layer reads, from the first; 1 to j.
    pub own_kv_heads: usize,
    /// How many keys a query reads, itself included, at least 1; `None` for all before it.
    pub window: Option<usize>,
    /// The base of the rotary frequencies, above 0; `None` rotates nothing. Pair i of the first
    /// half of the head dim turns by `position * base^(-i / (a / 4))`, which needs a multiple
    /// of 4 as head dim; positions count from the start of the row.
    pub rope_base: Option<f64>,
    /// The factor of q after norm and rotation; `|qk_mult| sqrt(a)` at most 64.
    pub qk_mult: f64,
    /// Added to the mean square of q and k before the root, above 0.
    pub norm_eps: f64,
    /// Added to `|v|^2` in the exclusive step, above 0.
    pub exclusive_eps: f64,
}

impl AttentionOptions {
    /// Panics unless the options are in range for `h` query heads, `j` stored heads of dim `a`.
    pub(super) fn assert_fit(&self, h: usize, j: usize, a: usize) {
        assert!(
            j > 0 && h.is_multiple_of(j),
            "attention: `q` has {h} heads, needed a multiple of the {j} of `k`"
        );
        let own = self.own_kv_heads;
        assert!((1..=j).contains(&own), "attention: `own_kv_heads` is {own}, needed 1 to {j}");
        assert_ne!(self.window, Some(0), "attention: `window` is 0, needed at least 1");
        if let Some(base) = self.rope_base {
            assert!(base > 0.0, "attention: `rope_base` is {base}, needed above 0");
            assert!(
                a.is_multiple_of(4),
                "attention: the head dim is {a}, needed a multiple of 4 to rotate"
            );
        }
        let bound = self.qk_mult.abs() * (a as f64).sqrt();
        assert!(
            bound <= MAX_SCORE,
            "attention: `qk_mult` sqrt(head dim) is {bound}, needed at most {MAX_SCORE}"
        );
        for (name, eps) in [("norm_eps", self.norm_eps), ("exclusive_eps", self.exclusive_eps)] {
            assert!(eps > 0.0, "attention: `{name}` is {eps}, needed above 0");
        }
    }

    /// The own kv head that query head `head` of `h` reads, with `j` stored heads.
    pub(super) fn own_head(&self, head: usize, h: usize, j: usize) -> usize {
        let slot = head * j / h;
        slot * self.own_kv_heads / j
    }

    /// The own head behind each head that [`kept_keys`](super::kept_keys) keeps of `j` stored ones: the
    /// own heads where all serve equally many stored ones, or else one for each stored head.
    pub(super) fn kept_heads(&self, j: usize) -> Vec<i32> {
        let own = self.own_kv_heads;
        let kept = if j.is_multiple_of(own) { own } else { j };
        (0..kept).map(|head| (head * own / kept) as i32).collect()
    }

    /// Cosine and sine of pair i at the n-th of `positions`, at `[n * a / 4 + i]`; empty without
    /// rotation.
    pub(super) fn rotary_table(
        &self,
        positions: impl Iterator<Item = usize>,
        a: usize,
    ) -> Vec<[f32; 2]> {
        let Some(base) = self.rope_base else { return Vec::new() };
        let pairs = a / 4;
        let frequency = |i: usize| base.powf(-(i as f64) / pairs as f64);
        let frequencies: Vec<f64> = (0..pairs).map(frequency).collect();
        positions
            .flat_map(|t| frequencies.iter().map(move |f| (t as f64 * f).sin_cos()))
            .map(|(sin, cos)| [cos as f32, sin as f32])
            .collect()
    }
}
