//! What the agent and a reader tell each other.
//!
//! The reader may be hostile once a file has exploited it: what it says is checked before it is used.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use profcol_debuginfo::CommonLink;
use profcol_symbols::{Style, Unresolved};
use prost::{Message, Oneof};

use crate::{Found, Frame, Place};

/// Frames at one address; more than `profcol_symbols` returns.
const MAX_FRAMES: usize = 1024;
/// Length of a text about a file.
const MAX_REMARK: usize = 1024;
/// Length of a path.
const MAX_PATH: usize = 64 << 10;
/// Length of the id of a companion file.
const MAX_ID: usize = 256;

/// An answer that no reader gives.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Invalid(pub &'static str);

// === To the reader ===

#[derive(Clone, PartialEq, Message)]
pub struct Request {
    #[prost(oneof = "Ask", tags = "1, 2, 3, 4, 5")]
    pub ask: Option<Ask>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Ask {
    /// With the file.
    #[prost(message, tag = "1")]
    Open(Open),
    #[prost(message, tag = "2")]
    Find(Find),
    #[prost(message, tag = "3")]
    Shrink(Shrink),
    #[prost(message, tag = "4")]
    Forget(Forget),
    /// Answers [`Answer::Companion`], with the file if there is one.
    #[prost(message, tag = "5")]
    Companion(Nothing),
}

#[derive(Clone, PartialEq, Message)]
pub struct Nothing {}

#[derive(Clone, PartialEq, Message)]
pub struct Open {
    #[prost(uint64, tag = "1")]
    pub key: u64,
    #[prost(uint64, tag = "2")]
    pub max_unpacked: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Find {
    #[prost(uint64, tag = "1")]
    pub key: u64,
    #[prost(message, repeated, tag = "2")]
    pub places: Vec<WirePlace>,
    #[prost(enumeration = "WireStyle", tag = "3")]
    pub style: i32,
    #[prost(uint64, tag = "4")]
    pub budget_nanos: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct WirePlace {
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

// === From the reader ===

#[derive(Clone, PartialEq, Message)]
pub struct Reply {
    #[prost(oneof = "Answer", tags = "1, 2, 3, 4, 5, 6")]
    pub answer: Option<Answer>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Answer {
    /// After its start.
    #[prost(message, tag = "1")]
    Ready(Ready),
    #[prost(message, tag = "2")]
    Opened(WireOpened),
    #[prost(message, tag = "3")]
    Refused(WireRefused),
    #[prost(message, tag = "4")]
    Found(WireFound),
    #[prost(message, tag = "5")]
    Shrunk(Shrunk),
    /// Asks for a companion file of the executable that it reads.
    #[prost(message, tag = "6")]
    Companion(WireCompanion),
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
pub struct WireFound {
    /// For the first places of the request.
    #[prost(message, repeated, tag = "1")]
    pub places: Vec<WireAnswer>,
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
pub struct WireCompanion {
    #[prost(oneof = "Sought", tags = "1, 2, 3, 4")]
    pub sought: Option<Sought>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Sought {
    #[prost(message, tag = "1")]
    Separate(Nothing),
    #[prost(message, tag = "2")]
    Common(WireLink),
    #[prost(message, tag = "3")]
    Package(Nothing),
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
    pub is_low: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Event {
    #[prost(oneof = "Happened", tags = "1, 2, 3")]
    pub happened: Option<Happened>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Happened {
    /// Its PID.
    #[prost(uint32, tag = "1")]
    Started(u32),
    #[prost(string, tag = "2")]
    NotStarted(String),
    #[prost(message, tag = "3")]
    Ended(WireEnd),
}

#[derive(Clone, PartialEq, Message)]
pub struct WireEnd {
    #[prost(int32, optional, tag = "1")]
    pub code: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub signal: Option<i32>,
}

// === impl ===

impl From<Ask> for Request {
    fn from(ask: Ask) -> Self {
        Self { ask: Some(ask) }
    }
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self {
            answer: Some(answer),
        }
    }
}

impl From<Happened> for Event {
    fn from(happened: Happened) -> Self {
        Self {
            happened: Some(happened),
        }
    }
}

impl Find {
    pub fn new(key: u64, places: &[Place], style: Option<Style>, budget: Duration) -> Self {
        let style = match style {
            None => WireStyle::None,
            Some(Style::Short) => WireStyle::Short,
            Some(Style::Full) => WireStyle::Full,
        };
        Self {
            key,
            places: places.iter().map(WirePlace::from).collect(),
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

impl From<&Place> for WirePlace {
    fn from(place: &Place) -> Self {
        let (at, is_offset) = match *place {
            Place::Virtual(at) => (at, false),
            Place::FileOffset(at) => (at, true),
        };
        Self { at, is_offset }
    }
}

impl From<&WirePlace> for Place {
    fn from(place: &WirePlace) -> Self {
        match place.is_offset {
            false => Self::Virtual(place.at),
            true => Self::FileOffset(place.at),
        }
    }
}

impl WireFound {
    pub fn of(found: &Found) -> Self {
        let mut texts = Texts::default();
        let places = found.answers.iter().map(|answer| match answer {
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
            places: places.collect(),
            texts: texts.list,
            cpu_nanos: nanos(found.cpu),
        }
    }

    /// The checked answers to a request for this many places, which took this long.
    pub fn checked(self, asked: usize, took: Duration) -> Result<Found, Invalid> {
        if self.places.is_empty() || self.places.len() > asked {
            return Err(Invalid("more answers than questions, or none"));
        }
        let texts: Vec<Arc<str>> = self.texts.into_iter().map(Arc::from).collect();
        let text = |index: u32| {
            let text = texts.get(index as usize).cloned();
            text.ok_or(Invalid("a text that it did not send"))
        };
        let frame = |frame: WireFrame| {
            Ok(Frame {
                name: text(frame.name)?,
                system_name: text(frame.system_name)?,
                file: text(frame.file)?,
                line: frame.line,
                column: frame.column,
                start_line: frame.start_line,
            })
        };
        let mut answers = Vec::with_capacity(self.places.len());
        for place in self.places {
            if place.frames.len() > MAX_FRAMES {
                return Err(Invalid("too many frames at an address"));
            }
            answers.push(match (place.frames.is_empty(), place.is_too_much_work) {
                (false, false) => Ok(place
                    .frames
                    .into_iter()
                    .map(frame)
                    .collect::<Result<_, _>>()?),
                (true, false) => Err(Unresolved::NotFound),
                (true, true) => Err(Unresolved::TooMuchWork),
                (false, true) => return Err(Invalid("both frames and none")),
            });
        }
        // More than one processor cannot be in use.
        let cpu = Duration::from_nanos(self.cpu_nanos).min(took);
        Ok(Found { answers, cpu })
    }
}

/// The distinct texts of an answer.
#[derive(Default)]
struct Texts {
    list: Vec<String>,
    known: std::collections::HashMap<Arc<str>, u32>,
}

impl Texts {
    fn frame(&mut self, frame: &Frame) -> WireFrame {
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

impl WireCompanion {
    pub fn common(link: &CommonLink) -> Sought {
        let id = link.build_id().or(link.checksum());
        Sought::Common(WireLink {
            path: link.path().as_os_str().as_bytes().to_vec(),
            id: id.unwrap_or_default().to_vec(),
            is_checksum: link.checksum().is_some(),
        })
    }

    pub fn split(compiled_in: &Path, name: &Path) -> Sought {
        Sought::Split(WireSplit {
            compiled_in: compiled_in.as_os_str().as_bytes().to_vec(),
            name: name.as_os_str().as_bytes().to_vec(),
        })
    }
}

impl WireLink {
    pub fn checked(self) -> Result<CommonLink, Invalid> {
        if self.id.len() > MAX_ID {
            return Err(Invalid("an id that is too long"));
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
        return Err(Invalid("a path that no file has"));
    }
    Ok(OsString::from_vec(bytes).into())
}

/// A text about a file, of bounded length.
pub fn remark(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_REMARK));
    text
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(name: &str) -> Frame {
        Frame {
            name: name.into(),
            system_name: "_Z4name".into(),
            file: "file.c".into(),
            line: 3,
            column: 2,
            start_line: 1,
        }
    }

    fn found() -> Found {
        Found {
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
        let wire = WireFound::of(&found());
        assert_eq!(wire.texts.len(), 4, "each text once");
        let second = Duration::from_secs(1);
        assert_eq!(wire.clone().checked(3, second), Ok(found()));
        let short = Duration::from_millis(1);
        assert_eq!(wire.checked(9, short).unwrap().cpu, short, "it lies");
    }

    #[test]
    fn what_a_hostile_reader_says_is_refused() {
        let right = WireFound::of(&found());
        type Edit = fn(&mut WireFound);
        let edits: [(&str, Edit); 6] = [
            ("no answer", |it| it.places.clear()),
            ("one answer too many", |it| {
                it.places.push(WireAnswer::default())
            }),
            ("a text that is not there", |it| {
                it.places[0].frames[1].name = 4
            }),
            ("a huge index", |it| it.places[0].frames[0].file = u32::MAX),
            ("endless frames", |it| {
                it.places[0].frames = vec![WireFrame::default(); MAX_FRAMES + 1];
            }),
            ("a contradiction", |it| it.places[0].is_too_much_work = true),
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
        assert!(Reply::decode(&b"\xff\xff\xff"[..]).is_err());
    }

    #[test]
    fn remarks_are_short() {
        assert_eq!(remark("ä".repeat(MAX_REMARK)).len(), MAX_REMARK);
        assert_eq!(remark("short".to_owned()), "short");
    }
}
