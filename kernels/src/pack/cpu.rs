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
        let packed = copies(rows, dim, |row| {
            let (part, row_of_part) = (row / part_rows, row % part_rows);
            let token = ids.token_of(row);
            if row_of_part < header.rows {
                assert!(token.is_none(), "pack_rows: `map` has a token in header row {row}");
                return Some(&header.values[(part * header.rows + row_of_part) * dim..][..dim]);
            }
            token.map(|token| &x[token * dim..][..dim])
        });
        float_tensor(packed, [rows, dim])
    }
}
