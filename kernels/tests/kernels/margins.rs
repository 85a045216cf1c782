use burn::tensor::{Int, Tensor, TensorData};
use fulmar_kernels::margins::{MarginBins, Margins, crossings};

use crate::compare::{assert_repeats, device, floats, tensor};

fn integers<const D: usize>(values: Vec<i32>, shape: [usize; D]) -> Tensor<D, Int> {
    Tensor::from_data(TensorData::new(values, shape), &device())
}

fn read<const D: usize>(tensor: Tensor<D, Int>) -> Vec<i32> {
    tensor.into_data().iter::<i32>().collect()
}

/// Three tokens of two experts; the second is padding.
fn small() -> Margins {
    let logits = Tensor::from_data([[1.0, -2.0], [f32::NAN, 0.0], [3.5, 2.0]], &device());
    let alpha = Tensor::from_data([0.5, 9.0, 1.0], &device());
    Margins::new(logits, alpha, integers(vec![1, 0, 7], [3]))
}

fn many() -> Margins {
    let valid = integers((0..700).map(|t| i32::from(t % 3 != 1)).collect(), [700]);
    Margins::new(tensor([700, 37], 1).mul_scalar(3.0), tensor([700], 2), valid)
}

#[test]
fn margins_by_expert_leave_padding_out() {
    assert_eq!(small().num_experts(), 2);
    let margins = small().by_expert();
    assert_eq!(margins.dims(), [2, 2]);
    assert_eq!(floats(margins), [0.5, 2.5, -2.5, 1.0]);
}

#[test]
fn margins_fall_into_the_bins_of_a_range_or_of_a_grid() {
    let range = MarginBins::Range { low: -2.5, width: 1.0, len: 5 };
    assert_eq!(read(small().histogram(range)), [0, 0, 0, 1, 1, 1, 0, 0, 1, 0]);
    // Widths of a half from -3 on; 1.0 begins a bin.
    let aligned = MarginBins::Aligned { exponent: -1, first: -6, len: 12 };
    let mut expected = [0; 24];
    for bin in [7, 11, 12 + 1, 12 + 8] {
        expected[bin] = 1;
    }
    assert_eq!(read(small().histogram(aligned)), expected);
}

#[test]
fn margins_outside_fall_into_the_bins_at_the_ends() {
    for bins in [
        MarginBins::Range { low: 0.0, width: 0.5, len: 3 },
        MarginBins::Aligned { exponent: -1, first: 0, len: 3 },
    ] {
        assert_eq!(read(small().histogram(bins)), [0, 1, 1, 1, 0, 1]);
    }
}

#[test]
fn crossings_are_where_counts_from_the_top_reach_the_rank() {
    let mut counts = vec![0; 300];
    for (bin, count) in [(3, 4), (64, 2), (65, 1), (200, 5)] {
        counts[bin] = count;
    }
    let tensor = integers([counts.clone(), vec![0; 300]].concat(), [2, 300]);
    for (rank, expected) in [
        (0, [299, 0, 0]),
        (1, [200, 5, 5]),
        (5, [200, 5, 5]),
        (6, [65, 6, 1]),
        (7, [64, 8, 2]),
        (12, [3, 12, 4]),
        (13, [0, 12, 0]),
        (u64::MAX, [0, 12, 0]),
    ] {
        let found = read(crossings(tensor.clone(), rank));
        assert_eq!(found[..3], expected, "rank {rank}");
        assert_eq!(found[3..], if rank == 0 { [299, 0, 0] } else { [0, 0, 0] }, "rank {rank}");
    }
}

#[test]
fn crossings_of_margins_are_those_of_their_histogram() {
    for len in [1, 7, 64, 1000] {
        let bins = MarginBins::Range { low: -4.0, width: 8.0 / len as f32, len };
        for rank in [1, 20, 400, 5000] {
            let found = read(many().crossings(bins, rank));
            assert_eq!(found, read(crossings(many().histogram(bins), rank)), "{len} {rank}");
        }
    }
}

#[test]
fn histograms_are_the_same_on_one_and_on_three_threads() {
    let bins = MarginBins::Aligned { exponent: -4, first: -70, len: 140 };
    assert_repeats(|| (read(many().histogram(bins)), read(many().crossings(bins, 50))));
}

#[test]
#[should_panic(expected = "Margins: `token_valid` has 2 entries, needed 3 as in `logits`")]
fn margins_need_a_mark_for_each_token() {
    Margins::new(tensor([3, 4], 1), tensor([3], 2), integers(vec![1; 2], [2]));
}

#[test]
#[should_panic(expected = "Margins::histogram: no bins, needed at least 1")]
fn a_histogram_needs_bins() {
    small().histogram(MarginBins::Range { low: 0.0, width: 1.0, len: 0 });
}

#[test]
#[should_panic(expected = "bins for each of 2 experts, needed less than 2^31")]
fn a_histogram_needs_bins_that_can_be_counted() {
    small().histogram(MarginBins::Range { low: 0.0, width: 1.0, len: 1 << 30 });
}
