//! The agent's side of a reader in another process.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use profcol_symbols::{CompanionFiles, Style};
use prost::Message;

use crate::channel::{Channel, Full, Received};
use crate::messages::{
    Answer, Ask, Event, Find, Forget, Happened, Invalid, Nothing, Open, Reply, Request, Shrink,
    Sought, Start, WireCompanion, WireEnd, remark,
};
use crate::readers::{Limits, Readers};
use crate::{Executable, Failed, Found, GoesOn, Opened, Place};

/// How soon a stop is noticed.
const SLICE: Duration = Duration::from_millis(100);
/// Between two looks at what a reader does.
const LOOK: Duration = Duration::from_secs(1);
/// How long a reader may take to start, on a busy host.
const STARTED_WITHIN: Duration = Duration::from_secs(60);
/// How long the supervisor may take to tell how a reader ended.
const TOLD_WITHIN: Duration = Duration::from_secs(2);
/// Companion files that a reader may ask for in one request: a package, or a `.dwo` file for each unit that it reads.
const MAX_COMPANIONS: usize = 4096;
/// The pause after a failure doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A reader that ran this long makes the next pause the first one again.
const STABLE: Duration = Duration::from_secs(60);
/// Starts that may fail, one after the other.
const MAX_STARTS: u32 = 3;

/// How a reader failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Its process ended; `None` if it is not known how.
    Ended(Option<End>),
    /// It used too much CPU time, or none at all.
    Deadline(&'static str),
    /// It gave an answer that no reader gives.
    Invalid(String),
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Code(i32),
    Signal(i32),
}

/// Why there is no reader.
pub enum NotReady {
    Stopped,
    Unavailable(String),
}

/// A reader, which is started when it is needed.
pub struct Apart {
    readers: Readers,
    limits: Limits,
    report: Box<dyn Fn(&Failure)>,
    connection: Option<Connection>,
    pause: Duration,
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

// === impl Apart ===

impl Apart {
    pub fn new(readers: Readers, limits: Limits, report: impl Fn(&Failure) + 'static) -> Self {
        Self {
            readers,
            limits,
            report: Box::new(report),
            connection: None,
            pause: FIRST_PAUSE,
            next_start: Instant::now(),
            failed_starts: 0,
        }
    }

    /// Whether a new process was started, as there was none.
    pub fn ready(&mut self, goes_on: &GoesOn) -> Result<bool, NotReady> {
        if let Some(connection) = &mut self.connection {
            // It may have ended while it had nothing to do.
            match connection.idle() {
                Ok(()) => return Ok(false),
                Err(failure) => self.lost(&failure),
            }
        }
        loop {
            while Instant::now() < self.next_start {
                if !goes_on() {
                    return Err(NotReady::Stopped);
                }
                let left = self.next_start.saturating_duration_since(Instant::now());
                std::thread::sleep(left.min(SLICE));
            }
            match Connection::start(&self.readers, &self.limits, goes_on) {
                Ok(connection) => {
                    self.failed_starts = 0;
                    self.connection = Some(connection);
                    return Ok(true);
                }
                Err(NotReady::Stopped) => return Err(NotReady::Stopped),
                Err(NotReady::Unavailable(why)) => {
                    self.failed_starts += 1;
                    if self.failed_starts >= MAX_STARTS {
                        return Err(NotReady::Unavailable(why));
                    }
                    self.wait_longer();
                }
            }
        }
    }

    pub fn open(
        &mut self,
        key: u64,
        executable: &Executable,
        goes_on: &GoesOn,
    ) -> Result<Opened, Failed> {
        let max_unpacked = executable.max_unpacked;
        let ask = Ask::Open(Open { key, max_unpacked });
        let file = [executable.file.as_fd()];
        let (answer, _) = self.ask(ask, &file, executable, goes_on)?;
        match answer {
            Answer::Opened(opened) => Ok(Opened {
                weight: self.weight(opened.weight),
                damage: opened.damage.map(remark),
            }),
            Answer::Refused(refused) => Err(match refused.why {
                Some(why) => Failed::Refused(remark(why)),
                None => Failed::NoNames,
            }),
            _ => Err(self.invalid("an answer to another question")),
        }
    }

