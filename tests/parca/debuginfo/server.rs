//! A server with Parca's debuginfo service, which misbehaves on request.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ::http::request::Parts;
use ::http::{HeaderMap, Method, Response, StatusCode};
use bytes::Bytes;
use profcol_net::grpc::{Code, Status};
use profcol_net::{
    GrpcRequest, GrpcServerStream, GrpcService, HttpRequest, HttpServer, HttpServerSettings,
    HttpService, ListeningSockets,
};
use profcol_parca::debuginfo::{
    IN_PROGRESS, INITIATE_UPLOAD, MARK_UPLOAD_FINISHED, SHOULD_INITIATE_UPLOAD, UPLOAD,
};
use profcol_parca::service::WRITE;
use profcol_profile::proto::{Reader, Writer, tag};
use profcol_test_harness::backend::Serving;

const LARGEST: u64 = 1_000_000_000;

/// Dropping it closes all connections.
pub struct Server {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    serving: Serving,
}

#[derive(Default)]
pub struct State {
    /// By build ID.
    pub files: HashMap<String, Entry>,
    /// The calls, in order.
    pub calls: Vec<String>,
    pub fault: Option<Fault>,
    /// The URL for uploads, and its response.
    signed_url: Option<(String, StatusCode)>,
    uploads: usize,
    /// Uploads that the client finished properly.
    pub ended_well: usize,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub stage: Stage,
    pub hash: String,
    pub size: u64,
    pub content: Vec<u8>,
    pub upload_id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Uploading,
    Uploaded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Responds to the next calls with `Unavailable`.
    AwayFor(usize),
    /// Has no debuginfo service.
    NoService,
    /// Stops reading an upload after this many messages.
    StandsStill(usize),
    /// Ends an upload after this many messages, like at a timeout.
    CutsOff(usize),
    /// Reads an upload at this rate, and ends it at the limit.
    ReadsSlowly { bytes: usize, within: Duration },
}

impl Server {
    pub fn new() -> Self {
        let state = Arc::<Mutex<State>>::default();
        let serving = Serving::new(Service(Arc::clone(&state)));
        Self {
            address: serving.address,
            state,
            serving,
        }
    }

    pub fn with(fault: Fault) -> Self {
        let server = Self::new();
        server.state().fault = Some(fault);
        server
    }

    /// Requests uploads to a URL, which responds with this status.
    pub fn with_signed_url(status: StatusCode) -> Self {
        let server = Self::new();
        let runtime = server.serving.runtime();
        let settings = HttpServerSettings {
            endpoint: "127.0.0.1:0".into(),
            ..HttpServerSettings::default()
        };
        let store = {
            let _inside = runtime.enter();
            HttpServer::bind(&settings, None, &ListeningSockets::default()).unwrap()
        };
        let url = format!("http://{}/bucket?signature=secret", store.local_addr());
        runtime.spawn(store.serve(Store(Arc::clone(&server.state)), std::future::pending()));
        server.state().signed_url = Some((url, status));
        server
    }

    pub fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The calls about debuginfo, without the services' names.
    pub fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    pub fn uploaded(&self, build_id: &str) -> Option<Entry> {
        let state = self.state();
        let entry = state.files.get(build_id)?;
        (entry.stage == Stage::Uploaded).then(|| entry.clone())
    }
}

impl State {
    pub fn add(&mut self, build_id: &str, stage: Stage) {
        let entry = Entry {
            stage,
            hash: "known".into(),
            size: 1,
            content: Vec::new(),
            upload_id: "somebody's".into(),
        };
        self.files.insert(build_id.into(), entry);
    }

    fn decide(&self, build_id: &str) -> (bool, &'static str) {
        match self.files.get(build_id).map(|entry| entry.stage) {
            None => (
                true,
                "First time we see this Build ID, and it does not exist in debuginfod, therefore please upload!",
            ),
            Some(Stage::Uploading) => (false, IN_PROGRESS),
            Some(Stage::Uploaded) => (
                false,
                "Debuginfo already exists and is not marked as invalid, therefore no new upload is needed.",
            ),
        }
    }
}

