//! What metrics tell of the rules: how many there are, how old what is known of them is, and what
//! they allow. The handles are kept here, since a series lives as long as its handle.

use metrics::{Counter, Gauge, counter, gauge};
use parking_lot::Mutex;
use tollgate::{Clock, SystemClock};

use super::live::LiveRule;
use super::model::Config;
use super::{IdentityType, Table};

/// The most limits that are told, those of the rules that go first.
const MOST: usize = 1_000;

/// The handles.
pub(super) struct Gauges {
    rules: Gauge,
    healthy_file: Gauge,
    healthy_store: Gauge,
    refreshed: Gauge,
    refreshes: Counter,
    refresh_failures: Counter,
    file_failures: Counter,
    limits: Mutex<Vec<Gauge>>,
}

impl Gauges {
    pub(super) fn new() -> Self {
        let gauges = Self {
            rules: gauge!("tollgate_rules"),
            healthy_file: gauge!("tollgate_rules_healthy", "source" => "file"),
            healthy_store: gauge!("tollgate_rules_healthy", "source" => "store"),
            refreshed: gauge!("tollgate_rules_refreshed_timestamp_seconds"),
            refreshes: counter!("tollgate_rules_refreshes_total"),
            refresh_failures: counter!("tollgate_rules_refresh_failures_total"),
            file_failures: counter!("tollgate_rules_file_failures_total"),
            limits: Mutex::default(),
        };
        gauges.set_healthy(true, true);
        gauges
    }

    pub(super) fn set_healthy(&self, file: bool, store: bool) {
        self.healthy_file.set(f64::from(u8::from(file)));
        self.healthy_store.set(f64::from(u8::from(store)));
    }

    /// The rules were read.
    pub(super) fn refreshed(&self) {
        self.refreshes.increment(1);
        self.refreshed
            .set(SystemClock.now().as_micros() as f64 / 1e6);
    }

    /// They could not be.
    pub(super) fn refresh_failed(&self) {
        self.refresh_failures.increment(1);
    }

    /// The file has no effect.
    pub(super) fn file_failed(&self) {
        self.file_failures.increment(1);
    }

    /// These are in force.
    pub(super) fn in_force(&self, table: &Table) {
        self.rules.set(table.len() as f64);
        let default = table.default_rule(IdentityType::Global);
        let rules = std::iter::once(default).chain(table.in_order());
        let limits = rules.flat_map(|it| limits(it)).take(MOST);
        let limits = limits.map(|(rule, plan, config)| {
            let (capacity, window) = capacity(config);
            let limit = gauge!(
                "tollgate_rule_limit",
                "rule" => rule.to_owned(),
                "plan" => plan.to_owned(),
                "algorithm" => config.algorithm(),
                "window" => window,
            );
            limit.set(capacity as f64);
            limit
        });
        let limits = limits.collect();
        // The old ones go after the new ones are there: a series of both goes on.
        let gone = std::mem::replace(&mut *self.limits.lock(), limits);
        drop(gone);
    }
}

/// What a rule allows, and to whom: those on a plan, or all others.
fn limits(rule: &LiveRule) -> impl Iterator<Item = (&str, &str, &Config)> {
    let (id, rule) = (rule.id(), rule.rule());
    let plans = rule.limit_from.iter().flat_map(|it| &it.plans);
    let plans = plans.map(|(name, plan)| (name.as_str(), plan.configs()));
    std::iter::once(("", rule.configs()))
        .chain(plans)
        .flat_map(move |(plan, configs)| configs.iter().map(move |config| (id, plan, config)))
}

/// How much at once, and within how many seconds, as the header `RateLimit-Policy` has them.
fn capacity(config: &Config) -> (u64, String) {
    match config {
        Config::SlidingWindow(it)
        | Config::SlidingLog(it)
        | Config::SlidingCounter(it)
        | Config::FixedWindow(it) => (it.limit, it.window_seconds.to_string()),
        Config::TokenBucket(it) => {
            let window = u128::from(it.capacity) * 1_000_000;
            let window = window.div_ceil(u128::from(it.refill_rate.millionths().max(1)));
            (it.capacity, window.to_string())
        }
        Config::Concurrency(it) => (u64::from(it.slots), String::new()),
    }
}
