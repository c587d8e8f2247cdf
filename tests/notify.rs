//! The notifications that profcol sends to systemd.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::HashMap;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use profcol_test_harness::TIMEOUT;
use profcol_test_harness::support::{File, file, path, profcol};

const CONFIG: &str = "
receivers: {otlp: {protocols: {grpc: {endpoint: 127.0.0.1:0}}}}
exporters: {debug: }
service:
  shutdown_timeout: 2m
  telemetry: {metrics: {level: none}}
  pipelines: {profiles: {receivers: [otlp], exporters: [debug]}}
";

struct Supervised {
    socket: UnixDatagram,
    child: Child,
    _files: (tempfile::TempDir, File),
}

type Message = HashMap<String, String>;

impl Supervised {
    fn start(config: &str, watchdog: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("notify");
        let socket = UnixDatagram::bind(&place).unwrap();
        let config = file("config.yaml", config);
        let mut command = profcol(&["--config", path(&config.path)]);
        command
            .env("NOTIFY_SOCKET", &place)
            .env("WATCHDOG_USEC", watchdog.as_micros().to_string());
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        Self {
            socket,
            child,
            _files: (directory, config),
        }
    }

    fn next(&self, timeout: Duration) -> Option<Message> {
        let mut bytes = [0; 4096];
        self.socket.set_read_timeout(Some(timeout)).unwrap();
        let size = self.socket.recv(&mut bytes).ok()?;
        let text = std::str::from_utf8(&bytes[..size]).unwrap();
        let pairs = text.lines().map(|line| line.split_once('=').unwrap());
        let owned = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Some(owned.collect())
    }

    /// The first message with this key.
    fn wait_for(&self, key: &str) -> Message {
        let end = Instant::now() + TIMEOUT;
        loop {
            let message = self.next(TIMEOUT).expect("a message");
            if message.contains_key(key) {
                return message;
            }
            assert!(Instant::now() < end, "no {key}");
        }
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // Both fail only if it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn notifies_systemd_of_ready_watchdog_and_stopping() {
    let mut supervised = Supervised::start(CONFIG, Duration::from_millis(200));
    let first = supervised.next(TIMEOUT).expect("a message");
    assert_eq!(first["READY"], "1", "{first:?}");
    for _ in 0..5 {
        let alive = supervised.wait_for("WATCHDOG");
        assert_eq!(alive["STATUS"], "otlp: 0 samples; debug: 0 delivered");
    }

    // A stopped process sends no watchdog pings.
    supervised.signal("-STOP");
    let is_silent = (0..100).any(|_| supervised.next(Duration::from_secs(2)).is_none());
    assert!(is_silent);
    supervised.signal("-CONT");
    supervised.wait_for("WATCHDOG");

    supervised.signal("-TERM");
    let stopping = supervised.wait_for("STOPPING");
    assert_eq!(stopping["EXTEND_TIMEOUT_USEC"], "125000000");
    assert!(supervised.child.wait().unwrap().success());
}

#[test]
fn a_failed_start_is_not_ready() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let config = CONFIG.replace("127.0.0.1:0", &address);
    let mut supervised = Supervised::start(&config, Duration::from_millis(200));
    assert_eq!(supervised.child.wait().unwrap().code(), Some(1));
    assert_eq!(supervised.next(Duration::from_millis(10)), None);
}
