mod kernel;

use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::{Activation, GatedKernel};
use crate::cube::{dims, empty, floats, per_element, per_row, storage, vector_size, zeros};

impl GatedKernel for CubeBackend {
    fn forward(value: CubeTensor, gate: CubeTensor, activation: Activation) -> CubeTensor {
        let [value, gate] = floats("gated", [("value", value), ("gate", gate)]);
        let ([rows, dim], [_, gate_dim]) = (dims(&value), dims(&gate));
        let out = empty(&value, [rows, dim], value.dtype);
        if rows * dim == 0 {
            return out;
        }
        let (client, dtype, vector) =
            (value.client.clone(), storage(&value), vector_size(&value, dim));
        let (cubes, units) = per_element(&client, rows * dim / vector);
        let [value, gate] = [value, gate].map(CubeTensor::into_buffer_arg);
        let to = out.clone().into_buffer_arg();
        if gate_dim == dim {
            kernel::forward::launch(
                &client, cubes, units, vector, value, gate, to, activation, dtype,
            );
        } else {
            let dim = dim / vector;
            kernel::row_forward::launch(
                &client, cubes, units, vector, value, gate, to, dim, activation, dtype,
            );
        }
        out
    }

    fn backward(
        value: CubeTensor,
        gate: CubeTensor,
        activation: Activation,
        grad: CubeTensor,
    ) -> (CubeTensor, CubeTensor) {
        let arguments = [("value", value), ("gate", gate), ("grad", grad)];
        let [value, gate, grad] = floats("gated", arguments);
        let ([rows, dim], [_, gate_dim]) = (dims(&value), dims(&gate));
        if rows * dim == 0 {
            let dgate = zeros(&gate, [rows, gate_dim], gate.dtype);
            return (empty(&value, [rows, dim], value.dtype), dgate);
        }
        let dvalue = empty(&value, [rows, dim], value.dtype);
        let dgate = empty(&gate, [rows, gate_dim], gate.dtype);
        let (client, dtype, vector) =
            (value.client.clone(), storage(&value), vector_size(&value, dim));
        let [value, gate, grad] = [value, gate, grad].map(CubeTensor::into_buffer_arg);
        let [to_value, to_gate] = [&dvalue, &dgate].map(|to| to.clone().into_buffer_arg());
        if gate_dim == dim {
            let (cubes, units) = per_element(&client, rows * dim / vector);
            kernel::backward::launch(
                &client, cubes, units, vector, value, gate, grad, to_value, to_gate, activation,
                dtype,
            );
        } else {
            let (cubes, units) = per_row(&client, rows, dim / vector);
            kernel::row_backward::launch(
                &client,
                cubes,
                units,
                vector,
                value,
                gate,
                grad,
                to_value,
                to_gate,
                dim / vector,
                activation,
                units.num_elems() as usize,
                dtype,
            );
        }
        (dvalue, dgate)
    }
}
