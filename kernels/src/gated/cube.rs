mod kernel;

use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::{Activation, GatedKernel};
use crate::cube::{dims, empty, floats, per_element, per_row, storage, zeros};

impl GatedKernel for CubeBackend {
    fn forward(value: CubeTensor, gate: CubeTensor, activation: Activation) -> CubeTensor {
        let [value, gate] = floats("gated", [("value", value), ("gate", gate)]);
        let ([rows, dim], [_, gate_dim]) = (dims(&value), dims(&gate));
        let out = empty(&value, [rows, dim], value.dtype);
        if rows * dim > 0 {
            let (client, dtype) = (value.client.clone(), storage(&value));
            let (cubes, units) = per_element(&client, rows * dim);
            kernel::forward::launch(
                &client,
                cubes,
                units,
                value.into_buffer_arg(),
                gate.into_buffer_arg(),
                out.clone().into_buffer_arg(),
                dim / gate_dim,
                activation,
                dtype,
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
        let (client, dtype) = (value.client.clone(), storage(&value));
        let (inputs, outputs) = ([value, gate, grad], [&dvalue, &dgate]);
        let [value, gate, grad] = inputs.map(CubeTensor::into_buffer_arg);
        let [to_value, to_gate] = outputs.map(|out| out.clone().into_buffer_arg());
        if gate_dim == dim {
            let (cubes, units) = per_element(&client, rows * dim);
            kernel::backward::launch(
                &client, cubes, units, value, gate, grad, to_value, to_gate, activation, dtype,
            );
        } else {
            let (cubes, units) = per_row(&client, rows, dim);
            kernel::row_backward::launch(
                &client,
                cubes,
                units,
                value,
                gate,
                grad,
                to_value,
                to_gate,
                dim,
                activation,
                units.num_elems() as usize,
                dtype,
            );
        }
        (dvalue, dgate)
    }
}
