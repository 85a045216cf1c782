//! What a layer keeps of the rows it has read, and how it goes on with it.

use burn::tensor::{Int, Tensor};
use fulmar_kernels::attention::{
    AttentionOptions, KeptPositions, attention_step, kept_keys, kept_values,
};

use super::prompt::Alignment;
use super::ring::Ring;
use crate::along::{Along, WholeRows};
use crate::config::ConvSite;
use crate::short_conv::ShortConv;

/// One layer's share of a cache.
#[derive(Debug, Default)]
pub(super) struct LayerCache {
    seen: Option<Seen>,
    tails: Vec<(ConvSite, Tail)>,
}

/// What queries can read: a window of a local layer, everything of a global one.
#[derive(Debug)]
struct Seen {
    keys: Ring,
    values: Ring,
    /// [b, 1, c, 1].
    bias: Ring,
}

/// The inputs of a convolution that its later taps read, newest first, [b, taps - 1, channels]; 0 where
/// a tap reads nothing. None with a single tap.
#[derive(Debug)]
struct Tail(Option<Tensor<3>>);

impl Tail {
    /// Behind the inputs `x` [b, times, channels], `read_on` [b, times, 1].
    fn behind(x: Tensor<3>, read_on: Tensor<3>, taps: usize) -> Self {
        let [b, times, channels] = x.dims();
        let (wanted, there) = (taps - 1, times.min(taps - 1));
        if wanted == 0 {
            return Self(None);
        }
        let newest = (x * read_on).narrow(1, times - there, there).flip([1]);
        if there == wanted {
            return Self(Some(newest));
        }
        let before = Tensor::zeros([b, wanted - there, channels], &newest.device());
        Self(Some(Tensor::cat(vec![newest, before], 1)))
    }

    /// The convolution of the next input `x` [b, 1, channels].
    fn convolve(&mut self, conv: &ShortConv, x: Tensor<3>) -> Tensor<3> {
        let weight = conv.weight.val().unsqueeze::<3>();
        let Some(held) = self.0.take() else { return x * weight };
        let taps = held.dims()[1] + 1;
        let inputs = Tensor::cat(vec![x, held], 1);
        self.0 = Some(inputs.clone().narrow(1, 0, taps - 1));
        (inputs * weight).sum_dim(1)
    }
}

/// A pass over whole prompts, of which the layer keeps what follows can read.
pub(super) struct Reading<'a> {
    pub(super) rows: WholeRows<'a>,
    pub(super) alignment: &'a Alignment,
    /// Points in time that the cache has room for.
    pub(super) capacity: usize,
    pub(super) cache: &'a mut LayerCache,
}

impl Along for Reading<'_> {
    fn convolve(&mut self, site: ConvSite, conv: &ShortConv, x: Tensor<3>) -> Tensor<3> {
        let (aligned, taps) = (self.alignment.aligned(x.clone()), conv.weight.dims()[0]);
        let tail = Tail::behind(aligned, self.alignment.read_on.clone(), taps);
        self.cache.tails.push((site, tail));
        self.rows.convolve(site, conv, x)
    }

    fn attend(&mut self, qkv: [Tensor<4>; 3], options: &AttentionOptions) -> Tensor<4> {
        let [_, k, v] = qkv.clone();
        let [b, s, ..] = k.dims();
        let slots = options.window.map_or(self.capacity, |window| window.min(self.capacity));
        let positions: Vec<usize> = (0..s).collect();
        let ring = |kept: Tensor<4>| {
            let [b, m, s, a] = kept.dims();
            let by_time = kept.swap_dims(1, 2).reshape([b, s, m * a]);
            let by_time = self.alignment.aligned(by_time).reshape([b, s, m, a]);
            Ring::new(by_time.swap_dims(1, 2), slots)
        };
        let seen = Seen {
            keys: ring(kept_keys(k, &positions, options)),
            values: ring(kept_values(v, options)),
            bias: Ring::new(self.alignment.bias.clone().reshape([b, 1, s, 1]), slots),
        };
        self.cache.seen = Some(seen);
        self.rows.attend(qkv, options)
    }
}

/// A pass over one more position of each row.
pub(super) struct Step<'a> {
    pub(super) time: usize,
    /// The position in its row of each row's token `[b]`.
    pub(super) positions: &'a [usize],
    pub(super) cache: &'a mut LayerCache,
}

impl Along for Step<'_> {
    fn convolve(&mut self, site: ConvSite, conv: &ShortConv, x: Tensor<3>) -> Tensor<3> {
        let tail = self.cache.tails.iter_mut().find(|(of, _)| *of == site);
        tail.expect("a prompt was read").1.convolve(conv, x)
    }

    fn attend(&mut self, qkv: [Tensor<4>; 3], options: &AttentionOptions) -> Tensor<4> {
        let ([q, k, v], time) = (qkv, self.time);
        let b = q.dims()[0];
        let seen = self.cache.seen.as_mut().expect("a prompt was read");
        seen.keys.put(time, kept_keys(k, self.positions, options));
        seen.values.put(time, kept_values(v.clone(), options));
        seen.bias.put(time, Tensor::zeros([b, 1, 1, 1], &q.device()));
        let bias = seen.bias.until(time);
        let c = bias.dims()[2];
        let kept = KeptPositions {
            keys: seen.keys.until(time),
            values: seen.values.until(time),
            bias: bias.reshape([b, c]),
        };
        attention_step(q, v, self.positions, kept, options)
    }
}

/// The rows of a pass at the index `rows`, of `x` [b, s, d].
pub(super) fn at(x: Tensor<3>, rows: &Tensor<1, Int>) -> Tensor<2> {
    let [b, s, d] = x.dims();
    x.reshape([b * s, d]).select(0, rows.clone())
}
