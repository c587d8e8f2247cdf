//! What shows that destinations fail: an error of each exporter. The process is healthy, as a restart would not help.

use profcol_component::testkit::profiles;
use profcol_test_harness::backend::{Client, ClosedPort, Destination, Mode, wait_until};
use profcol_test_harness::peers::{free_address, get, profcol};

use crate::Rig;

#[test]
fn a_failing_destination_is_an_error_of_its_exporter_until_it_is_back() {
    let away = ClosedPort::reserve();
    let silent = Destination::new(Mode::Hang);
    let [pages, health] = [free_address(), free_address()];
    let options = "timeout: 200ms, tls: {insecure: true}, \
                   retry_on_failure: {initial_interval: 20ms, max_interval: 100ms, max_elapsed_time: 0s}";
    let config = format!(
        "\
extensions:
  zpages: {{endpoint: '{pages}'}}
  health_check: {{endpoint: '{health}'}}
receivers: {{otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}, http: {{endpoint: 127.0.0.1:0}}}}}}}}
exporters:
  otlp_grpc: {{endpoint: '{}', {options}}}
  load_balancing:
    protocol: {{otlp: {{{options}}}}}
    resolver: {{static: {{hostnames: ['{}']}}}}
service:
  extensions: [zpages, health_check]
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{profiles: {{receivers: [otlp], exporters: [otlp_grpc, load_balancing]}}}}
",
        away.address, silent.address
    );
    let rig = Rig::started(profcol(&config));
    let errors = || {
        let page = get(pages, "/debug/servicez");
        let rows = page
            .split("<tr>")
            .filter(|row| row.contains("recoverable error"));
        rows.map(str::to_owned).collect::<Vec<String>>()
    };
    assert_eq!(errors(), [""; 0]);
    Client::new(rig.grpc).send(&profiles(3)).unwrap();
    wait_until("both errors", || errors().len() == 2);
    let shown = errors();
    let expected = [
        ("load_balancing", silent.address),
        ("otlp_grpc", away.address),
    ];
    for (row, (exporter, address)) in shown.iter().zip(expected) {
        assert!(row.contains(&format!("exporter {exporter}<")), "{shown:#?}");
        assert!(row.contains(&address.to_string()), "{shown:#?}");
    }
    let answer = get(health, "/");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    silent.set(Mode::Take);
    let _back = Destination::on(away.address, Mode::Take);
    wait_until("no error", || errors().is_empty());
    rig.stop();
}
