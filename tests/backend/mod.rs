//! What stands before and behind the profcol under test: clients that send to it, and destinations that remember
//! all that arrives and misbehave as told.

#![allow(dead_code, reason = "each test file uses its part of the helpers")]

pub mod http;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ::http::{HeaderMap, HeaderValue, Method, StatusCode};
use bytes::Bytes;
use profcol_net::grpc::{Code, Status};
use profcol_net::{
    Compression, GrpcCall, GrpcClient, GrpcClientSettings, GrpcRequest, GrpcServer,
    GrpcServerSettings, GrpcService, HttpCall, HttpClient, HttpClientSettings, HttpError,
    HttpReply, Message,
};
use profcol_profile::service::{GRPC_PATH, HTTP_PATH};
use profcol_profile::{Profiles, Validation};
use socket2::{Domain, Socket, Type};
use tokio::runtime::Runtime;

/// Far beyond what anything here takes, so that only a hang ends in a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// Polls until `condition` holds; `what` describes it.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < give_up, "waited for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A loopback address that nobody listens on, kept free of others for as long as this lives.
pub struct Nobody {
    pub address: SocketAddr,
    _bound: Socket,
}

impl Nobody {
    pub fn new() -> Self {
        let bound = Socket::new(Domain::IPV4, Type::STREAM, None).expect("there is TCP");
        // So that a destination may come to listen there.
        bound.set_reuse_address(true).expect("it is a socket");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        bound.bind(&any.into()).expect("loopback has a free port");
        let address = bound.local_addr().ok().and_then(|bound| bound.as_socket());
        Self {
            address: address.expect("it is bound to an IPv4 address"),
            _bound: bound,
        }
    }
}

/// An OTLP/gRPC destination.
pub struct Destination {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    _serving: Serving,
}

/// A gRPC server. Dropped, it is gone with all its connections.
pub struct Serving {
    pub address: SocketAddr,
    runtime: Option<Runtime>,
}

/// How a destination behaves.
#[derive(Clone, Debug)]
pub enum Mode {
    Take,
    Refuse(Status),
    /// Never answers.
    Hang,
    /// Answers after that long.
    Slow(Duration),
    /// Takes no message that has more bytes.
    AtMost(usize),
    /// Takes all and answers so.
    Answer(Vec<u8>),
}

struct State {
    mode: Mode,
    taken: Vec<Profiles>,
    asked: usize,
}

struct Service(Arc<Mutex<State>>);

impl Destination {
    pub fn new(mode: Mode) -> Self {
        Self::on("127.0.0.1:0".parse().expect("an address"), mode)
    }

    pub fn on(address: SocketAddr, mode: Mode) -> Self {
        let state = Arc::new(Mutex::new(State {
            mode,
            taken: Vec::new(),
            asked: 0,
        }));
        let serving = Serving::on(address, Service(state.clone()));
        Self {
            address: serving.address,
            state,
            _serving: serving,
        }
    }

    pub fn set(&self, mode: Mode) {
        self.state.lock().unwrap().mode = mode;
    }

    /// How many samples it has taken.
    pub fn samples(&self) -> usize {
        let state = self.state.lock().unwrap();
        state.taken.iter().map(Profiles::sample_count).sum()
    }

    pub fn taken(&self) -> Vec<Profiles> {
        self.state.lock().unwrap().taken.clone()
    }

    /// How many calls it got, taken or not.
    pub fn asked(&self) -> usize {
        self.state.lock().unwrap().asked
    }

    pub fn wait_for_samples(&self, samples: usize) {
        wait_until(&format!("{samples} samples to arrive"), || {
            self.samples() >= samples
        });
    }

    pub fn wait_until_asked(&self, times: usize) {
        wait_until("the destination to be called", || self.asked() >= times);
    }
}

impl Serving {
    pub fn new(service: impl GrpcService) -> Self {
        Self::on("127.0.0.1:0".parse().expect("an address"), service)
    }