    pub fn find(
        &mut self,
        key: u64,
        executable: &Executable,
        places: &[Place],
        style: Option<Style>,
        budget: Duration,
        goes_on: &GoesOn,
    ) -> Result<Found, Failed> {
        let ask = Ask::Find(Find::new(key, places, style, budget));
        let (answer, took) = self.ask(ask, &[], executable, goes_on)?;
        let found = match answer {
            Answer::Found(found) => found.checked(places.len(), took),
            _ => Err(Invalid("an answer to another question")),
        };
        found.map_err(|Invalid(why)| self.invalid(why))
    }

    pub fn shrink(
        &mut self,
        key: u64,
        executable: &Executable,
        limit: usize,
        goes_on: &GoesOn,
    ) -> Result<usize, Failed> {
        let limit = limit as u64;
        let ask = Ask::Shrink(Shrink { key, limit });
        match self.ask(ask, &[], executable, goes_on)?.0 {
            Answer::Shrunk(shrunk) => Ok(self.weight(shrunk.weight)),
            _ => Err(self.invalid("an answer to another question")),
        }
    }

    /// Not answered: a reader that is gone has forgotten it.
    pub fn forget(&mut self, key: u64) {
        if let Some(connection) = &self.connection {
            let content = Request::from(Ask::Forget(Forget { key })).encode_to_vec();
            let _ = connection.channel.send(&content, &[], Full::Fails);
        }
    }

