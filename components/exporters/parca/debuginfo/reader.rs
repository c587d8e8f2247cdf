//! Reads a file for its upload, on a low-priority thread.
//!
//! The thread plans first, so that the size is known; then it waits until the server wants the file
//! and reads at the given pace. It holds at most [`READ_AHEAD`] chunks that were not sent.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::mpsc as threads;
use std::thread::{Builder as Thread, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use profcol_component::{BuildId, Executable};
use profcol_debuginfo::{
    Dwarf, ExternalDwarf, ExtractError, Extraction, Places, Plan, build_id, separate,
};
use profcol_profile::hex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::capacity::UploadLimit;
use super::pace::Pace;

/// Servers accept messages of some megabytes; smaller ones need less memory on both sides.
const CHUNK: usize = 256 << 10;
const READ_AHEAD: usize = 2;
/// The lowest priority.
const NICE: i32 = 19;

/// How to read files.
#[derive(Clone, Debug)]
pub struct Settings {
    pub strip: bool,
    pub directories: Vec<PathBuf>,
    pub max_file_size: u64,
    /// `None` without a time limit.
    pub upload_limit: Option<UploadLimit>,
}

impl Settings {
    fn max_bytes(&self) -> u64 {
        let upload_limit = self
            .upload_limit
            .map_or(u64::MAX, |upload_limit| upload_limit.bytes);
        self.max_file_size.min(upload_limit)
    }

    /// Rejects uploads that are too large.
    fn refuse(&self, size: u64) -> Result<(), Skipped> {
        if size > self.max_file_size {
            return Err(Skipped::TooLarge { size });
        }
        match self.upload_limit {
            // Before the first upload the rate is only an assumption.
            Some(upload_limit) if size > upload_limit.bytes && upload_limit.is_measured => {
                Err(Skipped::TooSlow {
                    size,
                    bytes: upload_limit.bytes,
                    time: upload_limit.time,
                })
            }
            _ => Ok(()),
        }
    }
}

/// Why a file is not uploaded.
#[derive(Debug, thiserror::Error)]
pub enum Skipped {
    #[error(transparent)]
    Extract(#[from] ExtractError),
    #[error("upload size of {size} bytes exceeds `max_file_size`")]
    TooLarge { size: u64 },
    #[error(
        "upload size of {size} bytes exceeds the {bytes} bytes that can be sent within {time:?}: raise the server's --http-read-timeout and `debuginfo::timeout`"
    )]
    TooSlow {
        size: u64,
        bytes: u64,
        time: Duration,
    },
    #[error("the file changed while it was read")]
    Changed,
    #[error("the file was replaced by one with build ID {found:?}")]
    Replaced { found: String },
    #[error("failed to read the file: {0}")]
    Unreadable(#[from] io::Error),
    #[error("the upload task panicked")]
    Defect,
}

impl Skipped {
    /// The value of the metric's label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Extract(error) => error.reason(),
            Self::TooLarge { .. } => "too_large",
            Self::TooSlow { .. } => "time_limit",
            Self::Changed => "changed",
            Self::Replaced { .. } => "replaced",
            Self::Unreadable(_) => "unreadable",
            Self::Defect => "defect",
        }
    }
}

/// The planned upload.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planned {
    pub size: u64,
    /// Where the DWARF is if the server cannot read it there.
    pub elsewhere: Option<ExternalDwarf>,
    /// Whether DWARF was omitted because of its size.
    pub is_without_dwarf: bool,
}

/// A planned upload, and the thread that reads the file.
pub struct FileReader {
    planned: Planned,
    /// Dropping it ends the thread.
    go: Option<threads::Sender<Option<Pace>>>,
    chunks: Option<mpsc::Receiver<Bytes>>,
    ended: Option<oneshot::Receiver<Result<(), Skipped>>>,
    thread: Option<JoinHandle<()>>,
}

/// The thread's ends of the channels of [`FileReader`].
struct ThreadChannels {
    planned: oneshot::Sender<Result<Planned, Skipped>>,
    go: threads::Receiver<Option<Pace>>,
    chunks: mpsc::Sender<Bytes>,
    ended: oneshot::Sender<Result<(), Skipped>>,
}

