//! Messages between the agent, the supervisor and the readers.
//!
//! A file may have exploited the reader, so its messages are validated before use.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use profcol_debuginfo::{CommonLink, ExternalDwarf, ExtractError};
use profcol_symbols::{Style, Unresolved};
use prost::{Message, Oneof};

use crate::extract::{ExtractOptions, ExtractionFailure, Planned};
use crate::{FileAddress, Resolved, ResolvedFrame};

/// Frames at one address; more than `profcol_symbols` returns.
const MAX_FRAMES: usize = 1024;
/// Length of a text about a file.
const MAX_TEXT: usize = 1024;
/// Length of a path.
const MAX_PATH: usize = 64 << 10;
/// Length of the id of a companion file.
const MAX_ID: usize = 256;

/// A response that no intact reader sends.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Invalid(pub &'static str);

// === To the reader ===

#[derive(Clone, PartialEq, Message)]
pub struct Request {
    #[prost(oneof = "RequestKind", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub kind: Option<RequestKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum RequestKind {
    /// Comes with the descriptor of the file.
    #[prost(message, tag = "1")]
    Open(Open),
    #[prost(message, tag = "2")]
    Resolve(Resolve),
    #[prost(message, tag = "3")]
    Shrink(Shrink),
    #[prost(message, tag = "4")]
    Forget(Forget),
    /// Answers [`ResponseKind::Companion`], with the file if there is one.
    #[prost(message, tag = "5")]
    Companion(Empty),
    /// Comes with the descriptor of the file.
    #[prost(message, tag = "6")]
    Extract(WireExtractOptions),
    /// The next piece of what is extracted.
    #[prost(message, tag = "7")]
    Piece(Empty),
}

