//! `inmem-bytes [--keys 1000000]`: resident memory a key, each limiter in a process of its own.

use std::process::Command;

use tollgate_benches::inmem::{key, make};
use tollgate_benches::{arg, number};

fn main() {
    let keys = number("keys", 1_000_000) as usize;
    let Some(name) = arg("name") else {
        println!("| limiter | keys | bytes a key | good | ambitious |");
        println!("|---|---|---|---|---|");
        let me = std::env::current_exe().expect("a running program has a path");
        for name in ["governor", "tollgate"] {
            let keys = keys.to_string();
            let status = Command::new(&me)
                .args(["--name", name, "--keys", &keys])
                .status();
            assert!(status.is_ok_and(|status| status.success()), "{name} failed");
        }
        return;
    };
    let limiter = make(&name, keys, true);
    limiter.check(&key(0));
    let before = resident();
    for i in 0..keys {
        limiter.check(&key(i));
    }
    let each = (resident() - before) as f64 / keys as f64;
    let (good, ambitious) = if name == "tollgate" {
        ("64", "40")
    } else {
        ("", "")
    };
    println!("| {name} | {keys} | {each:.1} | {good} | {ambitious} |");
}

/// Bytes of memory that are really there.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("this driver is for Linux");
    let pages = text.split_whitespace().nth(1).and_then(|n| n.parse().ok());
    let pages: usize = pages.expect("the second field of statm is a number");
    pages * rustix::param::page_size()
}
