//! What each answer of a destination means: the batch is sent again, or dropped and counted. One profcol has an exporter
//! for each answer.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use profcol_component::testkit::profiles;
use profcol_net::grpc::{Code, Status};
use profcol_net::{HttpRequest, HttpServer, HttpServerSettings, HttpService, ListeningSockets};
use profcol_profile::{Profiles, Validation};
use profcol_test_harness::backend::http::{HttpDestination, HttpMode};
use profcol_test_harness::backend::{Client, Destination, Mode, wait_until};

use crate::Rig;

const RETRIED: bool = true;
const DROPPED: bool = false;

/// A destination of one of the kinds, which accepts everything once it is told to.
trait Answering {
    fn endpoint(&self) -> String;
    fn accept(&self);
    fn requests(&self) -> usize;
    fn samples(&self) -> usize;
}

/// Sends 3 samples to destinations that answer as described, and 4 when they accept everything.
fn check<D: Answering>(exporter: &str, rows: &[(String, D, &str, bool)]) {
    let names: Vec<_> = (0..rows.len())
        .map(|row| format!("{exporter}/{row}"))
        .collect();
    let exporters: String = rows
        .iter()
        .zip(&names)
        .map(|((_, destination, more, _), name)| {
            let endpoint = destination.endpoint();
            format!("  {name}: {{endpoint: \"{endpoint}\", tls: {{insecure: true}}, compression: none, retry_on_failure: {{initial_interval: 20ms, max_interval: 100ms, max_elapsed_time: 0s}}{more}}}\n")
        })
        .collect();
    let rig = Rig::new(&exporters, &names.join(", "));
    let client = Client::new(rig.grpc);
    client.send(&profiles(3)).unwrap();
    for (answer, destination, _, is_retried) in rows {
        let times = 1 + usize::from(*is_retried);
        wait_until(answer, || destination.requests() >= times);
        assert_eq!(destination.samples(), 0, "{answer}");
        destination.accept();
    }
    client.send(&profiles(4)).unwrap();
    let expected = |is_retried| if is_retried { 7 } else { 4 };
    for (answer, destination, _, is_retried) in rows {
        wait_until(answer, || destination.samples() >= expected(*is_retried));
    }
    let output = rig.stop();
    for ((answer, destination, _, is_retried), name) in rows.iter().zip(&names) {
        assert_eq!(destination.samples(), expected(*is_retried), "{answer}");
        let counted = match *is_retried {
            RETRIED => format!("{name}: delivered=7"),
            DROPPED => format!("{name}: delivered=4 rejected=3"),
        };
        let is_counted = output.lines().any(|line| {
            line.split_once(&counted)
                .is_some_and(|(_, rest)| !rest.starts_with(|next: char| next.is_ascii_digit()))
        });
        assert!(is_counted, "{answer}: {counted} is not in {output}");
        if !is_retried {
            assert_eq!(destination.requests(), 2, "{answer}");
        }
    }
}

impl Answering for HttpDestination {
    fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    fn accept(&self) {
        self.set(HttpMode::Take);
    }

    fn requests(&self) -> usize {
        HttpDestination::requests(self).len()
    }

    fn samples(&self) -> usize {
        HttpDestination::samples(self)
    }
}

