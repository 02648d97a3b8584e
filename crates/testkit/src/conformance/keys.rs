//! Whatever a client may call itself.

use std::time::Duration;

use tollgate_core::{Cost, CounterBackend, Key, Policy, Quota, Timestamp};

use super::Lab;

fn now() -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000)
}

fn one_a_minute() -> Quota {
    Quota::token_bucket(1, Duration::from_secs(60)).expect("it can be counted")
}

/// Admitted once and then refused, whatever the keys before it did.
async fn has_its_own<B: CounterBackend>(lab: &Lab<B>, policy: &Policy, key: &Key<'_>, what: &str) {
    for admitted in [true, false] {
        let decision = lab.acquire_key(policy, key, now(), Cost::ONE).await;
        assert_eq!(decision.allowed(), admitted, "{what}");
    }
}

/// Empty, long, differing in the last byte, with spaces, quotes, braces, line breaks and NUL.
pub async fn odd_keys_are_counted_apart<B: CounterBackend>(lab: &Lab<B>) {
    let policy = lab.policy([one_a_minute()]);
    let long = |last: char, length: usize| format!("{}{last}", "x".repeat(length - 1));
    let keys = [
        String::new(),
        " ".into(),
        "a b".into(),
        "100.0.0.1, 101.0.0.1".into(),
        "a\r\nset pwn 0 0 1\r\n1\r\n".into(),
        "\0".into(),
        "\0\0".into(),
        "a".into(),
        "A".into(),
        "{".into(),
        "}".into(),
        "{}".into(),
        "a{b}c".into(),
        "{a}".into(),
        "%7B".into(),
        ":".into(),
        "*".into(),
        "\"'`;--".into(),
        "é".into(),
        // The same letter written with a combining accent is another key: no normal form is
        // assumed.
        "e\u{301}".into(),
        "é".repeat(200),
        "é".repeat(1_100),
        long('x', 300),
        long('y', 300),
        long('x', 2_048),
        long('x', 3_000),
        long('y', 3_000),
        "🦀".into(),
    ];
    for key in &keys {
        has_its_own(
            lab,
            &policy,
            &Key::from(key),
            &format!("{:?}", key.get(..20).unwrap_or(key)),
        )
        .await;
    }
    let bytes: [&[u8]; 3] = [&[0xFF], &[0xFE], &[0xFF, 0xFF]];
    for key in bytes {
        has_its_own(lab, &policy, &Key::from(key), &format!("{key:?}")).await;
    }
}

/// However the same text is divided.
pub async fn parts_of_keys_do_not_collide<B: CounterBackend>(lab: &Lab<B>) {
    let policy = lab.policy([one_a_minute()]);
    for parts in [
        ["did:key:abc", "s"],
        ["did:key", "abc:s"],
        ["21", "1"],
        ["2", "11"],
        ["a", ""],
        ["", "a"],
        ["a|b", "c"],
        ["a", "b|c"],
        ["\0", "\0\0"],
        ["\0\0", "\0"],
    ] {
        has_its_own(lab, &policy, &Key::from_parts(parts), &format!("{parts:?}")).await;
    }
    // Nor with plain text.
    for text in ["did:key:abcs", "211", "a", "a|bc"] {
        has_its_own(lab, &policy, &Key::from(text), text).await;
    }
}

/// The same identity under another name, names that a store might read as syntax included.
pub async fn policies_are_counted_apart<B: CounterBackend>(lab: &Lab<B>) {
    let base = lab.policy([one_a_minute()]);
    let base = base.name();
    for suffix in [
        "", ":", ":a", "{", "}", "{}", "{a}", "%7B", " ", "  ", "*", "~",
    ] {
        let name = format!("{base}{suffix}");
        let policy = Policy::new(&name, [one_a_minute()]).expect("printable ASCII");
        has_its_own(lab, &policy, &Key::from("k"), &name).await;
        has_its_own(lab, &policy, &Key::from(":k"), &name).await;
    }
}
