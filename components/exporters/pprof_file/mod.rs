//! Aggregates profiles over an interval and writes them to pprof files.
//!
//! ```text
//! export ──► ProfileBuffer: a builder per type and group ──(interval, or full)──► WriteQueue ──► Directory
//! ```
//!
//! A batch is accepted when it has been added. Files that cannot be written wait in the write queue,
//! and count towards the same limit; beyond it, batches are refused. With an interval of
//! zero nothing is buffered: a batch is accepted when its files are on disk.
//!
//! Profiles and files are processed on blocking threads. A writer holds the lock of the write queue
//! until it is done, even if its caller was cancelled, so that the end of the last write is the end of all.
//!
//! Deferred symbols are resolved when a file is encoded.

mod buffer;
mod config;
mod directory;
mod name;
mod telemetry;
#[cfg(test)]
mod tests;
mod write_queue;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use profcol_component::{
    Batch, BuildContext, BuildError, Check, ComponentStatus, DeferredSymbols, Delivered, Delivery,
    Exporter, Factory, Refusal, RunError, Stability, StartError, Status, Stop, path_check,
};
use profcol_profile::Profiles;
use tokio::sync::{Mutex, Notify, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use self::buffer::{AddError, Grouping, ProfileBuffer};
pub use self::config::PprofFileConfig;
use self::directory::{Directory, DirectoryError};
use self::name::Template;
use self::telemetry::Telemetry;
use self::write_queue::WriteQueue;

/// Maximum time between two attempts to write after a failure.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(10);

pub struct PprofFile {
    shared: Arc<Shared>,
    write_queue: Arc<Mutex<WriteQueue>>,
}

struct Shared {
    grouping: Grouping,
    interval: Duration,
    /// Limit for buffered bytes, in builders and in the write queue.
    limit: usize,
    state: Mutex<State>,
    /// Limits the number of batches decoded concurrently; others wait without occupying a thread.
    adders: Arc<Semaphore>,
    /// Wakes [`Exporter::run`] when there is something to write, or the buffer is full.
    work: Notify,
    telemetry: Telemetry,
    status: ComponentStatus,
}

#[derive(Default)]
struct State {
    buffer: ProfileBuffer,
    /// Bytes being written or in the write queue.
    unwritten: usize,
    /// Number of writes, to detect concurrent ones.
    writes: u64,
    failure: Option<WriteFailure>,
}

/// The last error of the disk, if it did not accept everything.
struct WriteFailure {
    reason: String,
    retry_at: Instant,
}

/// The parts of a batch to be written.
struct Input {
    profiles: Profiles,
    deferred_symbols: DeferredSymbols,
}

/// The result of adding a batch to the buffer.
enum AddResult {
    Added,
    /// There is no room before the next write; `writes` were done so far.
    Full {
        writes: u64,
    },
}

impl Factory for PprofFile {
    const NAME: &'static str = "pprof_file";
    const STABILITY: Stability = Stability::Alpha;
    /// Two instances would write and remove the same files.
    const IS_EXCLUSIVE: bool = true;
    type Config = PprofFileConfig;
    type Component = dyn Exporter;

    fn writes(config: &PprofFileConfig) -> Vec<PathBuf> {
        vec![PathBuf::from(&config.directory)]
    }

    fn build(
        config: &PprofFileConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Exporter>, BuildError> {
        let exporter = PprofFile::new(config, context)?;
        Ok(Box::new(exporter))
    }
}

impl PprofFile {
    fn new(config: &PprofFileConfig, context: &BuildContext) -> Result<Self, BuildError> {
        let template = Template::parse(&config.file_name);
        let template = template.map_err(BuildError::new)?;
        let path = Path::new(&config.directory);
        let directory = Directory::new(path, template, config.retention.as_ref());
        let telemetry = Telemetry::new(context);
        let write_queue = WriteQueue::new(directory, telemetry.clone());
        let parallelism = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let shared = Shared {
            grouping: Grouping {
                keys: config.group_by.clone(),
                max_groups: config.max_groups,
                labels: config.labels.selection(),
            },
            interval: config.interval.to_std(),
            limit: config.max_buffered_mib << 20,
            state: Mutex::default(),
            adders: Arc::new(Semaphore::new(parallelism)),
            work: Notify::new(),
            telemetry,
            status: context.status.clone(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            write_queue: Arc::new(Mutex::new(write_queue)),
        })
    }

    async fn add(&self, batch: &Batch) -> Result<AddResult, Refusal> {
        let (shared, input) = (Arc::clone(&self.shared), Input::of(batch));
        let adder = Arc::clone(&shared.adders).acquire_owned().await;
        let adding = spawn_blocking(move || {
            let _adder = adder;
            shared.add(&input)
        });
        adding.await.map_err(|error| broken(&error))?
    }

    /// Writes, unless another task has done so since `writes`.
    async fn make_room(&self, writes: u64) -> Result<(), Refusal> {
        let mut write_queue = Arc::clone(&self.write_queue).lock_owned().await;
        let shared = Arc::clone(&self.shared);
        let writing = spawn_blocking(move || {
            let is_full = shared.state.blocking_lock().writes == writes;
            if is_full {
                shared.write(&mut write_queue);
            }
        });
        writing.await.map_err(|error| broken(&error))
    }

    async fn write_through(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        let mut write_queue = Arc::clone(&self.write_queue).lock_owned().await;
        let (shared, input) = (Arc::clone(&self.shared), Input::of(batch));
        let writing = spawn_blocking(move || shared.write_through(&input, &mut write_queue));
        writing.await.map_err(|error| broken(&error))?
    }

    async fn write(&self) {
        let mut write_queue = Arc::clone(&self.write_queue).lock_owned().await;
        let shared = Arc::clone(&self.shared);
        let writing = spawn_blocking(move || shared.write(&mut write_queue));
        if let Err(error) = writing.await {
            tracing::error!(%error, "The writer task failed.");
        }
    }

    /// Writes the rest; the error says what was lost.
    async fn write_last(&self) -> Result<(), RunError> {
        let mut write_queue = Arc::clone(&self.write_queue).lock_owned().await;
        let shared = Arc::clone(&self.shared);
        let writing = spawn_blocking(move || shared.write_last(&mut write_queue));
        writing.await.map_err(RunError::new)?
    }
}

#[async_trait]
impl Exporter for PprofFile {
    fn delivery(&self) -> Delivery {
        Delivery::inline()
    }

    async fn start(&self) -> Result<(), StartError> {
        let mut write_queue = Arc::clone(&self.write_queue).lock_owned().await;
        let opening = spawn_blocking(move || {
            write_queue.directory.open()?;
            write_queue.prune();
            Ok(())
        });
        let opened: Result<(), DirectoryError> = opening.await.map_err(StartError::new)?;
        opened.map_err(StartError::new)
    }

    async fn check(&self) -> Vec<Check> {
        let write_queue = self.write_queue.lock().await;
        path_check::of_directory(write_queue.directory.path(), true).await
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        if self.shared.interval.is_zero() {
            return self.write_through(batch).await;
        }
        if let AddResult::Full { writes } = self.add(batch).await? {
            self.make_room(writes).await?;
            if let AddResult::Full { .. } = self.add(batch).await? {
                let reason = "profiles arrive faster than they can be written to files";
                return Err(Refusal::retry(reason));
            }
        }
        Ok(Delivered::default())
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        loop {
            let due = self.shared.due().await;
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.shared.work.notified() => {}
                () = sleep_until(due) => self.write().await,
            }
        }
        self.write_last().await
    }
}

// === impl Input ===

impl Input {
    fn of(batch: &Batch) -> Self {
        Self {
            profiles: batch.profiles.clone(),
            deferred_symbols: batch.deferred_symbols.clone(),
        }
    }
}

// === impl Shared ===

impl Shared {
    fn add(&self, input: &Input) -> Result<AddResult, Refusal> {
        let Input {
            profiles,
            deferred_symbols,
        } = input;
        // Decode outside of the lock.
        let model = profiles.model();
        let mut state = self.state.blocking_lock();
        let was_empty = state.is_empty();
        if state.is_full(self.limit) {
            return state.refuse_or_wait(self.limit);
        }
        let others = match state.buffer.add(model, deferred_symbols, &self.grouping) {
            Ok(others) => others,
            Err(AddError::TooManyFiles) if state.buffer.since().is_some() => {
                return state.refuse_or_wait(self.limit);
            }
            Err(error) => return Err(refusal_of_add(error, profiles)),
        };
        self.telemetry.ungrouped_samples.inc_by(others);
        self.telemetry.set_buffered(state.bytes());
        if was_empty || state.is_full(self.limit) {
            self.work.notify_one();
        }
        Ok(AddResult::Added)
    }

    fn write_through(
        &self,
        input: &Input,
        write_queue: &mut WriteQueue,
    ) -> Result<Delivered, Refusal> {
        let Input {
            profiles,
            deferred_symbols,
        } = input;
        let mut buffer = ProfileBuffer::default();
        let others = buffer.add(profiles.model(), deferred_symbols, &self.grouping);
        let others = others.map_err(|error| refusal_of_add(error, profiles))?;
        let written = write_queue.write_all(buffer.finish());
        self.note(&mut self.state.blocking_lock(), &written);
        match written {
            Ok(()) => {
                self.telemetry.ungrouped_samples.inc_by(others);
                Ok(Delivered::default())
            }
            Err(error) => Err(Refusal::retry(error)),
        }
    }

    fn write(&self, write_queue: &mut WriteQueue) {
        let buffer = {
            let mut state = self.state.blocking_lock();
            let buffer = std::mem::take(&mut state.buffer);
            state.unwritten = buffer.bytes() + write_queue.pending_bytes();
            buffer
        };
        let written = write_queue.write(buffer.finish());
        let mut state = self.state.blocking_lock();
        state.unwritten = write_queue.pending_bytes();
        state.writes += 1;
        self.telemetry.set_buffered(state.bytes());
        self.note(&mut state, &written);
    }

    fn write_last(&self, write_queue: &mut WriteQueue) -> Result<(), RunError> {
        self.write(write_queue);
        write_queue.directory.close();
        let lost = write_queue.pending_samples();
        if lost == 0 {
            return Ok(());
        }
        self.telemetry.lost_samples.inc_by(lost);
        let state = self.state.blocking_lock();
        let reason = state.failure.as_ref().map_or("", |failure| &failure.reason);
        Err(RunError::new(format!(
            "{lost} samples were not written: {reason}"
        )))
    }

    /// Records and logs the result of the last write.
    fn note(&self, state: &mut State, written: &Result<(), DirectoryError>) {
        let Err(error) = written else {
            if state.failure.take().is_some() {
                tracing::info!("Writing files succeeds again.");
                self.status.set(Status::Ok);
            }
            return;
        };
        let reason = error.to_string();
        if state.failure.is_none() {
            tracing::error!(%error, "Failed to write profiles; retrying.");
        }
        self.status
            .set(Status::RecoverableError(reason.as_str().into()));
        state.failure = Some(WriteFailure {
            reason,
            retry_at: Instant::now() + self.interval.min(MAX_RETRY_INTERVAL),
        });
    }

    /// When to write next; `None` while nothing is buffered.
    async fn due(&self) -> Option<Instant> {
        let state = self.state.lock().await;
        if state.is_empty() {
            return None;
        }
        if let Some(failure) = &state.failure {
            return Some(failure.retry_at);
        }
        if state.is_full(self.limit) {
            return Some(Instant::now());
        }
        Some(state.buffer.since()? + self.interval)
    }
}

// === impl State ===

impl State {
    fn bytes(&self) -> usize {
        self.buffer.bytes() + self.unwritten
    }

    fn is_empty(&self) -> bool {
        self.buffer.since().is_none() && self.unwritten == 0
    }

    fn is_full(&self, limit: usize) -> bool {
        self.bytes() >= limit
    }

    /// The answer if there is no room: waiting helps only if files can be written.
    fn refuse_or_wait(&self, limit: usize) -> Result<AddResult, Refusal> {
        let Some(failure) = &self.failure else {
            let writes = self.writes;
            return Ok(AddResult::Full { writes });
        };
        let (reason, mib) = (&failure.reason, limit >> 20);
        let reason = format!("profiles wait to be written, at most {mib} MiB: {reason}");
        Err(Refusal::retry(reason))
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn refusal_of_add(error: AddError, profiles: &Profiles) -> Refusal {
    match error {
        AddError::TooManyFiles => Refusal::TooLarge {
            reason: error.into(),
            limit_bytes: profiles.encoded_len() / 2,
        },
        // Files are separated by type and written long before they are too large, so this is a bug.
        AddError::Profiles(_) => Refusal::permanent(error),
    }
}

fn broken(error: &tokio::task::JoinError) -> Refusal {
    Refusal::permanent(format!("failed to handle a batch: {error}"))
}
