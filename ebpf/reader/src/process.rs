//! The profiler's side of the process that builds tables.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use profcol_ebpf_unwind::Table;
use profcol_reader::{
    Interrupted, Invalid, Limits, Next, NotReady, ReaderFailure, ReaderKind, ReaderProcess,
    Readers, bounded,
};
use prost::Message;

use crate::messages::{
    Build, LazyTable, Pages, PartialTable, Request, RequestKind, Response, ResponseKind,
};
use crate::{Built, FileFeatures, ReadError};

pub struct TableProcess {
    process: ReaderProcess,
    /// The files whose index is open there.
    open: HashSet<u64>,
}

impl TableProcess {
    pub fn new(
        readers: Readers,
        limits: Limits,
        report: impl Fn(&ReaderFailure) + Send + 'static,
    ) -> Self {
        Self {
            process: ReaderProcess::new(readers, ReaderKind::UnwindTables, limits, report),
            open: HashSet::new(),
        }
    }

    pub fn ensure_running(&mut self, keep_going: &dyn Fn() -> bool) -> Result<(), NotReady> {
        if self.process.ensure_running(keep_going)? {
            self.open.clear();
        }
        Ok(())
    }

    pub fn is_running(&self) -> bool {
        self.process.is_running()
    }

    pub fn stop(&mut self) {
        self.process.stop();
        self.open.clear();
    }

    pub fn read(
        &mut self,
        key: u64,
        file: &File,
        may_be_lazy: bool,
        features: &mut FileFeatures,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<Built, ReadError> {
        let request = Build {
            key,
            may_be_lazy,
            is_reopened: false,
        };
        self.build(request, file, Some(features), keep_going)
    }

    fn build(
        &mut self,
        request: Build,
        file: &File,
        features: Option<&mut FileFeatures>,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<Built, ReadError> {
        let Build {
            key, may_be_lazy, ..
        } = request;
        let request = RequestKind::Build(request);
        let built = self.request(request, &[file.as_fd()], features, keep_going)?;
        match built {
            Built::Lazy if !may_be_lazy => Err(self.process.reject("no table").into()),
            Built::Lazy => {
                self.open.insert(key);
                Ok(Built::Lazy)
            }
            whole => Ok(whole),
        }
    }

    pub fn pages(
        &mut self,
        key: u64,
        file: &File,
        begin: u64,
        count: u64,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<Table, ReadError> {
        if !self.open.contains(&key) {
            let request = Build {
                key,
                may_be_lazy: true,
                is_reopened: true,
            };
            if let Built::Whole(_) = self.build(request, file, None, keep_going)? {
                return Err(ReadError::Refused("it has no index any more".to_owned()));
            }
        }
        let request = RequestKind::Pages(Pages { key, begin, count });
        match self.request(request, &[], None, keep_going)? {
            Built::Whole(table)
                if table.first_page == begin && table.pages.len() as u64 == count =>
            {
                Ok(table)
            }
            _ => Err(self.process.reject("other pages than requested").into()),
        }
    }

    /// Not answered: a process that is gone has forgotten it.
    pub fn forget(&mut self, key: u64) {
        if self.open.remove(&key) {
            let request = Request::from(RequestKind::Forget(key));
            self.process.notify(&request.encode_to_vec());
        }
    }

    fn request(
        &mut self,
        kind: RequestKind,
        files: &[BorrowedFd<'_>],
        mut features: Option<&mut FileFeatures>,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<Built, ReadError> {
        let request = Request::from(kind).encode_to_vec();
        let mut partial = PartialTable::default();
        let mut answer = None;
        self.process
            .exchange(&request, files, keep_going, |message| {
                let response = Response::decode(&*message.content);
                let response = response.map_err(|_| Invalid("a message that is no response"))?;
                answer = Some(match response.kind {
                    Some(ResponseKind::Features(wire)) => {
                        let features = features.take().ok_or(Invalid("more than was requested"))?;
                        *features = wire.checked()?;
                        return Ok(Next::More);
                    }
                    Some(ResponseKind::Chunk(chunk)) => {
                        partial.add(&chunk)?;
                        if !chunk.is_last {
                            return Ok(Next::More);
                        }
                        Ok(Built::Whole(std::mem::take(&mut partial).finish()?))
                    }
                    Some(ResponseKind::Lazy(LazyTable {})) => Ok(Built::Lazy),
                    Some(ResponseKind::Refused(why)) => Err(ReadError::Refused(bounded(why))),
                    None => return Err(Invalid("an empty response")),
                });
                Ok(Next::Done)
            })?;
        answer.unwrap_or_else(|| Err(self.process.reject("an empty response").into()))
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
