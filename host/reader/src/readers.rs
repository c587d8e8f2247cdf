//! Starts readers, by a supervisor: later the agent may start no programs itself.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, shutdown};

use crate::channel::{Channel, Received, SendMode};
use crate::messages::Start;

/// How long the supervisor may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it may take to end.
const STOP_TIMEOUT: Timespec = Timespec {
    tv_sec: 2,
    tv_nsec: 0,
};

/// The priority of threads and readers that yield to other programs, but still make progress on a busy host.
pub const LOW_NICE: i32 = 10;
/// The same for unwind tables: stacks are incomplete without them.
pub const LOW_TABLE_NICE: i32 = 5;

/// Starts readers. Without a supervisor, executables are read in this process. Cheap to clone.
#[derive(Clone, Default)]
pub struct Readers(Option<Arc<dyn StartReader>>);

/// What a reader may use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of memory for tables.
    pub max_memory: usize,
    /// Whether it yields to other programs.
    pub low_priority: bool,
    /// CPU time for one request.
    pub max_cpu: Duration,
    /// Time without any use of the CPU: a read may hang.
    pub max_idle: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("failed to start this program again: {0}")]
    Spawn(#[from] io::Error),
    #[error("it ended at once")]
    Ended,
    #[error("it did not start in time")]
    Timeout,
}

/// Starts one reader, which uses these sockets.
pub trait StartReader: Send + Sync {
    fn start(&self, start: &Start, reader: OwnedFd, events: OwnedFd) -> io::Result<()>;

    /// Ends all readers.
    fn stop(&self) {}
}

struct Supervisor {
    control: Channel,
}

impl Limits {
    pub fn new(max_memory: usize, low_priority: bool) -> Self {
        Self {
            max_memory,
            low_priority,
            max_cpu: Duration::from_secs(60),
            max_idle: Duration::from_secs(30),
        }
    }
}

impl Readers {
    /// Starts the supervisor: this program with `arguments`, which calls [`supervise`](crate::supervise).
    pub fn start(arguments: &[&str]) -> Result<Self, StartError> {
        let (mut control, other) = Channel::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("profcol")
            .args(arguments)
            // The configuration's secrets are no business of files.
            .env_clear()
            .current_dir("/")
            // Ctrl-C is for the agent, which still needs it while it stops.
            .process_group(0)
            .stdin(Stdio::from(other.into_socket()))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // It ends with its socket; nobody waits for it.
        drop(command.spawn()?);
        // This has the other end of the socket.
        drop(command);
        let until = Instant::now() + START_TIMEOUT;
        loop {
            match control.receive()? {
                Received::Message(_) => break,
                Received::Closed => return Err(StartError::Ended),
                Received::WouldBlock => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(StartError::Timeout);
                    }
                    control.wait(Some(left))?;
                }
            }
        }
        Ok(Self::of(Supervisor { control }))
    }

    pub(crate) fn of(starts: impl StartReader + 'static) -> Self {
        Self(Some(Arc::new(starts)))
    }

    /// Whether executables are read in other processes.
    pub fn is_available(&self) -> bool {
        self.0.is_some()
    }

    /// Ends the supervisor and all readers, and waits for it, within a bound.
    pub fn stop(&self) {
        if let Some(starts) = &self.0 {
            starts.stop();
        }
    }

    pub(crate) fn start_reader(
        &self,
        start: &Start,
        reader: OwnedFd,
        events: OwnedFd,
    ) -> io::Result<()> {
        match &self.0 {
            Some(starts) => starts.start(start, reader, events),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let location = match self.is_available() {
            true => "in other processes",
            false => "in this process",
        };
        f.write_str(location)
    }
}

impl StartReader for Supervisor {
    fn start(&self, start: &Start, reader: OwnedFd, events: OwnedFd) -> io::Result<()> {
        let files = [reader.as_fd(), events.as_fd()];
        self.control
            .send(&start.encode_to_vec(), &files, SendMode::NonBlocking)
    }

    fn stop(&self) {
        let _ = shutdown(&self.control, Shutdown::Write);
        // The supervisor's end closes with it.
        let mut ends = [PollFd::new(&self.control, PollFlags::IN)];
        let _ = poll(&mut ends, Some(&STOP_TIMEOUT));
    }
}