#[derive(Clone, PartialEq, Message)]
pub struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub struct Open {
    #[prost(uint64, tag = "1")]
    pub key: u64,
    #[prost(uint64, tag = "2")]
    pub max_unpacked: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Resolve {
    #[prost(uint64, tag = "1")]
    pub key: u64,
    #[prost(message, repeated, tag = "2")]
    pub addresses: Vec<WireAddress>,
    #[prost(enumeration = "WireStyle", tag = "3")]
    pub style: i32,
    #[prost(uint64, tag = "4")]
    pub budget_nanos: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct WireAddress {
    #[prost(uint64, tag = "1")]
    pub at: u64,
    #[prost(bool, tag = "2")]
    pub is_offset: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum WireStyle {
    None = 0,
    Short = 1,
    Full = 2,
}

#[derive(Clone, PartialEq, Message)]
pub struct Shrink {
    #[prost(uint64, tag = "1")]
    pub key: u64,
    #[prost(uint64, tag = "2")]
    pub limit: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Forget {
    #[prost(uint64, tag = "1")]
    pub key: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct WireExtractOptions {
    #[prost(bool, tag = "1")]
    pub strip: bool,
    #[prost(uint64, tag = "2")]
    pub max_bytes: u64,
    #[prost(uint64, optional, tag = "3")]
    pub max_compression_nanos: Option<u64>,
    #[prost(string, optional, tag = "4")]
    pub build_id: Option<String>,
}

// === From the reader ===

#[derive(Clone, PartialEq, Message)]
pub struct Response {
    #[prost(oneof = "ResponseKind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9")]
    pub kind: Option<ResponseKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum ResponseKind {
    /// After its start.
    #[prost(message, tag = "1")]
    Ready(Ready),
    #[prost(message, tag = "2")]
    Opened(WireOpened),
    #[prost(message, tag = "3")]
    Refused(WireRefused),
    #[prost(message, tag = "4")]
    Resolved(WireResolved),
    #[prost(message, tag = "5")]
    Shrunk(Shrunk),
    /// Requests a companion file of the executable that it reads.
    #[prost(message, tag = "6")]
    Companion(WireCompanionRequest),
    #[prost(message, tag = "7")]
    Planned(WirePlanned),
    #[prost(message, tag = "8")]
    NotExtracted(WireExtractionFailure),
    #[prost(bytes, tag = "9")]
    Piece(Vec<u8>),
}

#[derive(Clone, PartialEq, Message)]
pub struct Ready {
    /// Which restrictions the kernel lacks.
    #[prost(string, tag = "1")]
    pub missing: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct WireOpened {
    #[prost(uint64, tag = "1")]
    pub weight: u64,
    #[prost(string, optional, tag = "2")]
    pub damage: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct WireRefused {
    /// Not set: the file has no names.
    #[prost(string, optional, tag = "1")]
    pub why: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct WireResolved {
    /// For the first addresses of the request.
    #[prost(message, repeated, tag = "1")]
    pub addresses: Vec<WireAnswer>,
    #[prost(string, repeated, tag = "2")]
    pub texts: Vec<String>,
    #[prost(uint64, tag = "3")]
    pub cpu_nanos: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct WireAnswer {
    /// None: not found.
    #[prost(message, repeated, tag = "1")]
    pub frames: Vec<WireFrame>,
    #[prost(bool, tag = "2")]
    pub is_too_much_work: bool,
}

/// Texts by their index.
#[derive(Clone, PartialEq, Message)]
pub struct WireFrame {
    #[prost(uint32, tag = "1")]
    pub name: u32,
    #[prost(uint32, tag = "2")]
    pub system_name: u32,
    #[prost(uint32, tag = "3")]
    pub file: u32,
    #[prost(uint32, tag = "4")]
    pub line: u32,
    #[prost(uint32, tag = "5")]
    pub column: u32,
    #[prost(uint32, tag = "6")]
    pub start_line: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Shrunk {
    #[prost(uint64, tag = "1")]
    pub weight: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct WirePlanned {
    #[prost(uint64, tag = "1")]
    pub size: u64,
    #[prost(enumeration = "WireExternalDwarf", tag = "2")]
    pub elsewhere: i32,
    #[prost(bool, tag = "3")]
    pub is_without_dwarf: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum WireExternalDwarf {
    None = 0,
    Split = 1,
    Common = 2,
}

#[derive(Clone, PartialEq, Message)]
pub struct WireExtractionFailure {
    #[prost(oneof = "ExtractionFailureKind", tags = "1, 2, 3")]
    pub kind: Option<ExtractionFailureKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum ExtractionFailureKind {
    #[prost(message, tag = "1")]
    Refused(WireReason),
    #[prost(message, tag = "2")]
    Changed(Empty),
    /// The build ID found.
    #[prost(string, tag = "3")]
    Replaced(String),
}

#[derive(Clone, PartialEq, Message)]
pub struct WireReason {
    #[prost(string, tag = "1")]
    pub reason: String,
    #[prost(string, tag = "2")]
    pub why: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct WireCompanionRequest {
    #[prost(oneof = "CompanionKind", tags = "1, 2, 3, 4")]
    pub kind: Option<CompanionKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum CompanionKind {
    #[prost(message, tag = "1")]
    Separate(Empty),
    #[prost(message, tag = "2")]
    Common(WireLink),
    #[prost(message, tag = "3")]
    Package(Empty),
    #[prost(message, tag = "4")]
    Split(WireSplit),
}

#[derive(Clone, PartialEq, Message)]
pub struct WireLink {
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub id: Vec<u8>,
    #[prost(bool, tag = "3")]
    pub is_checksum: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct WireSplit {
    #[prost(bytes = "vec", tag = "1")]
    pub compiled_in: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
}

// === To and from the supervisor ===

/// Asks for a reader, with the reader's socket and with a socket for [`Event`]s. The reader runs until the agent closes the
/// latter.
#[derive(Clone, PartialEq, Message)]
pub struct Start {
    #[prost(uint64, tag = "1")]
    pub max_memory: u64,
    #[prost(bool, tag = "2")]
    pub low_priority: bool,
    #[prost(enumeration = "ReaderKind", tag = "3")]
    pub kind: i32,
}

/// What a process reads files for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum ReaderKind {
    Symbols = 0,
    UnwindTables = 1,
}

#[derive(Clone, PartialEq, Message)]
pub struct Event {
    #[prost(oneof = "EventKind", tags = "1, 2, 3")]
    pub kind: Option<EventKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum EventKind {
    /// The PID of the reader.
    #[prost(uint32, tag = "1")]
    Started(u32),
    #[prost(string, tag = "2")]
    NotStarted(String),
    #[prost(message, tag = "3")]
    Ended(WireExit),
}

#[derive(Clone, PartialEq, Message)]
pub struct WireExit {
    #[prost(int32, optional, tag = "1")]
    pub code: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub signal: Option<i32>,
}

// === impl ===

impl From<RequestKind> for Request {
    fn from(kind: RequestKind) -> Self {
        Self { kind: Some(kind) }
    }
}

impl From<ResponseKind> for Response {
    fn from(kind: ResponseKind) -> Self {
        Self { kind: Some(kind) }
    }
}

impl From<EventKind> for Event {
    fn from(kind: EventKind) -> Self {
        Self { kind: Some(kind) }
    }
}

impl Resolve {
    pub fn new(
        key: u64,
        addresses: &[FileAddress],
        style: Option<Style>,
        budget: Duration,
    ) -> Self {
        let style = match style {
            None => WireStyle::None,
            Some(Style::Short) => WireStyle::Short,
            Some(Style::Full) => WireStyle::Full,
        };
        Self {
            key,
            addresses: addresses.iter().map(WireAddress::from).collect(),
            style: style.into(),
            budget_nanos: nanos(budget),
        }
    }

    pub fn demangle(&self) -> Option<Style> {
        match self.style() {
            WireStyle::None => None,
            WireStyle::Short => Some(Style::Short),
            WireStyle::Full => Some(Style::Full),
        }
    }
}

impl From<&FileAddress> for WireAddress {
    fn from(address: &FileAddress) -> Self {
        let (at, is_offset) = match *address {
            FileAddress::Virtual(at) => (at, false),
            FileAddress::FileOffset(at) => (at, true),
        };
        Self { at, is_offset }
    }
}

impl From<&WireAddress> for FileAddress {
    fn from(address: &WireAddress) -> Self {
        match address.is_offset {
            false => Self::Virtual(address.at),
            true => Self::FileOffset(address.at),
        }
    }
}

impl WireResolved {
    pub fn of(found: &Resolved) -> Self {
        let mut texts = Texts::default();
        let addresses = found.answers.iter().map(|answer| match answer {
            Ok(frames) => WireAnswer {
                frames: frames.iter().map(|frame| texts.frame(frame)).collect(),
                is_too_much_work: false,
            },
            Err(why) => WireAnswer {
                frames: Vec::new(),
                is_too_much_work: *why == Unresolved::TooMuchWork,
            },
        });
        Self {
            addresses: addresses.collect(),
            texts: texts.list,
            cpu_nanos: nanos(found.cpu),
        }
    }

    /// The checked answers to a request for this many addresses, which took this long.
    pub fn checked(self, asked: usize, took: Duration) -> Result<Resolved, Invalid> {
        if self.addresses.is_empty() || self.addresses.len() > asked {
            return Err(Invalid("more answers than addresses, or none"));
        }
        let texts: Vec<Arc<str>> = self.texts.into_iter().map(Arc::from).collect();
        let text = |index: u32| {
            let text = texts.get(index as usize).cloned();
            text.ok_or(Invalid("string index out of bounds"))
        };
        let frame = |frame: WireFrame| {
            Ok(ResolvedFrame {
                name: text(frame.name)?,
                system_name: text(frame.system_name)?,
                file: text(frame.file)?,
                line: frame.line,
                column: frame.column,
                start_line: frame.start_line,
            })
        };
        let mut answers = Vec::with_capacity(self.addresses.len());
        for address in self.addresses {
            if address.frames.len() > MAX_FRAMES {
                return Err(Invalid("too many frames at an address"));
            }
            answers.push(
                match (address.frames.is_empty(), address.is_too_much_work) {
                    (false, false) => Ok(address
                        .frames
                        .into_iter()
                        .map(frame)
                        .collect::<Result<_, _>>()?),
                    (true, false) => Err(Unresolved::NotFound),
                    (true, true) => Err(Unresolved::TooMuchWork),
                    (false, true) => return Err(Invalid("both frames and an error")),
                },
            );
        }
        // More than one processor cannot be in use.
        let cpu = Duration::from_nanos(self.cpu_nanos).min(took);
        Ok(Resolved { answers, cpu })
    }
}

/// The distinct texts of an answer.
#[derive(Default)]
struct Texts {
    list: Vec<String>,
    known: std::collections::HashMap<Arc<str>, u32>,
}

impl Texts {
    fn frame(&mut self, frame: &ResolvedFrame) -> WireFrame {
        WireFrame {
            name: self.index(&frame.name),
            system_name: self.index(&frame.system_name),
            file: self.index(&frame.file),
            line: frame.line,
            column: frame.column,
            start_line: frame.start_line,
        }
    }

    fn index(&mut self, text: &Arc<str>) -> u32 {
        *self.known.entry(Arc::clone(text)).or_insert_with(|| {
            self.list.push(text.to_string());
            (self.list.len() - 1) as u32
        })
    }
}

impl From<&ExtractOptions> for WireExtractOptions {
    fn from(options: &ExtractOptions) -> Self {
        Self {
            strip: options.strip,
            max_bytes: options.max_bytes,
            max_compression_nanos: options.max_compression_time.map(nanos),
            build_id: options.build_id.clone(),
        }
    }
}

impl From<WireExtractOptions> for ExtractOptions {
    fn from(wire: WireExtractOptions) -> Self {
        Self {
            strip: wire.strip,
            max_bytes: wire.max_bytes,
            max_compression_time: wire.max_compression_nanos.map(Duration::from_nanos),
            build_id: wire.build_id,
        }
    }
}

impl From<Planned> for WirePlanned {
    fn from(planned: Planned) -> Self {
        let elsewhere = match planned.elsewhere {
            None => WireExternalDwarf::None,
            Some(ExternalDwarf::Split) => WireExternalDwarf::Split,
            Some(ExternalDwarf::Common) => WireExternalDwarf::Common,
        };
        Self {
            size: planned.size,
            elsewhere: elsewhere.into(),
            is_without_dwarf: planned.is_without_dwarf,
        }
    }
}

impl From<WirePlanned> for Planned {
    fn from(wire: WirePlanned) -> Self {
        Self {
            size: wire.size,
            elsewhere: match wire.elsewhere() {
                WireExternalDwarf::None => None,
                WireExternalDwarf::Split => Some(ExternalDwarf::Split),
                WireExternalDwarf::Common => Some(ExternalDwarf::Common),
            },
            is_without_dwarf: wire.is_without_dwarf,
        }
    }
}

impl From<ExtractionFailure> for WireExtractionFailure {
    fn from(failure: ExtractionFailure) -> Self {
        let refused = |reason: &str, why: String| {
            ExtractionFailureKind::Refused(WireReason {
                reason: reason.to_owned(),
                why: bounded(why),
            })
        };
        let kind = match failure {
            ExtractionFailure::Refused { reason, why } => refused(reason, why),
            ExtractionFailure::Changed => ExtractionFailureKind::Changed(Empty {}),
            ExtractionFailure::Replaced { found } => {
                ExtractionFailureKind::Replaced(bounded(found))
            }
            // A process that reads by itself has no other and is not stopped.
            ExtractionFailure::Reader(_) | ExtractionFailure::Stopped => {
                refused("unreadable", failure.to_string())
            }
        };
        Self { kind: Some(kind) }
    }
}

impl WireExtractionFailure {
    pub fn checked(self) -> Result<ExtractionFailure, Invalid> {
        Ok(match self.kind {
            Some(ExtractionFailureKind::Refused(WireReason { reason, why })) => {
                let mut reasons = ExtractError::REASONS.into_iter();
                let reason = reasons.find(|&known| known == reason);
                ExtractionFailure::Refused {
                    reason: reason.ok_or(Invalid("an unknown reason"))?,
                    why: bounded(why),
                }
            }
            Some(ExtractionFailureKind::Changed(Empty {})) => ExtractionFailure::Changed,
            Some(ExtractionFailureKind::Replaced(found)) => ExtractionFailure::Replaced {
                found: bounded(found),
            },
            None => return Err(Invalid("an empty failure")),
        })
    }
}

impl WireCompanionRequest {
    pub fn common(link: &CommonLink) -> CompanionKind {
        let id = link.build_id().or(link.checksum());
        CompanionKind::Common(WireLink {
            path: link.path().as_os_str().as_bytes().to_vec(),
            id: id.unwrap_or_default().to_vec(),
            is_checksum: link.checksum().is_some(),
        })
    }

    pub fn split(compiled_in: &Path, name: &Path) -> CompanionKind {
        CompanionKind::Split(WireSplit {
            compiled_in: compiled_in.as_os_str().as_bytes().to_vec(),
            name: name.as_os_str().as_bytes().to_vec(),
        })
    }
}

impl WireLink {
    pub fn checked(self) -> Result<CommonLink, Invalid> {
        if self.id.len() > MAX_ID {
            return Err(Invalid("ID too long"));
        }
        Ok(CommonLink::new(path(self.path)?, self.id, self.is_checksum))
    }
}

impl WireSplit {
    /// The compilation directory and the name.
    pub fn checked(self) -> Result<(PathBuf, PathBuf), Invalid> {
        Ok((path(self.compiled_in)?, path(self.name)?))
    }
}

fn path(bytes: Vec<u8>) -> Result<PathBuf, Invalid> {
    if bytes.len() > MAX_PATH || bytes.contains(&0) {
        return Err(Invalid("an invalid path"));
    }
    Ok(OsString::from_vec(bytes).into())
}

/// A text about a file, of bounded length.
pub fn bounded(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT));
    text
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(name: &str) -> ResolvedFrame {
        ResolvedFrame {
            name: name.into(),
            system_name: "_Z4name".into(),
            file: "file.c".into(),
            line: 3,
            column: 2,
            start_line: 1,
        }
    }

    fn found() -> Resolved {
        Resolved {
            answers: vec![
                Ok(vec![frame("inner"), frame("outer")]),
                Err(Unresolved::NotFound),
                Err(Unresolved::TooMuchWork),
            ],
            cpu: Duration::from_millis(3),
        }
    }

    #[test]
    fn answers_arrive_as_they_were_given() {
        let wire = WireResolved::of(&found());
        assert_eq!(wire.texts.len(), 4, "each text once");
        let second = Duration::from_secs(1);
        assert_eq!(wire.clone().checked(3, second), Ok(found()));
        let short = Duration::from_millis(1);
        assert_eq!(wire.checked(9, short).unwrap().cpu, short, "it lies");
    }

    #[test]
    fn what_a_hostile_reader_says_is_refused() {
        let right = WireResolved::of(&found());
        type Edit = fn(&mut WireResolved);
        let edits: [(&str, Edit); 6] = [
            ("no answer", |it| it.addresses.clear()),
            ("one answer too many", |it| {
                it.addresses.push(WireAnswer::default())
            }),
            ("a text that is not there", |it| {
                it.addresses[0].frames[1].name = 4
            }),
            ("a huge index", |it| {
                it.addresses[0].frames[0].file = u32::MAX
            }),
            ("too many frames", |it| {
                it.addresses[0].frames = vec![WireFrame::default(); MAX_FRAMES + 1];
            }),
            ("a contradiction", |it| {
                it.addresses[0].is_too_much_work = true
            }),
        ];
        for (what, edit) in edits {
            let mut wrong = right.clone();
            edit(&mut wrong);
            assert!(wrong.checked(3, Duration::MAX).is_err(), "{what}");
        }
        let link = |path: &[u8], id: &[u8]| WireLink {
            path: path.to_vec(),
            id: id.to_vec(),
            is_checksum: false,
        };
        assert!(link(b"a/b", &[1; 20]).checked().is_ok());
        assert!(link(b"a/b", &[1; MAX_ID + 1]).checked().is_err());
        assert!(link(b"a\0b", &[1]).checked().is_err());
        assert!(link(&[b'a'; MAX_PATH + 1], &[1]).checked().is_err());
        assert!(Response::decode(&b"\xff\xff\xff"[..]).is_err());
    }

    #[test]
    fn remarks_are_short() {
        assert_eq!(bounded("ä".repeat(MAX_TEXT)).len(), MAX_TEXT);
        assert_eq!(bounded("short".to_owned()), "short");
    }
}
