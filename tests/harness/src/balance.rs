//! What became of each sample, as profcol itself counts.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::peers::get;

/// The sample balance in the last log lines: `balance["ebpf_cpu"]["taken"]`.
#[derive(Debug)]
pub struct Balance(HashMap<String, HashMap<String, u64>>);

impl Balance {
    #[track_caller]
    pub fn read(output: &str) -> Self {
        let line = output
            .lines()
            .find(|line| line.contains("Sample balance at shutdown"));
        let line = line.unwrap_or_else(|| panic!("there is no balance: {output}"));
        let fields = line.split('"').skip(1).step_by(2);
        let components = fields.flat_map(|field| field.split("; "));
        let counts = components.filter_map(|component| {
            let (name, counts) = component.split_once(": ")?;
            let counts = counts.split(' ').filter_map(|count| {
                let (key, samples) = count.split_once('=')?;
                Some((key.to_owned(), samples.parse().ok()?))
            });
            Some((name.to_owned(), counts.collect()))
        });
        Self(counts.collect())
    }

    pub fn of(&self, component: &str, key: &str) -> u64 {
        let counts = self.0.get(component);
        counts
            .and_then(|counts| counts.get(key))
            .copied()
            .unwrap_or(0)
    }

    /// The sum of a component's other entries.
    pub fn others(&self, component: &str, key: &str) -> u64 {
        self.all(component) - self.of(component, key)
    }

    fn all(&self, component: &str) -> u64 {
        let counts = self.0.get(component).into_iter();
        counts.flat_map(HashMap::values).sum()
    }

    /// What an exporter dropped, for any reason.
    pub fn dropped(&self, exporter: &str) -> u64 {
        let kept = ["recovered", "delivered", "stored"];
        let kept = kept.map(|key| self.of(exporter, key));
        self.all(exporter) - kept.iter().sum::<u64>()
    }

    /// What the receiver of this host's samples took is counted once, and so is what it passed on, by each exporter.
    #[track_caller]
    pub fn check(&self, exporters: &[&str]) {
        let (taken, passed_on) = (
            self.of("ebpf_cpu", "taken"),
            self.of("ebpf_cpu", "passed_on"),
        );
        assert!(passed_on > 0, "nothing was sampled");
        assert_eq!(taken, self.others("ebpf_cpu", "taken"));
        for exporter in exporters {
            assert_eq!(self.all(exporter), passed_on, "of {exporter}");
        }
    }
}

/// The option `service::telemetry::metrics` that serves them at this address.
pub fn served_at(address: SocketAddr) -> String {
    let (host, port) = (address.ip(), address.port());
    format!("{{readers: [{{pull: {{exporter: {{prometheus: {{host: {host}, port: {port}}}}}}}}}]}}")
}

/// The sum of a metric over the series whose labels contain `label`. None while nobody serves it.
pub fn metric(address: SocketAddr, name: &str, label: &str) -> Option<u64> {
    let text = get(address, "/metrics");
    let values = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let labels = series.strip_prefix(name)?;
        let is_same = labels.is_empty() || labels.starts_with('{');
        let is_of_label = is_same && labels.contains(label);
        is_of_label.then(|| value.parse::<f64>().ok())?
    });
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() as u64)
}
