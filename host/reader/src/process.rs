//! The agent's side of a reader in another process.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use prost::Message as _;

use crate::channel::{Channel, Message, Received, SendMode};
use crate::failure::{Exit, Interrupted, ReaderFailure};
use crate::messages::{
    Event, EventKind, Invalid, ReaderKind, Response, ResponseKind, Start, WireExit, bounded,
};
use crate::readers::{Limits, Readers};

/// How often a wait checks for a stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How often the CPU time of a busy reader is read.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// How long a reader may take to start, on a busy host.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait for the exit status of a reader.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// The delay before a restart doubles with each failure, up to the maximum.
const INITIAL_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// A reader that ran this long resets the delay.
const BACKOFF_RESET: Duration = Duration::from_secs(60);
/// Failed starts in a row before this process reads by itself.
const MAX_START_ATTEMPTS: u32 = 3;

/// What follows a response.
pub enum Next {
    Done,
    /// Another response.
    More,
    /// The process asked for something: this message, with a file if there is one.
    Reply(Vec<u8>, Option<File>),
}

/// Why there is no reader.
pub enum NotReady {
    Stopped,
    Unavailable(String),
}

/// A process that reads files, which is started when it is needed.
pub struct ReaderProcess {
    readers: Readers,
    kind: ReaderKind,
    limits: Limits,
    report: Box<dyn Fn(&ReaderFailure) + Send>,
    connection: Option<Connection>,
    backoff: Duration,
    /// Not before then.
    next_start: Instant,
    failed_starts: u32,
}

/// A reader that runs. It is killed when this is dropped.
struct Connection {
    channel: Channel,
    events: Channel,
    pid: u32,
    since: Instant,
}

// === impl ReaderProcess ===

impl ReaderProcess {
    pub fn new(
        readers: Readers,
        kind: ReaderKind,
        limits: Limits,
        report: impl Fn(&ReaderFailure) + Send + 'static,
    ) -> Self {
        Self {
            readers,
            kind,
            limits,
            report: Box::new(report),
            connection: None,
            backoff: INITIAL_BACKOFF,
            next_start: Instant::now(),
            failed_starts: 0,
        }
    }

    /// Whether a new process was started, as there was none.
    pub fn ensure_running(&mut self, keep_going: &dyn Fn() -> bool) -> Result<bool, NotReady> {
        if let Some(connection) = &mut self.connection {
            // It may have ended while it had nothing to do.
            match connection.check_idle() {
                Ok(()) => return Ok(false),
                Err(failure) => self.record_failure(&failure),
            }
        }
        loop {
            while Instant::now() < self.next_start {
                if !keep_going() {
                    return Err(NotReady::Stopped);
                }
                let left = self.next_start.saturating_duration_since(Instant::now());
                std::thread::sleep(left.min(POLL_INTERVAL));
            }
            match Connection::start(&self.readers, self.kind, &self.limits, keep_going) {
                Ok(connection) => {
                    self.failed_starts = 0;
                    self.connection = Some(connection);
                    return Ok(true);
                }
                Err(NotReady::Stopped) => return Err(NotReady::Stopped),
                Err(NotReady::Unavailable(why)) => {
                    self.failed_starts += 1;
                    if self.failed_starts >= MAX_START_ATTEMPTS {
                        return Err(NotReady::Unavailable(why));
                    }
                    self.increase_backoff();
                }
            }
        }
    }

