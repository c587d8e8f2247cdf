//! The reader's side: answers the agent until it closes the socket.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use profcol_debuginfo::CommonLink;
use profcol_elf::Source;
use profcol_symbols::{CompanionFiles, Unresolved};
use prost::Message;

use crate::channel::{Channel, MAX_MESSAGE, Received, SendMode};
use crate::extract::{Extracting, ExtractionFailure};
use crate::messages::{
    CompanionKind, Empty, Open, Ready, Request, RequestKind, Resolve, Response, ResponseKind,
    Shrunk, WireCompanionRequest, WireExtractOptions, WireOpened, WireRefused, WireResolved,
    bounded,
};
use crate::tables::{Tables, cpu_time};
use crate::{FileAddress, ReadError, Resolved};

/// The socket to the agent.
struct Agent(RefCell<Channel>);

/// Tells the agent that this process serves it; `missing` names the restrictions that the kernel lacks.
pub fn notify_ready(channel: &Channel, missing: String) -> io::Result<()> {
    let ready = Response::from(ResponseKind::Ready(Ready { missing }));
    channel.send(&ready.encode_to_vec(), &[], SendMode::Blocking)
}

/// Reads executables for the agent, until it closes the socket.
pub fn serve(socket: OwnedFd, missing: String) -> io::Result<()> {
    let agent = Rc::new(Agent(RefCell::new(Channel::new(socket))));
    let mut tables = Tables::default();
    let mut extracting = None;
    notify_ready(&agent.0.borrow(), missing)?;
    while let Some((request, files)) = agent.next()? {
        match request {
            RequestKind::Open(open) => agent.respond(opened(&mut tables, &agent, &open, files))?,
            RequestKind::Resolve(find) => agent.respond(found(&mut tables, &find))?,
            RequestKind::Shrink(shrink) => {
                let limit = usize::try_from(shrink.limit).unwrap_or(usize::MAX);
                let weight = tables.shrink(shrink.key, limit) as u64;
                agent.respond(ResponseKind::Shrunk(Shrunk { weight }))?;
            }
            // Not answered.
            RequestKind::Forget(forget) => tables.forget(forget.key),
            RequestKind::Extract(options) => {
                agent.respond(planned(&mut extracting, &agent, options, files))?;
            }
            RequestKind::Piece(Empty {}) => agent.respond(piece(extracting.as_mut()))?,
            // It was not asked for.
            RequestKind::Companion(Empty {}) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
    Ok(())
}

fn opened(
    tables: &mut Tables,
    agent: &Rc<Agent>,
    open: &Open,
    files: Vec<OwnedFd>,
) -> ResponseKind {
    let Some(file) = files.into_iter().next() else {
        let why = "too many open files".to_owned();
        return ResponseKind::Refused(WireRefused { why: Some(why) });
    };
    let file = Rc::new(File::from(file));
    match tables.open(open.key, file, Rc::<Agent>::clone(agent), open.max_unpacked) {
        Ok(opened) => ResponseKind::Opened(WireOpened {
            weight: opened.weight as u64,
            damage: opened.damage.map(bounded),
        }),
        Err(ReadError::Refused(why)) => ResponseKind::Refused(WireRefused {
            why: Some(bounded(why)),
        }),
        Err(_) => ResponseKind::Refused(WireRefused { why: None }),
    }
}

fn found(tables: &mut Tables, find: &Resolve) -> ResponseKind {
    let began = cpu_time();
    let addresses: Vec<FileAddress> = find.addresses.iter().map(FileAddress::from).collect();
    let budget = Duration::from_nanos(find.budget_nanos);
    let Some(mut found) = tables.find(find.key, &addresses, find.demangle(), budget) else {
        let why = "not open".to_owned();
        return ResponseKind::Refused(WireRefused { why: Some(why) });
    };
    found.cpu = cpu_time().saturating_sub(began);
    ResponseKind::Resolved(fitting(&mut found))
}

fn planned(
    extracting: &mut Option<Extracting>,
    agent: &Agent,
    options: WireExtractOptions,
    files: Vec<OwnedFd>,
) -> ResponseKind {
    let Some(file) = files.into_iter().next() else {
        return not_extracted(io::Error::other("too many open files"));
    };
    let find_debug_file = || agent.request_companion(CompanionKind::Separate(Empty {}));
    // The agent ends this process if it does not need it any more.
    match Extracting::plan(file.into(), &options.into(), &find_debug_file, &|| true) {
        Ok((plan, planned)) => {
            *extracting = Some(plan);
            ResponseKind::Planned(planned.into())
        }
        Err(failure) => not_extracted(failure),
    }
}

fn piece(extracting: Option<&mut Extracting>) -> ResponseKind {
    match extracting.map(Extracting::next) {
        Some(Ok(piece)) => ResponseKind::Piece(piece),
        Some(Err(failure)) => not_extracted(failure),
        None => not_extracted(io::Error::other("not open")),
    }
}

fn not_extracted(failure: impl Into<ExtractionFailure>) -> ResponseKind {
    ResponseKind::NotExtracted(failure.into().into())
}

/// As many answers as fit into a message; at least one.
fn fitting(found: &mut Resolved) -> WireResolved {
    loop {
        let wire = WireResolved::of(found);
        // The envelope has a few bytes.
        if wire.encoded_len() < MAX_MESSAGE - 64 {
            return wire;
        }
        match found.answers.as_mut_slice() {
            [one] => *one = Err(Unresolved::TooMuchWork),
            many => {
                let half = many.len() / 2;
                found.answers.truncate(half);
            }
        }
    }
}

impl Agent {
    fn respond(&self, kind: ResponseKind) -> io::Result<()> {
        let content = Response::from(kind).encode_to_vec();
        self.0.borrow().send(&content, &[], SendMode::Blocking)
    }

    /// The next request; `None` once the agent has closed the socket.
    fn next(&self) -> io::Result<Option<(RequestKind, Vec<OwnedFd>)>> {
        let mut channel = self.0.borrow_mut();
        loop {
            match channel.receive()? {
                Received::Message(message) => {
                    let request = Request::decode(&*message.content)?;
                    let kind = request.kind.ok_or(io::ErrorKind::InvalidData)?;
                    return Ok(Some((kind, message.files)));
                }
                Received::WouldBlock => channel.wait(None)?,
                Received::Closed => return Ok(None),
            }
        }
    }

    /// Asks for a companion file. If the socket fails, the next request ends the reader.
    fn request_companion(&self, kind: CompanionKind) -> Option<File> {
        let request = WireCompanionRequest { kind: Some(kind) };
        self.respond(ResponseKind::Companion(request)).ok()?;
        match self.next().ok()?? {
            (RequestKind::Companion(Empty {}), files) => Some(files.into_iter().next()?.into()),
            _ => None,
        }
    }
}

impl CompanionFiles for Agent {
    /// The agent knows the executable.
    fn separate(&self, _: &dyn Source) -> Option<File> {
        self.request_companion(CompanionKind::Separate(Empty {}))
    }

    fn common(&self, link: &CommonLink) -> Option<File> {
        self.request_companion(WireCompanionRequest::common(link))
    }

    fn package(&self) -> Option<File> {
        self.request_companion(CompanionKind::Package(Empty {}))
    }

    fn split(&self, compiled_in: &Path, name: &Path) -> Option<File> {
        self.request_companion(WireCompanionRequest::split(compiled_in, name))
    }
}
