//! HTTP/2 connections to all addresses of one gRPC target.
//!
//! Each address has at most one connection, opened by the first call that needs it; concurrent calls wait for the same
//! attempt. A failed address is skipped for a second. While an address has no connection, the name is resolved again
//! periodically, as the server may have moved. Calls wait for that only if no other address is usable.
//!
//! A call that is dropped before its end, usually at its timeout, gives the connection up if no other call has ended since it
//! began: the server may be stuck in the middle of a frame, or never open a window. The next call gets a new connection.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use h2::client::SendRequest;
use h2::{PingPong, Reason};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::dial::{self, Address};
use super::endpoint::{Endpoint, GrpcTarget};
use super::error::{ConnectError, Http2Error, LookupError};
use super::proxy::Proxies;
use super::settings::{Balancer, GrpcClientKeepalive};
use crate::grpc::Status;
use crate::grpc::frame::Framed;
use crate::hint::Hint;
use crate::io::{ReceivedAlert, Stream};
use crate::socket::Buffers;
use crate::tls::ClientSide;

/// How long a failed address is skipped.
const FAILURE_COOLDOWN: Duration = Duration::from_secs(1);
/// Minimum interval between DNS lookups while an address fails.
const DNS_REFRESH_INTERVAL: Duration = Duration::from_secs(5);
/// HTTP/2 receive window per stream; four times as much per connection.
const WINDOW: u32 = 256 << 10;
/// HTTP/2 handshake timeout.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);

/// The connections to one target.
#[derive(Debug)]
pub(super) struct Channel {
    target: GrpcTarget,
    endpoint: String,
    tls: Option<ClientSide>,
    proxies: Proxies,
    balancer: Balancer,
    http2: Http2Options,
    subchannels: Arc<tokio::sync::Mutex<Subchannels>>,
    next: AtomicUsize,
    /// Connection and lookup tasks; aborted when the channel is dropped.
    tasks: parking_lot::Mutex<JoinSet<()>>,
}

/// HTTP/2 connection options.
#[derive(Clone, Debug)]
pub(super) struct Http2Options {
    pub buffers: Buffers,
    pub keepalive: Option<GrpcClientKeepalive>,
}

#[derive(Debug, Default)]
struct Subchannels {
    all: Vec<Arc<Subchannel>>,
    looked_up: Option<Instant>,
}

/// One address of the target and its connection.
#[derive(Debug)]
struct Subchannel {
    route: Route,
    connection: parking_lot::Mutex<Option<Connection>>,
    /// Held while connecting; holds the last failure.
    failure: tokio::sync::Mutex<Option<(Instant, ConnectError)>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Route {
    Direct(Address),
    /// A proxy resolves the target's name.
    Proxy,
}

/// A usable connection.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub send: SendRequest<Framed>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    closed: AtomicBool,
    /// A response has arrived, so the server speaks HTTP/2.
    answered: AtomicBool,
    running: AtomicUsize,
    /// How many calls have ended, with whatever result.
    ended: AtomicUsize,
    /// A call has left the connection.
    left: Notify,
    alert: ReceivedAlert,
}

/// A call in flight on a connection.
#[derive(Debug)]
pub(super) struct Running {
    shared: Arc<Shared>,
    /// How many calls had ended when it began.
    ended_before: usize,
    has_ended: AtomicBool,
}

/// A failed attempt.
pub(super) struct FailedAttempt {
    pub status: Status,
    /// The call cannot have reached a server.
    pub unsent: bool,
}

