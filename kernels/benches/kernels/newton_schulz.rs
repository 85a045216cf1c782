//! Newton-Schulz, alone and in the update it is for.

use fulmar_kernels::muonh::{MuonHNorm, MuonHOptions, muonh_step, reference as muonh_reference};
use fulmar_kernels::newton_schulz::{COEFFICIENTS, Precision, newton_schulz, reference};

use super::inputs::tensor;
use super::settings::Settings;
use super::table::{Row, Work};

/// In each iteration `X X^T` and its square, of which half is enough, and the product with X.
fn work(matrices: usize, side: usize) -> Work {
    let product = 2.0 * (side as f64).powi(3);
    Work::flop(COEFFICIENTS.len() as f64 * matrices as f64 * 2.0 * product)
}

pub(crate) fn rows(settings: &Settings) -> Vec<Row> {
    let row = |matrices: usize, side: usize| {
        let u = tensor([matrices, side, side]);
        // In place, over and over: the time does not depend on the values.
        let mut next = Some(u);
        let secs = settings.best(|| {
            let u = next.take().expect("the last result");
            next = Some(newton_schulz(u, Precision::F32));
        });
        let shape = format!("{matrices} of {side} x {side}");
        Row::new("newton_schulz", shape, secs, work(matrices, side)).target(0.75)
    };
    let (matrices, side) = settings.pick((384 * 3, 384), (4, 40));
    let few = tensor([settings.pick(96, 2), side, side]);
    let plain = settings.best(|| reference(few.clone(), Precision::F32));
    let own = settings.best(|| newton_schulz(few.clone(), Precision::F32));
    vec![
        row(matrices, side).reference(plain, own, "96 matrices"),
        row(settings.pick(48 * 3 * 4, 4), settings.pick(96, 24)),
        row(settings.pick(8, 2), settings.pick(768, 130)),
    ]
}

pub(crate) fn muonh_rows(settings: &Settings) -> Vec<Row> {
    let (matrices, side) = settings.pick((384, 384), (4, 40));
    let shape = [matrices, side, side];
    let options = MuonHOptions {
        lr: 1e-3,
        momentum: 0.95,
        precision: Precision::F32,
        norm: MuonHNorm::PerMatrix,
    };
    let grad = tensor(shape);
    let mut state = Some((tensor(shape).add_scalar(0.1), tensor(shape)));
    let secs = settings.best(|| {
        let (w, momentum) = state.take().expect("the last result");
        state = Some(muonh_step(w, grad.clone(), momentum, &options));
    });
    let few = tensor([settings.pick(96, 2), side, side]);
    let plain = settings.best(|| muonh_reference(few.clone(), few.clone(), few.clone(), &options));
    let own = settings.best(|| muonh_step(few.clone(), few.clone(), few.clone(), &options));
    let row =
        Row::new("muonh", format!("{matrices} of {side} x {side}"), secs, work(matrices, side));
    vec![row.reference(plain, own, "96 matrices")]
}
