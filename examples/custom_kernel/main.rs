//! An operation of one's own, in the four parts that those of the library have, on the CPU and on a
//! GPU.
//!
//! ```text
//! cargo run --release --example custom_kernel
//! cargo run --release --features wgpu --example custom_kernel -- --device wgpu
//! cargo test --example custom_kernel
//! ```
//!
//! It compares kernel and reference in values and gradients, times both, and then trains a small
//! stack of weights through the operation, to show that gradients pass like those of any other.

mod soft_cap;

use std::process::ExitCode;
use std::time::Instant;

use burn::tensor::{Device, Tensor, TensorData};
use clap::Parser;
use fulmar::prelude::*;
use fulmar::train::device;

use soft_cap::{reference, soft_cap};

/// Compares and times an operation of one's own.
#[derive(Parser)]
#[command(after_help = "Example: cargo run --release --example custom_kernel -- --rows 8192")]
struct Args {
    /// Rows of the input.
    #[arg(long, default_value_t = 4096)]
    rows: usize,
    /// Values of a row.
    #[arg(long, default_value_t = 512)]
    dim: usize,
    /// Where it runs.
    #[arg(long, value_enum, default_value_t)]
    device: DeviceChoice,
}

const CAP: f64 = 3.0;

type Operation = fn(Tensor<2>, f64) -> Tensor<2>;

fn main() -> ExitCode {
    abort_on_device_panic();
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether kernel and reference agree.
fn run(args: &Args) -> Result<bool, TrainError> {
    let open = device::open(args.device)?;
    println!("soft_cap of [{}, {}] on {}", args.rows, args.dim, open.name);
    let x = waves(args.rows, args.dim, 0.37, &open.device) * 4.0;
    let bodies: [(&str, Operation); 2] = [("kernel", soft_cap), ("reference", reference)];
    let [kernel, reference] = bodies.map(|(name, op)| {
        // Once before the clock starts: a GPU compiles its kernels then.
        let results = forward_backward(op, &x);
        let millis = (0..5).map(|_| timed(op, &x)).fold(f64::INFINITY, f64::min);
        println!("  {name:<10} {millis:8.2} ms forward and backward");
        results
    });
    let mut agree = true;
    for (name, found, expected) in
        [("y", &kernel[0], &reference[0]), ("dx", &kernel[1], &reference[1])]
    {
        let apart = (found.clone() - expected.clone()).abs().max().into_scalar::<f32>();
        println!("  {name:<10} {apart:8.1e} apart at most");
        agree &= apart <= 1e-5;
    }
    fit(&open.device);
    Ok(agree)
}

/// `y` and `dx`.
fn forward_backward(op: Operation, x: &Tensor<2>) -> [Tensor<2>; 2] {
    let x = Tensor::from_inner(x.clone()).require_grad();
    let y = op(x.clone(), CAP);
    let grads = y.clone().sum().backward();
    [y.inner(), x.grad(&grads).expect("the loss depends on x")]
}

fn timed(op: Operation, x: &Tensor<2>) -> f64 {
    let started = Instant::now();
    let [_, dx] = forward_backward(op, x);
    // Reading a value waits for the device.
    dx.slice([0..1, 0..1]).into_scalar::<f32>();
    started.elapsed().as_secs_f64() * 1e3
}

/// Gradient descent on `w` such that `soft_cap(x w)` becomes what it is for weights of 1.
fn fit(device: &Device) {
    let x = waves(64, 8, 0.61, device);
    let target = soft_cap(x.clone().matmul(Tensor::ones([8, 4], device)), CAP);
    let mut w = Tensor::<2>::zeros([8, 4], device);
    let mut losses = Vec::new();
    for _ in 0..200 {
        let leaf = Tensor::from_inner(w.clone()).require_grad();
        let y = soft_cap(Tensor::from_inner(x.clone()).matmul(leaf.clone()), CAP);
        let loss = (y - Tensor::from_inner(target.clone())).powi_scalar(2).mean();
        let grads = loss.clone().backward();
        losses.push(loss.into_scalar::<f32>());
        w = w - leaf.grad(&grads).expect("the loss depends on w") * 2.0;
    }
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    println!("  a fit through the operation: loss {first:.4} at first, {last:.2e} after 200 steps");
}

fn waves(rows: usize, dim: usize, step: f32, device: &Device) -> Tensor<2> {
    let values: Vec<f32> = (0..rows * dim).map(|i| (i as f32 * step).sin()).collect();
    Tensor::from_data(TensorData::new(values, [rows, dim]), device)
}
