use burn::tensor::{Gradients, Int, Tensor, TensorData};

/// The results of one body by name.
#[derive(Debug, Clone, Default)]
pub struct Outputs(pub Vec<Output>);

/// One result on the host.
#[derive(Debug, Clone)]
pub struct Output {
    /// Which result, `d` before it for a gradient.
    pub name: &'static str,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its values; integers are exact in f64.
    pub values: Vec<f64>,
    /// Whether any deviation is wrong: ids and counts.
    pub exact: bool,
}

/// How far one result is from what is expected.
#[derive(Debug, Clone, PartialEq)]
pub struct Deviation {
    /// The result.
    pub name: &'static str,
    /// The largest difference over the largest expected magnitude; infinite if the shape differs,
    /// only one of two values is NaN, or integers differ at all.
    pub relative: f64,
}

impl Outputs {
    /// With a float result.
    #[must_use]
    pub(crate) fn float<const D: usize>(self, name: &'static str, tensor: Tensor<D>) -> Self {
        let tensor = if tensor.is_autodiff() { tensor.inner() } else { tensor };
        self.with(name, tensor.into_data(), false)
    }

    /// With a result of integers.
    #[must_use]
    pub(crate) fn integers<const D: usize>(
        self,
        name: &'static str,
        tensor: Tensor<D, Int>,
    ) -> Self {
        self.with(name, tensor.into_data(), true)
    }

    /// With the gradient of a leaf.
    ///
    /// # Panics
    /// If the leaf has none.
    #[must_use]
    pub(crate) fn gradient<const D: usize>(
        self,
        name: &'static str,
        leaf: &Tensor<D>,
        grads: &Gradients,
    ) -> Self {
        let gradient = leaf.grad(grads).unwrap_or_else(|| panic!("no gradient {name}"));
        self.with(name, gradient.into_data(), false)
    }

    fn with(mut self, name: &'static str, data: TensorData, exact: bool) -> Self {
        let (shape, values) = (data.shape().to_vec(), data.iter::<f64>().collect());
        self.0.push(Output { name, shape, values, exact });
        self
    }

    /// How far these results are from `expected`.
    ///
    /// # Panics
    /// If the two are not results of one check.
    pub fn deviations(&self, expected: &Self) -> Vec<Deviation> {
        assert_eq!(self.0.len(), expected.0.len(), "results of one check");
        self.0.iter().zip(&expected.0).map(|(found, expected)| found.deviation(expected)).collect()
    }
}

impl Output {
    fn deviation(&self, expected: &Self) -> Deviation {
        assert_eq!(self.name, expected.name, "results of one check");
        let relative = if self.shape == expected.shape {
            let largest = expected.values.iter().fold(1e-12, |max: f64, v| max.max(v.abs()));
            let pairs = self.values.iter().zip(&expected.values);
            let apart = pairs.map(|(found, expected)| apart(*found, *expected));
            let furthest = apart.fold(0.0, f64::max);
            if self.exact && furthest > 0.0 { f64::INFINITY } else { furthest / largest }
        } else {
            f64::INFINITY
        };
        Deviation { name: self.name, relative }
    }
}

/// The distance of two values; none between two that are NaN or the same infinity.
fn apart(found: f64, expected: f64) -> f64 {
    if found == expected || (found.is_nan() && expected.is_nan()) {
        return 0.0;
    }
    let apart = (found - expected).abs();
    if apart.is_nan() { f64::INFINITY } else { apart }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(values: &[f64], exact: bool) -> Outputs {
        let (shape, values) = (vec![values.len()], values.to_vec());
        Outputs(vec![Output { name: "y", shape, values, exact }])
    }

    fn relative(found: &Outputs, expected: &Outputs) -> f64 {
        found.deviations(expected)[0].relative
    }

    #[test]
    fn deviations_are_relative_to_the_largest_expected_value() {
        let found = output(&[1.0, 4.5, f64::NAN, f64::INFINITY], false);
        assert_eq!(relative(&found, &found), 0.0);
        assert_eq!(relative(&output(&[1.0, 4.5], false), &output(&[0.5, -5.0], false)), 1.9);
    }

    #[test]
    fn nan_shape_and_integers_deviate_without_bound() {
        let (one, nan) = (output(&[1.0], false), output(&[f64::NAN], false));
        assert_eq!(relative(&nan, &one), f64::INFINITY);
        assert_eq!(relative(&one, &nan), f64::INFINITY);
        assert_eq!(relative(&one, &output(&[1.0, 1.0], false)), f64::INFINITY);
        assert_eq!(relative(&output(&[1e9], true), &output(&[1e9 + 1.0], true)), f64::INFINITY);
    }
}
