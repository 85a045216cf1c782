use burn::backend::Flex;
use burn::backend::flex::FlexTensor;

use super::{Header, PackKernel};
use crate::flex::{contiguous, dims, float_tensor, floats};
use crate::permute::{HostIds, RowIds};
use crate::rows::copies;

impl PackKernel for Flex {
    fn pack(x: FlexTensor, ids: RowIds<Flex>, header: &Header) -> FlexTensor {
        let (x, ids) = (contiguous(x), ids.contiguous());
        let ids = HostIds::checked("pack_rows", &ids);
        let ([_, dim], x, rows) = (dims(&x), floats(&x), ids.rows());
        let part_rows = rows / header.parts;
        for row in (0..header.parts * header.rows)
            .map(|row| row / header.rows * part_rows + row % header.rows)
        {
            let is_empty = ids.token_of(row).is_none();
            assert!(is_empty, "pack_rows: `map` has a token in header row {row}");
        }
        let packed = copies(rows, dim, |row| {
            if let Some(token) = ids.token_of(row) {
                return Some(&x[token * dim..][..dim]);
            }
            let (part, of_part) = (row / part_rows, row % part_rows);
            let header_row = (of_part < header.rows).then_some(part * header.rows + of_part)?;
            Some(&header.values[header_row * dim..][..dim])
        });
        float_tensor(packed, [rows, dim])
    }
}
