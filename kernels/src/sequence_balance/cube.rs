mod kernel;

use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::{CubeCount, CubeDim};

use super::{EPSILON, SequenceBalanceKernel};
use crate::cube::{
    ROW_BLOCK, dims, empty, floats, ids, per_element, per_row, reshaped, storage, sum_rows, zeros,
};

impl SequenceBalanceKernel for CubeBackend {
    fn forward(
        logits: CubeTensor,
        selected: CubeTensor,
        token_valid: CubeTensor,
        seq_len: usize,
    ) -> CubeTensor {
        let [logits] = floats("sequence_balance", [("logits", logits)]);
        let dtype = logits.dtype;
        let [t, e] = dims(&logits);
        if t * e == 0 {
            return zeros(&logits, [t / seq_len], dtype);
        }
        let call = Call::new(logits, selected, token_valid, seq_len);
        // The loss of a row of the batch is a sum over its tokens.
        let terms = empty(&call.logits, [t / seq_len, seq_len, 1], DType::F32);
        let (cubes, units) = call.cubes();
        kernel::token_losses::launch(
            &call.logits.client,
            cubes,
            units,
            call.logits.clone().into_buffer_arg(),
            call.token_valid.clone().into_buffer_arg(),
            call.counts.clone().into_buffer_arg(),
            terms.clone().into_buffer_arg(),
            seq_len,
            e,
            call.slots as f32,
            EPSILON as f32,
            units.num_elems() as usize,
            storage(&call.logits),
        );
        reshaped(sum_rows(terms, dtype), [t / seq_len])
    }

    fn backward(
        logits: CubeTensor,
        selected: CubeTensor,
        token_valid: CubeTensor,
        seq_len: usize,
        grad: CubeTensor,
    ) -> CubeTensor {
        let [logits, grad] = floats("sequence_balance", [("logits", logits), ("grad", grad)]);
        let [t, e] = dims(&logits);
        let dlogits = empty(&logits, [t, e], logits.dtype);
        if t * e == 0 {
            return dlogits;
        }
        let call = Call::new(logits, selected, token_valid, seq_len);
        let (cubes, units) = call.cubes();
        kernel::gradients::launch(
            &call.logits.client,
            cubes,
            units,
            call.logits.clone().into_buffer_arg(),
            call.token_valid.clone().into_buffer_arg(),
            call.counts.clone().into_buffer_arg(),
            grad.into_buffer_arg(),
            dlogits.clone().into_buffer_arg(),
            seq_len,
            e,
            call.slots as f32,
            EPSILON as f32,
            units.num_elems() as usize,
            storage(&call.logits),
        );
        dlogits
    }
}

/// What both directions read.
struct Call {
    logits: CubeTensor,
    token_valid: CubeTensor,
    /// [rows, e + 1]: how many valid tokens of a row chose each expert, and how many there are.
    counts: CubeTensor,
    slots: usize,
}

impl Call {
    fn new(
        logits: CubeTensor,
        selected: CubeTensor,
        token_valid: CubeTensor,
        seq_len: usize,
    ) -> Self {
        let selected = ids("sequence_balance", "selected", selected);
        let token_valid = ids("sequence_balance", "token_valid", token_valid);
        let ([t, e], [_, slots]) = (dims(&logits), dims(&selected));
        let (rows, blocks) = (t / seq_len, seq_len.div_ceil(ROW_BLOCK));
        let counts = empty(&logits, [rows, blocks, e + 1], DType::F32);
        let (cubes, units) = per_element(&logits.client, counts.meta.num_elements());
        kernel::count_choices::launch(
            &logits.client,
            cubes,
            units,
            selected.into_buffer_arg(),
            token_valid.clone().into_buffer_arg(),
            counts.clone().into_buffer_arg(),
            seq_len,
            e,
            slots,
            ROW_BLOCK,
        );
        Self { logits, token_valid, counts: sum_rows(counts, DType::F32), slots }
    }

    /// A cube for each token.
    fn cubes(&self) -> (CubeCount, CubeDim) {
        let [t, e] = dims(&self.logits);
        per_row(&self.logits.client, t, e)
    }
}
