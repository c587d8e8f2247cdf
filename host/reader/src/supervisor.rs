//! The supervisor: starts readers and kills them. It reads no files, and gets messages from the agent alone.

use std::fmt::Display;
use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

use prost::Message;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::channel::{Channel, Received, SendMode};
use crate::messages::{Event, EventKind, ReaderKind, Start, WireExit, bounded};

/// Readers at once.
const MAX_READERS: usize = 256;

/// The arguments with which this program becomes a reader.
pub type ReaderCommand = fn(kind: ReaderKind, max_memory: u64, low_priority: bool) -> Vec<String>;

struct Running {
    child: Child,
    /// Closed by the agent to end the reader.
    events: Channel,
    /// Closed by the kernel when the reader ends.
    lifetime: PipeReader,
}

/// Starts readers until the agent closes the socket.
pub fn supervise(socket: OwnedFd, command: ReaderCommand) -> io::Result<()> {
    let mut control = Channel::new(socket);
    control.send(b"ready", &[], SendMode::NonBlocking)?;
    let mut readers: Vec<Running> = Vec::new();
    loop {
        loop {
            match control.receive()? {
                Received::Message(message) => {
                    let start = Start::decode(&*message.content)?;
                    let [reader, events] = <[OwnedFd; 2]>::try_from(message.files)
                        .map_err(|_| io::ErrorKind::InvalidData)?;
                    let is_full = readers.len() >= MAX_READERS;
                    readers.extend(start_reader(&start, reader, events, command, is_full));
                }
                Received::WouldBlock => break,
                // The readers are killed as they are dropped.
                Received::Closed => return Ok(()),
            }
        }
        readers.retain_mut(|running| !running.has_ended());
        wait(&control, &readers)?;
    }
}

/// Waits until the agent or a reader wants something.
fn wait(control: &Channel, readers: &[Running]) -> io::Result<()> {
    let mut ends = vec![PollFd::new(control, PollFlags::IN)];
    for running in readers {
        ends.push(PollFd::new(&running.events, PollFlags::IN));
        ends.push(PollFd::new(&running.lifetime, PollFlags::IN));
    }
    match poll(&mut ends, None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn start_reader(
    start: &Start,
    reader: OwnedFd,
    events: OwnedFd,
    command: ReaderCommand,
    is_full: bool,
) -> Option<Running> {
    let events = Channel::new(events);
    let started = match is_full {
        false => spawn(
            reader,
            command(start.kind(), start.max_memory, start.low_priority),
        ),
        true => Err(io::Error::other("too many readers")),
    };
    match started {
        Ok((child, lifetime)) => {
            notify(&events, EventKind::Started(child.id()));
            Some(Running {
                child,
                events,
                lifetime,
            })
        }
        Err(error) => {
            notify(&events, not_started(&error));
            None
        }
    }
}

fn spawn(reader: OwnedFd, arguments: Vec<String>) -> io::Result<(Child, PipeReader)> {
    let (lifetime, end) = io::pipe()?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("profcol")
        .args(arguments)
        .env_clear()
        .stdin(Stdio::from(reader))
        .stdout(Stdio::from(end))
        .stderr(Stdio::null());
    // With the command, this end of the pipe is closed.
    Ok((command.spawn()?, lifetime))
}

fn not_started(error: &impl Display) -> EventKind {
    EventKind::NotStarted(bounded(error.to_string()))
}

/// The agent may be gone.
fn notify(events: &Channel, kind: EventKind) {
    let _ = events.send(
        &Event::from(kind).encode_to_vec(),
        &[],
        SendMode::NonBlocking,
    );
}

impl Running {
    /// Whether the reader has ended, or ends now as the agent does not want it any more.
    fn has_ended(&mut self) -> bool {
        let mut ends = [
            PollFd::new(&self.events, PollFlags::IN),
            PollFd::new(&self.lifetime, PollFlags::IN),
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
            notify(&self.events, EventKind::Ended(end));
        }
        true
    }

    /// Kills it, if it runs.
    fn end(&mut self) -> Option<WireExit> {
        // One that has ended keeps its status.
        let _ = self.child.kill();
        let status = self.child.wait().ok()?;
        Some(WireExit {
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