impl FileReader {
    /// Returns once the upload is planned.
    pub async fn plan(executable: Executable, settings: Settings) -> Result<Self, Skipped> {
        let (planned_sender, planned) = oneshot::channel();
        let (go, start_receiver) = threads::channel();
        let (sender, chunks) = mpsc::channel(READ_AHEAD);
        let (done, ended) = oneshot::channel();
        let ends = ThreadChannels {
            planned: planned_sender,
            go: start_receiver,
            chunks: sender,
            ended: done,
        };
        let thread = Thread::new().name("profcol-upload".into());
        let thread = thread.spawn(move || run(&executable, &settings, ends))?;
        let mut reader = Self {
            planned: Planned::default(),
            go: Some(go),
            chunks: Some(chunks),
            ended: Some(ended),
            thread: Some(thread),
        };
        reader.planned = planned.await.unwrap_or_else(|_| Err(interrupted()))?;
        Ok(reader)
    }

    pub fn planned(&self) -> Planned {
        self.planned
    }

    /// Starts reading; `None` reads as fast as chunks are taken. To be called once.
    pub fn start(&mut self, pace: Option<Pace>) -> mpsc::Receiver<Bytes> {
        if let Some(go) = &self.go
            && go.send(pace).is_err()
        {
            tracing::debug!("The reader thread of an executable has exited.");
        }
        self.chunks.take().unwrap_or_else(|| mpsc::channel(1).1)
    }

    /// Whether the file was read completely and did not change; `None` if reading was aborted.
    pub async fn end(mut self) -> Option<Result<(), Skipped>> {
        self.go.take();
        self.ended.take()?.await.ok()
    }
}

impl Drop for FileReader {
    fn drop(&mut self) {
        self.go.take();
        self.chunks.take();
        // The thread checks its channels between reads.
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("The reader thread of an executable panicked.");
        }
    }
}

fn interrupted() -> Skipped {
    io::Error::other("the reader thread has exited").into()
}

fn run(executable: &Executable, settings: &Settings, ends: ThreadChannels) {
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(%error, "Failed to lower the priority of the reader thread.");
    }
    let is_running = || !matches!(ends.go.try_recv(), Err(threads::TryRecvError::Disconnected));
    let (extraction, planned) = match plan(executable, settings, &is_running) {
        Ok(planned) => planned,
        Err(skipped) => {
            // Fails if the reader was dropped.
            let _ = ends.planned.send(Err(skipped));
            return;
        }
    };
    if ends.planned.send(Ok(planned)).is_err() {
        return;
    }
    let Ok(pace) = ends.go.recv() else {
        return;
    };
    if let Some(outcome) = read(extraction, pace, &ends.go, &ends.chunks) {
        let _ = ends.ended.send(outcome);
    }
}

/// Plans the upload of the executable, or of its separate debug file.
fn plan(
    executable: &Executable,
    settings: &Settings,
    is_running: &dyn Fn() -> bool,
) -> Result<(Extraction, Planned), Skipped> {
    let original = executable.file.try_clone()?;
    check_identity(executable, &original)?;
    let (plan, file) = if settings.strip {
        let plan = Plan::strip(&original);
        match plan {
            Ok(plan) if plan.contents().dwarf => (plan, original),
            plan => match separate_debug_file(&plan, executable, settings, &original, is_running) {
                Some(better) => better,
                None => (plan?, original),
            },
        }
    } else {
        (Plan::whole(&original)?, original)
    };
    let has_dwarf = plan.contents().dwarf;
    let plan = match settings.strip && plan.size() > settings.max_bytes() {
        true => smaller(plan, &file, settings, is_running)?,
        false => plan,
    };
    settings.refuse(plan.size())?;
    let planned = Planned {
        size: plan.size(),
        elsewhere: plan.elsewhere().filter(|_| settings.strip),
        is_without_dwarf: has_dwarf && !plan.contents().dwarf,
    };
    Ok((plan.extract(file)?, planned))
}

