//! Drivers that put Tollgate, its peers and what the machine allows side by side.
//!
//! Numbers of one run compare with each other, not with another machine's: read the ratios, and on
//! a busy machine the CPU columns. Each driver prints one table. Every round runs all rows in turn,
//! so that noise falls on all of them.
//!
//! ```text
//! cargo run --profile bench -p tollgate-benches --features http --bin http            # the layer
//! cargo bench -p tollgate-benches --features http --bench layer                       # its own part
//! cargo run --profile bench -p tollgate-benches --features inmem --bin inmem          # keyed checks
//! cargo run --profile bench -p tollgate-benches --features inmem --bin inmem-bytes    # bytes a key
//! cargo run --profile bench -p tollgate-benches --features inmem --bin inmem-expire   # worst check
//! cargo run --profile bench -p tollgate-benches --features rules --bin rules          # many rules
//! cargo run --profile bench -p tollgate-benches --features stack --bin stack          # wrappers
//! cargo run --profile bench -p tollgate-benches --features redis --bin redis-load -- --url redis://..
//! cargo run --profile bench -p tollgate-benches --features leases --bin leases -- --url redis://..
//! cargo run --profile bench -p tollgate-benches --features memcached --bin memcached-load -- --address ..
//! cargo run --profile bench -p tollgate-benches --features dynamodb --bin dynamodb-load -- --endpoint ..
//! benches/redis/run.sh       # what each script costs a server     benches/redis/memory.sh   # bytes a key
//! ```

#[cfg(feature = "mimalloc")]
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "inmem")]
pub mod inmem;
#[cfg(any(feature = "redis", feature = "memcached", feature = "dynamodb"))]
pub mod load;

/// `--name value` from the command line.
#[must_use]
pub fn arg(name: &str) -> Option<String> {
    let flag = format!("--{name}");
    std::env::args().skip_while(|arg| *arg != flag).nth(1)
}

/// The same as a list divided by commas.
#[must_use]
pub fn list(name: &str, default: &str) -> Vec<String> {
    let list = arg(name).unwrap_or_else(|| default.into());
    list.split(',').map(Into::into).collect()
}

/// The same as a number.
///
/// # Panics
/// When it is none.
#[must_use]
pub fn number(name: &str, default: u64) -> u64 {
    arg(name).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("--{name}: {text:?} is no number"))
    })
}

/// The one in the middle.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
