//! How near the CPU kernels come to what the machine can do.
//!
//! ```text
//! cargo bench --workspace --bench kernels
//! cargo bench --workspace --bench kernels -- attention
//! cargo bench --workspace --bench kernels -- --quick
//! cargo bench --workspace --bench kernels -- --test
//! ```
//!
//! Each row is one operation at one shape, forward and backward where it has one. What it reaches
//! is a share of what the same run measured just before: the products of the `gemm` crate, and a
//! large copy. Times are the best of many, since whatever else runs on the machine only adds to
//! them; `threads` is the same share by the time that threads ran, which others disturb less but
//! which does not see a thread that waits. Arguments select operations by parts of their names; `--test` runs every operation once
//! at a small shape.
//!
//! The allocator is mimalloc, which keeps freed blocks: with one that returns them to the system,
//! most of the time of a large buffer is that of mapping its pages again.

mod attention;
mod cost_growth;
mod cross_entropy;
mod experts;
mod inputs;
mod machine;
mod memory;
mod newton_schulz;
mod secs;
mod settings;
mod streams;
mod table;

use fulmar_tests::memory::Counting;
use mimalloc::MiMalloc;

use machine::Machine;
use settings::Settings;
use table::Row;

#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting(MiMalloc);

/// A group of rows, by the name that arguments select.
struct Case {
    name: &'static str,
    rows: fn(&Settings) -> Vec<Row>,
}

const CASES: [Case; 17] = [
    Case { name: "attention", rows: attention::rows },
    Case { name: "attention_memory", rows: attention::memory_rows },
    Case { name: "cost_growth", rows: cost_growth::rows },
    Case { name: "cross_entropy", rows: cross_entropy::rows },
    Case { name: "small_cross_entropy", rows: cross_entropy::small_rows },
    Case { name: "grouped_swiglu", rows: experts::rows },
    Case { name: "newton_schulz", rows: newton_schulz::rows },
    Case { name: "muonh", rows: newton_schulz::muonh_rows },
    Case { name: "adam", rows: streams::adam },
    Case { name: "rms_norm", rows: streams::rms_norm },
    Case { name: "gated", rows: streams::gated },
    Case { name: "silu", rows: streams::silu },
    Case { name: "short_conv", rows: streams::short_conv },
    Case { name: "top_k", rows: streams::top_k },
    Case { name: "combine_weights", rows: streams::combine_weights },
    Case { name: "permute", rows: streams::permute },
    Case { name: "pack", rows: streams::pack },
];

fn main() {
    let settings = Settings::from_args();
    let mut machine = Machine::new();
    machine.measure(&settings);
    println!("products: {:.1} GFLOP/s, copies: {:.1} GB/s", machine.gflops(), machine.gigabytes());
    table::print_header();
    for case in CASES.iter().filter(|case| settings.selects(case.name)) {
        machine.measure(&settings);
        for row in (case.rows)(&settings) {
            row.print(&machine);
        }
    }
    println!("products: {:.1} GFLOP/s, copies: {:.1} GB/s", machine.gflops(), machine.gigabytes());
}
