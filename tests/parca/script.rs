//! A scripted Parca server that records what it receives.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use ::http::HeaderMap;
use bytes::Bytes;
use profcol_net::grpc::{Code, Status};
use profcol_net::{GrpcRequest, GrpcServerStream, GrpcService, unknown_method};
use profcol_parca::service::{WRITE, WRITE_ARROW, WRITE_RAW, record, request};
use profcol_parca::v1::{self, Stacks, encode_stack_request};
use profcol_parca::{Samples, StackRefs, ipc, raw, to_model, v2};
use profcol_pprof::Limits;
use profcol_profile::Profiles;
use profcol_test_harness::backend::{Serving, wait_until};

/// Its behaviour for a call.
#[derive(Clone, Debug)]
pub enum Answer {
    Take,
    /// Responds with this before reading anything.
    Refuse(Status),
    /// Responds with this after the client has sent everything.
    RefuseAtEnd(Status),
    /// Reads the samples and never responds.
    NeverAsk,
    /// Closes successfully after the samples.
    CloseEarly,
    AskWithGarbage,
    /// Also requests an unknown stack, and checks the response.
    AskAlsoForUnknown,
    /// Like Parca before 0.27.
    RefuseColumns,
    /// Responds with this to any message.
    Say(Vec<u8>),
    /// Reads nothing and never responds.
    Hang,
}

/// Dropping it closes all connections.
pub struct Script {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    _serving: Serving,
}

struct State {
    answers: VecDeque<Answer>,
    methods: Option<Vec<&'static str>>,
    most_bytes: usize,
    taken: Vec<Profiles>,
    paths: Vec<String>,
    has_columns: Vec<bool>,
    heard: Vec<Vec<u8>>,
    crash_text: Option<&'static str>,
    has_crashed: bool,
}

impl Script {
    pub fn new() -> Self {
        Self::on("127.0.0.1:0".parse().unwrap())
    }

    pub fn on(address: SocketAddr) -> Self {
        let state = Arc::new(Mutex::new(State {
            answers: VecDeque::new(),
            methods: None,
            most_bytes: usize::MAX,
            taken: Vec::new(),
            paths: Vec::new(),
            has_columns: Vec::new(),
            heard: Vec::new(),
            crash_text: None,
            has_crashed: false,
        }));
        Self::with(address, state)
    }

    fn with(address: SocketAddr, state: Arc<Mutex<State>>) -> Self {
        // A previous server may need a moment to close.
        wait_until("the port to be free", || TcpListener::bind(address).is_ok());
        let serving = Serving::on(address, Service(Arc::clone(&state)));
        Self {
            address: serving.address,
            state,
            _serving: serving,
        }
    }

    /// Sets the behaviour for the next calls; later ones succeed.
    pub fn next(&self, answers: impl IntoIterator<Item = Answer>) {
        self.state.lock().unwrap().answers.extend(answers);
    }

    pub fn forget_answers(&self) {
        self.state.lock().unwrap().answers.clear();
    }

    pub fn knows(&self, methods: &[&'static str]) {
        self.state.lock().unwrap().methods = Some(methods.to_vec());
    }

    pub fn takes_at_most(&self, bytes: usize) {
        self.state.lock().unwrap().most_bytes = bytes;
    }

    /// After samples with this text no call gets a response, until all connections are closed.
    pub fn crash_on(&self, text: &'static str) {
        self.state.lock().unwrap().crash_text = Some(text);
    }

    pub fn has_crashed(&self) -> bool {
        self.state.lock().unwrap().has_crashed
    }

    /// Closes all connections; keeps its recorded data.
    pub fn restarted(self) -> Self {
        let (address, state) = (self.address, Arc::clone(&self.state));
        drop(self);
        state.lock().unwrap().has_crashed = false;
        Self::with(address, state)
    }

    pub fn all_taken(&self) -> Vec<Profiles> {
        self.state.lock().unwrap().taken.clone()
    }

    pub fn total(&self) -> i64 {
        crate::sum(&self.state.lock().unwrap().taken)
    }

    /// The number of accepted batches.
    pub fn taken(&self) -> usize {
        self.state.lock().unwrap().taken.len()
    }

    /// The called methods.
    pub fn paths(&self) -> Vec<String> {
        self.state.lock().unwrap().paths.clone()
    }

    /// For each record of stacks, whether lines had columns.
    pub fn has_columns(&self) -> Vec<bool> {
        self.state.lock().unwrap().has_columns.clone()
    }

    /// The messages of the last call with [`Answer::Say`].
    pub fn heard(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.state.lock().unwrap().heard)
    }
}

struct Service(Arc<Mutex<State>>);

impl Service {
    fn answer(&self) -> Answer {
        let next = self.0.lock().unwrap().answers.pop_front();
        next.unwrap_or(Answer::Take)
    }

