//! The agent's side of a process that resolves addresses in executables.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use profcol_symbols::{CompanionFiles, Style};
use prost::Message;

use crate::failure::{Interrupted, ReaderFailure};
use crate::messages::{
    CompanionKind, Empty, Forget, Invalid, Open, ReaderKind, Request, RequestKind, Resolve,
    ResponseKind, Shrink, WireCompanionRequest, bounded,
};
use crate::process::{NotReady, ReaderProcess};
use crate::readers::{Limits, Readers};
use crate::request::request;
use crate::{FileAddress, KeepGoing, OpenExecutable, Opened, ReadError, Resolved};

/// Companion files that a reader may ask for in one request: a package, or a `.dwo` file for each unit that it reads.
const MAX_COMPANIONS: usize = 4096;

pub struct SymbolReader(ReaderProcess);

impl SymbolReader {
    pub fn new(
        readers: Readers,
        limits: Limits,
        report: impl Fn(&ReaderFailure) + Send + 'static,
    ) -> Self {
        Self(ReaderProcess::new(
            readers,
            ReaderKind::Symbols,
            limits,
            report,
        ))
    }

    /// Whether a new process was started, as there was none.
    pub fn ensure_running(&mut self, keep_going: &KeepGoing) -> Result<bool, NotReady> {
        self.0.ensure_running(&**keep_going)
    }

    pub fn open(
        &mut self,
        key: u64,
        executable: &OpenExecutable,
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
            _ => Err(self.0.reject("a response to another request").into()),
        }
    }

    pub fn find(
        &mut self,
        key: u64,
        executable: &OpenExecutable,
        addresses: &[FileAddress],
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
        found.map_err(|Invalid(why)| self.0.reject(why).into())
    }

    pub fn shrink(
        &mut self,
        key: u64,
        executable: &OpenExecutable,
        limit: usize,
        keep_going: &KeepGoing,
    ) -> Result<usize, ReadError> {
        let limit = limit as u64;
        let request = RequestKind::Shrink(Shrink { key, limit });
        match self.request(request, &[], executable, keep_going)?.0 {
            ResponseKind::Shrunk(shrunk) => Ok(self.weight(shrunk.weight)),
            _ => Err(self.0.reject("a response to another request").into()),
        }
    }

    /// Not answered: a reader that is gone has forgotten it.
    pub fn forget(&mut self, key: u64) {
        let message = Request::from(RequestKind::Forget(Forget { key }));
        self.0.notify(&message.encode_to_vec());
    }

    fn request(
        &mut self,
        kind: RequestKind,
        files: &[BorrowedFd<'_>],
        executable: &OpenExecutable,
        keep_going: &KeepGoing,
    ) -> Result<(ResponseKind, Duration), ReadError> {
        let mut companions = 0;
        let companion = |request| {
            companions += 1;
            if companions > MAX_COMPANIONS {
                return Err(Invalid("too many requests for companion files"));
            }
            companion(request, executable)
        };
        Ok(request(&mut self.0, kind, files, companion, &**keep_going)?)
    }

    /// The weight of tables, which can be no more than the reader's memory.
    fn weight(&self, reported: u64) -> usize {
        let reported = usize::try_from(reported).unwrap_or(usize::MAX);
        reported.min(self.0.limits().max_memory.saturating_mul(2))
    }
}

impl From<Interrupted> for ReadError {
    fn from(interrupted: Interrupted) -> Self {
        match interrupted {
            Interrupted::Failed(failure) => Self::Reader(failure),
            Interrupted::Stopped => Self::Stopped,
        }
    }
}

/// The companion file that a reader asks for, found by the agent's rules.
fn companion(
    request: WireCompanionRequest,
    executable: &OpenExecutable,
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