#[test]
fn http_answers() {
    let elsewhere = HttpDestination::new(HttpMode::Take);
    let mut rows = Vec::new();
    for (outcome, statuses) in [
        (
            DROPPED,
            &[
                "300 Multiple Choices",
                "304 Not Modified",
                "400 Bad Request",
                "401 Unauthorized",
                "402 Payment Required",
                "403 Forbidden",
                "404 Not Found",
                "405 Method Not Allowed",
                "408 Request Timeout",
                "409 Conflict",
                "411 Length Required",
                "414 URI Too Long",
                "415 Unsupported Media Type",
                "422 Unprocessable Content",
                "431 Request Header Fields Too Large",
                "500 Internal Server Error",
                "501 Not Implemented",
                "505 HTTP Version Not Supported",
                "507 Insufficient Storage",
                "999 Unknown",
                // Only some statuses may ask for patience.
                "400 Bad Request\r\nretry-after: 0",
                "103 Early Hints\r\n\r\nHTTP/1.1 400 Bad Request",
            ][..],
        ),
        (
            RETRIED,
            &[
                "429 Too Many Requests",
                "429 Too Many Requests\r\nretry-after: 1",
                "429 Too Many Requests\r\nretry-after: Sun, 06 Nov 1994 08:49:37 GMT",
                "429 Too Many Requests\r\nretry-after: 99999999999999999999",
                "502 Bad Gateway",
                "503 Service Unavailable",
                "503 Service Unavailable\r\nretry-after: 1",
                "503 Service Unavailable\r\nretry-after: soon",
                "504 Gateway Timeout",
                "100 Continue\r\n\r\nHTTP/1.1 503 Service Unavailable",
                // Not a status.
                "20 OK",
                "2x0 OK",
                "",
            ],
        ),
    ] {
        for status in statuses {
            let destination = HttpDestination::new(HttpMode::Refuse(status));
            rows.push((format!("{status:?}"), destination, "", outcome));
        }
    }
    for status in [301, 302, 303, 307, 308] {
        let to = elsewhere.address;
        let redirect = format!("{status} Moved\r\nlocation: http://{to}/v1development/profiles");
        let destination = HttpDestination::new(HttpMode::Refuse(redirect.leak()));
        let secret = ", headers: {authorization: secret}";
        rows.push((status.to_string(), destination, secret, DROPPED));
    }
    // An answer that is later than this is repeated, and delivered twice.
    let patience = ", timeout: 5s";
    for mode in [
        HttpMode::Say("SSH-2.0-OpenSSH_9.2\r\n"),
        HttpMode::Say("\0\0\x12\x04\0\0\0\0\0"),
        HttpMode::Say("HTTP/1.1 100 Continue\r\n\r\n"),
        HttpMode::Trickle(
            "HTTP/1.1 200 OK\r\nmany: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        ),
        HttpMode::Trickle("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nx"),
    ] {
        let answer = format!("{mode:?}");
        rows.push((answer, HttpDestination::new(mode), patience, RETRIED));
    }
    check("otlp_http", &rows);
    assert_eq!(elsewhere.requests(), [""; 0], "redirects are not followed");
}

impl Answering for Destination {
    fn endpoint(&self) -> String {
        self.address.to_string()
    }

    fn accept(&self) {
        self.set(Mode::Take);
    }

    fn requests(&self) -> usize {
        Destination::requests(self)
    }

    fn samples(&self) -> usize {
        Destination::samples(self)
    }
}

#[test]
fn grpc_codes() {
    let soon = std::time::Duration::from_millis(50);
    let mut rows = Vec::new();
    let mut row = |status: Status, outcome| {
        let answer = format!("{status} {:?}", status.retry_delay);
        let destination = Destination::new(Mode::Refuse(status));
        rows.push((answer, destination, "", outcome));
    };
    for code in Code::ALL.into_iter().filter(|code| *code != Code::Ok) {
        let is_retried = matches!(
            code,
            Code::Cancelled
                | Code::DeadlineExceeded
                | Code::Aborted
                | Code::OutOfRange
                | Code::Unavailable
                | Code::DataLoss
        );
        row(Status::new(code, "no"), is_retried);
        let is_retried = is_retried || code == Code::ResourceExhausted;
        row(Status::new(code, "no").with_retry_delay(soon), is_retried);
    }
    check("otlp_grpc", &rows);
}

/// Answers over HTTP/2 with what a proxy or a server of something else sends.
struct NotGrpc {
    address: String,
    state: Arc<Mutex<State>>,
    _runtime: tokio::runtime::Runtime,
}

struct State {
    /// Status and headers of the answer; empty once everything is accepted.
    answer: Option<(u16, &'static [(&'static str, &'static str)])>,
    requests: usize,
    samples: usize,
}

struct Service(Arc<Mutex<State>>);

impl HttpService for Service {
    fn admit(&self, _: &Parts) -> Result<(), Response<Bytes>> {
        Ok(())
    }

    async fn call(&self, request: HttpRequest) -> Response<Bytes> {
        let mut state = self.0.lock().unwrap();
        state.requests += 1;
        let accepts: &[_] = &[("content-type", "application/grpc"), ("grpc-status", "0")];
        let (status, headers) = state.answer.unwrap_or((200, accepts));
        if state.answer.is_none() {
            // After the flag and the length of the message.
            let message = request.body.plain.slice(5..);
            let received = Profiles::from_wire(message, Validation::Reject).unwrap();
            state.samples += received.profiles.sample_count();
        }
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        response.body(Bytes::new()).unwrap()
    }

    fn refusal(&self, _: &HeaderMap, http: StatusCode, _: &Status) -> Response<Bytes> {
        Response::builder().status(http).body(Bytes::new()).unwrap()
    }
}

impl NotGrpc {
    fn new(status: u16, headers: &'static [(&'static str, &'static str)]) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let state = Arc::new(Mutex::new(State {
            answer: Some((status, headers)),
            requests: 0,
            samples: 0,
        }));
        let settings = HttpServerSettings {
            endpoint: "127.0.0.1:0".to_owned(),
            ..HttpServerSettings::default()
        };
        let inside = runtime.enter();
        let server = HttpServer::bind(&settings, None, &ListeningSockets::default()).unwrap();
        drop(inside);
        let address = server.local_addr().to_string();
        runtime.spawn(server.serve(Service(state.clone()), std::future::pending()));
        Self {
            address,
            state,
            _runtime: runtime,
        }
    }
}

