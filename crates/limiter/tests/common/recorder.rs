//! What was measured, by `name{label=value,..}`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

#[derive(Default)]
pub struct Recorded {
    numbers: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
}

/// Counts its records.
struct Records(Arc<AtomicU64>);

impl HistogramFn for Records {
    fn record(&self, _: f64) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Recorded {
    fn number(&self, key: &Key) -> Arc<AtomicU64> {
        let labels: Vec<_> = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()))
            .collect();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        Arc::clone(self.numbers.lock().unwrap().entry(name).or_default())
    }

    /// The value of a counter, or the number of records of a histogram.
    pub fn count(&self, name: &str) -> Option<u64> {
        let numbers = self.numbers.lock().unwrap();
        numbers.get(name).map(|n| n.load(Ordering::SeqCst))
    }

    pub fn gauge(&self, name: &str) -> Option<f64> {
        self.count(name).map(f64::from_bits)
    }

    pub fn series(&self) -> Vec<String> {
        self.numbers.lock().unwrap().keys().cloned().collect()
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.number(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.number(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Records(self.number(key))))
    }
}