    /// With grpc-go's error message.
    fn check_length(&self, message: &[u8]) -> Result<(), Status> {
        let (bytes, limit) = (message.len(), self.0.lock().unwrap().most_bytes);
        if bytes <= limit {
            return Ok(());
        }
        let message = format!("grpc: received message larger than max ({bytes} vs. {limit})");
        Err(Status::new(Code::ResourceExhausted, message))
    }

    /// Whether it has crashed, possibly on this message.
    fn crashes(&self, message: &[u8]) -> bool {
        let mut state = self.0.lock().unwrap();
        let has = |text: &str| {
            message
                .windows(text.len())
                .any(|found| found == text.as_bytes())
        };
        state.has_crashed |= state.crash_text.is_some_and(has);
        state.has_crashed
    }

    fn take(&self, profiles: Profiles) {
        self.0.lock().unwrap().taken.push(profiles);
    }
}

fn samples(message: &[u8], is_new: bool) -> Samples {
    let batch = ipc::read(record(message).unwrap(), 1 << 30)
        .unwrap()
        .unwrap();
    if is_new {
        v2::read_samples(&batch).unwrap()
    } else {
        v1::read_samples(&batch).unwrap()
    }
}

impl GrpcService for Service {
    fn admit(&self, path: &str, _: &HeaderMap) -> Result<(), Status> {
        let mut state = self.0.lock().unwrap();
        state.paths.push(path.to_owned());
        match &state.methods {
            Some(methods) if !methods.contains(&path) => Err(unknown_method(path)),
            _ => Ok(()),
        }
    }

    async fn call(&self, request: GrpcRequest) -> Result<Bytes, Status> {
        let message = request.message.plain;
        match self.answer() {
            Answer::Take => {}
            Answer::Hang => return std::future::pending().await,
            Answer::Refuse(status) => return Err(status),
            Answer::Say(answer) => {
                self.0.lock().unwrap().heard.push(message.to_vec());
                return Ok(answer.into());
            }
            other => unreachable!("{other:?} is about calls with several messages"),
        }
        self.check_length(&message)?;
        self.take(match request.path.as_str() {
            WRITE_ARROW => {
                let samples = samples(&message, true);
                Profiles::from_model(to_model(&samples, &Stacks::default()).unwrap())
            }
            WRITE_RAW => {
                let series = raw::read(&message).unwrap();
                raw::to_profiles(&series, Limits::default()).unwrap()
            }
            path => return Err(unknown_method(path)),
        });
        Ok(Bytes::new())
    }

    fn is_streaming(&self, path: &str) -> bool {
        path == WRITE || path.ends_with("/Upload")
    }

    async fn stream(&self, mut call: GrpcServerStream) -> Result<(), Status> {
        let answer = self.answer();
        if let Answer::Refuse(status) = answer {
            return Err(status);
        }
        if let Answer::Hang = answer {
            return std::future::pending().await;
        }
        if let Answer::Say(answer) = answer {
            while let Some(message) = call.receive().await? {
                self.0.lock().unwrap().heard.push(message.to_vec());
            }
            return call.send(answer.into()).await;
        }
        let message = call.receive().await?.unwrap();
        if self.crashes(&message) {
            return std::future::pending().await;
        }
        self.check_length(&message)?;
        let samples = samples(&message, false);
        let StackRefs::Ids(ids) = &samples.stacks else {
            panic!("the older layout refers to stacks");
        };
        let mut requested = ids.used();
        match answer {
            Answer::NeverAsk => return std::future::pending().await,
            Answer::CloseEarly => return Ok(()),
            Answer::AskWithGarbage => call.send(request(b"garbage")).await?,
            _ => {
                if matches!(answer, Answer::AskAlsoForUnknown) {
                    requested.push(b"sixteen unknown!");
                }
                let message = encode_stack_request(requested.iter().copied()).unwrap();
                call.send(request(&message)).await?;
            }
        }
        let Some(message) = call.receive().await? else {
            return Err(Status::new(Code::InvalidArgument, "no stacks"));
        };
        self.check_length(&message)?;
        let record = record(&message).unwrap();
        let schema = format!("{:?}", ipc::stated_schema(record).unwrap());
        let has_columns = schema.contains("\"column\"");
        self.0.lock().unwrap().has_columns.push(has_columns);
        if matches!(answer, Answer::RefuseColumns) && has_columns {
            let message = "expected 5 fields of lines, got 6";
            return Err(Status::new(Code::InvalidArgument, message));
        }
        let mut stacks = Stacks::default();
        let batch = ipc::read(record, 1 << 30).unwrap().unwrap();
        stacks.add(&batch).unwrap();
        assert!(
            requested.iter().all(|id| stacks.contains(id)),
            "all are requested"
        );
        if let Answer::RefuseAtEnd(status) = answer {
            return Err(status);
        }
        self.take(Profiles::from_model(to_model(&samples, &stacks).unwrap()));
        Ok(())
    }
}
