//! The agent's side of a reader in another process.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use profcol_symbols::{CompanionFiles, Style};
use prost::Message;

use crate::channel::{Channel, Received, SendMode};
use crate::messages::{
    CompanionKind, Empty, Event, EventKind, Forget, Invalid, Open, Request, RequestKind, Resolve,
    Response, ResponseKind, Shrink, Start, WireCompanionRequest, WireExit, bounded,
};
use crate::readers::{Limits, Readers};
use crate::{CodeAddress, Executable, KeepGoing, Opened, ReadError, Resolved};

/// How often a wait checks for a stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How often the CPU time of a busy reader is read.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// How long a reader may take to start, on a busy host.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait for the exit status of a reader.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Companion files that a reader may ask for in one request: a package, or a `.dwo` file for each unit that it reads.
const MAX_COMPANIONS: usize = 4096;
/// The delay before a restart doubles with each failure, up to the maximum.
const INITIAL_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// A reader that ran this long resets the delay.
const BACKOFF_RESET: Duration = Duration::from_secs(60);
/// ReadError starts in a row before this process reads by itself.
const MAX_START_ATTEMPTS: u32 = 3;

const KILL: i32 = 9;
const ABORT: i32 = 6;

/// How a reader failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReaderFailure {
    /// Its process ended; `None` if it is not known how.
    Ended(Option<Exit>),
    /// It used too much CPU time, or none at all.
    Deadline(&'static str),
    /// It sent an invalid response.
    Invalid(String),
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

/// Why there is no reader.
pub enum NotReady {
    Stopped,
    Unavailable(String),
}

/// A reader, which is started when it is needed.
pub struct ReaderProcess {
    readers: Readers,
    limits: Limits,
    report: Box<dyn Fn(&ReaderFailure)>,
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
        limits: Limits,
        report: impl Fn(&ReaderFailure) + 'static,
    ) -> Self {
        Self {
            readers,
            limits,
            report: Box::new(report),
            connection: None,
            backoff: INITIAL_BACKOFF,
            next_start: Instant::now(),
            failed_starts: 0,
        }
    }

    /// Whether a new process was started, as there was none.
    pub fn ensure_running(&mut self, keep_going: &KeepGoing) -> Result<bool, NotReady> {
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
            match Connection::start(&self.readers, &self.limits, keep_going) {
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

    pub fn open(
        &mut self,
        key: u64,
        executable: &Executable,
        keep_going: &KeepGoing,
    ) -> Result<Opened, ReadError> {
        let max_unpacked = executable.max_unpacked;
        let request = RequestKind::Open(Open { key, max_unpacked });
        let file = [executable.file.as_fd()];
        let (answer, _) = self.request(request, &file, executable, keep_going)?;
        match answer {
            ResponseKind::Opened(opened) => Ok(Opened {
                weight: self.weight(opened.weight),
                damage: opened.damage.map(bounded),
            }),
            ResponseKind::Refused(refused) => Err(match refused.why {
                Some(why) => ReadError::Refused(bounded(why)),
                None => ReadError::NoNames,
            }),
            _ => Err(self.invalid("a response to another request")),
        }
    }

    pub fn find(
        &mut self,
        key: u64,
        executable: &Executable,
        addresses: &[CodeAddress],
        style: Option<Style>,
        budget: Duration,
        keep_going: &KeepGoing,
    ) -> Result<Resolved, ReadError> {
        let request = RequestKind::Resolve(Resolve::new(key, addresses, style, budget));
        let (answer, took) = self.request(request, &[], executable, keep_going)?;
        let found = match answer {
            ResponseKind::Resolved(found) => found.checked(addresses.len(), took),
            _ => Err(Invalid("a response to another request")),
        };
        found.map_err(|Invalid(why)| self.invalid(why))
    }

    pub fn shrink(
        &mut self,
        key: u64,
        executable: &Executable,
        limit: usize,
        keep_going: &KeepGoing,
    ) -> Result<usize, ReadError> {
        let limit = limit as u64;
        let request = RequestKind::Shrink(Shrink { key, limit });
        match self.request(request, &[], executable, keep_going)?.0 {
            ResponseKind::Shrunk(shrunk) => Ok(self.weight(shrunk.weight)),
            _ => Err(self.invalid("a response to another request")),
        }
    }

    /// Not answered: a reader that is gone has forgotten it.
    pub fn forget(&mut self, key: u64) {
        if let Some(connection) = &self.connection {
            let content = Request::from(RequestKind::Forget(Forget { key })).encode_to_vec();
            let _ = connection
                .channel
                .send(&content, &[], SendMode::NonBlocking);
        }
    }

    fn request(
        &mut self,
        kind: RequestKind,
        files: &[BorrowedFd<'_>],
        executable: &Executable,
        keep_going: &KeepGoing,
    ) -> Result<(ResponseKind, Duration), ReadError> {
        let Some(connection) = &mut self.connection else {
            return Err(ReadError::Reader(ReaderFailure::Ended(None)));
        };
        let answer = connection.request(kind, files, executable, &self.limits, keep_going);
        match &answer {
            Err(ReadError::Reader(failure)) => self.record_failure(failure),
            Err(ReadError::Stopped) => self.connection = None,
            _ => {}
        }
        answer
    }

    /// The weight of tables, which can be no more than the reader's memory.
    fn weight(&self, reported: u64) -> usize {
        let reported = usize::try_from(reported).unwrap_or(usize::MAX);
        reported.min(self.limits.max_memory.saturating_mul(2))
    }

    fn invalid(&mut self, why: &str) -> ReadError {
        let failure = ReaderFailure::Invalid(why.to_owned());
        self.record_failure(&failure);
        ReadError::Reader(failure)
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
    fn start(readers: &Readers, limits: &Limits, keep_going: &KeepGoing) -> Result<Self, NotReady> {
        let unavailable = |error: std::io::Error| NotReady::Unavailable(error.to_string());
        let (channel, reader) = Channel::pair().map_err(unavailable)?;
        let (events, events_end) = Channel::pair().map_err(unavailable)?;
        let start = Start {
            max_memory: limits.max_memory as u64,
            low_priority: limits.low_priority,
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
    fn event(&mut self, within: Duration, keep_going: &KeepGoing) -> Result<EventKind, NotReady> {
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
        let keep_going: KeepGoing = std::rc::Rc::new(|| true);
        match self.event(EXIT_TIMEOUT, &keep_going) {
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

    fn request(
        &mut self,
        kind: RequestKind,
        files: &[BorrowedFd<'_>],
        executable: &Executable,
        limits: &Limits,
        keep_going: &KeepGoing,
    ) -> Result<(ResponseKind, Duration), ReadError> {
        self.send(kind, files)?;
        let mut watchdog = Watchdog::new(self.pid);
        let mut companions = 0;
        loop {
            let message = match self.channel.receive() {
                Ok(Received::Message(message)) => message,
                Ok(Received::Closed) => {
                    return Err(ReadError::Reader(ReaderFailure::Ended(self.end())));
                }
                Ok(Received::WouldBlock) if !keep_going() => return Err(ReadError::Stopped),
                Ok(Received::WouldBlock) => {
                    watchdog.check(limits).map_err(ReadError::Reader)?;
                    let waited = self.channel.wait(Some(POLL_INTERVAL));
                    waited.map_err(|error| invalid(&error.to_string()))?;
                    continue;
                }
                Err(error) => return Err(invalid(&error.to_string())),
            };
            let response = Response::decode(&*message.content);
            let response = response.map_err(|error| invalid(&error.to_string()))?;
            match response.kind {
                Some(ResponseKind::Companion(request)) => {
                    companions += 1;
                    if companions > MAX_COMPANIONS {
                        return Err(invalid("too many requests for companion files"));
                    }
                    let found = companion(request, executable);
                    let found = found.map_err(|Invalid(why)| invalid(why))?;
                    let file: Vec<_> = found.iter().map(AsFd::as_fd).collect();
                    self.send(RequestKind::Companion(Empty {}), &file)?;
                    watchdog.reset_idle();
                }
                Some(answer) => return Ok((answer, watchdog.began.elapsed())),
                None => return Err(invalid("an empty answer")),
            }
        }
    }

    fn send(&mut self, kind: RequestKind, files: &[BorrowedFd<'_>]) -> Result<(), ReadError> {
        let content = Request::from(kind).encode_to_vec();
        let sent = self.channel.send(&content, files, SendMode::NonBlocking);
        sent.map_err(|error| match error.kind() {
            std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset => {
                ReadError::Reader(ReaderFailure::Ended(self.end()))
            }
            _ => invalid(&format!("it does not read its requests: {error}")),
        })
    }
}

fn invalid(why: &str) -> ReadError {
    ReadError::Reader(ReaderFailure::Invalid(bounded(why.to_owned())))
}

/// The companion file that a reader asks for, found by the agent's rules.
fn companion(
    request: WireCompanionRequest,
    executable: &Executable,
) -> Result<Option<std::fs::File>, Invalid> {
    let files: &dyn CompanionFiles = &*executable.companions;
    Ok(match request.kind {
        Some(CompanionKind::Separate(Empty {})) => files.separate(&executable.file),
        Some(CompanionKind::Common(link)) => files.common(&link.checked()?),
        Some(CompanionKind::Package(Empty {})) => files.package(),
        Some(CompanionKind::Split(split)) => {
            let (compiled_in, name) = split.checked()?;
            files.split(&compiled_in, &name)
        }
        None => return Err(Invalid("an empty request for a companion file")),
    })
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

// === impl ReaderFailure ===

impl ReaderFailure {
    /// A short name for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Ended(Some(Exit::Signal(KILL))) => "killed",
            Self::Ended(Some(Exit::Signal(ABORT))) => "aborted",
            Self::Ended(Some(Exit::Signal(_))) => "crashed",
            Self::Ended(Some(Exit::Code(_)) | None) => "exited",
            Self::Deadline(_) => "deadline",
            Self::Invalid(_) => "invalid_answer",
        }
    }

    /// All of them.
    pub const REASONS: [&str; 6] = [
        "killed",
        "aborted",
        "crashed",
        "exited",
        "deadline",
        "invalid_answer",
    ];
}

impl fmt::Display for ReaderFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(None) => write!(f, "it exited"),
            Self::Ended(Some(Exit::Code(code))) => write!(f, "it exited with code {code}"),
            Self::Ended(Some(Exit::Signal(ABORT))) => write!(
                f,
                "it aborted (signal 6), probably because it reached its memory limit"
            ),
            Self::Ended(Some(Exit::Signal(signal))) => write!(f, "signal {signal} killed it"),
            Self::Deadline(why) => f.write_str(why),
            Self::Invalid(why) => write!(f, "it sent an invalid response: {why}"),
        }
    }
}
