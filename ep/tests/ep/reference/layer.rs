//! The routed layer over the whole world, in f64 and one assignment after another.
//!
//! Axis letters: t tokens of all shards, k experts per token, e experts, c width of a row, f inner
//! width of an expert. Matrices are row-major.

/// What the layer computes with.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    /// c.
    pub(crate) latent_dim: usize,
    /// f.
    pub(crate) intermediate_dim: usize,
    /// k.
    pub(crate) k: usize,
    /// [t, c].
    pub(crate) x: Vec<f64>,
    /// [t, k].
    pub(crate) combine: Vec<f64>,
    /// [e, c, 2 f], gate then up.
    pub(crate) w13: Vec<f64>,
    /// [e, f, c].
    pub(crate) w2: Vec<f64>,
    /// [t, c]: the loss is `sum(out * dy)`.
    pub(crate) dy: Vec<f64>,
}

/// The output and the gradients of the loss, in the shapes of their inputs.
#[derive(Debug, Clone)]
pub(crate) struct Values {
    /// [t, c].
    pub(crate) out: Vec<f64>,
    pub(crate) dx: Vec<f64>,
    pub(crate) dcombine: Vec<f64>,
    pub(crate) dw13: Vec<f64>,
    pub(crate) dw2: Vec<f64>,
}

impl Layer {
    /// `out[t] = sum over kept slots of combine * (silu(x Wg) * (x Wu)) Wd`, and its gradients;
    /// `selected` and `kept` are [t k], and an assignment that was not kept adds nothing.
    pub(crate) fn run(&self, selected: &[usize], kept: &[bool]) -> Values {
        let mut values = Values {
            out: vec![0.0; self.x.len()],
            dx: vec![0.0; self.x.len()],
            dcombine: vec![0.0; self.combine.len()],
            dw13: vec![0.0; self.w13.len()],
            dw2: vec![0.0; self.w2.len()],
        };
        for assignment in (0..selected.len()).filter(|&assignment| kept[assignment]) {
            self.add_assignment(assignment, selected[assignment], &mut values);
        }
        values
    }

    fn add_assignment(&self, assignment: usize, expert: usize, values: &mut Values) {
        let (c, f) = (self.latent_dim, self.intermediate_dim);
        let token = assignment / self.k * c..(assignment / self.k + 1) * c;
        let first = expert * c * 2 * f..(expert + 1) * c * 2 * f;
        let second = expert * f * c..(expert + 1) * f * c;
        let (x, dy) = (&self.x[token.clone()], &self.dy[token.clone()]);
        let (w13, w2) = (&self.w13[first.clone()], &self.w2[second.clone()]);
        let weight = self.combine[assignment];

        let gate_up = times(x, w13);
        let (gate, up) = gate_up.split_at(f);
        let inner: Vec<f64> = (0..f).map(|i| silu(gate[i]) * up[i]).collect();
        let y = times(&inner, w2);
        add(&mut values.out[token.clone()], y.iter().map(|y| weight * y));

        values.dcombine[assignment] = dot(&y, dy);
        let dy: Vec<f64> = dy.iter().map(|dy| weight * dy).collect();
        add(&mut values.dw2[second], outer(&inner, &dy));
        let dinner = times_transposed(&dy, w2);
        let dgate = (0..f).map(|i| dinner[i] * up[i] * silu_slope(gate[i]));
        let dup = (0..f).map(|i| dinner[i] * silu(gate[i]));
        let dgate_up: Vec<f64> = dgate.chain(dup).collect();
        add(&mut values.dw13[first], outer(x, &dgate_up));
        add(&mut values.dx[token], times_transposed(&dgate_up, w13));
    }
}

fn silu(z: f64) -> f64 {
    z * sigmoid(z)
}

fn silu_slope(z: f64) -> f64 {
    sigmoid(z) * (1.0 + z * (1.0 - sigmoid(z)))
}

fn sigmoid(z: f64) -> f64 {
    1.0 / (1.0 + (-z).exp())
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Row times matrix.
fn times(row: &[f64], matrix: &[f64]) -> Vec<f64> {
    let width = matrix.len() / row.len();
    let mut product = vec![0.0; width];
    for (value, matrix_row) in row.iter().zip(matrix.chunks(width)) {
        add(&mut product, matrix_row.iter().map(|entry| value * entry));
    }
    product
}

/// Row times the transposed matrix.
fn times_transposed(row: &[f64], matrix: &[f64]) -> Vec<f64> {
    matrix.chunks(row.len()).map(|matrix_row| dot(row, matrix_row)).collect()
}

/// Column times row, flat.
fn outer(column: &[f64], row: &[f64]) -> Vec<f64> {
    column.iter().flat_map(|a| row.iter().map(move |b| a * b)).collect()
}

fn add(sums: &mut [f64], terms: impl IntoIterator<Item = f64>) {
    for (sum, term) in sums.iter_mut().zip(terms) {
        *sum += term;
    }
}