/// The most detailed plan that fits, or else the smallest: with lines, compressed lines, symbols only,
/// compressed symbols.
fn smaller(
    plan: Plan,
    file: &File,
    settings: &Settings,
    is_running: &dyn Fn() -> bool,
) -> Result<Plan, Skipped> {
    /// Upper bound of the compression ratio of DWARF.
    const BEST_RATIO: u64 = 8;
    let max_bytes = settings.max_bytes();
    let mut smallest = plan;
    for dwarf in [Dwarf::Lines, Dwarf::None] {
        let plan = match Plan::keeping(file, dwarf) {
            Ok(plan) => plan,
            // Without DWARF nothing may remain.
            Err(ExtractError::NoNames | ExtractError::OnlySplit) => continue,
            Err(refused) => return Err(refused.into()),
        };
        let size = plan.size();
        if size < smallest.size() {
            smallest = plan;
        }
        if size <= max_bytes {
            break;
        }
        if size / BEST_RATIO > max_bytes {
            continue;
        }
        let began = Instant::now();
        let compressed = Plan::compressed(file, dwarf, max_bytes, is_running)?;
        // Compressed while it is sent, too.
        let is_in_time = settings
            .upload_limit
            .is_none_or(|upload_limit| began.elapsed() <= upload_limit.time);
        if let Some(compressed) = compressed.filter(|_| is_in_time) {
            return Ok(compressed);
        }
    }
    Ok(smallest)
}

/// An overwritten file is another version, whose symbols would be wrong.
fn check_identity(executable: &Executable, file: &File) -> Result<(), Skipped> {
    let BuildId::Gnu(expected) = &executable.build_id else {
        return Ok(());
    };
    let Some(found) = build_id(file) else {
        return Ok(());
    };
    let found = hex(&found);
    if found == *expected {
        Ok(())
    } else {
        Err(Skipped::Replaced { found })
    }
}

fn separate_debug_file(
    executable_plan: &Result<Plan, ExtractError>,
    executable: &Executable,
    settings: &Settings,
    original: &File,
    is_running: &dyn Fn() -> bool,
) -> Option<(Plan, File)> {
    let roots = [
        format!("/proc/{}/root", executable.pid).into(),
        PathBuf::from("/"),
    ];
    let found = separate(
        original,
        &Places {
            roots: &roots,
            executable: &executable.path,
            directories: &settings.directories,
            goes_on: is_running,
        },
    )?;
    let plan = Plan::strip(&found.file).ok()?;
    tracing::debug!(
        path = %executable.path.display(),
        debug_file = %found.path.display(),
        "Found a separate debug file."
    );
    let names = |plan: &Plan| (plan.contents().dwarf, plan.contents().all_symbols);
    let is_better = executable_plan.as_ref().map_or(true, |executable_plan| {
        names(&plan) > names(executable_plan)
    });
    is_better.then_some((plan, found.file))
}

/// `None` if the receiver was dropped.
fn read(
    mut extraction: Extraction,
    pace: Option<Pace>,
    go: &threads::Receiver<Option<Pace>>,
    chunks: &mpsc::Sender<Bytes>,
) -> Option<Result<(), Skipped>> {
    let mut sent = 0;
    loop {
        let mut chunk = Vec::with_capacity(CHUNK);
        match (&mut extraction).take(CHUNK as u64).read_to_end(&mut chunk) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Some(Err(Skipped::Changed));
            }
            Err(error) => return Some(Err(error.into())),
        }
        if !extraction.is_unchanged() {
            return Some(Err(Skipped::Changed));
        }
        sent += chunk.len() as u64;
        if let Some(pace) = &pace {
            let wait = pace.due(sent).saturating_duration_since(Instant::now());
            if let Err(threads::RecvTimeoutError::Disconnected) = go.recv_timeout(wait) {
                return None;
            }
        }
        chunks.blocking_send(chunk.into()).ok()?;
    }
    Some(if extraction.is_unchanged() {
        Ok(())
    } else {
        Err(Skipped::Changed)
    })
}
