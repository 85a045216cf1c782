//! The newest positions of rows, in a fixed number of slots.

use burn::tensor::Tensor;

/// A value for each of the last c points in time, the value of time t in slot t mod c.
#[derive(Debug, Clone)]
pub(super) struct Ring {
    /// [b, m, c, a]; slots that were not reached yet hold 0.
    held: Tensor<4>,
    slots: usize,
}

impl Ring {
    /// Of times from 0 on, `x` [b, m, times, a], in `slots` slots.
    pub(super) fn new(x: Tensor<4>, slots: usize) -> Self {
        let [b, m, times, a] = x.dims();
        let held = if times < slots {
            let all = Tensor::zeros([b, m, slots, a], (&x.device(), x.dtype()));
            all.slice_assign([0..b, 0..m, 0..times, 0..a], x)
        } else {
            let (first, newest) = (times - slots, times % slots);
            let older = x.clone().narrow(2, first, slots - newest);
            match newest {
                0 => older,
                _ => Tensor::cat(vec![x.narrow(2, times - newest, newest), older], 2),
            }
        };
        Self { held, slots }
    }

    /// The value of `time`, [b, m, 1, a], in the place of that of `time` - c.
    pub(super) fn put(&mut self, time: usize, x: Tensor<4>) {
        let ([b, m, _, a], slot) = (x.dims(), time % self.slots);
        self.replace(|held| held.slice_assign([0..b, 0..m, slot..slot + 1, 0..a], x));
    }

    /// The slots reached by `time` [b, m, 1 to c, a].
    pub(super) fn until(&self, time: usize) -> Tensor<4> {
        self.held.clone().narrow(2, 0, self.slots.min(time + 1))
    }

    /// A tensor that nobody else holds is written in place.
    fn replace(&mut self, with: impl FnOnce(Tensor<4>) -> Tensor<4>) {
        let nothing = Tensor::empty([1, 1, 1, 1], &self.held.device());
        self.held = with(std::mem::replace(&mut self.held, nothing));
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::*;

    fn times(range: std::ops::Range<usize>) -> Tensor<4> {
        let values: Vec<f32> = range.map(|time| time as f32).collect();
        let len = values.len();
        Tensor::from_data(TensorData::new(values, [1, 1, len, 1]), &Device::flex())
    }

    fn held(ring: &Ring, time: usize) -> Vec<f32> {
        ring.until(time).into_data().iter::<f32>().collect()
    }

    #[test]
    fn the_newest_times_are_held_however_many_came_at_once() {
        for at_once in 1..9 {
            let mut ring = Ring::new(times(0..at_once), 4);
            for time in at_once..11 {
                ring.put(time, times(time..time + 1));
                let mut found = held(&ring, time);
                found.sort_by(f32::total_cmp);
                let expected: Vec<f32> =
                    (0..=time).skip((time + 1).saturating_sub(4)).map(|t| t as f32).collect();
                assert_eq!(found, expected, "{at_once} at once, then until {time}");
            }
        }
        assert_eq!(held(&Ring::new(times(0..6), 4), 5), [4.0, 5.0, 2.0, 3.0]);
    }
}
