//! The program `tollgate`; everything is in the library `tollgate_server`.

use std::process::ExitCode;

/// A request makes some forty things that live as long as itself; this one is quick at that.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tollgate_server::run(std::env::args_os())
}
