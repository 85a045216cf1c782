//! Parameters by path: out of a model as data, and into one.

use std::collections::BTreeMap;
use std::ops::Range;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Gradients, Tensor, TensorData};

use crate::error::ModelError;

/// Shape of every parameter by path, in the order of the paths.
pub fn shapes<M: Module>(model: &M) -> BTreeMap<String, Vec<usize>> {
    let mut found = BTreeMap::new();
    visit(model, |path, param| {
        found.insert(path.to_owned(), param.shape);
    });
    found
}

/// The values of one parameter while [`visit`] is at it.
pub struct ParamData<'a> {
    /// The parameter's shape.
    pub shape: Vec<usize>,
    flat: &'a dyn Fn() -> Tensor<1>,
}

impl ParamData<'_> {
    /// Copies the values to the host.
    pub fn read(&self) -> TensorData {
        self.hold().read()
    }

    /// A handle on the values.
    pub fn hold(&self) -> Held {
        Held::new(self.shape.clone(), (self.flat)())
    }
}

/// A handle on the values of a tensor of any rank; they stay where they are until they are read.
#[derive(Debug, Clone)]
pub struct Held {
    shape: Vec<usize>,
    values: Tensor<1>,
}

impl Held {
    /// The flat `values` of a tensor of this shape.
    ///
    /// # Panics
    /// If it has another number of entries.
    pub fn new(shape: Vec<usize>, values: Tensor<1>) -> Self {
        assert_eq!(values.dims(), [shape.iter().product::<usize>()], "entries of shape {shape:?}");
        Self { shape, values }
    }

    /// The tensor's shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The type of the entries.
    pub fn dtype(&self) -> DType {
        self.values.dtype()
    }

    /// Bytes of all entries.
    pub fn num_bytes(&self) -> usize {
        self.values.dims()[0] * self.dtype().size()
    }

    /// Copies the values to the host.
    pub fn read(&self) -> TensorData {
        let (bytes, _, dtype) = self.values.clone().into_data().into_parts();
        TensorData::from_bytes(bytes, self.shape.clone(), dtype)
    }

    /// Copies some of the flat entries to the host, and no others.
    ///
    /// # Panics
    /// If there are fewer entries.
    pub fn read_range(&self, entries: Range<usize>) -> TensorData {
        let found = self.values.dims()[0];
        assert!(
            entries.end <= found,
            "read_range: `entries` are {entries:?}, needed up to {found}"
        );
        self.values.clone().slice([entries]).into_data()
    }
}

/// Calls `each` for every parameter, in the order of declaration.
pub fn visit<M: Module>(model: &M, each: impl FnMut(&str, ParamData<'_>)) {
    model.visit(&mut Visitor { path: Vec::new(), each });
}

/// The values of every parameter by path: a copy of the model.
pub fn export<M: Module>(model: &M) -> BTreeMap<String, TensorData> {
    hold(model).into_iter().map(|(path, held)| (path, held.read())).collect()
}

/// Handles on the values of every parameter by path.
pub fn hold<M: Module>(model: &M) -> BTreeMap<String, Held> {
    let mut values = BTreeMap::new();
    visit(model, |path, param| {
        values.insert(path.to_owned(), param.hold());
    });
    values
}

/// The gradient of every parameter that `grads` has one for, by path; taken out of `grads`.
pub fn gradients<M: Module>(model: &M, grads: &mut Gradients) -> BTreeMap<String, TensorData> {
    let mut taker = Taker { path: Vec::new(), grads, taken: BTreeMap::new() };
    model.visit(&mut taker);
    taker.taken
}

/// The model with the values that `source` gives for each path.
///
/// # Errors
/// The first path, in the order of declaration, that `source` lacks or has in another shape.
pub fn import<M: Module>(
    model: M,
    source: impl FnMut(&str) -> Option<TensorData>,
) -> Result<M, ModelError> {
    let mut importer = Importer { path: Vec::new(), source, error: None };
    let model = model.map(&mut importer);
    match importer.error {
        Some(error) => Err(error),
        None => Ok(model),
    }
}

/// The same modules without their values: what may stand in the place of a model that was given
/// away to be changed.
pub fn emptied<M: Module>(model: &M) -> M {
    model.clone().map(&mut Emptied)
}

struct Emptied;

impl ModuleMapper for Emptied {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, weight, mapper) = param.consume();
        let empty = Tensor::empty([0; D], &weight.device());
        Param::from_mapped_value(id, empty, mapper)
    }
}

struct Visitor<F> {
    path: Vec<String>,
    each: F,
}

impl<F: FnMut(&str, ParamData<'_>)> ModuleVisitor for Visitor<F> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let shape = param.val().dims().to_vec();
        let flat = || param.val().inner().flatten(0, D - 1);
        (self.each)(&self.path.join("."), ParamData { shape, flat: &flat });
    }
}

struct Taker<'a> {
    path: Vec<String>,
    grads: &'a mut Gradients,
    taken: BTreeMap<String, TensorData>,
}

impl ModuleVisitor for Taker<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(grad) = param.val().grad_remove(self.grads) {
            self.taken.insert(self.path.join("."), grad.into_data());
        }
    }
}

struct Importer<F> {
    path: Vec<String>,
    source: F,
    error: Option<ModelError>,
}

impl<F: FnMut(&str) -> Option<TensorData>> ModuleMapper for Importer<F> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if self.error.is_some() {
            return param;
        }
        let path = self.path.join(".");
        let (id, old, mapper) = param.consume();
        let needed = old.dims().to_vec();
        let value = match (self.source)(&path) {
            None => Err(ModelError::MissingWeight { path, needed }),
            Some(data) if data.shape().to_vec() != needed => {
                Err(ModelError::WeightShape { path, found: data.shape().to_vec(), needed })
            }
            Some(data) => Ok(replace(&old, data)),
        };
        let value = value.unwrap_or_else(|error| {
            self.error = Some(error);
            old
        });
        Param::from_mapped_value(id, value, mapper)
    }
}

/// A tensor like `old` with other values; Burn would take the data's dtype without a word.
fn replace<const D: usize>(old: &Tensor<D>, data: TensorData) -> Tensor<D> {
    let device = old.clone().inner().device();
    let value = Tensor::<D>::from_data(data.convert_dtype(old.dtype()), &device);
    if !old.is_autodiff() {
        return value;
    }
    Tensor::from_inner(value).set_require_grad(old.is_require_grad())
}
