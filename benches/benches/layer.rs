//! What a layer costs a request of axum without any network, ours beside another library's.
//!
//! `cargo bench -p tollgate-benches --features http --bench layer`. On a busy machine count
//! instructions instead:
//! `valgrind --tool=callgrind --toggle-collect=layer::one BINARY --bench --sample-count 1
//! --sample-size 3000 NAME`, divided by 3,001.

use std::hint::black_box;

use divan::Bencher;
use tollgate_benches::http::{app, call};

fn main() {
    divan::main();
}

#[divan::bench(args = [
    "no layer",
    "a layer that does nothing",
    "8 constant fields, no limit",
    "tollgate, all headers",
    "tollgate, headers that change",
    "tollgate, default headers",
    "tollgate, no headers",
    "tower_governor, headers",
])]
fn request(bencher: Bencher<'_, '_>, name: &str) {
    let mut app = app(name);
    // The first one makes what later ones find.
    drop(call(&mut app));
    bencher.bench_local(|| one(&mut app));
}

/// Not inlined, so that a profiler can count it alone (`--toggle-collect=layer::one`).
#[inline(never)]
fn one(app: &mut axum::Router) {
    drop(black_box(call(app)));
}