impl Answering for NotGrpc {
    fn endpoint(&self) -> String {
        self.address.clone()
    }

    fn accept(&self) {
        self.state.lock().unwrap().answer = None;
    }

    fn requests(&self) -> usize {
        self.state.lock().unwrap().requests
    }

    fn samples(&self) -> usize {
        self.state.lock().unwrap().samples
    }
}

#[test]
fn answers_that_are_not_grpc() {
    const GRPC: &[(&str, &str)] = &[("content-type", "application/grpc")];
    const HTML: &[(&str, &str)] = &[("content-type", "text/html")];
    let rows: Vec<_> = [
        // By gRPC's mapping of HTTP statuses.
        (400, HTML, DROPPED),
        (401, HTML, DROPPED),
        (403, HTML, DROPPED),
        (404, HTML, DROPPED),
        (429, HTML, RETRIED),
        (500, HTML, DROPPED),
        (502, HTML, RETRIED),
        (503, HTML, RETRIED),
        (503, GRPC, RETRIED),
        (504, HTML, RETRIED),
        (302, &[("location", "http://127.0.0.1:1/")], DROPPED),
        (200, HTML, DROPPED),
        (200, &[], DROPPED),
        // Whether it accepted the batch is unknown.
        (200, GRPC, RETRIED),
        (
            200,
            &[("content-type", "application/grpc"), ("grpc-status", "14")],
            RETRIED,
        ),
        (
            200,
            &[("content-type", "application/grpc"), ("grpc-status", "99")],
            DROPPED,
        ),
        (
            200,
            &[("content-type", "application/grpc"), ("grpc-status", "x")],
            DROPPED,
        ),
    ]
    .into_iter()
    .map(|(status, headers, outcome)| {
        let answer = format!("{status} {headers:?}");
        (answer, NotGrpc::new(status, headers), "", outcome)
    })
    .collect();
    check("otlp_grpc", &rows);
}
