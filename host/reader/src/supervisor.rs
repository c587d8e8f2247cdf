//! The supervisor: starts readers and kills them. It reads no files, and what it is told comes from the agent alone.

use std::fmt::Display;
use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

use prost::Message;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::channel::{Channel, Full, Received};
use crate::messages::{Event, Happened, Start, WireEnd, remark};

/// Readers at once.
const MAX_READERS: usize = 256;

/// The arguments with which this program becomes a reader.
pub type ReaderCommand = fn(max_memory: u64, is_low: bool) -> Vec<String>;

struct Running {
    child: Child,
    /// Closed by the agent to end the reader.
    events: Channel,
    /// Closed by the kernel when the reader ends.
    life: PipeReader,
}

/// Starts readers until the agent closes the socket.
pub fn supervise(socket: OwnedFd, command: ReaderCommand) -> io::Result<()> {
    let mut control = Channel::new(socket);
    control.send(b"ready", &[], Full::Fails)?;
    let mut readers: Vec<Running> = Vec::new();
    loop {
        loop {
            match control.receive()? {
                Received::Message(message) => {
                    let start = Start::decode(&*message.content)?;
                    let [reader, events] = <[OwnedFd; 2]>::try_from(message.files)
                        .map_err(|_| io::ErrorKind::InvalidData)?;
                    let is_full = readers.len() >= MAX_READERS;
                    readers.extend(begin(&start, reader, events, command, is_full));
                }
                Received::Nothing => break,
                // The readers are killed as they are dropped.
                Received::Closed => return Ok(()),
            }
        }
        readers.retain_mut(|running| !running.is_over());
        wait(&control, &readers)?;
    }
}

/// Waits until the agent or a reader wants something.
fn wait(control: &Channel, readers: &[Running]) -> io::Result<()> {
    let mut ends = vec![PollFd::new(control, PollFlags::IN)];
    for running in readers {
        ends.push(PollFd::new(&running.events, PollFlags::IN));
        ends.push(PollFd::new(&running.life, PollFlags::IN));
    }
    match poll(&mut ends, None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn begin(
    start: &Start,
    reader: OwnedFd,
    events: OwnedFd,
    command: ReaderCommand,
    is_full: bool,
) -> Option<Running> {
    let events = Channel::new(events);
    let started = match is_full {
        false => spawn(reader, command(start.max_memory, start.is_low)),
        true => Err(io::Error::other("too many readers")),
    };
    match started {
        Ok((child, life)) => {
            tell(&events, Happened::Started(child.id()));
            Some(Running {
                child,
                events,
                life,
            })
        }
        Err(error) => {
            tell(&events, not_started(&error));
            None
        }
    }
}

fn spawn(reader: OwnedFd, arguments: Vec<String>) -> io::Result<(Child, PipeReader)> {
    let (life, end) = io::pipe()?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("profcol")
        .args(arguments)
        .env_clear()
        .stdin(Stdio::from(reader))
        .stdout(Stdio::from(end))
        .stderr(Stdio::null());
    // With the command, this end of the pipe is closed.
    Ok((command.spawn()?, life))
}

fn not_started(error: &impl Display) -> Happened {
    Happened::NotStarted(remark(error.to_string()))
}

/// The agent may be gone.
fn tell(events: &Channel, happened: Happened) {
    let _ = events.send(&Event::from(happened).encode_to_vec(), &[], Full::Fails);
}

impl Running {
    /// Whether the reader has ended, or ends now as the agent does not want it any more.
    fn is_over(&mut self) -> bool {
        let mut ends = [
            PollFd::new(&self.events, PollFlags::IN),
            PollFd::new(&self.life, PollFlags::IN),
        ];
        let now = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match poll(&mut ends, Some(&now)) {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
        if let Some(end) = self.end() {
            tell(&self.events, Happened::Ended(end));
        }
        true
    }

    /// Kills it, if it runs.
    fn end(&mut self) -> Option<WireEnd> {
        // One that has ended keeps its status.
        let _ = self.child.kill();
        let status = self.child.wait().ok()?;
        Some(WireEnd {
            code: status.code(),
            signal: status.signal(),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}
