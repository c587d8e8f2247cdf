//! Real programs for the tests: each started on loopback with a configuration of its own, awaited, read, and ended by
//! its process id when the test is done with it. `cargo xtask test` builds them; without it their tests are left out,
//! since they are marked `#[ignore = "needs the peers, see cargo xtask test"]`.

#![allow(dead_code, reason = "each test file uses its part of the helpers")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Far beyond what anything here takes, so that only a hang ends in a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running program. Dropping it kills it; `stop` ends it in order.
pub struct Process {
    name: String,
    child: Child,
    /// Holds the configuration and what the program prints, for as long as it runs.
    folder: TempDir,
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
    Process::start(Path::new(env!("CARGO_BIN_EXE_profcol")), &[], config)
}

/// What `pprof` prints, for example with `-top FILE` or `-raw FILE`.
pub fn pprof(arguments: &[&str]) -> String {
    let output = Command::new(built("pprof"))
        .args(arguments)
        .output()
        .expect("pprof starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "pprof {arguments:?} failed: {said}"
    );
    String::from_utf8(output.stdout).expect("pprof prints UTF-8")
}

/// A loopback address that nothing listens on at this moment.
pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
    listener
        .local_addr()
        .expect("a bound socket has an address")
}

/// Posts an export request over OTLP/HTTP and returns the status line of the answer.
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

impl Process {
    /// Starts `program --config <file with config> arguments…`.
    pub fn start(program: &Path, arguments: &[&str], config: &str) -> Self {
        Self::start_as(&mut Command::new(program), arguments, config)
    }

    /// Starts `command --config <file with config> arguments…`; `command` may set an environment, or be a wrapper that
    /// becomes the program.
    pub fn start_as(command: &mut Command, arguments: &[&str], config: &str) -> Self {
        let folder = TempDir::new().expect("there is room for a temporary folder");
        let file = folder.path().join("config.yaml");
        fs::write(&file, config).expect("a temporary file can be written");
        let output =
            File::create(folder.path().join("output")).expect("a temporary file can be written");
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
            folder,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself, or was killed.
    pub fn has_ended(&mut self) -> bool {
        let ended = self.child.try_wait();
        ended.expect("the child is ours to wait for").is_some()
    }

    /// Everything printed so far, standard output and error in one.
    pub fn output(&self) -> String {
        let bytes = fs::read(self.folder.path().join("output")).expect("the output file is there");
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

    /// Asks the program to end (SIGTERM), waits for that, and returns its status and all it printed.
    pub fn stop(self) -> (ExitStatus, String) {
        let asked = Command::new("kill").arg(self.pid().to_string()).status();
        assert!(
            asked.is_ok_and(|status| status.success()),
            "{} could not be told to end",
            self.name
        );
        self.ended()
    }

    /// Waits until the program ends, and returns its status and all it printed.
    pub fn ended(mut self) -> (ExitStatus, String) {
        let give_up = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self
                .child
                .try_wait()
                .expect("the child is ours to wait for")
            {
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
        let give_up = Instant::now() + PATIENCE;
        while !condition(self) {
            let ended = self
                .child
                .try_wait()
                .expect("the child is ours to wait for");
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
        // Both fail only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `target/peers/NAME`, whatever the target folder is called.
fn built(name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_profcol"));
    let target = program
        .ancestors()
        .nth(2)
        .expect("cargo puts programs into a folder of the target folder");
    let peer = target.join("peers").join(name);
    assert!(
        peer.exists(),
        "no {}: `cargo xtask peers` builds it",
        peer.display()
    );
    peer
}
