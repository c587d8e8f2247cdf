//! Uploads debuginfo of the executables that samples met, so that the server can name their code.
//!
//! ```text
//! receiver ─► shelf: each file open ─► hottest first ─► ask ─► plan ─► begin ─► send ─► end
//!                ▲ samples of each                       │ wanted?      │ by gRPC, or to a URL
//! batches that were exported                             ▼              ▼
//!                                              settled: not asked about again
//! ```
//!
//! It has a connection of its own, so that a large file does not hold up profiles. What a file has
//! is compressed only where it would not arrive in time otherwise, for the sake of the host's CPU.

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

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use profcol_component::{BuildContext, Executable, Stop, Subscription};
use profcol_debuginfo::Elsewhere;
use profcol_net::GrpcClient;
use profcol_profile::Profiles;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use self::cache::UploadedCache;
use self::capacity::Capacity;
pub use self::config::DebuginfoConfig;
use self::pace::Budget;
use self::queue::{Disposition, File, UploadQueue};
use self::reader::{Settings, Skipped};
use self::sample_counts::sample_counts;
use self::telemetry::Telemetry;
use self::upload::{Interrupted, UploadOutcome, Uploader};
use self::uploads::Uploads;

/// How long a server that cannot be asked is left alone: at first, and at last.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(300);
/// And one that takes no debuginfo.
const NO_SERVICE_PAUSE: Duration = Duration::from_secs(3600);

pub struct Debuginfo {
    config: DebuginfoConfig,
    server: String,
    telemetry: Telemetry,
    queue: Mutex<UploadQueue>,
    /// Where both are locked, this is first.
    cache: Mutex<UploadedCache>,
    offered: Subscription,
    /// What is being written down.
    cache_writes: Mutex<JoinSet<()>>,
    samples_added: Notify,
}

impl Debuginfo {
    /// None where nothing is to be uploaded.
    pub fn new(
        config: &DebuginfoConfig,
        server: &str,
        context: &BuildContext,
    ) -> Option<Arc<Self>> {
        if !config.upload {
            return None;
        }
        let telemetry = Telemetry::new(context);
        let most = config.max_open as usize;
        let offered = context
            .executables
            .subscribe(most, telemetry.skipped("dropped"));
        Some(Arc::new(Self {
            queue: Mutex::new(UploadQueue::new(most)),
            cache: Mutex::new(UploadedCache::empty()),
            server: server.to_owned(),
            config: config.clone(),
            offered,
            cache_writes: Mutex::default(),
            samples_added: Notify::new(),
            telemetry,
        }))
    }

    /// These were exported: what they met is worth an upload, the more the oftener.
    pub fn record_samples(&self, profiles: &Profiles) {
        let cache = lock(&self.cache);
        let mut queue = lock(&self.queue);
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

    /// Uploads until `stop`; what is under way then is given up.
    pub async fn run(&self, client: GrpcClient, stop: Stop) {
        let (directory, server) = (self.config.state_directory.clone(), self.server.clone());
        let opened = tokio::task::spawn_blocking(move || UploadedCache::open(&directory, &server));
        match opened.await {
            Ok(opened) => *lock(&self.cache) = opened,
            Err(error) => {
                tracing::error!(%error, "Failed to read the cache of uploaded build ids.")
            }
        }
        let uploader = Arc::new(self.uploader(client));
        let mut uploads = Uploads::default();
        let mut pause = Pause::default();
        loop {
            let now = Instant::now();
            let mut due = pause.until(now);
            due = due.or(lock(&uploader.budget).next_upload_at(now));
            while due.is_none() && uploads.len() < self.config.max_parallel as usize {
                let next = lock(&self.queue).take(now);
                let Some(executable) = next else {
                    due = lock(&self.queue).next_due();
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
        let mut cache_writes = std::mem::take(&mut *lock(&self.cache_writes));
        while cache_writes.join_next().await.is_some() {}
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
            },
            timeout: config.timeout.into(),
            budget: Mutex::new(Budget::new(config.rate_limit)),
            capacity: Mutex::new(Capacity::new(config.timeout.into(), config.rate_limit)),
            uses_signed_urls: AtomicBool::new(false),
        }
    }

    /// Counts and tells what became of a try, and decides how to go on.
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
            UploadOutcome::Skipped(Skipped::Changed) => {
                let reason = Skipped::Changed;
                tracing::info!(%path, build_id, %reason, "Aborted an upload of debuginfo.");
                self.telemetry.skipped(reason.reason()).inc();
                Disposition::Again
            }
            UploadOutcome::Skipped(skipped) => {
                tracing::info!(%path, build_id, reason = %skipped, "Skipped an upload of debuginfo.");
                self.telemetry.skipped(skipped.reason()).inc();
                self.remember_uploaded(build_id, false);
                Disposition::Done
            }
            UploadOutcome::Interrupted(interrupted) => {
                tell_broken(executable, &interrupted);
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
        let mut queue = lock(&self.queue);
        let is_given_up = !queue.put_back(build_id, next, Instant::now());
        self.telemetry.waiting.set(queue.len() as f64);
        drop(queue);
        if is_given_up {
            tracing::warn!(%path, build_id, "Upload of debuginfo failed; no retries left.");
            self.remember_uploaded(build_id, false);
        }
    }

    fn log_unsupported_dwarf(&self, executable: &Executable, elsewhere: Elsewhere) {
        let path = executable.path.display();
        let build_id = executable.build_id.text();
        let (reason, place) = match elsewhere {
            Elsewhere::Split => ("split_dwarf", "in .dwo files"),
            Elsewhere::Common => ("dwz", "partly in a dwz file"),
        };
        tracing::info!(
            %path,
            build_id,
            "The DWARF of an executable is {place}, which the server does not support. Uploaded symbols only, without lines and inlined frames."
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
        let write = lock(&self.cache).add(build_id, is_final_answer);
        if let Some(write) = write {
            let mut cache_writes = lock(&self.cache_writes);
            while cache_writes.try_join_next().is_some() {}
            cache_writes.spawn_blocking(move || write.write());
        }
    }
}

fn tell_broken(executable: &Executable, interrupted: &Interrupted) {
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

/// While the server cannot be asked, nothing is.
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