/// The fields of a message that has texts and numbers.
#[derive(Default)]
struct Fields {
    texts: HashMap<u32, Vec<u8>>,
    numbers: HashMap<u32, u64>,
}

impl Fields {
    fn read(message: &[u8]) -> Self {
        let mut fields = Self::default();
        let mut reader = Reader::new(message);
        while let Some(found) = reader.tag().unwrap() {
            let field = tag::field(found);
            if found == tag::len(field) {
                fields.texts.insert(field, reader.bytes().unwrap().to_vec());
            } else {
                fields.numbers.insert(field, reader.varint().unwrap());
            }
        }
        fields
    }

    fn text(&self, field: u32) -> String {
        let text = self.texts.get(&field).cloned().unwrap_or_default();
        String::from_utf8(text).unwrap()
    }

    fn number(&self, field: u32) -> u64 {
        self.numbers.get(&field).copied().unwrap_or(0)
    }
}

fn invalid<T>(message: impl Into<String>) -> Result<T, Status> {
    Err(Status::new(Code::InvalidArgument, message))
}

struct Service(Arc<Mutex<State>>);

impl Service {
    fn should(&self, request: &Fields) -> Result<Bytes, Status> {
        if request.text(1).len() <= 2 {
            return invalid("unexpectedly short input");
        }
        let (wants_it, reason) = self.0.lock().unwrap().decide(&request.text(1));
        let mut answer = Writer::default();
        answer.uint(tag::varint(1), wants_it.into());
        answer.bytes(tag::len(2), reason.as_bytes());
        Ok(answer.into_vec().into())
    }

    fn initiate(&self, request: &Fields) -> Result<Bytes, Status> {
        let (build_id, size, hash) = (request.text(1), request.number(2), request.text(3));
        if hash.is_empty() {
            return invalid("hash must be set");
        }
        if size == 0 {
            return invalid("size must be set");
        }
        if size > LARGEST {
            return invalid(format!(
                "upload size {size} exceeds maximum allowed size {LARGEST}"
            ));
        }
        let mut state = self.0.lock().unwrap();
        let (wants_it, reason) = state.decide(&build_id);
        if !wants_it {
            return Err(Status::new(Code::FailedPrecondition, reason));
        }
        state.uploads += 1;
        let upload_id = format!("upload-{}", state.uploads);
        let mut instructions = Writer::default();
        instructions.bytes(tag::len(1), build_id.as_bytes());
        instructions.bytes(tag::len(2), upload_id.as_bytes());
        match &state.signed_url {
            None => instructions.uint(tag::varint(3), 1),
            Some((url, _)) => {
                instructions.uint(tag::varint(3), 2);
                instructions.bytes(tag::len(4), format!("{url}&id={build_id}").as_bytes());
            }
        }
        let entry = Entry {
            stage: Stage::Uploading,
            hash,
            size,
            content: Vec::new(),
            upload_id,
        };
        state.files.insert(build_id, entry);
        let mut answer = Writer::default();
        answer.bytes(tag::len(1), &instructions.into_vec());
        Ok(answer.into_vec().into())
    }

    fn finish(&self, request: &Fields) -> Result<Bytes, Status> {
        let mut state = self.0.lock().unwrap();
        let Some(entry) = state.files.get_mut(&request.text(1)) else {
            return Err(Status::new(Code::NotFound, "no debuginfo metadata found"));
        };
        if entry.upload_id != request.text(2) {
            return invalid("upload id mismatch");
        }
        entry.stage = Stage::Uploaded;
        Ok(Bytes::new())
    }

