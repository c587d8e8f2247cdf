//! Each exporter gets every batch once or says why not, whatever the others do, and at the end every sample that the
//! kernel's program counted is in exactly one place.

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use profcol_net::grpc::{Code, Status};
use profcol_profile::Profiles;

use crate::backend::{Destination, Mode};
use crate::host::can_profile;
use crate::peers::profcol;

/// Sample balance at shutdown, as the last lines say: `balance["ebpf_cpu"]["taken"]`.
struct Balance(HashMap<String, HashMap<String, u64>>);

impl Balance {
    fn read(said: &str) -> Self {
        let line = said
            .lines()
            .find(|line| line.contains("Sample balance at shutdown"));
        let line = line.unwrap_or_else(|| panic!("there is no balance: {said}"));
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

    fn of(&self, component: &str, key: &str) -> u64 {
        let counts = self.0.get(component);
        counts
            .and_then(|counts| counts.get(key))
            .copied()
            .unwrap_or(0)
    }

    /// All that is said of a component but this.
    fn others(&self, component: &str, key: &str) -> u64 {
        self.0[component].values().sum::<u64>() - self.of(component, key)
    }

    fn check(&self, exporters: &[&str]) {
        let (taken, passed_on) = (
            self.of("ebpf_cpu", "taken"),
            self.of("ebpf_cpu", "passed_on"),
        );
        assert!(passed_on > 0, "nothing was sampled");
        assert_eq!(taken, self.others("ebpf_cpu", "taken"));
        for exporter in exporters {
            let settled: u64 = self.0[*exporter].values().sum();
            assert_eq!(settled, passed_on, "of {exporter}");
        }
    }
}

fn arrived(at: &Destination) -> u64 {
    at.taken().iter().map(Profiles::observation_count).sum()
}

/// A pipeline for each list of exporters.
fn config(good: &Destination, dead: &Destination, case: &Case) -> String {
    let (good, dead) = (good.address, dead.address);
    let Case {
        queue,
        pipelines,
        processors,
        timeout,
        ..
    } = case;
    let pipelines: String = pipelines
        .iter()
        .enumerate()
        .map(|(number, exporters)| {
            format!("    profiles/{number}: {{receivers: [ebpf_cpu], processors: [{processors}], exporters: [{exporters}]}}\n")
        })
        .collect();
    format!(
        "\
receivers:
  ebpf_cpu: {{interval: 250ms, frequency: 199}}
processors:
  batch: {{timeout: 100ms}}
exporters:
  otlp_grpc/good: {{endpoint: \"{good}\", tls: {{insecure: true}}}}
  otlp_grpc/dead: {{endpoint: \"{dead}\", tls: {{insecure: true}}, timeout: 1s, sending_queue: {{{queue}}}}}
service:
  shutdown_timeout: {timeout}
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
{pipelines}"
    )
}

struct Case {
    dead: Mode,
    queue: &'static str,
    processors: &'static str,
    pipelines: &'static [&'static str],
    timeout: &'static str,
}

const ONE_PIPELINE: &[&str] = &["otlp_grpc/good, otlp_grpc/dead"];

impl Default for Case {
    fn default() -> Self {
        Self {
            dead: Mode::Refuse(Status::new(Code::Unavailable, "down")),
            queue: "queue_size: 3",
            processors: "",
            pipelines: ONE_PIPELINE,
            timeout: "2s",
        }
    }
}

fn check(case: &Case) {
    if !can_profile() {
        return;
    }
    let (good, dead) = (
        Destination::new(Mode::Take),
        Destination::new(case.dead.clone()),
    );
    let mut process = profcol(&config(&good, &dead, case));
    process.wait_for_output("the dead exporter's queue to be full", |said| {
        said.contains("The sending queue refuses batches.")
    });
    let before = arrived(&good);
    thread::sleep(Duration::from_secs(2));
    assert!(
        arrived(&good) > before,
        "the good exporter gets nothing new"
    );
    let (_, said) = process.stop();
    let balance = Balance::read(&said);
    balance.check(&["otlp_grpc/good", "otlp_grpc/dead"]);
    let passed_on = balance.of("ebpf_cpu", "passed_on");
    assert_eq!(balance.of("ebpf_cpu", "dropped"), 0, "{said}");
    assert_eq!(arrived(&good), passed_on, "each sample once: {said}");
    assert_eq!(balance.of("otlp_grpc/good", "delivered"), passed_on);
    assert_eq!(balance.of("otlp_grpc/dead", "delivered"), 0);
    assert!(balance.of("otlp_grpc/dead", "queue_full") > 0, "{said}");
}

#[test]
fn a_dead_exporter_costs_its_neighbour_nothing() {
    check(&Case::default());
}

#[test]
fn nor_one_that_hangs_in_another_pipeline() {
    check(&Case {
        dead: Mode::Hang,
        pipelines: &["otlp_grpc/good", "otlp_grpc/dead"],
        ..Case::default()
    });
}

#[test]
fn nor_one_whose_queue_blocks() {
    check(&Case {
        queue: "queue_size: 3, block_on_overflow: true",
        ..Case::default()
    });
}

#[test]
fn nor_one_behind_the_same_batch_processor() {
    check(&Case {
        queue: "queue_size: 3, num_consumers: 1",
        processors: "batch",
        ..Case::default()
    });
}

#[test]
fn nor_one_without_a_queue() {
    check(&Case {
        dead: Mode::Hang,
        queue: "enabled: false",
        ..Case::default()
    });
}

#[test]
fn what_a_short_shutdown_cuts_off_is_counted() {
    if !can_profile() {
        return;
    }
    let (good, dead) = (Destination::new(Mode::Take), Destination::new(Mode::Hang));
    let case = Case {
        queue: "queue_size: 1000",
        timeout: "1s",
        ..Case::default()
    };
    let process = profcol(&config(&good, &dead, &case));
    good.wait_for_samples(100);
    let (status, said) = process.stop();
    assert_eq!(status.code(), Some(1), "{said}");
    let balance = Balance::read(&said);
    balance.check(&["otlp_grpc/good", "otlp_grpc/dead"]);
    assert_eq!(balance.of("otlp_grpc/good", "delivered"), arrived(&good));
    assert!(balance.of("otlp_grpc/dead", "shutdown") > 0, "{said}");
}
