//! A program with a configuration: started, awaited, and killed on drop.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

const START: Duration = Duration::from_secs(30);

pub struct Program {
    child: Child,
    command: String,
    log: PathBuf,
    /// Keeps the configuration and log of the process.
    _directory: TempDir,
}

impl Program {
    /// Starts `command` with `configuration` and waits until it listens on `address`.
    pub fn start(command: &str, configuration: &str, address: SocketAddr) -> Result<Self> {
        let directory = tempfile::tempdir().context("failed to make a temporary directory")?;
        let config = directory.path().join("config.yaml");
        fs::write(&config, configuration).context("failed to write a configuration")?;
        let config = config.to_string_lossy();
        let arguments = [
            "--feature-gates=+service.profilesSupport",
            "--config",
            &config,
        ];
        Self::spawn(command, &arguments, directory, address)
    }

    /// Starts `command` with arguments instead of a configuration.
    pub fn start_with(command: &str, arguments: &[&str], address: SocketAddr) -> Result<Self> {
        let directory = tempfile::tempdir().context("failed to make a temporary directory")?;
        Self::spawn(command, arguments, directory, address)
    }

    fn spawn(
        command: &str,
        arguments: &[&str],
        directory: TempDir,
        address: SocketAddr,
    ) -> Result<Self> {
        let mut words = command.split_whitespace();
        let program = words.next().context("empty command")?;
        let log = directory.path().join("log");
        let output = File::create(&log).context("failed to create a log")?;
        let child = Command::new(program)
            .args(words)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("failed to start `{program}`"))?;
        let mut started = Self {
            child,
            command: command.to_owned(),
            log,
            _directory: directory,
        };
        started.wait_until_it_listens(address)?;
        Ok(started)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The end of its output, for error messages.
    pub fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }

    fn wait_until_it_listens(&mut self, address: SocketAddr) -> Result<()> {
        let give_up = Instant::now() + START;
        while TcpStream::connect(address).is_err() {
            let problem = match self.child.try_wait()? {
                Some(status) => format!("ended ({status})"),
                None if Instant::now() > give_up => format!("is not listening after {START:?}"),
                None => {
                    thread::sleep(Duration::from_millis(20));
                    continue;
                }
            };
            bail!(
                "`{}` {problem}; output:\n{}",
                self.command,
                self.last_words()
            );
        }
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Only fails if it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn free_address() -> Result<SocketAddr> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on loopback")?;
    Ok(listener.local_addr()?)
}
