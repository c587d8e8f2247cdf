//! Real programs for the tests: each runs on loopback with its own configuration, and is stopped by PID after the test.
//! `cargo xtask test` builds them; otherwise their tests are skipped, since they are marked
//! `#[ignore = "needs the peers, see cargo xtask test"]`.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::TIMEOUT;
use crate::support::{program, target};

/// A running program. Dropping it kills it; `stop` shuts it down gracefully.
pub struct Process {
    name: String,
    child: Child,
    /// Holds the configuration and the output while the program runs.
    directory: TempDir,
}

/// The OpenTelemetry Collector with `config` (YAML).
pub fn otelcol(config: &str) -> Process {
    Process::start(
        &built("otelcol"),
        &["--feature-gates=+service.profilesSupport"],
        config,
    )
}

/// The profcol under test with `config` (YAML).
pub fn profcol(config: &str) -> Process {
    Process::start(&program(), &[], config)
}

/// A grpc-go client or server of OTLP/gRPC with `config` (JSON, see `tests/peers/grpc`). It prints JSON lines.
pub fn grpc_go(config: &str) -> Process {
    Process::start(&built("grpc"), &[], config)
}

/// One line per h2spec case on this listener: number, outcome, description, result.
pub fn h2spec(to: SocketAddr, arguments: &[&str]) -> String {
    let output = Command::new(built("h2spec"))
        .args(arguments)
        .arg(to.to_string())
        .output()
        .expect("h2spec starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "h2spec failed: {stderr}");
    String::from_utf8(output.stdout).expect("h2spec prints UTF-8")
}

/// The output of `pprof`, for example with `-top FILE` or `-raw FILE`.
pub fn pprof(arguments: &[&str]) -> String {
    let output = Command::new(built("pprof"))
        .args(arguments)
        .output()
        .expect("pprof starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "pprof {arguments:?} failed: {stderr}"
    );
    String::from_utf8(output.stdout).expect("pprof prints UTF-8")
}

/// What Prometheus' code says about rules, expressions and series (JSON, see `tests/peers/promql`).
pub fn promql(request: &str) -> String {
    let mut child = Command::new(built("promql"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promql starts");
    // It reads everything before it answers.
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    stdin
        .write_all(request.as_bytes())
        .expect("promql reads its request");
    drop(stdin);
    let output = child.wait_with_output().expect("promql ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promql failed: {stderr}");
    String::from_utf8(output.stdout).expect("promql prints UTF-8")
}

/// A loopback address without a listener at this moment.
pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
    listener
        .local_addr()
        .expect("a bound socket has an address")
}

/// Posts an export request over OTLP/HTTP and returns the status line of the response.
pub fn post_profiles(to: SocketAddr, content_type: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(to).expect("the receiver listens");
    let head = format!(
        "POST /v1development/profiles HTTP/1.1\r\nhost: {to}\r\ncontent-type: {content_type}\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream
        .write_all(head.as_bytes())
        .expect("the receiver reads the head");
    stream.write_all(body).expect("the receiver reads the body");
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .expect("the receiver answers");
    String::from_utf8_lossy(&answer)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Gets a path over HTTP and returns the response with its head; empty if nobody answers.
pub fn get(from: SocketAddr, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {from}\r\nconnection: close\r\n\r\n");
    let asking = || -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(from)?;
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    };
    String::from_utf8_lossy(&asking().unwrap_or_default()).into_owned()
}

impl Process {
    /// Starts `program --config <file with config> arguments…`.
    pub fn start(program: &Path, arguments: &[&str], config: &str) -> Self {
        Self::start_as(&mut Command::new(program), arguments, config)
    }

    /// Starts `command --config <file with config> arguments…`; `command` may set an environment, or be a wrapper that
    /// becomes the program.
    pub fn start_as(command: &mut Command, arguments: &[&str], config: &str) -> Self {
        let directory = TempDir::new().expect("can create a temporary directory");
        let file = directory.path().join("config.yaml");
        fs::write(&file, config).expect("can write a temporary file");
        let output =
            File::create(directory.path().join("output")).expect("can write a temporary file");
        let child = command
            .arg("--config")
            .arg(&file)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a file handle can be doubled"))
            .stderr(output)
            .spawn()
            .unwrap_or_else(|error| panic!("failed to start {command:?}: {error}"));
        let name = Path::new(command.get_program())
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Self {
            name,
            child,
            directory,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has exited or was killed.
    pub fn has_ended(&mut self) -> bool {
        let ended = self.child.try_wait();
        ended.expect("can wait for our child").is_some()
    }

    /// The output so far, stdout and stderr combined.
    pub fn output(&self) -> String {
        let bytes = fs::read(self.directory.path().join("output")).expect("the output file exists");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until something accepts connections on `address`.
    pub fn listens_on(mut self, address: SocketAddr) -> Self {
        self.wait_until(&format!("to listen on {address}"), |_| {
            TcpStream::connect(address).is_ok()
        });
        self
    }

    /// Waits until the output satisfies `condition`; `what` describes it.
    pub fn wait_for_output(&mut self, what: &str, condition: impl Fn(&str) -> bool) {
        self.wait_until(what, |process| condition(&process.output()));
    }

    /// Sends SIGTERM, waits for the exit, and returns the status and the whole output.
    pub fn stop(self) -> (ExitStatus, String) {
        let killed = Command::new("kill").arg(self.pid().to_string()).status();
        assert!(
            killed.is_ok_and(|status| status.success()),
            "{} could not be stopped",
            self.name
        );
        self.ended()
    }

    /// Waits until the program exits, and returns the status and the whole output.
    pub fn ended(mut self) -> (ExitStatus, String) {
        let give_up = Instant::now() + 2 * TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().expect("can wait for our child") {
                return (status, self.output());
            }
            assert!(
                Instant::now() < give_up,
                "{} does not end; it said:\n{}",
                self.name,
                self.output()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn wait_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let give_up = Instant::now() + 2 * TIMEOUT;
        while !condition(self) {
            let ended = self.child.try_wait().expect("can wait for our child");
            let lost = ended.is_some() || Instant::now() > give_up;
            assert!(
                !lost,
                "waited for {} {what} (ended: {ended:?}); it said:\n{}",
                self.name,
                self.output()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn built(name: &str) -> PathBuf {
    let peer = target().join("peers").join(name);
    assert!(
        peer.exists(),
        "no {}: `cargo xtask peers` builds it",
        peer.display()
    );
    peer
}
