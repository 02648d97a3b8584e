//! Keeps what is measured and writes it down as Prometheus reads it: a recorder of the `metrics`
//! facade whose counters are atomic integers, so that a request costs a few additions and nothing
//! grows with the number of requests.
//!
//! A series lives as long as somebody holds its handle: those of a rule go when the rule goes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, SharedString, Unit};
use parking_lot::Mutex;

use super::{ALL, Kind, NUMBERS, SECONDS};

/// Sums of histograms are kept in billionths.
const BILLION: f64 = 1e9;

/// What the facade is given.
pub(super) struct Recorder(pub(super) Arc<Registry>);

/// All series, by the name of the metric and by their labels as they are written.
#[derive(Default)]
pub(super) struct Registry {
    series: Mutex<BTreeMap<(String, String), Series>>,
}

#[derive(Clone)]
enum Series {
    Counter(Arc<AtomicU64>),
    Gauge(Arc<AtomicU64>),
    Histogram(Arc<Buckets>),
}

/// How many values were at most each bound, and their sum.
struct Buckets {
    bounds: &'static [f64],
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl HistogramFn for Buckets {
    fn record(&self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        // A float is cut off at what fits.
        let billionths = (value * BILLION) as u64;
        self.sum.fetch_add(billionths, Ordering::Relaxed);
    }
}

impl Registry {
    fn get(&self, key: &Key, make: impl FnOnce() -> Series) -> Series {
        let place = (key.name().to_owned(), labels(key));
        let mut series = self.series.lock();
        series.entry(place).or_insert_with(make).clone()
    }

    /// What Prometheus reads.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut last = "";
        let mut series = self.series.lock();
        series.retain(|_, series| series.is_held());
        for ((name, labels), series) in series.iter() {
            if name != last {
                let known = ALL.iter().find(|(it, ..)| it == name);
                let help = known.map_or("", |(.., help)| *help);
                let kind = series.kind();
                let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
                last = name;
            }
            series.write(&mut text, name, labels);
        }
        text
    }
}

impl Series {
    fn is_held(&self) -> bool {
        // The registry's own is one.
        match self {
            Self::Counter(it) | Self::Gauge(it) => Arc::strong_count(it) > 1,
            Self::Histogram(it) => Arc::strong_count(it) > 1,
        }
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Counter(_) => "counter",
            Self::Gauge(_) => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }

    fn write(&self, text: &mut String, name: &str, labels: &str) {
        let braces = |labels: &str| match labels {
            "" => String::new(),
            labels => format!("{{{labels}}}"),
        };
        // Writing to a text does not fail.
        let _ = match self {
            Self::Counter(it) => {
                let count = it.load(Ordering::Relaxed);
                writeln!(text, "{name}{} {count}", braces(labels))
            }
            Self::Gauge(it) => {
                let value = f64::from_bits(it.load(Ordering::Relaxed));
                writeln!(text, "{name}{} {value}", braces(labels))
            }
            Self::Histogram(it) => {
                let comma = if labels.is_empty() { "" } else { "," };
                let mut count = 0;
                for (index, bucket) in it.counts.iter().enumerate() {
                    count += bucket.load(Ordering::Relaxed);
                    let bound = it.bounds.get(index).map(f64::to_string);
                    let bound = bound.as_deref().unwrap_or("+Inf");
                    let _ = writeln!(
                        text,
                        "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}"
                    );
                }
                let sum = it.sum.load(Ordering::Relaxed) as f64 / BILLION;
                let labels = braces(labels);
                write!(
                    text,
                    "{name}_sum{labels} {sum}\n{name}_count{labels} {count}\n"
                )
            }
        };
    }
}

/// Labels as they are written, in the order of their names.
fn labels(key: &Key) -> String {
    let mut all: Vec<_> = key.labels().map(|it| (it.key(), it.value())).collect();
    all.sort_unstable();
    let written = all.into_iter().map(|(name, value)| {
        let value = value
            .replace('\\', r"\\")
            .replace('"', "\\\"")
            .replace('\n', r"\n");
        format!("{name}=\"{value}\"")
    });
    written.collect::<Vec<_>>().join(",")
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match self.0.get(key, || Series::Counter(Arc::default())) {
            Series::Counter(it) => Counter::from_arc(it),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        match self.0.get(key, || Series::Gauge(Arc::default())) {
            Series::Gauge(it) => Gauge::from_arc(it),
            _ => Gauge::noop(),
        }
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let known = ALL.iter().find(|(name, ..)| *name == key.name());
        let bounds: &[f64] = match known {
            Some((_, Kind::Numbers, ..)) => &NUMBERS,
            _ => &SECONDS,
        };
        let make = || {
            let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0));
            Series::Histogram(Arc::new(Buckets {
                bounds,
                counts: counts.collect(),
                sum: AtomicU64::new(0),
            }))
        };
        match self.0.get(key, make) {
            Series::Histogram(it) => Histogram::from_arc(it),
            _ => Histogram::noop(),
        }
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_written_as_prometheus_reads_it() {
        let registry = Arc::<Registry>::default();
        let recorder = Recorder(Arc::clone(&registry));
        let (first, gauge, seconds) = metrics::with_local_recorder(&recorder, || {
            (
                metrics::counter!("a_total", "rule" => "x\"y\\\n", "by" => "z"),
                metrics::gauge!("b"),
                metrics::histogram!("c_seconds", "of" => "d"),
            )
        });
        first.increment(2);
        gauge.increment(1.5);
        for value in [0.0001, 0.0002, 99.0] {
            seconds.record(value);
        }
        let text = registry.text();
        for line in [
            "# TYPE a_total counter\n",
            "a_total{by=\"z\",rule=\"x\\\"y\\\\\\n\"} 2\n",
            "# TYPE b gauge\nb 1.5\n",
            "c_seconds_bucket{of=\"d\",le=\"0.00005\"} 0\n",
            "c_seconds_bucket{of=\"d\",le=\"0.0001\"} 1\n",
            "c_seconds_bucket{of=\"d\",le=\"0.00025\"} 2\n",
            "c_seconds_bucket{of=\"d\",le=\"30\"} 2\n",
            "c_seconds_bucket{of=\"d\",le=\"+Inf\"} 3\n",
            "c_seconds_sum{of=\"d\"} 99.0003\nc_seconds_count{of=\"d\"} 3\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn a_series_lives_as_long_as_its_handle_and_is_one_for_all_of_them() {
        let registry = Arc::<Registry>::default();
        let recorder = Recorder(Arc::clone(&registry));
        let make = || metrics::with_local_recorder(&recorder, || metrics::counter!("a_total"));
        let (first, second) = (make(), make());
        first.increment(1);
        second.increment(1);
        drop(first);
        assert!(registry.text().contains("a_total 2\n"));
        drop(second);
        assert_eq!(registry.text(), "");
    }
}