    fn ask(
        &mut self,
        ask: Ask,
        files: &[BorrowedFd<'_>],
        executable: &Executable,
        goes_on: &GoesOn,
    ) -> Result<(Answer, Duration), Failed> {
        let Some(connection) = &mut self.connection else {
            return Err(Failed::Reader(Failure::Ended(None)));
        };
        let answer = connection.ask(ask, files, executable, &self.limits, goes_on);
        match &answer {
            Err(Failed::Reader(failure)) => self.lost(failure),
            Err(Failed::Stopped) => self.connection = None,
            _ => {}
        }
        answer
    }

    /// The weight of tables, which can be no more than the reader's memory.
    fn weight(&self, told: u64) -> usize {
        let told = usize::try_from(told).unwrap_or(usize::MAX);
        told.min(self.limits.max_memory.saturating_mul(2))
    }

    fn invalid(&mut self, why: &str) -> Failed {
        let failure = Failure::Invalid(why.to_owned());
        self.lost(&failure);
        Failed::Reader(failure)
    }

    fn lost(&mut self, failure: &Failure) {
        (self.report)(failure);
        let ran = self.connection.take().map(|it| it.since.elapsed());
        if ran > Some(STABLE) {
            self.pause = FIRST_PAUSE;
        }
        self.wait_longer();
    }

    fn wait_longer(&mut self) {
        self.next_start = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

// === impl Connection ===

impl Connection {
    fn start(readers: &Readers, limits: &Limits, goes_on: &GoesOn) -> Result<Self, NotReady> {
        let unavailable = |error: std::io::Error| NotReady::Unavailable(error.to_string());
        let (channel, reader) = Channel::pair().map_err(unavailable)?;
        let (events, told) = Channel::pair().map_err(unavailable)?;
        let start = Start {
            max_memory: limits.max_memory as u64,
            is_low: limits.is_low,
        };
        readers
            .ask(&start, reader.into_socket(), told.into_socket())
            .map_err(unavailable)?;
        let mut starting = Self {
            channel,
            events,
            pid: 0,
            since: Instant::now(),
        };
        match starting.event(STARTED_WITHIN, goes_on)? {
            Happened::Started(pid) => starting.pid = pid,
            Happened::NotStarted(why) => return Err(NotReady::Unavailable(remark(why))),
            Happened::Ended(_) => return Err(NotReady::Unavailable("it ended".to_owned())),
        }
        while starting.since.elapsed() < STARTED_WITHIN {
            match starting.channel.receive().map_err(unavailable)? {
                Received::Message(message) => {
                    let reply = Reply::decode(&*message.content).unwrap_or_default();
                    let Some(Answer::Ready(ready)) = reply.answer else {
                        return Err(NotReady::Unavailable("it is another program".to_owned()));
                    };
                    let (pid, missing) = (starting.pid, remark(ready.missing));
                    match missing.is_empty() {
                        true => tracing::debug!(pid, "Started a process that reads executables."),
                        false => tracing::info!(
                            pid,
                            missing,
                            "Started a process that reads executables, without all restrictions."
                        ),
                    }
                    return Ok(starting);
                }
                Received::Closed => {
                    let how = Failure::Ended(starting.end()).to_string();
                    return Err(NotReady::Unavailable(how));
                }
                Received::Nothing if !goes_on() => return Err(NotReady::Stopped),
                Received::Nothing => starting.channel.wait(Some(SLICE)).map_err(unavailable)?,
            }
        }
        Err(NotReady::Unavailable("it did not start in time".to_owned()))
    }

    /// What the supervisor tells next.
    fn event(&mut self, within: Duration, goes_on: &GoesOn) -> Result<Happened, NotReady> {
        let unavailable = |why: &str| NotReady::Unavailable(why.to_owned());
        let until = Instant::now() + within;
        loop {
            match self.events.receive() {
                Ok(Received::Message(message)) => {
                    let event = Event::decode(&*message.content).unwrap_or_default();
                    return event.happened.ok_or(unavailable("an empty event"));
                }
                Ok(Received::Nothing) => {}
                Ok(Received::Closed) | Err(_) => return Err(unavailable("the supervisor ended")),
            }
            if !goes_on() {
                return Err(NotReady::Stopped);
            }
            if Instant::now() > until {
                return Err(unavailable("the supervisor does not answer"));
            }
            let waited = self.events.wait(Some(SLICE));
            waited.map_err(|error| NotReady::Unavailable(error.to_string()))?;
        }
    }

    /// How its process ended.
    fn end(&mut self) -> Option<End> {
        let goes_on: GoesOn = std::rc::Rc::new(|| true);
        match self.event(TOLD_WITHIN, &goes_on) {
            Ok(Happened::Ended(WireEnd {
                signal: Some(signal),
                ..
            })) => Some(End::Signal(signal)),
            Ok(Happened::Ended(WireEnd {
                code: Some(code), ..
            })) => Some(End::Code(code)),
            _ => None,
        }
    }

    /// Whether it waits for a request, as it should.
    fn idle(&mut self) -> Result<(), Failure> {
        match self.channel.receive() {
            Ok(Received::Nothing) => Ok(()),
            Ok(Received::Closed) => Err(Failure::Ended(self.end())),
            Ok(Received::Message(_)) => Err(Failure::Invalid("an answer to no question".into())),
            Err(error) => Err(Failure::Invalid(error.to_string())),
        }
    }

    fn ask(
        &mut self,
        ask: Ask,
        files: &[BorrowedFd<'_>],
        executable: &Executable,
        limits: &Limits,
        goes_on: &GoesOn,
    ) -> Result<(Answer, Duration), Failed> {
        self.send(ask, files)?;
        let mut watch = Watch::new(self.pid);
        let mut companions = 0;
        loop {
            let message = match self.channel.receive() {
                Ok(Received::Message(message)) => message,
                Ok(Received::Closed) => return Err(Failed::Reader(Failure::Ended(self.end()))),
                Ok(Received::Nothing) if !goes_on() => return Err(Failed::Stopped),
                Ok(Received::Nothing) => {
                    watch.look(limits).map_err(Failed::Reader)?;
                    let waited = self.channel.wait(Some(SLICE));
                    waited.map_err(|error| invalid(&error.to_string()))?;
                    continue;
                }
                Err(error) => return Err(invalid(&error.to_string())),
            };
            let reply = Reply::decode(&*message.content);
            let reply = reply.map_err(|error| invalid(&error.to_string()))?;
            match reply.answer {
                Some(Answer::Companion(wish)) => {
                    companions += 1;
                    if companions > MAX_COMPANIONS {
                        return Err(invalid("endless companion files"));
                    }
                    let found = companion(wish, executable);
                    let found = found.map_err(|Invalid(why)| invalid(why))?;
                    let file: Vec<_> = found.iter().map(AsFd::as_fd).collect();
                    self.send(Ask::Companion(Nothing {}), &file)?;
                    watch.waited_for_us();
                }
                Some(answer) => return Ok((answer, watch.began.elapsed())),
                None => return Err(invalid("an empty answer")),
            }
        }
    }

    fn send(&mut self, ask: Ask, files: &[BorrowedFd<'_>]) -> Result<(), Failed> {
        let content = Request::from(ask).encode_to_vec();
        let sent = self.channel.send(&content, files, Full::Fails);
        sent.map_err(|error| match error.kind() {
            std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset => {
                Failed::Reader(Failure::Ended(self.end()))
            }
            _ => invalid(&format!("it reads nothing: {error}")),
        })
    }
}

fn invalid(why: &str) -> Failed {
    Failed::Reader(Failure::Invalid(remark(why.to_owned())))
}

/// The companion file that a reader asks for, found by the agent's rules.
fn companion(
    wish: WireCompanion,
    executable: &Executable,
) -> Result<Option<std::fs::File>, Invalid> {
    let files: &dyn CompanionFiles = &*executable.companions;
    Ok(match wish.sought {
        Some(Sought::Separate(Nothing {})) => files.separate(&executable.file),
        Some(Sought::Common(link)) => files.common(&link.checked()?),
        Some(Sought::Package(Nothing {})) => files.package(),
        Some(Sought::Split(split)) => {
            let (compiled_in, name) = split.checked()?;
            files.split(&compiled_in, &name)
        }
        None => return Err(Invalid("a wish for nothing")),
    })
}

/// Watches a reader at work: it may neither work forever nor hang in a read.
struct Watch {
    pid: u32,
    began: Instant,
    next_look: Instant,
    /// CPU time at the first look and at the last one that saw more.
    first: Option<Duration>,
    last: Option<Duration>,
    last_progress: Instant,
}

impl Watch {
    fn new(pid: u32) -> Self {
        let now = Instant::now();
        Self {
            pid,
            began: now,
            next_look: now + LOOK,
            first: None,
            last: None,
            last_progress: now,
        }
    }

    /// The time until now was ours.
    fn waited_for_us(&mut self) {
        self.last_progress = Instant::now();
    }

    fn look(&mut self, limits: &Limits) -> Result<(), Failure> {
        let now = Instant::now();
        if now < self.next_look {
            return Ok(());
        }
        self.next_look = now + LOOK;
        // A starved reader gets a little CPU time nevertheless.
        let cpu = running_time(self.pid);
        if cpu.is_some() && cpu > self.last {
            self.first = self.first.or(cpu);
            self.last = cpu;
            self.last_progress = now;
        }
        let [last, first] = [self.last, self.first].map(Option::unwrap_or_default);
        let used = last.saturating_sub(first);
        if used > limits.max_cpu {
            return Err(Failure::Deadline("it used too much CPU time"));
        }
        if now.saturating_duration_since(self.last_progress) > limits.max_still {
            return Err(Failure::Deadline("it hangs"));
        }
        Ok(())
    }
}

/// CPU time that a process has used in its first thread; a reader has no other.
fn running_time(pid: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let nanos = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

// === impl Failure ===

impl Failure {
    /// A short name for metrics.
    pub fn reason(&self) -> &'static str {
        const KILL: i32 = 9;
        const ABORT: i32 = 6;
        match self {
            Self::Ended(Some(End::Signal(KILL))) => "killed",
            Self::Ended(Some(End::Signal(ABORT))) => "aborted",
            Self::Ended(Some(End::Signal(_))) => "crashed",
            Self::Ended(Some(End::Code(_)) | None) => "exited",
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

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(None) => write!(f, "it ended"),
            Self::Ended(Some(End::Code(code))) => write!(f, "it ended with exit code {code}"),
            Self::Ended(Some(End::Signal(6))) => write!(
                f,
                "it aborted (signal 6), as without memory: its memory is limited"
            ),
            Self::Ended(Some(End::Signal(signal))) => write!(f, "signal {signal} ended it"),
            Self::Deadline(why) => f.write_str(why),
            Self::Invalid(why) => write!(f, "it gave an invalid answer: {why}"),
        }
    }
}
