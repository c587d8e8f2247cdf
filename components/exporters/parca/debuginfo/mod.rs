//! Uploads debuginfo of sampled executables, so that the server can symbolize their code.
//!
//! ```text
//! receiver ─► shelf: open files ─► hottest first ─► request ─► plan ─► initiate ─► send ─► finish
//!                ▲ samples of each                    │ needed?           │ by gRPC, or to a URL
//! exported batches                                    ▼                   ▼
//!                                              cached: not requested again
//! ```
//!
//! It has its own connection, so that a large file does not delay profiles. To save the host's CPU, sections
//! are compressed only if the upload would not finish in time otherwise.

mod cache;
mod capacity;
mod config;
mod pace;
mod queue;
mod reader;
mod sample_counts;
mod telemetry;
mod upload;
mod uploads;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use profcol_component::{BuildContext, Executable, Executables, Stop, Subscription};
use profcol_debuginfo::ExternalDwarf;
use profcol_net::GrpcClient;
use profcol_profile::Profiles;
use profcol_reader::Readers;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use self::cache::UploadedCache;
use self::capacity::Capacity;
pub use self::config::DebuginfoConfig;
use self::pace::Budget;
use self::queue::{Disposition, File, UploadQueue};
use self::reader::Settings;
use self::sample_counts::sample_counts;
use self::telemetry::Telemetry;
use self::upload::{Interrupted, UploadOutcome, Uploader};
use self::uploads::Uploads;

/// Minimum and maximum pause of a server that is unavailable.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(300);
/// Pause of a server that accepts no debuginfo.
const NO_SERVICE_PAUSE: Duration = Duration::from_secs(3600);

pub struct Debuginfo {
    config: DebuginfoConfig,
    server: String,
    telemetry: Telemetry,
    queue: Mutex<UploadQueue>,
    /// Locked before the other if both are locked.
    cache: Mutex<UploadedCache>,
    offered: Subscription,
    /// Cache writes in progress.
    cache_writes: Mutex<JoinSet<()>>,
    samples_added: Notify,
    readers: Readers,
}

impl Debuginfo {
    /// `None` if uploads are disabled.
    pub fn new(
        config: &DebuginfoConfig,
        server: &str,
        context: &BuildContext,
    ) -> Option<Arc<Self>> {
        if !config.upload {
            return None;
        }
        let telemetry = Telemetry::new(context);
        let capacity = config.max_open as usize;
        let executables: Executables = context.shared.get();
        let offered = executables.subscribe(capacity, telemetry.skipped("dropped"));
        Some(Arc::new(Self {
            queue: Mutex::new(UploadQueue::new(capacity)),
            cache: Mutex::new(UploadedCache::empty()),
            server: server.to_owned(),
            config: config.clone(),
            offered,
            cache_writes: Mutex::default(),
            samples_added: Notify::new(),
            readers: context.shared.get(),
            telemetry,
        }))
    }

    /// Counts the samples of exported profiles: executables with more samples are uploaded first.
    pub fn record_samples(&self, profiles: &Profiles) {
        let cache = self.cache.lock();
        let mut queue = self.queue.lock();
        for executable in self.offered.take() {
            if !cache.contains(executable.build_id.text()) && queue.add(executable) {
                self.telemetry.skipped("dropped").inc();
            }
        }
        self.telemetry.waiting.set(queue.len() as f64);
        let sample_counts = sample_counts(profiles.model(), |build_id| {
            if cache.contains(build_id) {
                return false;
            }
            let file = queue.file(build_id);
            if file == File::Missing {
                self.telemetry.skipped("no_file").inc();
            }
            file == File::Waits
        });
        if sample_counts.is_empty() {
            return;
        }
        for (build_id, samples) in sample_counts {
            queue.add_samples(build_id, samples);
        }
        drop((queue, cache));
        self.samples_added.notify_one();
    }

