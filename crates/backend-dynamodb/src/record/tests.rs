use std::collections::VecDeque;

use tollgate_core::algorithm::Admission;

use super::*;

fn record() -> Record {
    vec![
        Some(State::TokenBucket {
            tick: 1_000,
            n: 7,
            tat: 12_345_678_901_234_567_890_123_456_789_012_345_678,
        }),
        None,
        Some(State::SlidingWindow {
            period: 60,
            window: 1,
            previous: 2,
            current: 3,
        }),
        Some(State::FixedWindow {
            period: 60,
            window: 1,
            count: 3,
        }),
        Some(State::SlidingLog {
            period: 60,
            total: 5,
            admissions: VecDeque::from([
                Admission { at: 1, cost: 2 },
                Admission { at: 4, cost: 3 },
            ]),
        }),
    ]
}

#[test]
fn every_state_survives_its_item_to_38_digits() {
    let mut item = encode(&record(), Some(9));
    item.insert(PK.into(), AttributeValue::S("k".into()));
    item.insert(EXPIRES_AT.into(), n_value(5));
    item.insert(
        "comment".into(),
        AttributeValue::S("somebody else's".into()),
    );
    let held = Held::of_item(Some(item));
    assert_eq!(held.record, record());
    assert_eq!(held.revision(), Some(9));
    let attributes = held.attributes.unwrap();
    for name in [PK, EXPIRES_AT, "comment"] {
        assert!(!attributes.contains_key(name), "{name}");
    }
}

#[test]
fn the_shape_of_quotas_is_that_of_their_record() {
    let quotas =
        Quota::parse_list("10/s, 5/m sliding_window, 5/m fixed_window, 5/m sliding_log").unwrap();
    let mut record = Record::new();
    let now = tollgate_core::Timestamp::from_micros(1_700_000_000_000_000);
    let acquire = tollgate_core::algorithm::Operation::Acquire(tollgate_core::Cost::ONE);
    tollgate_core::algorithm::apply(&quotas, &mut record, now, acquire);
    assert!(Held::of_record(record, Some(1)).has_shape_of(&quotas));
    assert!(!Held::default().has_shape_of(&quotas));
}

#[test]
fn what_is_no_record_reads_as_absent() {
    let text = |text: &str| AttributeValue::S(text.into());
    let items = [
        Attributes::new(),
        Attributes::from([(SHAPE.into(), n_value(1))]),
        Attributes::from([(SHAPE.into(), text("b1,1"))]),
        Attributes::from([(SHAPE.into(), text("b1,1")), ("t0".into(), text("5"))]),
        Attributes::from([(SHAPE.into(), text("b1,1")), ("t0".into(), n_value(-5))]),
        Attributes::from([(SHAPE.into(), text("b0,1")), ("t0".into(), n_value(5))]),
        Attributes::from([(SHAPE.into(), text("l60")), ("l0".into(), n_value(5))]),
        Attributes::from([(SHAPE.into(), text("é"))]),
    ];
    for item in items {
        let held = Held::of_item(Some(item.clone()));
        assert_eq!(held.record, Record::new(), "{item:?}");
        assert_eq!(held.attributes.unwrap(), item);
    }
}

#[test]
fn a_revision_goes_on_or_starts_where_nobody_was() {
    let held = Held::of_record(record(), Some(9));
    assert_eq!(held.next(record()).revision(), Some(10));
    let fresh = || Held::default().next(record()).revision();
    assert!(fresh().is_some());
    assert_ne!(fresh(), fresh());
    assert_eq!(held.next(record()[..4].to_vec()).revision(), None);
}
