//! An idle process does not wake up.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use profcol_test_harness::backend::wait_until;
use profcol_test_harness::peers::Process;
use profcol_test_harness::procfs::sleeps;
use profcol_test_harness::support::root;

/// The gateway of the examples, on free ports.
const GATEWAY: &[&str] = &[
    "--config=config-examples/gateway.yaml",
    "--set=receivers.otlp.protocols.grpc.endpoint=127.0.0.1:0",
    "--set=receivers.otlp.protocols.http.endpoint=127.0.0.1:0",
    "--set=extensions.health_check.endpoint=127.0.0.1:0",
    "--set=service.telemetry.metrics.level=none",
];

/// Three times the longest interval in that configuration.
const MEASURED: Duration = Duration::from_secs(3);

/// A timer of one second would cause three.
const MAX_WAKE_UPS: u64 = 2;

#[test]
fn a_gateway_without_load_does_not_wake_up() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_profcol"));
    command.current_dir(root()).args(GATEWAY);
    let mut process = Process::start_as(&mut command, &[], "{}");
    process.wait_for_output("to be ready", |output| {
        output.contains("Everything is ready")
    });
    let pid = process.pid();
    wait_until("the work of the start to end", || {
        let before = sleeps(pid).unwrap();
        sleep(Duration::from_millis(300));
        sleeps(pid).unwrap() == before
    });
    let before = sleeps(pid).unwrap();
    sleep(MEASURED);
    let wake_ups = sleeps(pid).unwrap() - before;
    assert!(wake_ups <= MAX_WAKE_UPS, "{wake_ups} in {MEASURED:?}");
    let (status, output) = process.stop();
    assert!(status.success(), "{output}");
}