    /// Uploads until `stop`; uploads in progress are then aborted.
    pub async fn run(&self, client: GrpcClient, stop: Stop) {
        let (directory, server) = (self.config.state_directory.clone(), self.server.clone());
        let opened = tokio::task::spawn_blocking(move || UploadedCache::open(&directory, &server));
        match opened.await {
            Ok(opened) => self.use_cache(opened),
            Err(error) => {
                tracing::error!(%error, "Failed to read the cache of uploaded build IDs.")
            }
        }
        let uploader = Arc::new(self.uploader(client));
        let mut uploads = Uploads::default();
        let mut pause = Pause::default();
        loop {
            let now = Instant::now();
            let mut due = pause.until(now);
            due = due.or(uploader.budget.lock().next_upload_at(now));
            while due.is_none() && uploads.len() < self.config.max_parallel as usize {
                let next = self.queue.lock().take(now);
                let Some(executable) = next else {
                    due = self.queue.lock().next_due();
                    break;
                };
                let uploader = Arc::clone(&uploader);
                let of = executable.clone();
                uploads.spawn(of, async move { uploader.upload(executable).await });
            }
            let wake = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                Some((executable, ended)) = uploads.next() => {
                    self.end(&executable, ended, &mut pause);
                }
                () = self.samples_added.notified() => {}
                () = wake => {}
            }
        }
        uploads.shutdown().await;
        let mut cache_writes = std::mem::take(&mut *self.cache_writes.lock());
        while cache_writes.join_next().await.is_some() {}
    }

    /// Samples of files that it contains may have arrived while it was read.
    fn use_cache(&self, opened: UploadedCache) {
        let mut cache = self.cache.lock();
        *cache = opened;
        let mut queue = self.queue.lock();
        queue.retain(|build_id| !cache.contains(build_id));
        self.telemetry.waiting.set(queue.len() as f64);
    }

    fn uploader(&self, client: GrpcClient) -> Uploader {
        let config = &self.config;
        let directories = config.directories.iter();
        Uploader {
            client,
            settings: Settings {
                strip: config.strip,
                directories: directories.map(Into::into).collect(),
                max_file_size: config.max_file_size,
                upload_limit: None,
                // Whatever offers executables reads them, too, so these are there.
                readers: self.readers.clone(),
            },
            timeout: config.timeout.into(),
            budget: Mutex::new(Budget::new(config.rate_limit)),
            capacity: Mutex::new(Capacity::new(config.timeout.into(), config.rate_limit)),
            uses_signed_urls: AtomicBool::new(false),
        }
    }

    /// Counts and logs the outcome of an attempt, and decides how to continue.
    fn end(&self, executable: &Executable, ended: UploadOutcome, pause: &mut Pause) {
        let build_id = executable.build_id.text();
        let path = executable.path.display();
        if !matches!(
            ended,
            UploadOutcome::Unavailable(_) | UploadOutcome::NoService
        ) {
            pause.end();
        }
        let tries = |outcome| self.telemetry.tries(outcome).inc();
        let next = match ended {
            UploadOutcome::Uploaded(planned) => {
                let bytes = planned.size;
                tracing::info!(%path, build_id, bytes, "Uploaded debuginfo.");
                if let Some(elsewhere) = planned.elsewhere {
                    self.log_unsupported_dwarf(executable, elsewhere);
                }
                if planned.is_without_dwarf {
                    self.log_omitted_dwarf(executable);
                }
                tries("uploaded");
                self.telemetry.bytes.inc_by(bytes);
                self.remember_uploaded(build_id, true);
                Disposition::Done
            }
            UploadOutcome::AlreadyPresent { reason } => {
                tracing::debug!(%path, build_id, reason, "The server does not need debuginfo.");
                tries("there");
                self.remember_uploaded(build_id, true);
                Disposition::Done
            }
            UploadOutcome::InProgress => {
                tries("in_progress");
                Disposition::Later
            }
            UploadOutcome::Refused { reason } => {
                tracing::warn!(%path, build_id, reason, "The server refused debuginfo.");
                tries("refused");
                self.remember_uploaded(build_id, true);
                Disposition::Done
            }
            UploadOutcome::Skipped(aborted) if aborted.is_temporary() => {
                tracing::info!(%path, build_id, reason = %aborted, "Aborted an upload of debuginfo.");
                self.telemetry.skipped(aborted.reason()).inc();
                Disposition::Again
            }
            UploadOutcome::Skipped(skipped) => {
                tracing::info!(%path, build_id, reason = %skipped, "Skipped an upload of debuginfo.");
                self.telemetry.skipped(skipped.reason()).inc();
                self.remember_uploaded(build_id, false);
                Disposition::Done
            }
            UploadOutcome::Interrupted(interrupted) => {
                log_broken(executable, &interrupted);
                tries("broken");
                Disposition::Again
            }
            UploadOutcome::Unavailable(status) => {
                let pause = pause.begin(Instant::now());
                tracing::info!(%status, pause = %profcol_config::Duration::from(pause), "The server does not accept debuginfo; pausing uploads.");
                Disposition::Untried
            }
            UploadOutcome::NoService => {
                pause.begin_long(Instant::now());
                tracing::warn!(
                    "The server has no debuginfo service. Set `debuginfo::upload` to false to disable uploads."
                );
                Disposition::Untried
            }
        };
        let mut queue = self.queue.lock();
        let is_given_up = !queue.put_back(build_id, next, Instant::now());
        self.telemetry.waiting.set(queue.len() as f64);
        drop(queue);
        if is_given_up {
            tracing::warn!(%path, build_id, "Upload of debuginfo failed; no retries left.");
            self.remember_uploaded(build_id, false);
        }
    }

    fn log_unsupported_dwarf(&self, executable: &Executable, elsewhere: ExternalDwarf) {
        let path = executable.path.display();
        let build_id = executable.build_id.text();
        let (reason, location) = match elsewhere {
            ExternalDwarf::Split => ("split_dwarf", "in .dwo files"),
            ExternalDwarf::Common => ("dwz", "partly in a dwz file"),
        };
        tracing::info!(
            %path,
            build_id,
            "The DWARF of an executable is {location}, which the server does not support. Uploaded symbols only, without lines and inlined frames."
        );
        self.telemetry.symbols_only(reason).inc();
    }

    fn log_omitted_dwarf(&self, executable: &Executable) {
        tracing::info!(
            path = %executable.path.display(),
            build_id = executable.build_id.text(),
            "The DWARF of an executable is too large for the server's time limit, even compressed. Uploaded symbols only, without lines and inlined frames. To upload DWARF, raise the server's --http-read-timeout and `debuginfo::timeout`."
        );
        self.telemetry.symbols_only("time_limit").inc();
    }

    fn remember_uploaded(&self, build_id: &str, is_final_answer: bool) {
        let write = self.cache.lock().add(build_id, is_final_answer);
        if let Some(write) = write {
            let mut cache_writes = self.cache_writes.lock();
            while cache_writes.try_join_next().is_some() {}
            cache_writes.spawn_blocking(move || write.write());
        }
    }
}

fn log_broken(executable: &Executable, interrupted: &Interrupted) {
    let Interrupted {
        size,
        sent,
        accepted,
        reason,
    } = interrupted;
    tracing::warn!(
        path = %executable.path.display(),
        build_id = executable.build_id.text(),
        size,
        sent,
        ?accepted,
        reason,
        "An upload of debuginfo was interrupted. Retrying in 17 minutes with a size that fits the time limit. For larger uploads, raise the server's --http-read-timeout and `debuginfo::timeout`."
    );
}

/// Pauses all requests while the server is unavailable.
#[derive(Debug, Default)]
struct Pause {
    until: Option<Instant>,
    last: Duration,
}

impl Pause {
    fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| *until > now)
    }

    fn begin(&mut self, now: Instant) -> Duration {
        self.last = (2 * self.last).clamp(MIN_PAUSE, MAX_PAUSE);
        self.until = Some(now + self.last);
        self.last
    }

    fn begin_long(&mut self, now: Instant) {
        self.until = Some(now + NO_SERVICE_PAUSE);
    }

    fn end(&mut self) {
        *self = Self::default();
    }
}
