use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::ir::VectorSize;
use cubecl::server::{CubeCount, CubeCountSelection, CubeDim};

/// Units of a cube that works on one row: fewer for short rows, and few variants of a kernel.
const UNITS: [u32; 4] = [32, 64, 128, 256];

/// Cubes for `cubes` pieces of work, perhaps some more: a kernel returns where it has none.
fn count(client: &Client, cubes: usize) -> CubeCount {
    let cubes = u32::try_from(cubes).expect("a launch of less than 2^32 cubes");
    CubeCountSelection::new(client, cubes).cube_count()
}

/// A unit for each of `len` values.
pub(crate) fn per_element(client: &Client, len: usize) -> (CubeCount, CubeDim) {
    let dim = CubeDim::new(client, len);
    (count(client, len.div_ceil(dim.num_elems() as usize)), dim)
}

/// A cube for each of `rows` rows of `dim` values; its units are a power of two.
pub(crate) fn per_row(client: &Client, rows: usize, dim: usize) -> (CubeCount, CubeDim) {
    let most = client.properties().hardware.max_units_per_cube;
    let enough = UNITS.into_iter().find(|units| *units as usize >= dim).unwrap_or(UNITS[3]);
    let units = enough.min(1 << most.ilog2());
    (count(client, rows), CubeDim::new_1d(units))
}

/// Values of a row of `dim` values that a unit moves at once: as many as the device likes best that
/// divide the row.
pub(crate) fn vector_size(tensor: &CubeTensor, dim: usize) -> VectorSize {
    let sizes = tensor.client.io_optimized_vector_sizes(tensor.dtype.size());
    sizes.filter(|size| dim.is_multiple_of(*size)).max().unwrap_or(1)
}
