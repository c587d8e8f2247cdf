//! Self-telemetry: named counters, gauges and histograms with fixed labels.
//!
//! A family is registered with its first series; the same name and labels return the same series, so that components
//! need no shared statics.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::proto::{LabelPair, MetricFamily, MetricType};
use prometheus::{
    Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    Opts, Registry, TextEncoder,
};
use serde::Serialize;

/// Creates metrics; cheap to clone.
#[derive(Clone, Default)]
pub struct Meter {
    families: Arc<Mutex<Families>>,
    refreshed: Arc<Mutex<Vec<Refresh>>>,
}

/// Updates metrics that are computed on scrape.
type Refresh = Arc<dyn Fn() + Send + Sync>;

/// The value of a counter or gauge, or the count or sum of a histogram.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
    /// What it counts.
    pub help: String,
}

#[derive(Debug, thiserror::Error)]
#[error("failed to render metrics: {0}")]
pub struct MeterError(#[from] prometheus::Error);

#[derive(Debug, Default)]
struct Families {
    registry: Registry,
    by_name: HashMap<String, Family>,
}

#[derive(Clone, Debug)]
enum Family {
    Counter(IntCounterVec),
    Gauge(GaugeVec),
    Histogram(HistogramVec),
}

type Labels<'a> = &'a [(&'a str, &'a str)];

impl Meter {
    pub fn counter(&self, name: &str, help: &str, labels: Labels<'_>) -> IntCounter {
        let make =
            |keys: &[&str]| IntCounterVec::new(Opts::new(name, help), keys).map(Family::Counter);
        match self.family(name, labels, make) {
            Some(Family::Counter(family)) => {
                series(family.get_metric_with_label_values(&values(labels)))
            }
            _ => None,
        }
        .unwrap_or_else(|| detached(IntCounter::new(name, help)))
    }

    pub fn gauge(&self, name: &str, help: &str, labels: Labels<'_>) -> Gauge {
        let make = |keys: &[&str]| GaugeVec::new(Opts::new(name, help), keys).map(Family::Gauge);
        match self.family(name, labels, make) {
            Some(Family::Gauge(family)) => {
                series(family.get_metric_with_label_values(&values(labels)))
            }
            _ => None,
        }
        .unwrap_or_else(|| detached(Gauge::new(name, help)))
    }

    pub fn histogram(
        &self,
        name: &str,
        help: &str,
        buckets: &[f64],
        labels: Labels<'_>,
    ) -> Histogram {
        let opts = || HistogramOpts::new(name, help).buckets(buckets.to_vec());
        let make = |keys: &[&str]| HistogramVec::new(opts(), keys).map(Family::Histogram);
        match self.family(name, labels, make) {
            Some(Family::Histogram(family)) => {
                series(family.get_metric_with_label_values(&values(labels)))
            }
            _ => None,
        }
        .unwrap_or_else(|| detached(Histogram::with_opts(opts())))
    }

    /// All metrics in the Prometheus text format.
    pub fn render(&self) -> Result<Vec<u8>, MeterError> {
        let gathered = self.gather();
        let mut text = Vec::new();
        TextEncoder::new().encode(&gathered, &mut text)?;
        Ok(text)
    }

    /// All current values.
    pub fn series(&self) -> Vec<Series> {
        self.gather().iter().flat_map(series_of).collect()
    }

    /// Calls `refresh` each time before metrics are read.
    pub fn refresh_by(&self, refresh: impl Fn() + Send + Sync + 'static) {
        let mut refreshed = self.refreshed.lock();
        refreshed.push(Arc::new(refresh));
    }

    fn gather(&self) -> Vec<MetricFamily> {
        let refreshed = self.refreshed.lock().clone();
        for refresh in refreshed {
            refresh();
        }
        self.families.lock().registry.gather()
    }

    fn family(
        &self,
        name: &str,
        labels: Labels<'_>,
        make: impl FnOnce(&[&str]) -> prometheus::Result<Family>,
    ) -> Option<Family> {
        let mut families = self.families.lock();
        if let Some(family) = families.by_name.get(name) {
            return Some(family.clone());
        }
        let keys: Vec<&str> = labels.iter().map(|(key, _)| *key).collect();
        let family = series(make(&keys))?;
        series(match family.clone() {
            Family::Counter(collector) => families.registry.register(Box::new(collector)),
            Family::Gauge(collector) => families.registry.register(Box::new(collector)),
            Family::Histogram(collector) => families.registry.register(Box::new(collector)),
        })?;
        families.by_name.insert(name.to_owned(), family.clone());
        Some(family)
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn series_of(family: &MetricFamily) -> Vec<Series> {
    let series = |suffix: &str, labels: &[LabelPair], value: f64| Series {
        name: format!("{}{suffix}", family.name()),
        labels: labels
            .iter()
            .map(|label| (label.name().to_owned(), label.value().to_owned()))
            .collect(),
        value,
        help: family.help().to_owned(),
    };
    let metrics = family.get_metric().iter();
    let all = metrics.flat_map(|metric| {
        let labels = metric.get_label();
        match family.get_field_type() {
            MetricType::COUNTER => vec![series("", labels, metric.get_counter().get_value())],
            MetricType::GAUGE => vec![series("", labels, metric.get_gauge().get_value())],
            MetricType::HISTOGRAM => {
                let histogram = metric.get_histogram();
                vec![
                    series("_count", labels, histogram.get_sample_count() as f64),
                    series("_sum", labels, histogram.get_sample_sum()),
                ]
            }
            _ => Vec::new(),
        }
    });
    all.collect()
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.families.fmt(f)
    }
}

fn values<'a>(labels: Labels<'a>) -> Vec<&'a str> {
    labels.iter().map(|(_, value)| *value).collect()
}

/// A metric that cannot be registered is a bug, but must not crash a running agent.
fn series<T>(result: prometheus::Result<T>) -> Option<T> {
    match result {
        Ok(series) => Some(series),
        Err(error) => {
            debug_assert!(false, "bad metric: {error}");
            None
        }
    }
}

fn detached<T>(metric: prometheus::Result<T>) -> T {
    metric.expect("metric names are literals that Prometheus accepts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_and_labels_give_the_same_series() {
        let meter = Meter::default();
        meter
            .counter("sent", "Samples sent.", &[("exporter", "otlp")])
            .inc_by(2);
        meter
            .counter("sent", "Samples sent.", &[("exporter", "otlp")])
            .inc();
        meter
            .counter("sent", "Samples sent.", &[("exporter", "debug")])
            .inc();
        let text = String::from_utf8(meter.render().unwrap()).unwrap();
        assert!(text.contains("sent{exporter=\"otlp\"} 3"), "{text}");
        assert!(text.contains("sent{exporter=\"debug\"} 1"), "{text}");
        meter
            .histogram("took", "Seconds.", &[1.0], &[])
            .observe(0.5);
        let series = meter.series();
        let found: Vec<(&str, f64)> = series
            .iter()
            .map(|series| (series.name.as_str(), series.value))
            .collect();
        let expected = [
            ("sent", 1.0),
            ("sent", 3.0),
            ("took_count", 1.0),
            ("took_sum", 0.5),
        ];
        assert_eq!(found, expected);
        assert_eq!(series[1].labels["exporter"], "otlp");
        assert_eq!(series[1].help, "Samples sent.");
    }
}