    async fn upload(&self, call: &mut GrpcServerStream) -> Result<(), Status> {
        let first = Fields::read(&call.receive().await?.unwrap_or_default());
        let Some(info) = first.texts.get(&1).map(|info| Fields::read(info)) else {
            return invalid("upload info must be set");
        };
        let (build_id, upload_id) = (info.text(1), info.text(2));
        let expected = {
            let state = self.0.lock().unwrap();
            let entry = state.files.get(&build_id);
            entry.map(|entry| entry.upload_id.clone())
        };
        match expected {
            None => return Err(Status::new(Code::FailedPrecondition, "not initiated")),
            Some(expected) if expected != upload_id => return invalid("upload id mismatch"),
            Some(_) => {}
        }
        let fault = self.0.lock().unwrap().fault;
        let mut content = Vec::new();
        let begin = Instant::now();
        for message in 1.. {
            match fault {
                Some(Fault::StandsStill(after)) if message > after => {
                    std::future::pending::<()>().await;
                }
                Some(Fault::CutsOff(after)) if message > after => {
                    return Err(Status::new(Code::Unavailable, "i/o timeout"));
                }
                Some(Fault::ReadsSlowly { bytes, within }) => {
                    let read = content.len() as f64 / bytes as f64;
                    tokio::time::sleep_until((begin + within.mul_f64(read.min(1.0))).into()).await;
                    if read >= 1.0 {
                        return Err(Status::new(Code::Unavailable, "i/o timeout"));
                    }
                }
                _ => {}
            }
            let Some(message) = call.receive().await? else {
                break;
            };
            match Fields::read(&message).texts.remove(&2) {
                Some(data) if !data.is_empty() && data.len() <= 1 << 20 => content.extend(data),
                _ => return Err(Status::new(Code::Internal, "the reader breaks")),
            }
        }
        self.0.lock().unwrap().ended_well += 1;
        let mut answer = Writer::default();
        answer.bytes(tag::len(1), build_id.as_bytes());
        answer.uint(tag::varint(2), content.len() as u64);
        if let Some(entry) = self.0.lock().unwrap().files.get_mut(&build_id) {
            entry.content = content;
        }
        call.send(answer.into_vec().into()).await
    }
}

impl GrpcService for Service {
    fn admit(&self, path: &str, _: &HeaderMap) -> Result<(), Status> {
        if path == WRITE {
            return Ok(());
        }
        let mut state = self.0.lock().unwrap();
        let method = path.rsplit('/').next().unwrap();
        state.calls.push(method.to_owned());
        match state.fault {
            Some(Fault::NoService) => Err(profcol_net::unknown_method(path)),
            Some(Fault::AwayFor(calls)) if calls > 0 => {
                state.fault = Some(Fault::AwayFor(calls - 1));
                Err(Status::new(Code::Unavailable, "away"))
            }
            _ => Ok(()),
        }
    }

    async fn call(&self, request: GrpcRequest) -> Result<Bytes, Status> {
        let fields = Fields::read(&request.message.plain);
        match request.path.as_str() {
            SHOULD_INITIATE_UPLOAD => self.should(&fields),
            INITIATE_UPLOAD => self.initiate(&fields),
            MARK_UPLOAD_FINISHED => self.finish(&fields),
            path => Err(profcol_net::unknown_method(path)),
        }
    }

    fn is_streaming(&self, path: &str) -> bool {
        path == WRITE || path == UPLOAD
    }

    async fn stream(&self, mut call: GrpcServerStream) -> Result<(), Status> {
        if call.path == UPLOAD {
            return self.upload(&mut call).await;
        }
        // It requests no stacks.
        call.receive().await.map(|_| ())
    }
}

/// The target of signed URLs.
struct Store(Arc<Mutex<State>>);

impl HttpService for Store {
    fn admit(&self, request: &Parts) -> Result<(), Response<Bytes>> {
        assert_eq!(request.method, Method::PUT);
        assert!(!request.headers.contains_key("content-type"));
        assert!(!request.headers.contains_key("content-encoding"));
        Ok(())
    }

    async fn call(&self, request: HttpRequest) -> Response<Bytes> {
        let length = request.headers["content-length"].to_str().unwrap();
        let mut state = self.0.lock().unwrap();
        state.calls.push("PUT".into());
        let status = state.signed_url.as_ref().unwrap().1;
        for entry in state.files.values_mut() {
            assert_eq!(length, entry.size.to_string());
            entry.content = request.body.plain.to_vec();
        }
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = status;
        response
    }

    fn refusal(&self, _: &HeaderMap, http: StatusCode, _: &Status) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = http;
        response
    }
}
