//! Every fault and every contract line that is covered now is in the name of a test.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The sections of `docs/faults.md` that this release covers, wholly or for its library.
const SECTIONS: &[&str] = &[
    "atomicity-ttl",
    "race",
    "clock",
    "numeric",
    "input",
    "redis-failover",
    "failopen",
    "breaker",
    "dynamodb",
    "cardinality",
    "headers",
    "identity",
    "keys",
    "middleware",
    "path",
    "refund-reset",
    "memcached",
    "concurrency",
    "config",
];

/// The contract lines that this release covers.
const LINES: [&str; 24] = [
    "s3", "s6", "s7", "s8", "s9", "s10", "s12", "s26", "s27", "s28", "s29", "s66", "s67", "s68",
    "s69", "s70", "s71", "s72", "s83", "s84", "s85", "s86", "s87", "s88",
];
const MORE_LINES: [&str; 2] = ["s94", "s95"];

/// Those of the layers: each is shown by a test over HTTP.
const HTTP_LINES: &[&str] = &[
    "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s12", "s13", "s14", "s15", "s16",
    "s17", "s18", "s19", "s20", "s21", "s22", "s23", "s24", "s25", "s26", "s27", "s28", "s29",
    "s30", "s31", "s73", "s74", "s75", "s76", "s77", "s78", "s79", "s80", "s81", "s82", "s83",
    "s84", "s85", "s86", "s87", "s88", "s89", "s90", "s91", "s92", "s93", "s94", "s95", "s96",
    "s97", "s98", "s99",
];
/// And the faults of addresses and of gRPC, over HTTP as well.
const HTTP_FAULTS: &[&str] = &["b92", "b94", "b96", "b97", "b98", "b100", "b136"];

/// Those of rules.
const RULE_LINES: [&str; 13] = [
    "s42", "s43", "s44", "s45", "s46", "s47", "s48", "s49", "s50", "s51", "s52", "s53", "s54",
];

/// Those of slots.
const SLOT_LINES: [&str; 14] = [
    "s100", "s101", "s102", "s103", "s104", "s105", "s106", "s107", "s108", "s109", "s110", "s111",
    "s112", "s113",
];

/// Those of the service: settings, identities, requests, usage.
const SERVICE_LINES: [&str; 22] = [
    "s32", "s33", "s34", "s35", "s36", "s37", "s63", "s64", "s65", "s38", "s39", "s40", "s41",
    "s47", "s48", "s55", "s56", "s57", "s58", "s60", "s61", "s62",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .into()
}

/// The numbers in the names of all tests in these folders: `b15`, `s27`.
fn named(folders: &[&str]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut folders: Vec<_> = folders.iter().map(|name| root().join(name)).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let functions = text.split("fn ").skip(1);
                let heads = functions.filter_map(|rest| rest.split('(').next());
                names.extend(heads.flat_map(|name| name.split('_').map(str::to_owned)));
            }
        }
    }
    names
}

/// The numbers of the faults of a section: the rows of its table.
fn faults(document: &str, section: &str) -> Vec<String> {
    let heading = format!("(`{section}`)");
    let after = document
        .split(&heading)
        .nth(1)
        .unwrap_or_else(|| panic!("no section {section}"));
    let text = after.split("\n## ").next().unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| B"));
    rows.map(|row| format!("b{}", row.split(' ').next().unwrap()))
        .collect()
}

#[test]
fn every_covered_fault_and_line_is_in_the_name_of_a_test() {
    let document = std::fs::read_to_string(root().join("docs/faults.md")).unwrap();
    let named = named(&["crates", "tests", "lua"]);
    let mut wanted: Vec<String> = LINES
        .iter()
        .chain(&MORE_LINES)
        .chain(HTTP_LINES)
        .chain(&RULE_LINES)
        .chain(&SLOT_LINES)
        .chain(&SERVICE_LINES)
        .map(ToString::to_string)
        .collect();
    for section in SECTIONS {
        let faults = faults(&document, section);
        assert!(!faults.is_empty(), "{section} has no faults");
        wanted.extend(faults);
    }
    assert!(
        wanted.len() > 60,
        "only {} numbers were found",
        wanted.len()
    );
    let lost: Vec<_> = wanted.iter().filter(|id| !named.contains(*id)).collect();
    assert!(lost.is_empty(), "no test names {lost:?}");
}

#[test]
fn every_line_of_the_layers_is_in_the_name_of_a_test_over_http() {
    let named = named(&["tests/tests/http"]);
    let wanted = HTTP_LINES.iter().chain(HTTP_FAULTS);
    let lost: Vec<_> = wanted.filter(|id| !named.contains(**id)).collect();
    assert!(lost.is_empty(), "no test names {lost:?}");
}

#[test]
fn every_line_is_described() {
    let document = std::fs::read_to_string(root().join("docs/contracts.md")).unwrap();
    let all = LINES.iter().chain(&MORE_LINES).chain(HTTP_LINES);
    for line in all.chain(&SLOT_LINES).chain(&SERVICE_LINES) {
        let row = format!("| {} |", line.to_ascii_uppercase());
        assert!(document.contains(&row), "docs/contracts.md lacks {line}");
    }
}
