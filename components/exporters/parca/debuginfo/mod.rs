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

mod capacity;
mod config;
mod pace;
mod reading;
mod settled;
mod shelf;
mod telemetry;
mod upload;
mod uploads;
mod weights;

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

use self::capacity::Capacity;
pub use self::config::DebuginfoConfig;
use self::pace::Budget;
use self::reading::{Settings, Skipped};
use self::settled::Settled;
use self::shelf::{File, Next, Shelf};
use self::telemetry::Telemetry;
use self::upload::{Broken, Ended, Uploader};
use self::uploads::Uploads;
use self::weights::weights;

/// How long a server that cannot be asked is left alone: at first, and at last.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// And one that takes no debuginfo.
const NO_SERVICE_PAUSE: Duration = Duration::from_secs(3600);

pub struct Debuginfo {
    config: DebuginfoConfig,
    server: String,
    telemetry: Telemetry,
    shelf: Mutex<Shelf>,
    /// Where both are locked, this is first.
    settled: Mutex<Settled>,
    offered: Subscription,
    /// What is being written down.
    notes: Mutex<JoinSet<()>>,
    weighed: Notify,
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
            shelf: Mutex::new(Shelf::new(most)),
            settled: Mutex::new(Settled::empty()),
            server: server.to_owned(),
            config: config.clone(),
            offered,
            notes: Mutex::default(),
            weighed: Notify::new(),
            telemetry,
        }))
    }

    /// These were exported: what they met is worth an upload, the more the oftener.
    pub fn seen(&self, profiles: &Profiles) {
        let settled = lock(&self.settled);
        let mut shelf = lock(&self.shelf);
        for executable in self.offered.take() {
            if !settled.contains(executable.build_id.text()) && shelf.add(executable) {
                self.telemetry.skipped("dropped").inc();
            }
        }
        self.telemetry.waiting.set(shelf.len() as f64);
        let weights = weights(profiles.model(), |build_id| {
            if settled.contains(build_id) {
                return false;
            }
            let file = shelf.file(build_id);
            if file == File::Missing {
                self.telemetry.skipped("no_file").inc();
            }
            file == File::Waits
        });
        if weights.is_empty() {
            return;
        }
        for (build_id, samples) in weights {
            shelf.weigh(build_id, samples);
        }
        drop((shelf, settled));
        self.weighed.notify_one();
    }

    /// Uploads until `stop`; what is under way then is given up.
    pub async fn run(&self, client: GrpcClient, stop: Stop) {
        let (directory, server) = (self.config.state_directory.clone(), self.server.clone());
        let opened = tokio::task::spawn_blocking(move || Settled::open(&directory, &server));
        match opened.await {
            Ok(opened) => *lock(&self.settled) = opened,
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
            due = due.or(lock(&uploader.budget).free_at(now));
            while due.is_none() && uploads.len() < self.config.max_parallel as usize {
                let next = lock(&self.shelf).take(now);
                let Some(executable) = next else {
                    due = lock(&self.shelf).next_due();
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
                () = self.weighed.notified() => {}
                () = wake => {}
            }
        }
        uploads.shutdown().await;
        let mut notes = std::mem::take(&mut *lock(&self.notes));
        while notes.join_next().await.is_some() {}
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
                fit: None,
            },
            timeout: config.timeout.into(),
            budget: Mutex::new(Budget::new(config.rate_limit)),
            capacity: Mutex::new(Capacity::new(config.timeout.into(), config.rate_limit)),
            gives_urls: AtomicBool::new(false),
        }
    }

    /// Counts and tells what became of a try, and decides how to go on.
    fn end(&self, executable: &Executable, ended: Ended, pause: &mut Pause) {
        let build_id = executable.build_id.text();
        let path = executable.path.display();
        if !matches!(ended, Ended::Away(_) | Ended::NoService) {
            pause.end();
        }
        let tries = |outcome| self.telemetry.tries(outcome).inc();
        let next = match ended {
            Ended::Uploaded(planned) => {
                let bytes = planned.size;
                tracing::info!(%path, build_id, bytes, "Uploaded debuginfo.");
                if let Some(elsewhere) = planned.elsewhere {
                    self.tell_elsewhere(executable, elsewhere);
                }
                if planned.is_without_dwarf {
                    self.tell_without_dwarf(executable);
                }
                tries("uploaded");
                self.telemetry.bytes.inc_by(bytes);
                self.settle(build_id, true);
                Next::Done
            }
            Ended::There { reason } => {
                tracing::debug!(%path, build_id, reason, "The server does not need debuginfo.");
                tries("there");
                self.settle(build_id, true);
                Next::Done
            }
            Ended::InProgress => {
                tries("in_progress");
                Next::Later
            }
            Ended::Refused { reason } => {
                tracing::warn!(%path, build_id, reason, "The server refused debuginfo.");
                tries("refused");
                self.settle(build_id, true);
                Next::Done
            }
            Ended::Skipped(Skipped::Changed) => {
                let reason = Skipped::Changed;
                tracing::info!(%path, build_id, %reason, "Aborted an upload of debuginfo.");
                self.telemetry.skipped(reason.reason()).inc();
                Next::Again
            }
            Ended::Skipped(skipped) => {
                tracing::info!(%path, build_id, reason = %skipped, "Skipped an upload of debuginfo.");
                self.telemetry.skipped(skipped.reason()).inc();
                self.settle(build_id, false);
                Next::Done
            }
            Ended::Broken(broken) => {
                tell_broken(executable, &broken);
                tries("broken");
                Next::Again
            }
            Ended::Away(status) => {
                let pause = pause.begin(Instant::now());
                tracing::info!(%status, pause = %profcol_config::Duration::from(pause), "The server does not accept debuginfo; pausing uploads.");
                Next::Untried
            }
            Ended::NoService => {
                pause.begin_long(Instant::now());
                tracing::warn!(
                    "The server has no debuginfo service. Set `debuginfo::upload` to false to disable uploads."
                );
                Next::Untried
            }
        };
        let mut shelf = lock(&self.shelf);
        let is_given_up = !shelf.put_back(build_id, next, Instant::now());
        self.telemetry.waiting.set(shelf.len() as f64);
        drop(shelf);
        if is_given_up {
            tracing::warn!(%path, build_id, "Upload of debuginfo failed; no retries left.");
            self.settle(build_id, false);
        }
    }

    fn tell_elsewhere(&self, executable: &Executable, elsewhere: Elsewhere) {
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

    fn tell_without_dwarf(&self, executable: &Executable) {
        tracing::info!(
            path = %executable.path.display(),
            build_id = executable.build_id.text(),
            "The DWARF of an executable is too large for the server's time limit, even compressed. Uploaded symbols only, without lines and inlined frames. To upload DWARF, raise the server's --http-read-timeout and `debuginfo::timeout`."
        );
        self.telemetry.symbols_only("time_limit").inc();
    }

    fn settle(&self, build_id: &str, is_of_server: bool) {
        let note = lock(&self.settled).add(build_id, is_of_server);
        if let Some(note) = note {
            let mut notes = lock(&self.notes);
            while notes.try_join_next().is_some() {}
            notes.spawn_blocking(move || note.write());
        }
    }
}

fn tell_broken(executable: &Executable, broken: &Broken) {
    let Broken {
        size,
        sent,
        took,
        reason,
    } = broken;
    tracing::warn!(
        path = %executable.path.display(),
        build_id = executable.build_id.text(),
        size,
        sent,
        ?took,
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
        self.last = (2 * self.last).clamp(FIRST_PAUSE, LONGEST_PAUSE);
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
