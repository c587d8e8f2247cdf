//! The accept loop: one task per connection, a connection limit, and graceful shutdown.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{error, info, warn};

use super::listen::Listener;
use crate::io::{PeerAddr, Stream};
use crate::socket::{Buffers, Socket};
use crate::tls::ServerSide;

/// Backoff when out of file descriptors or memory.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(200);

/// TLS handshake timeout.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Server counters, exposed as metrics.
#[derive(Debug, Default)]
pub struct ServerStats {
    /// Connections accepted so far.
    pub accepted: AtomicU64,
    /// Connections closed because of the connection limit.
    pub over_cap: AtomicU64,
    /// Failed `accept` calls, as when out of file descriptors.
    pub accept_failures: AtomicU64,
    /// Failed or timed-out TLS handshakes.
    pub handshake_failures: AtomicU64,
    /// Panics of handlers, whose callers got INTERNAL, and of connection tasks.
    pub panics: AtomicU64,
}

/// The connection of a request.
#[derive(Clone, Debug)]
pub struct Connection {
    pub peer: PeerAddr,
    /// Whether it is encrypted.
    pub tls: bool,
}

/// Signals server shutdown to connections.
#[derive(Clone, Debug)]
pub(super) struct Stopping(watch::Receiver<bool>);

impl Stopping {
    pub async fn wait(&mut self) {
        // An error means the server is gone: a shutdown, too.
        let _ = self.0.wait_for(|stopping| *stopping).await;
    }
}

/// Serves a protocol on accepted connections.
pub(super) trait Driver: Send + Sync + 'static {
    /// Serves one connection until it ends; once `stopping`, finishes active requests and ends.
    fn drive(
        self: Arc<Self>,
        stream: Stream,
        connection: Connection,
        stopping: Stopping,
    ) -> impl Future<Output = ()> + Send;
}

#[derive(Debug)]
pub(super) struct Acceptor {
    pub listener: Listener,
    pub tls: Option<Arc<ServerSide>>,
    pub buffers: Buffers,
    pub max_connections: usize,
    pub stats: Arc<ServerStats>,
}

impl Acceptor {
    /// Serves until `stop` resolves to the shutdown deadline; connections still busy at the deadline are closed.
    pub async fn run<D: Driver>(self, driver: D, stop: impl Future<Output = Instant> + Send) {
        let driver = Arc::new(driver);
        let (stopping, watch_stop) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut stop = std::pin::pin!(stop);
        let deadline = loop {
            tokio::select! {
                biased;
                deadline = &mut stop => break deadline,
                Some(ended) = connections.join_next() => self.note(ended),
                accepted = self.listener.accept(self.buffers) => match accepted {
                    Ok((socket, peer)) => {
                        self.stats.accepted.fetch_add(1, Relaxed);
                        if connections.len() >= self.max_connections {
                            self.refuse(&peer);
                            continue;
                        }
                        let (driver, stopping) = (driver.clone(), Stopping(watch_stop.clone()));
                        let shaking = handshake(self.tls.clone(), socket, self.stats.clone());
                        connections.spawn(async move {
                            if let Some((stream, tls)) = shaking.await {
                                driver.drive(stream, Connection { peer, tls }, stopping).await;
                            }
                        });
                    }
                    Err(error) => self.accept_failed(&error).await,
                },
            }
        };
        drop(self.listener);
        stopping.send_replace(true);
        let all_done = async { while connections.join_next().await.is_some() {} };
        if timeout_at(deadline, all_done).await.is_err() {
            info!(
                connections = connections.len(),
                "Closing connections that are still busy at the deadline."
            );
            connections.shutdown().await;
        }
    }

    fn note(&self, ended: Result<(), JoinError>) {
        if let Err(error) = ended
            && error.is_panic()
        {
            self.stats.panics.fetch_add(1, Relaxed);
            error!(%error, "A connection's task panicked; the connection is closed. Please report this bug.");
        }
    }

    fn refuse(&self, peer: &PeerAddr) {
        let refused = self.stats.over_cap.fetch_add(1, Relaxed) + 1;
        // Log at powers of two to avoid flooding the log.
        if refused.is_power_of_two() {
            let max = self.max_connections;
            warn!(%peer, refused, max, "Refusing connections: `max_connections` is reached.");
        }
    }

    async fn accept_failed(&self, error: &io::Error) {
        use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
        let failures = self.stats.accept_failures.fetch_add(1, Relaxed) + 1;
        if matches!(
            error.kind(),
            ConnectionAborted | ConnectionReset | Interrupted
        ) {
            return; // only this connection failed
        }
        if failures.is_power_of_two() {
            warn!(%error, failures, "Failed to accept a connection. Check the limit of open files (LimitNOFILE=).");
        }
        sleep(ACCEPT_BACKOFF).await;
    }
}

/// Runs in the connection's own task, so that a slow handshake blocks no other.
async fn handshake(
    tls: Option<Arc<ServerSide>>,
    socket: Socket,
    stats: Arc<ServerStats>,
) -> Option<(Stream, bool)> {
    let Some(tls) = tls else {
        return Some((Stream::Plain(socket), false));
    };
    let shaken = timeout(HANDSHAKE_TIMEOUT, tls.acceptor().accept(socket)).await;
    let reason = match shaken {
        Ok(Ok(stream)) => return Some((Stream::tls(stream), true)),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "timed out".to_owned(),
    };
    let failures = stats.handshake_failures.fetch_add(1, Relaxed) + 1;
    if failures.is_power_of_two() {
        warn!(failures, "TLS handshake failed: {reason}");
    }
    None
}