    pub fn on(address: SocketAddr, service: impl GrpcService) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("threads can be started");
        let settings = GrpcServerSettings {
            endpoint: address.to_string(),
            ..GrpcServerSettings::default()
        };
        let server = {
            let _inside = runtime.enter();
            GrpcServer::bind(&settings, None).expect("the port is free")
        };
        let address = server.local_addr().to_string();
        runtime.spawn(server.serve(service, std::future::pending()));
        Self {
            address: address.parse().expect("a TCP address"),
            runtime: Some(runtime),
        }
    }

    /// For what is served beside it.
    pub fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is there until the drop")
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl GrpcService for Service {
    fn admit(&self, _: &str, _: &HeaderMap) -> Result<(), Status> {
        Ok(())
    }

    async fn call(&self, request: GrpcRequest) -> Result<Bytes, Status> {
        let mode = {
            let mut state = self.0.lock().unwrap();
            state.asked += 1;
            state.mode.clone()
        };
        let wire = request.message.plain;
        let answer = match mode {
            Mode::Take => Vec::new(),
            Mode::Refuse(status) => return Err(status),
            Mode::Hang => std::future::pending().await,
            Mode::Slow(delay) => {
                tokio::time::sleep(delay).await;
                Vec::new()
            }
            Mode::AtMost(limit) if wire.len() > limit => {
                let bytes = wire.len();
                let message =
                    format!("grpc: received message larger than max ({bytes} vs. {limit})");
                return Err(Status::new(Code::ResourceExhausted, message));
            }
            Mode::AtMost(_) => Vec::new(),
            Mode::Answer(answer) => answer,
        };
        let received = Profiles::from_wire(wire, Validation::Reject)
            .map_err(|invalid| Status::new(Code::InvalidArgument, invalid.to_string()))?;
        self.0.lock().unwrap().taken.push(received.profiles);
        Ok(answer.into())
    }
}

/// Sends over OTLP/gRPC.
pub struct Client {
    runtime: Runtime,
    client: GrpcClient,
}

impl Client {
    pub fn new(to: SocketAddr) -> Self {
        Self::compressing(to, Compression::None)
    }

    pub fn compressing(to: SocketAddr, compression: Compression) -> Self {
        let mut settings = GrpcClientSettings {
            endpoint: to.to_string(),
            compression,
            ..GrpcClientSettings::default()
        };
        settings.tls.insecure = true;
        Self::with(&settings)
    }

    pub fn with(settings: &GrpcClientSettings) -> Self {
        Self {
            runtime: runtime(),
            client: GrpcClient::new(settings, None, "test").expect("the settings are valid"),
        }
    }

    pub fn send(&self, profiles: &Profiles) -> Result<(), Status> {
        self.send_message(&Message::from(profiles.to_wire()))
    }

    /// Waits no longer than that for the answer.
    pub fn send_within(&self, profiles: &Profiles, limit: Duration) -> Result<(), Status> {
        self.call(&Message::from(profiles.to_wire()), limit)
    }

    pub fn send_message(&self, message: &Message) -> Result<(), Status> {
        self.call(message, PATIENCE)
    }

    fn call(&self, message: &Message, limit: Duration) -> Result<(), Status> {
        let call = GrpcCall {
            path: GRPC_PATH,
            message,
            headers: HeaderMap::new(),
            timeout: Some(limit),
        };
        self.runtime.block_on(self.client.unary(call)).map(|_| ())
    }
}

/// Posts over OTLP/HTTP.
pub struct HttpSender {
    runtime: Runtime,
    client: HttpClient,
}

impl HttpSender {
    pub fn new(to: SocketAddr, compression: Compression) -> Self {
        let settings = HttpClientSettings {
            compression,
            ..HttpClientSettings::default()
        };
        Self::with(&settings, &format!("http://{to}"))
    }

    pub fn with(settings: &HttpClientSettings, base: &str) -> Self {
        let url = format!("{base}{HTTP_PATH}");
        Self {
            runtime: runtime(),
            client: HttpClient::new(settings, &url, None, "test").expect("the URL is valid"),
        }
    }

    /// What is answered; `Err` where the connection ends before.
    pub fn try_post(&self, kind: &'static str, body: &Message) -> Result<HttpReply, HttpError> {
        let call = HttpCall {
            method: Method::POST,
            content_type: HeaderValue::from_static(kind),
            body,
            headers: HeaderMap::new(),
            timeout: None,
        };
        self.runtime.block_on(self.client.send(call))
    }

    pub fn post(&self, kind: &'static str, body: &Message) -> HttpReply {
        self.try_post(kind, body).expect("the receiver answers")
    }

    pub fn status(&self, kind: &'static str, body: &Message) -> StatusCode {
        self.post(kind, body).status
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made")
}

/// Where profcol listens for `protocol`, according to what it has printed.
pub fn endpoint_in(said: &str, protocol: &str) -> SocketAddr {
    let line = said
        .lines()
        .find(|line| line.contains("Starting OTLP server") && line.contains(protocol));
    let text = line.and_then(|line| line.split("127.0.0.1:").nth(1));
    let digits = text.map(|text| text.split(|next: char| !next.is_ascii_digit()).next());
    let port = digits.flatten().and_then(|digits| digits.parse().ok());
    let port: u16 = port.unwrap_or_else(|| panic!("no port for {protocol} in:\n{said}"));
    SocketAddr::from(([127, 0, 0, 1], port))
}
