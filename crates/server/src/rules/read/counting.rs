//! How a rule counts: its `config`, or several in `quotas`.

use serde_json::Value;
use tollgate::{MAX_EXACT, MAX_QUOTAS, QuotaFault};

use super::optional;
use crate::rules::faults::{Fields, text, whole};
use crate::rules::model::{Bucket, Config, Slots, Window};
use crate::rules::{Decimal, Faults};

/// By `config` or `quotas`.
pub(super) fn counting(fields: &mut Fields<'_>) -> (Option<Config>, Vec<Config>) {
    let (one, several) = (fields.find("config"), fields.find("quotas"));
    match (one, several) {
        (Some(value), None) => {
            let path = fields.path("config");
            (config(value, &path, fields.faults), Vec::new())
        }
        (None, Some(value)) => {
            let path = fields.path("quotas");
            (None, configs(value, &path, fields.faults))
        }
        (Some(_), Some(value)) => {
            fields.wrong("quotas", value, "is given beside config; keep one of them");
            (None, Vec::new())
        }
        (None, None) => {
            fields.need(
                "config",
                "write {\"algorithm\": \"sliding_window\", \"limit\": 100, \"window_seconds\": 60}, or quotas with several",
            );
            (None, Vec::new())
        }
    }
}

pub(super) fn configs(value: &Value, path: &str, faults: &mut Faults) -> Vec<Config> {
    let Some(list) = value.as_array() else {
        faults.add(
            path.into(),
            Some(value),
            "is no list; write [{\"algorithm\": .., ..}, ..]",
        );
        return Vec::new();
    };
    if !(1..=MAX_QUOTAS).contains(&list.len()) {
        let problem = format!("has {} entries; give 1 to {MAX_QUOTAS}", list.len());
        faults.add(path.into(), None, problem);
        return Vec::new();
    }
    let mut slots = 0;
    let mut configs = Vec::new();
    for (i, value) in list.iter().enumerate() {
        let path = format!("{path}[{i}]");
        let Some(config) = config(value, &path, faults) else {
            continue;
        };
        slots += usize::from(matches!(config, Config::Concurrency(_)));
        if slots > 1 {
            faults.add(path, None, "is a second concurrency; keep the smaller one");
            slots = 1;
        }
        configs.push(config);
    }
    configs
}

const ALGORITHMS: [&str; 6] = [
    "sliding_window",
    "sliding_log",
    "sliding_counter",
    "fixed_window",
    "token_bucket",
    "concurrency",
];

pub(super) fn config(value: &Value, path: &str, faults: &mut Faults) -> Option<Config> {
    let mut fields = Fields::of(value, path, faults)?;
    let fix = format!("use one of {}", ALGORITHMS.join(", "));
    let algorithm = fields.read_needed("algorithm", &fix, |value| {
        let name = text(value)?;
        let known = ALGORITHMS.into_iter().find(|it| *it == name);
        known.ok_or_else(|| format!("is no algorithm; {fix}"))
    });
    let Some(algorithm) = algorithm else {
        any_algorithm(&mut fields);
        fields.end();
        return None;
    };
    let config = match algorithm {
        "token_bucket" => bucket(&mut fields).map(Config::TokenBucket),
        "concurrency" => slots(&mut fields).map(Config::Concurrency),
        window_algorithm => window(&mut fields).map(match window_algorithm {
            "sliding_window" => Config::SlidingWindow,
            "sliding_log" => Config::SlidingLog,
            "sliding_counter" => Config::SlidingCounter,
            _ => Config::FixedWindow,
        }),
    };
    if let Some(Err(error)) = config.as_ref().and_then(Config::quota) {
        // The library speaks of limit and period; here the numbers have other names.
        let (field, given) = match (algorithm, error.fault()) {
            ("token_bucket", QuotaFault::BurstTooLarge) => ("capacity", None),
            ("token_bucket", _) => ("refill_rate", None),
            (_, QuotaFault::LimitTooLarge) => ("limit", None),
            (_, QuotaFault::PeriodTooShort | QuotaFault::PeriodTooLong) => {
                ("window_seconds", value.get("window_seconds"))
            }
            _ => ("", None),
        };
        let given = given.or_else(|| value.get(field));
        fields.faults.add(
            fields.path(field),
            given,
            format!("cannot be counted: {error}"),
        );
    }
    fields.end();
    config
}

/// Whichever algorithm was meant, its numbers must be such as its fields can have.
fn any_algorithm(fields: &mut Fields<'_>) {
    fields.read("limit", amount);
    fields.read("window_seconds", positive);
    fields.read("capacity", amount);
    fields.read("refill_rate", positive);
    fields.read("slots", places);
    fields.read("ttl_seconds", ttl);
    fields.read("wait_seconds", wait);
}

fn window(fields: &mut Fields<'_>) -> Option<Window> {
    let limit = fields.read_needed("limit", "say how many, 0 to block", amount);
    let window_seconds = fields.read_needed("window_seconds", "say how long a window is", positive);
    Some(Window {
        limit: limit?,
        window_seconds: window_seconds?,
    })
}

fn bucket(fields: &mut Fields<'_>) -> Option<Bucket> {
    let capacity = fields.read_needed("capacity", "say how many at once, 0 to block", amount);
    let refill_rate = fields.read_needed(
        "refill_rate",
        "say how many come back in a second",
        positive,
    );
    Some(Bucket {
        capacity: capacity?,
        refill_rate: refill_rate?,
    })
}

fn slots(fields: &mut Fields<'_>) -> Option<Slots> {
    let slots = fields.read_needed("slots", "say how many at the same time", places);
    let minute = Decimal::from_millionths(60_000_000);
    let ttl_seconds = optional(fields, "ttl_seconds", minute, ttl);
    let wait_seconds = optional(fields, "wait_seconds", Decimal::from_millionths(0), wait);
    Some(Slots {
        slots: slots?,
        ttl_seconds,
        wait_seconds,
    })
}

fn amount(value: &Value) -> Result<u64, String> {
    whole(value, 0, MAX_EXACT)
}

fn places(value: &Value) -> Result<u32, String> {
    whole(value, 1, u64::from(u32::MAX)).map(|it| it as u32)
}

fn ttl(value: &Value) -> Result<Decimal, String> {
    let ttl = positive(value)?;
    if (100_000..=86_400_000_000).contains(&ttl.millionths()) {
        Ok(ttl)
    } else {
        Err("is not from 0.1 to 86400".into())
    }
}

fn wait(value: &Value) -> Result<Decimal, String> {
    let wait = number(value)?;
    if wait.millionths() <= 300_000_000 {
        Ok(wait)
    } else {
        Err("is above 300".into())
    }
}

fn number(value: &Value) -> Result<Decimal, String> {
    match value {
        Value::Number(number) => Decimal::read(number),
        _ => Err("is no number".into()),
    }
}

fn positive(value: &Value) -> Result<Decimal, String> {
    let number = number(value)?;
    if number.millionths() == 0 {
        return Err("must be more than 0".into());
    }
    Ok(number)
}
