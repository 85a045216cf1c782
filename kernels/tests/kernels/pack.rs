use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};
use fulmar_kernels::pack::{Header, pack_rows, reference};
use fulmar_kernels::permute::{RowMap, dispatch_rows};

use crate::compare::{
    assert_close, assert_gradient, assert_repeats, assert_same_bits, bits, device, floats, leaf,
    tensor, values,
};

/// Tokens and slots of a map, the parts, header rows and rows of a part of a buffer, and its width.
#[derive(Debug, Clone, Copy)]
struct Size {
    tokens: usize,
    slots: usize,
    parts: usize,
    header_rows: usize,
    part_rows: usize,
    dim: usize,
}

const fn size(
    [tokens, slots]: [usize; 2],
    [parts, header_rows, part_rows]: [usize; 3],
    dim: usize,
) -> Size {
    Size { tokens, slots, parts, header_rows, part_rows, dim }
}

/// From one row to many blocks of them; without a header, with nothing else, with no tokens, and
/// with no rows at all.
const SIZES: [Size; 8] = [
    size([1, 1], [1, 1, 2], 3),
    size([5, 2], [3, 2, 7], 5),
    size([130, 4], [4, 3, 101], 33),
    size([70, 3], [2, 0, 90], 16),
    size([6, 2], [3, 2, 2], 5),
    size([0, 2], [2, 1, 3], 4),
    size([6, 2], [1, 0, 0], 5),
    size([0, 1], [3, 0, 0], 1),
];

impl Size {
    /// Every third assignment is dropped, and so is what does not fit; every seventh row behind the
    /// headers stays empty.
    fn map(&self) -> RowMap {
        let rows = self.parts * self.part_rows;
        let is_free = |row: &usize| row % self.part_rows >= self.header_rows && row % 7 != 6;
        let mut free = (0..rows).filter(is_free);
        let mut row_of = vec![-1i32; self.tokens * self.slots];
        let mut assignment_of = vec![-1i32; rows];
        for assignment in (0..row_of.len()).rev().filter(|assignment| assignment % 3 != 2) {
            let Some(row) = free.next() else { break };
            row_of[assignment] = row as i32;
            assignment_of[row] = assignment as i32;
        }
        row_map(row_of, assignment_of, self.slots)
    }

    fn header(&self) -> Header {
        let values = values(self.parts * self.header_rows * self.dim, 9);
        Header { parts: self.parts, rows: self.header_rows, values: Arc::new(values) }
    }

    /// The packed rows and the gradient of what was packed, a transposed view.
    fn run(&self, op: fn(Tensor<2>, &RowMap, &Header) -> Tensor<2>) -> [Tensor<2>; 2] {
        let x = leaf([self.dim, self.tokens], 1);
        let out = op(x.clone().swap_dims(0, 1), &self.map(), &self.header());
        let upstream = tensor([self.dim, self.parts * self.part_rows], 2).swap_dims(0, 1);
        let grads = (out.clone() * Tensor::from_inner(upstream)).sum().backward();
        [out.inner(), x.grad(&grads).expect("dx")]
    }
}

fn row_map(row_of: Vec<i32>, assignment_of: Vec<i32>, slots: usize) -> RowMap {
    let (shape, rows) = ([row_of.len() / slots, slots], [assignment_of.len()]);
    RowMap::new(
        Tensor::from_data(TensorData::new(row_of, shape), &device()),
        Tensor::from_data(TensorData::new(assignment_of, rows), &device()),
    )
}

#[test]
fn pack_rows_matches_its_reference_in_values_and_gradients() {
    for size in SIZES {
        let (found, expected) = (size.run(pack_rows), size.run(reference));
        for ((name, found), expected) in ["out", "dx"].iter().zip(found).zip(expected) {
            assert_close(&format!("{name} at {size:?}"), found, expected, 1e-6);
        }
    }
}

