//! The `train` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    fulmar_train::cli::main()
}
