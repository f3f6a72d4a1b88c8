//! The program's entry: hands the process to the library and its exit code back to the system.
//! Knows nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    longhaul::main()
}