#[test]
fn the_header_stands_in_front_of_each_part_bit_for_bit() {
    // NaN, a signed zero and a subnormal arrive as they were given.
    let header = [f32::NAN, -0.0, 1e-42, 7.0, f32::INFINITY, 256.0];
    let values = Arc::new(header.to_vec());
    let map = row_map(vec![5, -1, 1, 4], vec![-1, 2, -1, -1, 3, 0], 2);
    for op in [pack_rows, reference] {
        let x = Tensor::<2>::from_data([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], &device());
        let header = Header { parts: 2, rows: 1, values: values.clone() };
        let found: Vec<[u32; 3]> = bits(op(x, &map, &header)).as_chunks().0.to_vec();
        let front = |part: usize| [0, 1, 2].map(|i| values[3 * part + i].to_bits());
        let (token, empty) = ([4.0f32, 5.0, 6.0].map(f32::to_bits), [0; 3]);
        let other = [1.0f32, 2.0, 3.0].map(f32::to_bits);
        assert_eq!(found, [front(0), token, empty, front(1), token, other]);
    }
}

#[test]
fn without_header_rows_packing_is_dispatching() {
    let size = SIZES[3];
    let map = size.map();
    let x = tensor([size.tokens, size.dim], 1);
    let found = pack_rows(x.clone(), &map, &size.header());
    assert_same_bits("rows", &found, &dispatch_rows(x, &map));
}

#[test]
fn packing_gives_the_same_bits_on_one_and_on_three_threads() {
    assert_repeats(|| SIZES[2].run(pack_rows).map(floats));
}

#[test]
fn the_gradient_of_pack_rows_is_the_finite_difference() {
    let size = SIZES[1];
    let [_, dx] = size.run(pack_rows);
    let upstream = tensor([size.dim, size.parts * size.part_rows], 2).swap_dims(0, 1);
    let loss = |x: Tensor<2>| {
        let out = pack_rows(x.swap_dims(0, 1), &size.map(), &size.header());
        (out * upstream.clone()).sum()
    };
    assert_gradient("dx", loss, tensor([size.dim, size.tokens], 1), dx, 1e-3);
}

/// Two tokens of one slot in a buffer of two parts of two rows each, the first one header.
fn small(row_of: [i32; 2], assignment_of: [i32; 4]) -> (Tensor<2>, RowMap, Header) {
    let header = Header { parts: 2, rows: 1, values: Arc::new(vec![1.0; 6]) };
    (tensor([2, 3], 1), row_map(row_of.to_vec(), assignment_of.to_vec(), 1), header)
}

#[test]
#[should_panic(expected = "pack_rows: `x` has 3 rows, `map` needs 2 tokens")]
fn a_map_of_other_tokens_is_named() {
    let (_, map, header) = small([1, 3], [-1, 0, -1, 1]);
    pack_rows(tensor([3, 3], 1), &map, &header);
}

#[test]
#[should_panic(expected = "pack_rows: 4 rows are not 3 parts of at least 1 rows")]
fn rows_that_are_no_whole_parts_are_named() {
    let (x, map, header) = small([1, 3], [-1, 0, -1, 1]);
    pack_rows(x, &map, &Header { parts: 3, ..header });
}

#[test]
#[should_panic(expected = "pack_rows: 4 rows are not 2 parts of at least 3 rows")]
fn a_part_shorter_than_its_header_is_named() {
    let (x, map, header) = small([1, 3], [-1, 0, -1, 1]);
    pack_rows(x, &map, &Header { rows: 3, ..header });
}

#[test]
#[should_panic(expected = "pack_rows: `header` has 5 values, needed 6")]
fn a_header_that_is_not_whole_is_named() {
    let (x, map, header) = small([1, 3], [-1, 0, -1, 1]);
    pack_rows(x, &map, &Header { values: Arc::new(vec![1.0; 5]), ..header });
}

#[test]
#[should_panic(expected = "pack_rows: `map` has a token in header row 2")]
fn a_token_in_the_place_of_a_header_is_named() {
    let (x, map, header) = small([1, 2], [-1, 0, 1, -1]);
    pack_rows(x, &map, &header);
}

#[test]
#[should_panic(expected = "pack_rows: `row_of[1]` is 4, needed -1 to 3")]
fn a_packed_row_out_of_range_is_named() {
    let (x, map, header) = small([1, 4], [-1, 0, -1, 1]);
    pack_rows(x, &map, &header);
}
