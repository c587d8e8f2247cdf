//! Connection lifetime: closes idle, old or misbehaving connections, and all on shutdown.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use hyper_util::server::graceful::GracefulConnection;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::debug;

use super::accept::Stopping;
use crate::io::PeerAddr;

/// Reasons for the server to close a connection; `None` disables one.
#[derive(Clone, Debug, Default)]
pub(super) struct Lifetime {
    pub idle: Option<Duration>,
    pub age: Option<Duration>,
    /// Grace period for active calls after the maximum age.
    pub age_grace: Option<Duration>,
    pub probes: Option<PingLimit>,
}

/// Limits for client pings.
#[derive(Clone, Debug)]
pub(super) struct PingLimit {
    pub busy: Duration,
    pub idle: Duration,
}

/// Number of early pings tolerated.
const MAX_PING_STRIKES: u64 = 2;
/// How long a client of an idle connection may take to read pending responses: with a closed flow-control window
/// nothing is written, so the write timeout does not apply.
const LAST_RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often pings are checked.
const PING_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Activity of one connection, shared with its active calls.
#[derive(Debug)]
pub(super) struct Activity {
    born: Instant,
    running: AtomicUsize,
    /// When the last call ended, in milliseconds since `born`.
    last: AtomicU64,
    pub pings: Arc<AtomicU64>,
}

impl Activity {
    pub fn new() -> Arc<Activity> {
        Arc::new(Activity {
            born: Instant::now(),
            running: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            pings: Arc::default(),
        })
    }

    /// Marks a call as active until the guard is dropped.
    pub fn begin(self: &Arc<Self>) -> Running {
        self.running.fetch_add(1, Relaxed);
        Running(self.clone())
    }

    pub fn is_idle(&self) -> bool {
        self.running.load(Relaxed) == 0
    }

    fn idle_since(&self) -> Option<Instant> {
        let last = Duration::from_millis(self.last.load(Relaxed));
        self.is_idle().then(|| self.born + last)
    }
}

/// An active call.
#[derive(Debug)]
pub(super) struct Running(Arc<Activity>);

impl Drop for Running {
    fn drop(&mut self) {
        let since_birth = self.0.born.elapsed().as_millis();
        self.0
            .last
            .store(u64::try_from(since_birth).unwrap_or(u64::MAX), Relaxed);
        self.0.running.fetch_sub(1, Relaxed);
    }
}

impl Lifetime {
    /// Drives a connection to its end.
    pub async fn run<C: GracefulConnection>(
        &self,
        mut connection: Pin<&mut C>,
        activity: &Activity,
        peer: &PeerAddr,
        mut stopping: Stopping,
    ) where
        C::Error: std::fmt::Display,
    {
        let (reason, grace) = tokio::select! {
            result = &mut connection => return ended(peer, result),
            () = stopping.wait() => ("the server is shutting down", None),
            () = self.idle(activity) => ("it was idle", Some(LAST_RESPONSE_TIMEOUT)),
            () = self.age() => ("it reached its age", self.age_grace),
            () = self.too_many_pings(activity) => ("the client sends too many keepalive pings", None),
        };
        debug!(%peer, "closing connection: {reason}");
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            result = connection => ended(peer, result),
            () = or_never(grace) => debug!(%peer, "closing a connection after the grace period"),
        }
    }

    async fn idle(&self, activity: &Activity) {
        let Some(limit) = self.idle else {
            return std::future::pending().await;
        };
        loop {
            let until = activity.idle_since().unwrap_or_else(Instant::now) + limit;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }

    async fn age(&self) {
        or_never(self.age.map(jitter)).await;
    }

    async fn too_many_pings(&self, activity: &Activity) {
        let Some(limit) = &self.probes else {
            return std::future::pending().await;
        };
        let (mut seen, mut strikes, mut last) = (0, 0, None::<Instant>);
        while strikes <= MAX_PING_STRIKES {
            sleep(PING_CHECK_INTERVAL).await;
            let pings = activity.pings.load(Relaxed);
            let fresh = pings - seen;
            if fresh == 0 {
                continue;
            }
            let idle = activity.is_idle();
            let least = if idle { limit.idle } else { limit.busy };
            let too_early = last.is_some_and(|last| last.elapsed() < least);
            // All but the first ping of this interval came within a second of each other.
            strikes += u64::from(too_early)
                + if least > PING_CHECK_INTERVAL {
                    fresh - 1
                } else {
                    0
                };
            (seen, last) = (pings, Some(Instant::now()));
        }
    }
}

async fn or_never(limit: Option<Duration>) {
    match limit {
        Some(limit) => sleep(limit).await,
        None => std::future::pending().await,
    }
}

/// Jitters the maximum age by ±10 %, so that connections do not all reconnect at once.
fn jitter(age: Duration) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(0) % 2001;
    age.mul_f64(0.9 + random as f64 / 10_000.0)
}

fn ended<E: std::fmt::Display>(peer: &PeerAddr, result: Result<(), E>) {
    if let Err(error) = result {
        debug!(%peer, %error, "connection ended");
    }
}
