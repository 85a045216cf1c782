//! Ranks as processes. Run by itself, this program starts `mpirun -n 4` with itself for each case
//! and judges what comes back; `cargo test ... --test mpi -- WORD` runs the cases named so.
//!
//! A case is a [`Case`] in one of the lists of [`cases`]: a body that every rank runs, and what is
//! needed of the whole run. A new kind of cases is a file beside `collectives.rs`, with a list.

// The layer and its cases are those of the tests over threads.
#[path = "../ep/case.rs"]
#[allow(dead_code, reason = "each of the two programs uses its part")]
mod case;
mod collectives;
mod failures;
mod launch;
mod layer;
#[path = "../ep/ranks.rs"]
#[allow(dead_code, reason = "each of the two programs uses its part")]
mod ranks;
#[path = "../ep/reference/mod.rs"]
#[allow(dead_code, reason = "each of the two programs uses its part")]
mod reference;

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use fulmar_ep::transport::{Group, run_mpi};

/// The ranks of every case.
const RANKS: usize = 4;

/// Something that four ranks do, and how it must end.
struct Case {
    /// A sentence.
    name: &'static str,
    /// How long a wait may last.
    deadline: Duration,
    body: fn(Group) -> Result<(), Box<dyn Error>>,
    needed: Needed,
}

/// How a run must end.
enum Needed {
    /// With status 0 on all ranks.
    Success,
    /// With another status.
    Failure {
        /// What the first cause says; nothing if nobody is left to say it.
        says: &'static [&'static str],
        /// How many bodies end with an error.
        errors: usize,
    },
}

fn cases() -> impl Iterator<Item = Case> {
    collectives::cases().into_iter().chain(layer::cases()).chain(failures::cases())
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next()) {
        (Some("--case"), Some(name)) => run_rank(&name),
        (word, _) => run_cases(word.filter(|word| !word.starts_with('-')).unwrap_or_default()),
    }
}

fn run_cases(word: &str) -> ExitCode {
    let started = Instant::now();
    let (mut passed, mut failed) = (0, 0);
    for case in cases().filter(|case| case.name.contains(word)) {
        match launch::judge(&case) {
            Ok(took) => {
                passed += 1;
                println!("test {} ... ok ({:.1} s)", case.name, took.as_secs_f64());
            }
            Err(problem) => {
                failed += 1;
                println!("test {} ... FAILED\n{problem}", case.name);
            }
        }
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    let filtered = cases().count() - passed - failed;
    println!(
        "\ntest result: {result}. {passed} passed; {failed} failed; 0 ignored; 0 measured; \
         {filtered} filtered out; finished in {:.2}s\n",
        started.elapsed().as_secs_f64()
    );
    ExitCode::from(u8::from(failed > 0))
}

/// What a world whose first failure is reported ends with.
pub(crate) const STATUS: u8 = 9;

/// One rank of a case; [`launch::judge`] reads what it prints.
fn run_rank(name: &str) -> ExitCode {
    let case = cases().find(|case| case.name == name).expect("a case of this name");
    let body = |transport| {
        let group = Group::new(transport);
        (case.body)(group.clone()).inspect_err(|error| println!("error: {error}"))?;
        Ok::<_, Box<dyn Error>>(group)
    };
    let group = run_mpi(case.deadline, body, |error| {
        println!("first: {error}");
        STATUS
    });
    let group = group.expect("MPI, started once");

    let late = group.barrier("late").expect_err("a transport of a run that has ended");
    assert!(late.to_string().contains("its run has ended"), "{late}");
    let again = run_mpi(case.deadline, |_| Ok::<_, String>(()), |_| 1).expect_err("a second run");
    assert!(again.to_string().contains("MPI: it runs already"), "{again}");
    ExitCode::SUCCESS
}
