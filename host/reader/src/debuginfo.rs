//! Extracts the debuginfo of an executable, in a process of its own or in this one.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use crate::extract::{
    ExtractOptions, Extracting, ExtractionFailure, FindDebugFile, MAX_PIECE, Planned,
};
use crate::messages::{
    CompanionKind, Empty, Invalid, ReaderKind, RequestKind, ResponseKind, WireCompanionRequest,
    WireExtractionFailure,
};
use crate::process::{NotReady, ReaderProcess};
use crate::readers::{Limits, Readers};
use crate::request::request;

/// Memory of the process besides the program itself: headers, their names, and the state of the compressor.
const MAX_MEMORY: usize = 64 << 20;
/// How often a file is planned by another process after one failed.
const ATTEMPTS: u32 = 2;

/// Extracts the debuginfo of one file.
pub struct DebuginfoReader {
    /// `None` if none can be started.
    process: Option<ReaderProcess>,
    /// What this process reads itself.
    extracting: Option<Extracting>,
    /// Bytes that are still to be read.
    left: u64,
}

impl DebuginfoReader {
    /// `readers` start a process for it, or it reads in this thread.
    pub fn new(readers: &Readers) -> Self {
        let limits = Limits::new(MAX_MEMORY, true);
        let process = readers.is_available().then(|| {
            let readers = readers.clone();
            // Its caller reports each failure.
            ReaderProcess::new(readers, ReaderKind::Symbols, limits, |_| {})
        });
        Self {
            process,
            extracting: None,
            left: 0,
        }
    }

    /// To be called once.
    pub fn plan(
        &mut self,
        file: File,
        options: &ExtractOptions,
        find_debug_file: FindDebugFile<'_>,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<Planned, ExtractionFailure> {
        let mut planned = Err(ExtractionFailure::Stopped);
        for _ in 0..ATTEMPTS {
            if !self.is_ready(keep_going)? {
                let (extracting, planned) =
                    Extracting::plan(file, options, find_debug_file, keep_going)?;
                self.extracting = Some(extracting);
                self.left = planned.size;
                return Ok(planned);
            }
            planned = self.plan_in_process(&file, options, find_debug_file, keep_going);
            if !matches!(planned, Err(ExtractionFailure::Reader(_))) {
                break;
            }
        }
        planned
    }

    /// The next piece of the plan; `None` at its end.
    pub fn next(
        &mut self,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<u8>>, ExtractionFailure> {
        if self.left == 0 {
            return Ok(None);
        }
        let piece = match &mut self.extracting {
            Some(extracting) => extracting.next()?,
            None => self.next_of_process(keep_going)?,
        };
        if piece.is_empty() {
            return Err(ExtractionFailure::Changed);
        }
        self.left = self.left.saturating_sub(piece.len() as u64);
        Ok(Some(piece))
    }

    fn next_of_process(
        &mut self,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, ExtractionFailure> {
        let request = RequestKind::Piece(Empty {});
        match self.request(request, &[], &|| None, keep_going)? {
            ResponseKind::Piece(piece)
                if (1..=self.left.min(MAX_PIECE as u64)).contains(&(piece.len() as u64)) =>
            {
                Ok(piece)
            }
            ResponseKind::Piece(_) => Err(self.reject("another size than planned")),
            ResponseKind::NotExtracted(failure) => Err(self.failure(failure)),
            _ => Err(self.reject("a response to another request")),
        }
    }

    /// Whether a process can read; if none can be started, this thread does.
    fn is_ready(&mut self, keep_going: &dyn Fn() -> bool) -> Result<bool, ExtractionFailure> {
        let Some(process) = &mut self.process else {
            return Ok(false);
        };
        match process.ensure_running(keep_going) {
            Ok(_) => Ok(true),
            Err(NotReady::Stopped) => Err(ExtractionFailure::Stopped),
            Err(NotReady::Unavailable(why)) => {
                tracing::warn!(
                    %why,
                    "Failed to start a reader process; extracting debuginfo in this one, where a bug does more harm."
                );
                self.process = None;
                Ok(false)
            }
        }
    }

    fn plan_in_process(
        &mut self,
        file: &File,
        options: &ExtractOptions,
        find_debug_file: FindDebugFile<'_>,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<Planned, ExtractionFailure> {
        let request = RequestKind::Extract(options.into());
        match self.request(request, &[file.as_fd()], find_debug_file, keep_going)? {
            ResponseKind::Planned(planned) => {
                let planned = Planned::from(planned);
                self.left = planned.size;
                Ok(planned)
            }
            ResponseKind::NotExtracted(failure) => Err(self.failure(failure)),
            _ => Err(self.reject("a response to another request")),
        }
    }

    fn request(
        &mut self,
        kind: RequestKind,
        files: &[BorrowedFd<'_>],
        find_debug_file: FindDebugFile<'_>,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<ResponseKind, ExtractionFailure> {
        let Some(process) = &mut self.process else {
            return Err(ExtractionFailure::Stopped);
        };
        let mut was_searched = false;
        let companion = |request: WireCompanionRequest| match request.kind {
            Some(CompanionKind::Separate(Empty {})) if !was_searched => {
                was_searched = true;
                Ok(find_debug_file())
            }
            _ => Err(Invalid("a request for something other than the debug file")),
        };
        let (answer, _) = request(process, kind, files, companion, keep_going)?;
        Ok(answer)
    }

    fn failure(&mut self, wire: WireExtractionFailure) -> ExtractionFailure {
        wire.checked()
            .unwrap_or_else(|Invalid(why)| self.reject(why))
    }

    fn reject(&mut self, why: &str) -> ExtractionFailure {
        match &mut self.process {
            Some(process) => process.reject(why).into(),
            None => ExtractionFailure::Stopped,
        }
    }
}
