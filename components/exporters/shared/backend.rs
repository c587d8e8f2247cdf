//! Scripted destinations for tests of OTLP exporters, which record all requests.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use parking_lot::Mutex;
use profcol_component::{Batch, BuildContext, Extensions, Handles, testkit};
use profcol_net::auth::{ClientAuth, ClientAuthError};
use profcol_net::compress::{self, Encoding, Level};
use profcol_net::grpc::Status;
use profcol_net::{
    GrpcRequest, GrpcServer, GrpcServerSettings, GrpcService, HttpRequest, HttpServer,
    HttpServerSettings, HttpService, ListeningSockets, Message,
};
use profcol_profile::{CompressedWire, Profiles, Validation};
use tokio::task::JoinSet;

/// A running destination that answers with scripted `A`s, else with success.
pub(crate) struct Backend<A> {
    pub address: String,
    script: Arc<Script<A>>,
    /// Aborted at the end of the test.
    _serving: JoinSet<()>,
}

/// A received request.
pub(crate) struct Seen {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Message,
}

struct Script<A> {
    answers: Mutex<VecDeque<A>>,
    seen: Mutex<Vec<Seen>>,
}

pub(crate) type GrpcBackend = Backend<Result<Bytes, Status>>;
pub(crate) type HttpBackend = Backend<Response<Bytes>>;

impl<A> Backend<A> {
    pub fn answer(&self, answer: A) {
        self.script.answers.lock().push_back(answer);
    }

    /// The requests since the last call.
    pub fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.script.seen.lock())
    }
}

impl<A> Script<A> {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            answers: Mutex::default(),
            seen: Mutex::default(),
        })
    }

    fn take(&self, seen: Seen) -> Option<A> {
        self.seen.lock().push(seen);
        self.answers.lock().pop_front()
    }
}

pub(crate) fn grpc() -> GrpcBackend {
    let settings = GrpcServerSettings {
        endpoint: "127.0.0.1:0".to_owned(),
        include_metadata: true,
        ..GrpcServerSettings::default()
    };
    let server = GrpcServer::bind(&settings, None, &ListeningSockets::default()).unwrap();
    let (address, script) = (server.local_addr().to_string(), Script::new());
    let mut serving = JoinSet::new();
    serving.spawn(server.serve(GrpcScript(script.clone()), std::future::pending()));
    Backend {
        address,
        script,
        _serving: serving,
    }
}

pub(crate) fn http() -> HttpBackend {
    let settings = HttpServerSettings {
        endpoint: "127.0.0.1:0".to_owned(),
        ..HttpServerSettings::default()
    };
    let server = HttpServer::bind(&settings, None, &ListeningSockets::default()).unwrap();
    let (address, script) = (server.local_addr().to_string(), Script::new());
    let mut serving = JoinSet::new();
    serving.spawn(server.serve(HttpScript(script.clone()), std::future::pending()));
    Backend {
        address,
        script,
        _serving: serving,
    }
}

struct GrpcScript(Arc<Script<Result<Bytes, Status>>>);

impl GrpcService for GrpcScript {
    fn admit(&self, _: &str, _: &HeaderMap) -> Result<(), Status> {
        Ok(())
    }

    async fn call(&self, request: GrpcRequest) -> Result<Bytes, Status> {
        let seen = Seen {
            path: request.path,
            headers: request.metadata,
            body: request.message,
        };
        self.0.take(seen).unwrap_or_else(|| Ok(Bytes::new()))
    }
}

struct HttpScript(Arc<Script<Response<Bytes>>>);

impl HttpService for HttpScript {
    fn admit(&self, _: &Parts) -> Result<(), Response<Bytes>> {
        Ok(())
    }

    async fn call(&self, request: HttpRequest) -> Response<Bytes> {
        let seen = Seen {
            path: request.path,
            headers: request.headers,
            body: request.body,
        };
        self.0.take(seen).unwrap_or_default()
    }

    fn refusal(&self, _: &HeaderMap, http: StatusCode, status: &Status) -> Response<Bytes> {
        response(http.as_u16(), &[], status.message.clone())
    }
}

pub(crate) fn response(
    status: u16,
    headers: &[(&'static str, &'static str)],
    body: impl Into<Bytes>,
) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    for (name, value) in headers {
        let (name, value) = (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
        response.headers_mut().insert(name, value);
    }
    response
}

/// A batch as received, and its compressed bytes.
pub(crate) fn received(samples: usize, encoding: Encoding) -> (Batch, Bytes) {
    let wire = testkit::profiles(samples).to_wire();
    let compressed = compress::compress(encoding, Level(1), &wire);
    let received = Profiles::from_wire(wire, Validation::Reject).unwrap();
    let profiles = received.profiles.with_compressed(CompressedWire {
        encoding: encoding.name(),
        bytes: compressed.clone(),
        decompress: |encoding, bytes, len| {
            compress::decompress(Encoding::from_name(encoding)?, bytes, len).ok()
        },
    });
    (Batch::new(profiles), compressed)
}

/// Always sends the same credentials.
#[derive(Debug)]
struct StaticAuth;

#[async_trait]
impl ClientAuth for StaticAuth {
    async fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, ClientAuthError> {
        let word = HeaderValue::from_static("sesame");
        Ok(vec![(http::header::AUTHORIZATION, word)])
    }
}

/// A context with the authenticator `word`, which sends `authorization: sesame`.
pub(crate) fn context(id: &str) -> BuildContext {
    let mut handles = Handles::default();
    handles.add::<Arc<dyn ClientAuth>>(Arc::new(StaticAuth));
    BuildContext {
        extensions: Extensions::new(Arc::new([("word".parse().unwrap(), handles)].into())),
        ..testkit::context(id)
    }
}
