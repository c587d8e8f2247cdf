//! A contestant as a process: started with the configuration of the case, ended when dropped.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::options::{Case, Delivery};

const START: Duration = Duration::from_secs(30);

pub struct Forwarder {
    child: Child,
    pub address: SocketAddr,
    log: PathBuf,
    /// Holds the configuration and the log as long as the process.
    _folder: tempfile::TempDir,
}

impl Forwarder {
    /// Starts `command` as a forwarder to `sink` and waits until it listens.
    pub fn start(command: &str, case: &Case, queue_size: usize, sink: SocketAddr) -> Result<Self> {
        let mut words = command.split_whitespace();
        let program = words.next().context("an empty command")?;
        let address = free_address()?;
        let folder = tempfile::tempdir().context("failed to make a temporary folder")?;
        let config = folder.path().join("config.yaml");
        fs::write(&config, configuration(case, queue_size, address, sink))
            .context("failed to write a configuration")?;
        let log = folder.path().join("log");
        let output = File::create(&log).context("failed to create a log")?;
        let child = Command::new(program)
            .args(words)
            .arg("--feature-gates=+service.profilesSupport")
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("failed to start `{program}`"))?;
        let mut forwarder = Self {
            child,
            address,
            log,
            _folder: folder,
        };
        forwarder.wait_until_it_listens()?;
        Ok(forwarder)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The end of what it printed, for an error message.
    pub fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }

    fn wait_until_it_listens(&mut self) -> Result<()> {
        let give_up = Instant::now() + START;
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "the forwarder ended ({status}); it said:\n{}",
                    self.last_words()
                );
            }
            if Instant::now() > give_up {
                bail!(
                    "the forwarder does not listen after {START:?}; it said:\n{}",
                    self.last_words()
                );
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        // Fails only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> Result<SocketAddr> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on loopback")?;
    Ok(listener.local_addr()?)
}

/// The same text for every contestant.
fn configuration(case: &Case, queue_size: usize, listen: SocketAddr, sink: SocketAddr) -> String {
    let compression = case.compression.name();
    let queue = match case.delivery {
        Delivery::Direct => "{enabled: false}".to_owned(),
        Delivery::Queued => format!("{{queue_size: {queue_size}, block_on_overflow: true}}"),
        Delivery::Batched => format!(
            "{{queue_size: {queue_size}, block_on_overflow: true, batch: {{min_size: 8192, flush_timeout: 200ms}}}}"
        ),
    };
    format!(
        "\
receivers:
  otlp:
    protocols:
      grpc:
        endpoint: {listen}
        max_recv_msg_size_mib: 64
exporters:
  otlp_grpc:
    endpoint: {sink}
    tls: {{insecure: true}}
    compression: {compression}
    timeout: 60s
    sending_queue: {queue}
service:
  telemetry:
    metrics: {{level: none}}
    logs: {{level: warn}}
  pipelines:
    profiles:
      receivers: [otlp]
      exporters: [otlp_grpc]
"
    )
}