impl Connection {
    pub fn begin(&self) -> Running {
        self.shared.running.fetch_add(1, Relaxed);
        Running {
            shared: self.shared.clone(),
            ended_before: self.shared.ended.load(Relaxed),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Marks the connection as unusable for further calls.
    pub fn give_up(&self) {
        self.shared.closed.store(true, Relaxed);
    }
}

impl Shared {
    /// Returns when the connection was given up and no call is left on it. A stuck server would keep it open.
    async fn abandoned(&self) {
        loop {
            let left = self.left.notified();
            if self.closed.load(Relaxed) && self.running.load(Relaxed) == 0 {
                return;
            }
            left.await;
        }
    }
}

impl Running {
    /// Records that a response has arrived.
    pub fn answered(&self) {
        self.shared.answered.store(true, Relaxed);
    }

    /// Records that the server has dealt with the call.
    pub fn ended(&self) {
        if !self.has_ended.swap(true, Relaxed) {
            self.shared.ended.fetch_add(1, Relaxed);
        }
    }

    /// Converts an error to a call failure.
    pub fn failure(&self, error: h2::Error) -> FailedAttempt {
        self.ended();
        let is_mute = !error.is_remote() && !self.shared.answered.load(Relaxed);
        let mut failure = FailedAttempt::from(error);
        let hint = self.shared.alert.hint();
        failure.status.hint = hint.or(is_mute.then_some(Hint::CheckGrpcAndTls));
        failure
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let ended = self.shared.ended.load(Relaxed);
        if !*self.has_ended.get_mut() && ended == self.ended_before {
            self.shared.closed.store(true, Relaxed);
        }
        self.shared.running.fetch_sub(1, Relaxed);
        self.shared.left.notify_one();
    }
}

impl FailedAttempt {
    pub fn non_retryable(status: Status) -> FailedAttempt {
        FailedAttempt {
            status,
            unsent: false,
        }
    }
}

/// A broken stream says nothing about the data, so all such failures are retryable, unlike statuses from the server.
impl From<h2::Error> for FailedAttempt {
    fn from(error: h2::Error) -> FailedAttempt {
        let refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
        let going_away = error.is_go_away() && error.reason() == Some(Reason::NO_ERROR);
        FailedAttempt {
            unsent: error.is_remote() && (refused || going_away),
            status: Status::connection_lost(format!("transport: {error}")).with_source(error),
        }
    }
}

impl Channel {
    pub fn new(
        target: GrpcTarget,
        endpoint: String,
        tls: Option<ClientSide>,
        proxies: Proxies,
        balancer: Balancer,
        http2: Http2Options,
    ) -> Channel {
        Channel {
            target,
            endpoint,
            tls,
            proxies,
            balancer,
            http2,
            subchannels: Arc::default(),
            next: AtomicUsize::new(0),
            tasks: parking_lot::Mutex::default(),
        }
    }

    /// Picks a connection for the next call.
    pub async fn pick(&self) -> Result<Connection, ConnectError> {
        let since = Instant::now();
        let subchannels = self.subchannels().await?;
        self.pick_from(&subchannels, since).await
    }

    async fn pick_from(
        &self,
        subchannels: &[Arc<Subchannel>],
        since: Instant,
    ) -> Result<Connection, ConnectError> {
        let start = match self.balancer {
            Balancer::RoundRobin => self.next.fetch_add(1, Relaxed),
            Balancer::PickFirst => self.next.load(Relaxed),
        };
        let mut last = None;
        for step in 0..subchannels.len() {
            let at = start.wrapping_add(step);
            let subchannel = &subchannels[at % subchannels.len()];
            match subchannel.connection(self, since).await {
                Ok(connection) => {
                    if self.balancer == Balancer::PickFirst {
                        self.next.store(at, Relaxed);
                    }
                    return Ok(connection);
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| ConnectError::Lookup {
            host: self.endpoint.clone(),
            error: LookupError::NoAddress,
        }))
    }

    /// The known addresses, resolved again if that may help.
    async fn subchannels(&self) -> Result<Vec<Arc<Subchannel>>, ConnectError> {
        let mut subchannels = self.subchannels.lock().await;
        let old = subchannels
            .looked_up
            .is_none_or(|at| at.elapsed() > DNS_REFRESH_INTERVAL);
        if old {
            let live = subchannels
                .all
                .iter()
                .filter(|subchannel| subchannel.live_connection().is_some());
            match (live.count(), self.balancer) {
                (0, _) => self.lookup_now(&mut subchannels).await?,
                (live, Balancer::RoundRobin) if live < subchannels.all.len() => {
                    subchannels.looked_up = Some(Instant::now());
                    self.lookup_in_background();
                }
                _ => {}
            }
        }
        Ok(subchannels.all.clone())
    }

    /// Fails only if no address is known: a failing DNS server must not affect known addresses.
    async fn lookup_now(&self, subchannels: &mut Subchannels) -> Result<(), ConnectError> {
        match self.lookup().await {
            Ok(routes) => subchannels.update(routes),
            Err(error) if subchannels.all.is_empty() => return Err(error),
            Err(error) => {
                debug!(endpoint = %self.endpoint, %error, "DNS lookup failed; keeping the previous addresses")
            }
        }
        subchannels.looked_up = Some(Instant::now());
        Ok(())
    }

    fn lookup_in_background(&self) {
        let Endpoint::Host { host, port } = &self.target.endpoint else {
            return;
        };
        let (host, port, subchannels) = (host.clone(), *port, Arc::clone(&self.subchannels));
        let task = async move {
            match dial::lookup(&host, port).await {
                Ok(addresses) => subchannels.lock().await.update(direct(addresses)),
                Err(error) => {
                    debug!(%host, %error, "DNS lookup failed; keeping the previous addresses")
                }
            }
        };
        self.spawn(task);
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    async fn lookup(&self) -> Result<Vec<Route>, ConnectError> {
        match &self.target.endpoint {
            Endpoint::Unix(path) => Ok(vec![Route::Direct(Address::Unix(path.clone()))]),
            Endpoint::Host { host, port } => {
                // gRPC connections use the HTTPS proxy, encrypted or not.
                if let Some(_proxy) = self.proxy(host, *port)? {
                    return Ok(vec![Route::Proxy]);
                }
                Ok(direct(dial::lookup(host, *port).await?))
            }
        }
    }

    fn proxy(&self, host: &str, port: u16) -> Result<Option<super::proxy::Proxy>, ConnectError> {
        self.proxies
            .for_target(true, host, port)
            .map_err(|error| ConnectError::Proxy {
                endpoint: self.endpoint.clone(),
                proxy: "of the environment".to_owned(),
                error: Arc::new(error.into()),
            })
    }

    async fn dial(&self, route: &Route) -> Result<Stream, ConnectError> {
        let tls = self.tls.as_ref().map(|tls| (tls, self.target.host()));
        match (route, &self.target.endpoint) {
            (Route::Direct(address), _) => {
                dial::connect(address, &self.endpoint, tls, self.http2.buffers).await
            }
            (Route::Proxy, Endpoint::Host { host, port }) => match self.proxy(host, *port)? {
                Some(proxy) => {
                    dial::connect_through(
                        &proxy,
                        &self.target.authority(),
                        false,
                        tls,
                        self.http2.buffers,
                    )
                    .await
                }
                None => {
                    dial::connect_host(host, *port, &self.endpoint, tls, self.http2.buffers).await
                }
            },
            (Route::Proxy, Endpoint::Unix(path)) => {
                dial::connect(
                    &Address::Unix(path.clone()),
                    &self.endpoint,
                    tls,
                    self.http2.buffers,
                )
                .await
            }
        }
    }
}

fn direct(addresses: Vec<SocketAddr>) -> Vec<Route> {
    let addresses = addresses.into_iter();
    addresses
        .map(|address| Route::Direct(Address::Tcp(address)))
        .collect()
}

impl Subchannels {
    /// Updates the addresses; remaining ones keep their connection.
    fn update(&mut self, routes: Vec<Route>) {
        let known = std::mem::take(&mut self.all);
        let subchannels = routes.into_iter();
        self.all = subchannels
            .map(
                |route| match known.iter().find(|subchannel| subchannel.route == route) {
                    Some(subchannel) => subchannel.clone(),
                    None => Arc::new(Subchannel::new(route)),
                },
            )
            .collect();
    }
}

impl Subchannel {
    fn new(route: Route) -> Subchannel {
        Subchannel {
            route,
            connection: parking_lot::Mutex::new(None),
            failure: tokio::sync::Mutex::new(None),
        }
    }

    fn live_connection(&self) -> Option<Connection> {
        let mut slot = self.connection.lock();
        slot.take_if(|connection| connection.shared.closed.load(Relaxed));
        slot.clone()
    }

    /// Returns the connection, connecting if needed. Callers that waited for a failed attempt get its failure.
    async fn connection(
        &self,
        channel: &Channel,
        since: Instant,
    ) -> Result<Connection, ConnectError> {
        if let Some(connection) = self.live_connection() {
            return Ok(connection);
        }
        let mut failure = self.failure.lock().await;
        if let Some(connection) = self.live_connection() {
            return Ok(connection);
        }
        if let Some((when, error)) = &*failure
            && (*when >= since || when.elapsed() < FAILURE_COOLDOWN)
        {
            return Err(error.clone());
        }
        match self.connect(channel).await {
            Ok(connection) => {
                *failure = None;
                let mut slot = self.connection.lock();
                *slot = Some(connection.clone());
                Ok(connection)
            }
            Err(error) => {
                *failure = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn connect(&self, channel: &Channel) -> Result<Connection, ConnectError> {
        let stream = channel.dial(&self.route).await?;
        let failed = |error| ConnectError::Http2 {
            endpoint: channel.endpoint.clone(),
            error,
        };
        let shared = Arc::new(Shared {
            alert: stream.received_alert(),
            ..Shared::default()
        });
        let handshake = h2::client::Builder::new()
            .initial_window_size(WINDOW)
            .initial_connection_window_size(4 * WINDOW)
            .max_header_list_size(64 << 10)
            .enable_push(false)
            .handshake(stream);
        let (send, mut connection) = timeout(HANDSHAKE_TIMEOUT, handshake)
            .await
            .map_err(|_| failed(Http2Error::Timeout))?
            .map_err(|error| failed(Http2Error::Failed(error.into())))?;
        let probing = probe(
            connection.ping_pong(),
            channel.http2.keepalive.clone(),
            shared.clone(),
        );
        let (mine, endpoint) = (shared.clone(), channel.endpoint.clone());
        // Ends when the peer closes, a ping times out, or no handle is left.
        let task = async move {
            tokio::select! {
                result = connection => if let Err(error) = result {
                    debug!(%endpoint, %error, "gRPC connection ended");
                },
                () = probing => debug!(%endpoint, "gRPC connection closed: keepalive ping timed out"),
                () = mine.abandoned() => debug!(%endpoint, "gRPC connection closed: no call on it ended in time"),
            }
            mine.closed.store(true, Relaxed);
        };
        channel.spawn(task);
        Ok(Connection { send, shared })
    }
}

/// Returns when a ping has timed out.
async fn probe(
    pings: Option<PingPong>,
    keepalive: Option<GrpcClientKeepalive>,
    shared: Arc<Shared>,
) {
    let (Some(mut pings), Some(keepalive)) = (pings, keepalive) else {
        return pending().await;
    };
    loop {
        sleep(keepalive.time.to_std()).await;
        if shared.running.load(Relaxed) == 0 && !keepalive.permit_without_stream {
            continue;
        }
        match timeout(keepalive.timeout.to_std(), pings.ping(h2::Ping::opaque())).await {
            Ok(Ok(_)) => {}
            // The connection has ended; its own future reports why.
            Ok(Err(_)) => return pending().await,
            Err(_) => return,
        }
    }
}
