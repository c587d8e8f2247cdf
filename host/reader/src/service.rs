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

use crate::channel::{Channel, Full, MAX_MESSAGE, Received};
use crate::messages::{
    Answer, Ask, Find, Nothing, Open, Ready, Reply, Request, Shrunk, Sought, WireCompanion,
    WireFound, WireOpened, WireRefused, remark,
};
use crate::tables::{Tables, cpu_time};
use crate::{Failed, Found, Place};

/// The socket to the agent.
struct Agent(RefCell<Channel>);

/// Reads executables for the agent, until it closes the socket. `missing` names the restrictions that the kernel lacks.
pub fn serve(socket: OwnedFd, missing: String) -> io::Result<()> {
    let agent = Rc::new(Agent(RefCell::new(Channel::new(socket))));
    let mut tables = Tables::default();
    agent.tell(Answer::Ready(Ready { missing }))?;
    while let Some((ask, files)) = agent.next()? {
        match ask {
            Ask::Open(open) => agent.tell(opened(&mut tables, &agent, &open, files))?,
            Ask::Find(find) => agent.tell(found(&mut tables, &find))?,
            Ask::Shrink(shrink) => {
                let limit = usize::try_from(shrink.limit).unwrap_or(usize::MAX);
                let weight = tables.shrink(shrink.key, limit) as u64;
                agent.tell(Answer::Shrunk(Shrunk { weight }))?;
            }
            // Not answered.
            Ask::Forget(forget) => tables.forget(forget.key),
            // It was not asked for.
            Ask::Companion(Nothing {}) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
    Ok(())
}

fn opened(tables: &mut Tables, agent: &Rc<Agent>, open: &Open, files: Vec<OwnedFd>) -> Answer {
    let Some(file) = files.into_iter().next() else {
        let why = "too many open files".to_owned();
        return Answer::Refused(WireRefused { why: Some(why) });
    };
    let file = Rc::new(File::from(file));
    match tables.open(open.key, file, Rc::<Agent>::clone(agent), open.max_unpacked) {
        Ok(opened) => Answer::Opened(WireOpened {
            weight: opened.weight as u64,
            damage: opened.damage.map(remark),
        }),
        Err(Failed::Refused(why)) => Answer::Refused(WireRefused {
            why: Some(remark(why)),
        }),
        Err(_) => Answer::Refused(WireRefused { why: None }),
    }
}

fn found(tables: &mut Tables, find: &Find) -> Answer {
    let began = cpu_time();
    let places: Vec<Place> = find.places.iter().map(Place::from).collect();
    let budget = Duration::from_nanos(find.budget_nanos);
    let Some(mut found) = tables.find(find.key, &places, find.demangle(), budget) else {
        let why = "not open".to_owned();
        return Answer::Refused(WireRefused { why: Some(why) });
    };
    found.cpu = cpu_time().saturating_sub(began);
    Answer::Found(fitting(&mut found))
}

/// As many answers as fit into a message; at least one.
fn fitting(found: &mut Found) -> WireFound {
    loop {
        let wire = WireFound::of(found);
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
    fn tell(&self, answer: Answer) -> io::Result<()> {
        let content = Reply::from(answer).encode_to_vec();
        self.0.borrow().send(&content, &[], Full::Waits)
    }

    /// The next request; `None` once the agent has closed the socket.
    fn next(&self) -> io::Result<Option<(Ask, Vec<OwnedFd>)>> {
        let mut channel = self.0.borrow_mut();
        loop {
            match channel.receive()? {
                Received::Message(message) => {
                    let request = Request::decode(&*message.content)?;
                    let ask = request.ask.ok_or(io::ErrorKind::InvalidData)?;
                    return Ok(Some((ask, message.files)));
                }
                Received::Nothing => channel.wait(None)?,
                Received::Closed => return Ok(None),
            }
        }
    }

    /// Asks for a companion file. If the socket fails, the next request ends the reader.
    fn seek(&self, sought: Sought) -> Option<File> {
        let wish = WireCompanion {
            sought: Some(sought),
        };
        self.tell(Answer::Companion(wish)).ok()?;
        match self.next().ok()?? {
            (Ask::Companion(Nothing {}), files) => Some(files.into_iter().next()?.into()),
            _ => None,
        }
    }
}

impl CompanionFiles for Agent {
    /// The agent knows the executable.
    fn separate(&self, _: &dyn Source) -> Option<File> {
        self.seek(Sought::Separate(Nothing {}))
    }

    fn common(&self, link: &CommonLink) -> Option<File> {
        self.seek(WireCompanion::common(link))
    }

    fn package(&self) -> Option<File> {
        self.seek(Sought::Package(Nothing {}))
    }

    fn split(&self, compiled_in: &Path, name: &Path) -> Option<File> {
        self.seek(WireCompanion::split(compiled_in, name))
    }
}
