//! Matrices the other way round.

use rayon::prelude::*;

/// Side of the squares that are turned at once: 32 by 32 floats stay in the first cache.
const SQUARE: usize = 32;

/// A stack of matrices `[.., rows, columns]` as `[.., columns, rows]`.
pub(super) fn turned(values: &[f32], [rows, columns]: [usize; 2]) -> Vec<f32> {
    let mut out = vec![0.0; values.len()];
    let size = rows * columns;
    let matrices = out.par_chunks_mut(size).zip(values.par_chunks(size));
    // Parts of a matrix too, since a head is one large matrix.
    matrices.for_each(|(out, matrix)| {
        out.par_chunks_mut(rows * SQUARE).enumerate().for_each(|(part, out)| {
            let columns_before = part * SQUARE;
            for first in (0..rows).step_by(SQUARE) {
                for row in first..rows.min(first + SQUARE) {
                    let line = &matrix[row * columns + columns_before..];
                    for (out, value) in out[row..].iter_mut().step_by(rows).zip(line) {
                        *out = *value;
                    }
                }
            }
        });
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_matrices_of_two_rows_and_three_columns() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0];
        let expected = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0, 10.0, 40.0, 20.0, 50.0, 30.0, 60.0];
        assert_eq!(turned(&values, [2, 3]), expected);
    }

    #[test]
    fn sides_beyond_a_square_and_back() {
        let [rows, columns] = [70, 45];
        let values: Vec<f32> = (0..3 * rows * columns).map(|i| i as f32).collect();
        let once = turned(&values, [rows, columns]);
        assert_eq!(once[(columns + 44) * rows + 69], values[(rows + 69) * columns + 44]);
        assert_eq!(turned(&once, [columns, rows]), values);
    }
}
