//! Clients and destinations of the profcol under test. Destinations record everything that arrives, and misbehave on
//! request.

pub mod http;
pub mod stuck;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ::http::{HeaderMap, HeaderValue, Method, StatusCode};
use bytes::Bytes;
use profcol_net::grpc::{Code, Status};
use profcol_net::{
    Compression, GrpcCall, GrpcClient, GrpcClientSettings, GrpcRequest, GrpcServer,
    GrpcServerSettings, GrpcService, HttpCall, HttpClient, HttpClientSettings, HttpError,
    HttpReply, ListeningSockets, Message,
};
use profcol_otlp::service::{GRPC_PATH, HTTP_PATH};
use profcol_profile::{Profiles, Validation};
use socket2::{Domain, Socket, Type};
use tokio::runtime::Runtime;

use crate::TIMEOUT;

/// Polls until `condition` holds; `what` describes it.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    // Tests of several kinds share the CPUs and the disk.
    let give_up = Instant::now() + 2 * TIMEOUT;
    while !condition() {
        assert!(Instant::now() < give_up, "waited for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A loopback address without a listener, reserved while this lives.
pub struct ClosedPort {
    pub address: SocketAddr,
    _bound: Socket,
}

impl ClosedPort {
    pub fn reserve() -> Self {
        let bound = Socket::new(Domain::IPV4, Type::STREAM, None).expect("TCP is available");
        // So that a destination may listen there later.
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

/// A gRPC server. Dropping it closes all connections.
pub struct Serving {
    pub address: SocketAddr,
    runtime: Option<Runtime>,
}

/// How a destination behaves.
#[derive(Clone, Debug)]
pub enum Mode {
    Take,
    Refuse(Status),
    /// Never responds.
    Hang,
    /// Responds after this time.
    Slow(Duration),
    /// Refuses larger messages.
    AtMost(usize),
    /// Accepts everything and responds with these bytes.
    Answer(Vec<u8>),
}

struct State {
    mode: Mode,
    samples: usize,
    /// Empty if it only counts.
    taken: Vec<Profiles>,
    keeps_taken: bool,
    requests: usize,
}

struct Service(Arc<Mutex<State>>);

impl Destination {
    pub fn new(mode: Mode) -> Self {
        Self::on("127.0.0.1:0".parse().expect("an address"), mode)
    }

    pub fn on(address: SocketAddr, mode: Mode) -> Self {
        Self::with(address, mode, true)
    }

    /// Keeps no profiles, for tests that last for hours.
    pub fn counting(mode: Mode) -> Self {
        Self::with("127.0.0.1:0".parse().expect("an address"), mode, false)
    }

    fn with(address: SocketAddr, mode: Mode, keeps_taken: bool) -> Self {
        let state = Arc::new(Mutex::new(State {
            mode,
            samples: 0,
            taken: Vec::new(),
            keeps_taken,
            requests: 0,
        }));
        let serving = Serving::on(address, Service(state.clone()));
        Self {
            address: serving.address,
            state,
            _serving: serving,
        }
    }

    /// The settings of an exporter to it that gives up on a batch after a few tries.
    pub fn impatient_exporter(&self) -> String {
        let address = self.address;
        format!(
            "{{endpoint: {address}, tls: {{insecure: true}}, retry_on_failure: {{initial_interval: 20ms, max_interval: 50ms, max_elapsed_time: 100ms}}}}"
        )
    }

    pub fn set(&self, mode: Mode) {
        self.state.lock().unwrap().mode = mode;
    }

    /// The number of accepted samples.
    pub fn samples(&self) -> usize {
        self.state.lock().unwrap().samples
    }

    pub fn taken(&self) -> Vec<Profiles> {
        self.state.lock().unwrap().taken.clone()
    }

    /// How often each batch was taken, by its number of samples.
    pub fn deliveries(&self) -> BTreeMap<usize, usize> {
        let mut deliveries = BTreeMap::new();
        for profiles in self.taken() {
            *deliveries.entry(profiles.sample_count()).or_default() += 1;
        }
        deliveries
    }

    /// The number of calls, accepted or not.
    pub fn requests(&self) -> usize {
        self.state.lock().unwrap().requests
    }

    pub fn wait_for_samples(&self, samples: usize) {
        wait_until(&format!("{samples} samples to arrive"), || {
            self.samples() >= samples
        });
    }

    pub fn wait_for_requests(&self, times: usize) {
        wait_until("the destination to be called", || self.requests() >= times);
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
            GrpcServer::bind(&settings, None, &ListeningSockets::default())
                .expect("the port is free")
        };
        let address = server.local_addr().to_string();
        runtime.spawn(server.serve(service, std::future::pending()));
        Self {
            address: address.parse().expect("a TCP address"),
            runtime: Some(runtime),
        }
    }

    /// The runtime, for additional services.
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
            state.requests += 1;
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
        let mut state = self.0.lock().unwrap();
        state.samples += received.profiles.sample_count();
        if state.keeps_taken {
            state.taken.push(received.profiles);
        }
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

    /// With this time limit for the response.
    pub fn send_within(&self, profiles: &Profiles, limit: Duration) -> Result<(), Status> {
        self.call(&Message::from(profiles.to_wire()), limit)
    }

    pub fn send_message(&self, message: &Message) -> Result<(), Status> {
        self.call(message, TIMEOUT)
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

    /// The response; `Err` if the connection ends before it.
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

/// The address on which profcol listens for `protocol`, according to its output.
pub fn endpoint_in(output: &str, protocol: &str) -> SocketAddr {
    let line = output
        .lines()
        .find(|line| line.contains("Starting OTLP server") && line.contains(protocol));
    let text = line.and_then(|line| line.split("127.0.0.1:").nth(1));
    let digits = text.map(|text| text.split(|next: char| !next.is_ascii_digit()).next());
    let port = digits.flatten().and_then(|digits| digits.parse().ok());
    let port: u16 = port.unwrap_or_else(|| panic!("no port for {protocol} in:\n{output}"));
    SocketAddr::from(([127, 0, 0, 1], port))
}
