//! Reads a file for its upload, on a low-priority thread and in another process.
//!
//! The thread has the upload planned first, so that the size is known; then it waits until the server wants the file
//! and reads at the given pace. It holds at most [`READ_AHEAD`] chunks that were not sent.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc as threads;
use std::thread::{Builder as Thread, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use profcol_component::{BuildId, Executable};
use profcol_debuginfo::{SearchPaths, separate};
use profcol_reader::{
    DebuginfoReader, ExtractOptions, ExtractionFailure, LOW_NICE, Planned, Readers,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::capacity::UploadLimit;
use super::pace::Pace;

const READ_AHEAD: usize = 2;

/// How to read files.
#[derive(Clone, Debug)]
pub struct Settings {
    pub strip: bool,
    pub directories: Vec<PathBuf>,
    pub max_file_size: u64,
    /// `None` without a time limit.
    pub upload_limit: Option<UploadLimit>,
    /// What reads the files.
    pub readers: Readers,
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
    NotExtracted(#[from] ExtractionFailure),
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
    #[error("failed to read the file: {0}")]
    Unreadable(#[from] io::Error),
    #[error("the upload task panicked")]
    Defect,
}

impl Skipped {
    /// Whether another attempt may succeed.
    pub fn is_temporary(&self) -> bool {
        use ExtractionFailure::{Changed, Reader};
        matches!(self, Self::NotExtracted(Changed | Reader(_)))
    }

    /// The value of the metric's label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotExtracted(failure) => failure.reason(),
            Self::TooLarge { .. } => "too_large",
            Self::TooSlow { .. } => "time_limit",
            Self::Unreadable(_) => "unreadable",
            Self::Defect => "defect",
        }
    }
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
            go: start_receiver,
            chunks: sender,
            ended: done,
        };
        let thread = Thread::new().name("profcol-upload".into());
        let thread = thread.spawn(move || run(&executable, &settings, planned_sender, ends))?;
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

impl ThreadChannels {
    fn is_wanted(&self) -> bool {
        !matches!(self.go.try_recv(), Err(threads::TryRecvError::Disconnected))
    }
}

fn run(
    executable: &Executable,
    settings: &Settings,
    planned_sender: oneshot::Sender<Result<Planned, Skipped>>,
    ends: ThreadChannels,
) {
    if let Err(error) = rustix::process::setpriority_process(None, LOW_NICE) {
        tracing::debug!(%error, "Failed to lower the priority of the reader thread.");
    }
    let mut reader = DebuginfoReader::new(&settings.readers);
    let planned = plan(&mut reader, executable, settings, &|| ends.is_wanted());
    let is_planned = planned.is_ok();
    // Fails if the receiver was dropped.
    if planned_sender.send(planned).is_err() || !is_planned {
        return;
    }
    let Ok(pace) = ends.go.recv() else {
        return;
    };
    if let Some(outcome) = read(&mut reader, pace, &ends) {
        let _ = ends.ended.send(outcome);
    }
}

fn plan(
    reader: &mut DebuginfoReader,
    executable: &Executable,
    settings: &Settings,
    is_running: &dyn Fn() -> bool,
) -> Result<Planned, Skipped> {
    let options = ExtractOptions {
        strip: settings.strip,
        max_bytes: settings.max_bytes(),
        max_compression_time: settings.upload_limit.map(|upload_limit| upload_limit.time),
        build_id: match &executable.build_id {
            BuildId::Gnu(build_id) => Some(build_id.clone()),
            BuildId::Hash(_) => None,
        },
    };
    let find_debug_file = || separate_debug_file(executable, settings, is_running);
    let file = executable.file.try_clone()?;
    let planned = reader.plan(file, &options, &find_debug_file, is_running)?;
    settings.refuse(planned.size)?;
    Ok(planned)
}

fn separate_debug_file(
    executable: &Executable,
    settings: &Settings,
    is_running: &dyn Fn() -> bool,
) -> Option<File> {
    let roots = [
        format!("/proc/{}/root", executable.pid).into(),
        PathBuf::from("/"),
    ];
    let found = separate(
        &*executable.file,
        &SearchPaths {
            roots: &roots,
            executable: &executable.path,
            directories: &settings.directories,
            goes_on: is_running,
        },
    )?;
    tracing::debug!(
        path = %executable.path.display(),
        debug_file = %found.path.display(),
        "Found a separate debug file."
    );
    Some(found.file)
}

/// `None` if the receiver was dropped.
fn read(
    reader: &mut DebuginfoReader,
    pace: Option<Pace>,
    ends: &ThreadChannels,
) -> Option<Result<(), Skipped>> {
    let mut sent = 0;
    loop {
        let chunk = match reader.next(&|| ends.is_wanted()) {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return Some(Ok(())),
            Err(ExtractionFailure::Stopped) => return None,
            Err(failure) => return Some(Err(failure.into())),
        };
        sent += chunk.len() as u64;
        if let Some(pace) = &pace {
            let wait = pace.due(sent).saturating_duration_since(Instant::now());
            if let Err(threads::RecvTimeoutError::Disconnected) = ends.go.recv_timeout(wait) {
                return None;
            }
        }
        ends.chunks.blocking_send(chunk.into()).ok()?;
    }
}
