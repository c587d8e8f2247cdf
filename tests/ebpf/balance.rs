//! Each exporter gets every batch once or reports why not, independently of the others, and at the end every sample
//! counted by the BPF program is accounted for exactly once.

use profcol_net::grpc::{Code, Status};
use profcol_profile::Profiles;
use profcol_test_harness::backend::{Destination, Mode, wait_until};
use profcol_test_harness::balance::Balance;
use profcol_test_harness::peers::profcol;

use crate::host::can_profile;

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
    process.wait_for_output("the dead exporter's queue to be full", |output| {
        output.contains("The sending queue refuses batches.")
    });
    let before = arrived(&good);
    wait_until("the good exporter to get more", || arrived(&good) > before);
    let (_, output) = process.stop();
    let balance = Balance::read(&output);
    balance.check(&["otlp_grpc/good", "otlp_grpc/dead"]);
    let passed_on = balance.of("ebpf_cpu", "passed_on");
    assert_eq!(balance.of("ebpf_cpu", "dropped"), 0, "{output}");
    assert_eq!(arrived(&good), passed_on, "each sample once: {output}");
    assert_eq!(balance.of("otlp_grpc/good", "delivered"), passed_on);
    assert_eq!(balance.of("otlp_grpc/dead", "delivered"), 0);
    assert!(balance.of("otlp_grpc/dead", "queue_full") > 0, "{output}");
}

#[test]
fn a_dead_exporter_costs_its_neighbour_nothing() {
    check(&Case::default());
}

#[test]
fn a_hanging_exporter_in_another_pipeline_costs_nothing() {
    check(&Case {
        dead: Mode::Hang,
        pipelines: &["otlp_grpc/good", "otlp_grpc/dead"],
        ..Case::default()
    });
}

#[test]
fn an_exporter_with_a_blocking_queue_costs_nothing() {
    check(&Case {
        queue: "queue_size: 3, block_on_overflow: true",
        ..Case::default()
    });
}

#[test]
fn an_exporter_behind_the_same_batch_processor_costs_nothing() {
    check(&Case {
        queue: "queue_size: 3, num_consumers: 1",
        processors: "batch",
        ..Case::default()
    });
}

#[test]
fn an_exporter_without_a_queue_costs_nothing() {
    check(&Case {
        dead: Mode::Hang,
        queue: "enabled: false",
        ..Case::default()
    });
}

#[test]
fn counts_samples_lost_to_a_short_shutdown() {
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
    let (status, output) = process.stop();
    assert_eq!(status.code(), Some(1), "{output}");
    let balance = Balance::read(&output);
    balance.check(&["otlp_grpc/good", "otlp_grpc/dead"]);
    assert_eq!(balance.of("otlp_grpc/good", "delivered"), arrived(&good));
    assert!(balance.of("otlp_grpc/dead", "shutdown") > 0, "{output}");
}
