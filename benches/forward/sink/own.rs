//! Our own sink: a gRPC server that accepts everything immediately and counts it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Request, Response};
use profcol_benches::bodies::count_samples;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::{Messages, Received};
use crate::wire::{self, Compression};

/// The largest HTTP/2 windows, so that flow control never slows the forwarder.
const WINDOW: u32 = (1 << 31) - 1;
const MAX_FRAME: u32 = (1 << 24) - 1;

/// Runs on its own thread until dropped.
pub struct Sink {
    pub address: SocketAddr,
    counters: Arc<Counters>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Counters {
    requests: AtomicU64,
    bytes: AtomicU64,
    samples: AtomicU64,
    /// The first request that could not be decoded.
    unreadable: Mutex<Option<anyhow::Error>>,
}

impl Sink {
    pub fn start() -> Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("failed to start the sink")?;
        let listener = runtime
            .block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .context("failed to listen on loopback")?;
        let address = listener.local_addr()?;
        let counters = Arc::new(Counters::default());
        let (stop, stopped) = oneshot::channel();
        let counting = Arc::clone(&counters);
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(&listener, &counting) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Self {
            address,
            counters,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The counts so far, or the error of the first invalid request.
    pub fn received(&self) -> Result<Received> {
        let unreadable = self
            .counters
            .unreadable
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(error) = unreadable {
            return Err(error.context("invalid request from the forwarder"));
        }
        Ok(Received {
            messages: Some(Messages {
                requests: self.counters.requests.load(Relaxed),
                bytes: self.counters.bytes.load(Relaxed),
            }),
            samples: self.counters.samples.load(Relaxed),
        })
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The panic message has already been printed.
            let _ = thread.join();
        }
    }
}

async fn accept(listener: &TcpListener, counters: &Arc<Counters>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, Arc::clone(counters)));
    }
}

/// Serves a connection until the forwarder closes it in any way.
async fn serve(stream: TcpStream, counters: Arc<Counters>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut connection = h2::server::Builder::new()
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(MAX_FRAME)
        .max_concurrent_streams(1000)
        .handshake(stream)
        .await
        .ok()?;
    let mut requests = JoinSet::new();
    loop {
        tokio::select! {
            accepted = connection.accept() => {
                let (request, respond) = accepted?.ok()?;
                requests.spawn(answer(request, respond, Arc::clone(&counters)));
            }
            Some(_) = requests.join_next() => {}
        }
    }
}

async fn answer(
    mut request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    counters: Arc<Counters>,
) -> Option<()> {
    let encoding = request
        .headers()
        .get("grpc-encoding")
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    let message = wire::read(request.body_mut()).await.ok()?;
    match samples(&message, encoding.as_deref()) {
        Ok(samples) => {
            counters.requests.fetch_add(1, Relaxed);
            counters.bytes.fetch_add(message.len() as u64, Relaxed);
            counters.samples.fetch_add(samples, Relaxed);
        }
        Err(error) => {
            let mut first = counters
                .unreadable
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(error);
        }
    }
    let mut response = Response::new(());
    response
        .headers_mut()
        .insert("content-type", HeaderValue::from_static("application/grpc"));
    let mut stream = respond.send_response(response, false).ok()?;
    // An empty ExportProfilesServiceResponse: everything was accepted.
    stream.send_data(Bytes::from_static(&[0; 5]), false).ok()?;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    stream.send_trailers(trailers).ok()
}

fn samples(message: &Bytes, encoding: Option<&str>) -> Result<u64> {
    let body = wire::unframe(message, Compression::from_header(encoding)?)?;
    count_samples(body).map_err(|error| anyhow!(error).context("not an export request"))
}
