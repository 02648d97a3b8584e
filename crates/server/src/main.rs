//! The program `tollgate`; everything is in the library `tollgate_server`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tollgate_server::run(std::env::args_os())
}