    /// Sends a request and hands each response to `take`, until it needs no more; returns the time that it took.
    pub fn exchange(
        &mut self,
        request: &[u8],
        files: &[BorrowedFd<'_>],
        keep_going: &dyn Fn() -> bool,
        take: impl FnMut(Message) -> Result<Next, Invalid>,
    ) -> Result<Duration, Interrupted> {
        let Some(connection) = &mut self.connection else {
            return Err(Interrupted::Failed(ReaderFailure::Ended(None)));
        };
        let answer = connection.exchange(request, files, &self.limits, keep_going, take);
        match &answer {
            Err(Interrupted::Failed(failure)) => self.record_failure(failure),
            Err(Interrupted::Stopped) => self.connection = None,
            Ok(_) => {}
        }
        answer
    }

    /// A message without a response: a process that is gone needs it no more.
    pub fn notify(&mut self, message: &[u8]) {
        if let Some(connection) = &self.connection {
            let _ = connection.channel.send(message, &[], SendMode::NonBlocking);
        }
    }

    /// Ends the process until it is needed again.
    pub fn stop(&mut self) {
        self.connection = None;
    }

    pub fn is_running(&self) -> bool {
        self.connection.is_some()
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Ends the process for a response that no intact one sends.
    pub fn reject(&mut self, why: &str) -> Interrupted {
        let failure = ReaderFailure::Invalid(why.to_owned());
        self.record_failure(&failure);
        Interrupted::Failed(failure)
    }

    fn record_failure(&mut self, failure: &ReaderFailure) {
        (self.report)(failure);
        let ran = self.connection.take().map(|it| it.since.elapsed());
        if ran > Some(BACKOFF_RESET) {
            self.backoff = INITIAL_BACKOFF;
        }
        self.increase_backoff();
    }

    fn increase_backoff(&mut self) {
        self.next_start = Instant::now() + self.backoff;
        self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
    }
}

// === impl Connection ===

impl Connection {
    fn start(
        readers: &Readers,
        kind: ReaderKind,
        limits: &Limits,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<Self, NotReady> {
        let unavailable = |error: std::io::Error| NotReady::Unavailable(error.to_string());
        let (channel, reader) = Channel::pair().map_err(unavailable)?;
        let (events, events_end) = Channel::pair().map_err(unavailable)?;
        let start = Start {
            max_memory: limits.max_memory as u64,
            low_priority: limits.low_priority,
            kind: kind.into(),
        };
        readers
            .start_reader(&start, reader.into_socket(), events_end.into_socket())
            .map_err(unavailable)?;
        let mut starting = Self {
            channel,
            events,
            pid: 0,
            since: Instant::now(),
        };
        match starting.event(START_TIMEOUT, keep_going)? {
            EventKind::Started(pid) => starting.pid = pid,
            EventKind::NotStarted(why) => return Err(NotReady::Unavailable(bounded(why))),
            EventKind::Ended(_) => return Err(NotReady::Unavailable("it exited".to_owned())),
        }
        while starting.since.elapsed() < START_TIMEOUT {
            match starting.channel.receive().map_err(unavailable)? {
                Received::Message(message) => {
                    let response = Response::decode(&*message.content).unwrap_or_default();
                    let Some(ResponseKind::Ready(ready)) = response.kind else {
                        return Err(NotReady::Unavailable("it is another program".to_owned()));
                    };
                    let (pid, missing) = (starting.pid, bounded(ready.missing));
                    match missing.is_empty() {
                        true => tracing::debug!(pid, "Started a reader process."),
                        false => tracing::info!(
                            pid,
                            missing,
                            "Started a reader process without some restrictions."
                        ),
                    }
                    return Ok(starting);
                }
                Received::Closed => {
                    let how = ReaderFailure::Ended(starting.end()).to_string();
                    return Err(NotReady::Unavailable(how));
                }
                Received::WouldBlock if !keep_going() => return Err(NotReady::Stopped),
                Received::WouldBlock => starting
                    .channel
                    .wait(Some(POLL_INTERVAL))
                    .map_err(unavailable)?,
            }
        }
        Err(NotReady::Unavailable("it did not start in time".to_owned()))
    }

    /// The next event from the supervisor.
    fn event(
        &mut self,
        within: Duration,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<EventKind, NotReady> {
        let unavailable = |why: &str| NotReady::Unavailable(why.to_owned());
        let until = Instant::now() + within;
        loop {
            match self.events.receive() {
                Ok(Received::Message(message)) => {
                    let event = Event::decode(&*message.content).unwrap_or_default();
                    return event.kind.ok_or(unavailable("an empty event"));
                }
                Ok(Received::WouldBlock) => {}
                Ok(Received::Closed) | Err(_) => return Err(unavailable("the supervisor ended")),
            }
            if !keep_going() {
                return Err(NotReady::Stopped);
            }
            if Instant::now() > until {
                return Err(unavailable("the supervisor does not answer"));
            }
            let waited = self.events.wait(Some(POLL_INTERVAL));
            waited.map_err(|error| NotReady::Unavailable(error.to_string()))?;
        }
    }

    /// The exit status of its process.
    fn end(&mut self) -> Option<Exit> {
        match self.event(EXIT_TIMEOUT, &|| true) {
            Ok(EventKind::Ended(WireExit {
                signal: Some(signal),
                ..
            })) => Some(Exit::Signal(signal)),
            Ok(EventKind::Ended(WireExit {
                code: Some(code), ..
            })) => Some(Exit::Code(code)),
            _ => None,
        }
    }

    /// Fails unless it waits for a request.
    fn check_idle(&mut self) -> Result<(), ReaderFailure> {
        match self.channel.receive() {
            Ok(Received::WouldBlock) => Ok(()),
            Ok(Received::Closed) => Err(ReaderFailure::Ended(self.end())),
            Ok(Received::Message(_)) => Err(ReaderFailure::Invalid(
                "a response without a request".into(),
            )),
            Err(error) => Err(ReaderFailure::Invalid(error.to_string())),
        }
    }

    fn exchange(
        &mut self,
        request: &[u8],
        files: &[BorrowedFd<'_>],
        limits: &Limits,
        keep_going: &dyn Fn() -> bool,
        mut take: impl FnMut(Message) -> Result<Next, Invalid>,
    ) -> Result<Duration, Interrupted> {
        self.send(request, files)?;
        let mut watchdog = Watchdog::new(self.pid);
        loop {
            let message = match self.channel.receive() {
                Ok(Received::Message(message)) => message,
                Ok(Received::Closed) => {
                    return Err(Interrupted::Failed(ReaderFailure::Ended(self.end())));
                }
                Ok(Received::WouldBlock) if !keep_going() => return Err(Interrupted::Stopped),
                Ok(Received::WouldBlock) => {
                    watchdog.check(limits).map_err(Interrupted::Failed)?;
                    let waited = self.channel.wait(Some(POLL_INTERVAL));
                    waited.map_err(|error| invalid(&error.to_string()))?;
                    continue;
                }
                Err(error) => return Err(invalid(&error.to_string())),
            };
            match take(message).map_err(|Invalid(why)| invalid(why))? {
                Next::Done => return Ok(watchdog.began.elapsed()),
                Next::More => {}
                Next::Reply(reply, file) => {
                    let file: Vec<_> = file.iter().map(AsFd::as_fd).collect();
                    self.send(&reply, &file)?;
                    watchdog.reset_idle();
                }
            }
        }
    }

    fn send(&mut self, content: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), Interrupted> {
        let sent = self.channel.send(content, files, SendMode::NonBlocking);
        sent.map_err(|error| match error.kind() {
            std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset => {
                Interrupted::Failed(ReaderFailure::Ended(self.end()))
            }
            _ => invalid(&format!("it does not read its requests: {error}")),
        })
    }
}

fn invalid(why: &str) -> Interrupted {
    Interrupted::Failed(ReaderFailure::Invalid(bounded(why.to_owned())))
}

/// Ends a request that takes too much CPU time or hangs in a read.
struct Watchdog {
    pid: u32,
    began: Instant,
    next_check: Instant,
    /// CPU time at the first check and at the last one with progress.
    first: Option<Duration>,
    last: Option<Duration>,
    last_progress: Instant,
}

impl Watchdog {
    fn new(pid: u32) -> Self {
        let now = Instant::now();
        Self {
            pid,
            began: now,
            next_check: now + WATCH_INTERVAL,
            first: None,
            last: None,
            last_progress: now,
        }
    }

    /// The agent was busy, not the reader.
    fn reset_idle(&mut self) {
        self.last_progress = Instant::now();
    }

    fn check(&mut self, limits: &Limits) -> Result<(), ReaderFailure> {
        let now = Instant::now();
        if now < self.next_check {
            return Ok(());
        }
        self.next_check = now + WATCH_INTERVAL;
        // A starved reader gets a little CPU time nevertheless.
        let cpu = cpu_time_of(self.pid);
        if cpu.is_some() && cpu > self.last {
            self.first = self.first.or(cpu);
            self.last = cpu;
            self.last_progress = now;
        }
        let [last, first] = [self.last, self.first].map(Option::unwrap_or_default);
        let used = last.saturating_sub(first);
        if used > limits.max_cpu {
            return Err(ReaderFailure::Deadline("it used too much CPU time"));
        }
        if now.saturating_duration_since(self.last_progress) > limits.max_idle {
            return Err(ReaderFailure::Deadline("it used no CPU time: a read hangs"));
        }
        Ok(())
    }
}

/// CPU time that a process has used in its first thread; a reader has no other.
fn cpu_time_of(pid: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let nanos = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}
