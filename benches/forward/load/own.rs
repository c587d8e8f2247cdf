//! Our own client. It uses so little CPU that the forwarder is as busy as possible.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Method, Request, Version};
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceResponse;
use profcol_benches::bodies::count_samples;
use prost::Message;
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{Sent, Shape};
use crate::wire::{self, Compression};

/// How long to wait after the forwarder refused a request.
const PAUSE: Duration = Duration::from_millis(10);
/// A forwarder without a response for this long is broken.
const SILENCE: Duration = Duration::from_secs(60);

/// The bodies, sent in a loop.
pub struct Bodies {
    messages: Vec<Body>,
    compression: Compression,
    next: AtomicUsize,
}

struct Body {
    framed: Bytes,
    samples: u64,
}

impl Bodies {
    pub fn new(bodies: &[Bytes], compression: Compression) -> Result<Arc<Self>> {
        let messages = bodies.iter().map(|body| {
            Ok(Body {
                framed: wire::frame(body, compression)?,
                samples: count_samples(body.clone()).context("a body is not an export request")?,
            })
        });
        Ok(Arc::new(Self {
            messages: messages.collect::<Result<_>>()?,
            compression,
            next: AtomicUsize::new(0),
        }))
    }

    fn next(&self) -> &Body {
        let turn = self.next.fetch_add(1, Relaxed) % self.messages.len();
        &self.messages[turn]
    }
}

pub fn run(
    target: SocketAddr,
    bodies: &Arc<Bodies>,
    shape: Shape,
    duration: Duration,
) -> Result<Sent> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the load")?;
    runtime.block_on(load(target, bodies, shape, duration))
}

async fn load(
    target: SocketAddr,
    bodies: &Arc<Bodies>,
    shape: Shape,
    duration: Duration,
) -> Result<Sent> {
    let until = Instant::now() + duration;
    let mut connections = JoinSet::new();
    let mut clients = JoinSet::new();
    for _ in 0..shape.connections {
        let stream = TcpStream::connect(target)
            .await
            .context("failed to connect to the forwarder")?;
        stream.set_nodelay(true)?;
        let (sender, connection) = h2::client::handshake(stream)
            .await
            .context("HTTP/2 handshake with the forwarder failed")?;
        connections.spawn(connection);
        for _ in 0..shape.in_flight {
            clients.spawn(client(sender.clone(), Arc::clone(bodies), until));
        }
    }
    let mut sum = Sent::default();
    while let Some(sent) = clients.join_next().await {
        sum += sent.context("a client panicked")??;
    }
    Ok(sum)
}

/// Sends one request after another.
async fn client(sender: SendRequest<Bytes>, bodies: Arc<Bodies>, until: Instant) -> Result<Sent> {
    let mut sent = Sent::default();
    while Instant::now() < until {
        let body = bodies.next();
        let answer = timeout(
            SILENCE,
            export(sender.clone(), body.framed.clone(), bodies.compression),
        );
        match answer.await.context("no response from the forwarder")?? {
            Answer::Accepted => {
                sent.accepted += 1;
                sent.accepted_samples += body.samples;
            }
            Answer::Later => {
                sent.refused += 1;
                sleep(PAUSE).await;
            }
        }
    }
    Ok(sent)
}

enum Answer {
    Accepted,
    Later,
}

async fn export(
    sender: SendRequest<Bytes>,
    message: Bytes,
    compression: Compression,
) -> Result<Answer> {
    let mut request = Request::builder()
        .method(Method::POST)
        .version(Version::HTTP_2)
        .uri(format!("http://forwarder{}", wire::EXPORT))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if compression != Compression::None {
        request = request.header("grpc-encoding", compression.name());
    }
    let mut sender = sender
        .ready()
        .await
        .context("the forwarder closed the connection")?;
    let (response, mut body) = sender.send_request(request.body(())?, false)?;
    body.send_data(message, true)?;
    let (head, mut body) = response.await?.into_parts();
    // An error response may consist of headers only.
    if head.headers.contains_key("grpc-status") {
        return classify(&head.headers, &[]);
    }
    let encoding = head
        .headers
        .get("grpc-encoding")
        .and_then(|value| value.to_str().ok());
    let encoding = Compression::from_header(encoding)?;
    let message = wire::read(&mut body).await?;
    let trailers = body
        .trailers()
        .await?
        .context("response without trailers")?;
    let message = if message.is_empty() {
        message
    } else {
        wire::unframe(&message, encoding)?
    };
    classify(&trailers, &message)
}

fn classify(status: &HeaderMap, message: &[u8]) -> Result<Answer> {
    let text = |name| {
        status
            .get(name)
            .map_or("", |value| value.to_str().unwrap_or_default())
    };
    match text("grpc-status") {
        "0" => {}
        // RESOURCE_EXHAUSTED, UNAVAILABLE.
        "8" | "14" => return Ok(Answer::Later),
        code => bail!(
            "the forwarder permanently refused a request: {code} {}",
            text("grpc-message")
        ),
    }
    let response =
        ExportProfilesServiceResponse::decode(message).context("invalid export response")?;
    match response.partial_success {
        Some(partial) if partial.rejected_profiles > 0 => {
            bail!(
                "the forwarder accepted only a part: {}",
                partial.error_message
            )
        }
        _ => Ok(Answer::Accepted),
    }
}
