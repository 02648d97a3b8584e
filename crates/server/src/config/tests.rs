use std::collections::BTreeSet;

use super::*;

/// The settings of a command line, without anything else.
fn given(arguments: &[&str]) -> (clap::ArgMatches, BTreeSet<&'static str>) {
    use clap::CommandFactory;
    let arguments = [&["tollgate", "serve"], arguments].concat();
    let matches = crate::cli::Cli::command().get_matches_from(arguments);
    (matches, FIELDS.iter().map(|field| field.path).collect())
}

#[test]
fn a_program_without_traces_refuses_a_collector_by_name() {
    let (matches, _) = given(&["--traces-endpoint", "http://127.0.0.1:4318"]);
    let given = Given::new(&matches, "serve");
    Traces::read(&given, false);
    let told = given.finish().expect_err("it is a mistake").to_string();
    for part in [
        "--traces-endpoint",
        "http://127.0.0.1:4318",
        "--features otlp",
    ] {
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn every_field_of_the_table_is_read_and_no_other() {
    let (matches, all) = given(&[]);
    let given = Given::new(&matches, "serve");
    Settings::read(&given).expect("the defaults can be used");
    assert_eq!(given.asked(), all);
}
