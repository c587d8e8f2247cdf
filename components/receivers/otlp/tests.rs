//! Our gRPC and HTTP clients in front, a scripted consumer behind: recorded requests arrive unchanged, and each refusal
//! has the code of its protocol.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use ::http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method};
use bytes::Bytes;
use parking_lot::Mutex;
use profcol_admission::Admission;
use profcol_component::{
    Answer, Batch, BatchId, Consumer, Extensions, Handles, Outcome, Refusal, testkit,
};
use profcol_net::auth::{AuthData, Scheme};
use profcol_net::grpc::{Code, Status};
use profcol_net::{
    Compression, GrpcCall, GrpcClient, GrpcClientSettings, HttpCall, HttpClient,
    HttpClientSettings, HttpReply, Message,
};
use profcol_otlp::service::{GRPC_PATH, HTTP_PATH, PartialSuccess};
use profcol_profile::testkit::observations;
use profcol_profile::{Profiles, SampleRef, Samples, StackIdx, Validation};
use tokio::task::JoinSet;

use super::*;
use profcol_component::testkit::{load, wait_for};

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// The next stage of the pipeline: keeps its batches, and refuses as configured.
#[derive(Default)]
struct Probe {
    taken: Mutex<Vec<Batch>>,
    refusals: Mutex<VecDeque<Refusal>>,
}

#[async_trait]
impl Consumer for Probe {
    async fn consume(&self, batch: Batch) -> Answer {
        let refusal = self.refusals.lock().pop_front();
        match refusal {
            Some(refusal) => batch.refuse(refusal),
            None => {
                self.taken.lock().push(batch);
                Ok(())
            }
        }
    }
}

impl Probe {
    fn taken(&self) -> Vec<Batch> {
        std::mem::take(&mut self.taken.lock())
    }

    fn refuse(&self, refusal: Refusal) {
        self.refusals.lock().push_back(refusal);
    }
}

/// A running receiver.
struct Fixture {
    probe: Arc<Probe>,
    grpc: String,
    http: String,
    context: BuildContext,
    stop: Stop,
    tasks: JoinSet<Result<(), RunError>>,
}

const BOTH: &str = "protocols: {grpc: {endpoint: 127.0.0.1:0}, http: {endpoint: 127.0.0.1:0}}\n";

impl Fixture {
    async fn new(options: &str) -> Self {
        Self::in_context(options, testkit::context("otlp")).await
    }

    async fn in_context(options: &str, context: BuildContext) -> Self {
        let config = load::<OtlpConfig>(options).unwrap();
        let mut otlp = Box::new(Otlp::new(&config, &context).unwrap());
        otlp.start().await.unwrap();
        let grpc = otlp
            .grpc
            .as_ref()
            .map(|server| endpoint(server.local_addr()));
        let http = otlp
            .http
            .as_ref()
            .map(|server| endpoint(server.local_addr()));
        let probe = Arc::new(Probe::default());
        let output = Output::new(probe.clone(), context.meter.clone(), "otlp");
        let stop = Stop::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(otlp.run(output, stop.clone()));
        Self {
            probe,
            grpc: grpc.unwrap_or_default(),
            http: http.unwrap_or_default(),
            context,
            tasks,
            stop,
        }
    }

    /// Stops the receiver, which must end by itself.
    async fn stop(mut self) {
        self.stop.cancel();
        self.tasks.join_next().await.unwrap().unwrap().unwrap();
    }

    async fn call(&self, body: impl Into<Bytes>) -> Result<PartialSuccess, Status> {
        self.call_with(Compression::None, HeaderMap::new(), body)
            .await
    }

    async fn call_with(
        &self,
        compression: Compression,
        headers: HeaderMap,
        body: impl Into<Bytes>,
    ) -> Result<PartialSuccess, Status> {
        let client = grpc_client(&self.grpc, compression);
        let call = GrpcCall {
            path: GRPC_PATH,
            message: &Message::from(body.into()),
            headers,
            timeout: None,
        };
        let reply = client.unary(call).await?;
        Ok(PartialSuccess::decode(&reply.message).unwrap())
    }

    async fn post(&self, kind: &str, body: impl Into<Bytes>) -> HttpReply {
        self.send(HTTP_PATH, Method::POST, kind, Compression::None, body)
            .await
    }

    async fn send(
        &self,
        path: &str,
        method: Method,
        kind: &str,
        compression: Compression,
        body: impl Into<Bytes>,
    ) -> HttpReply {
        let headers = with_header("x-team", "db");
        self.send_with(headers, path, method, kind, compression, body)
            .await
    }

    async fn send_with(
        &self,
        headers: HeaderMap,
        path: &str,
        method: Method,
        kind: &str,
        compression: Compression,
        body: impl Into<Bytes>,
    ) -> HttpReply {
        let settings = HttpClientSettings {
            compression,
            ..HttpClientSettings::default()
        };
        let url = format!("http://{}{path}", self.http);
        let client = HttpClient::new(&settings, &url, None, "test").unwrap();
        let call = HttpCall {
            method,
            content_type: HeaderValue::from_str(kind).unwrap(),
            body: &Message::from(body.into()),
            headers,
            timeout: None,
        };
        client.send(call).await.unwrap()
    }

    fn count(&self, name: &str, transport: &str) -> u64 {
        let labels: &[(&str, &str)] = &[("receiver", "otlp"), ("transport", transport)];
        self.context.meter.counter(name, "", labels).get()
    }
}

fn with_header(name: &'static str, value: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(name, HeaderValue::from_str(value).unwrap());
    headers
}

fn endpoint(address: &BoundAddr) -> String {
    match address {
        BoundAddr::Tcp(address) => address.to_string(),
        BoundAddr::Unix(path) => format!("unix://{}", path.display()),
    }
}

fn grpc_client(endpoint: &str, compression: Compression) -> GrpcClient {
    let mut settings = GrpcClientSettings {
        endpoint: endpoint.to_owned(),
        compression,
        ..GrpcClientSettings::default()
    };
    settings.tls.insecure = true;
    GrpcClient::new(&settings, None, "test").unwrap()
}

fn header(reply: &HttpReply, name: HeaderName) -> &str {
    let value = reply.headers.get(name);
    value.map_or("", |value| value.to_str().unwrap())
}

/// The recorded exports of a real profiler, each as protobuf and as JSON.
fn recordings() -> Vec<(Bytes, Bytes)> {
    let directory = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/otlp/profiler"
    );
    let directory = PathBuf::from(directory);
    let read = |number, kind| {
        let path = directory.join(format!("export-0{number}.{kind}"));
        Bytes::from(std::fs::read(path).unwrap())
    };
    (1..=8)
        .map(|number| (read(number, "pb"), read(number, "json")))
        .collect()
}

/// A request with three samples, the second of which refers to a missing stack.
fn with_a_bad_sample() -> Bytes {
    let mut model = testkit::profiles(3).into_model();
    let profile = Arc::make_mut(&mut model.resources[0].scopes[0].profiles[0]);
    let mut samples = Samples::default();
    for (row, sample) in profile.samples.iter().enumerate() {
        let stack = if row == 1 {
            StackIdx::new(91)
        } else {
            sample.stack
        };
        samples.push(SampleRef { stack, ..sample });
    }
    profile.samples = samples;
    Profiles::from_model(model).to_wire()
}

const BAD_SAMPLE: &str = "resource_profiles[0].scope_profiles[0].profiles[0].samples[1].stack_index 91 out of range (stacks: 4)";

fn three_samples() -> Bytes {
    testkit::profiles(3).to_wire()
}

/// A receiver in a process with a limit of 10 MiB and this memory usage.
async fn rig_in_use(read: fn() -> Option<u64>) -> Fixture {
    let context = BuildContext {
        admission: Admission::with_memory_reader(read, 10 << 20),
        ..testkit::context("otlp")
    };
    Fixture::in_context(BOTH, context).await
}

fn refused_requests(rig: &Fixture, transport: &str) -> u64 {
    let labels = [("receiver", "otlp"), ("transport", transport)];
    let name = "profcol_receiver_refused_requests";
    rig.context.meter.counter(name, "", &labels).get()
}

#[tokio::test]
async fn requests_without_memory_are_refused_with_a_retry_delay() {
    // Too little for the last step of a growing buffer.
    let nearly_full = rig_in_use(|| Some((10 << 20) - (256 << 10))).await;
    let full = rig_in_use(|| Some(10 << 20)).await;
    let body = vec![b' '; 2 << 20];
    for (rig, compression) in [
        (&nearly_full, Compression::Gzip),
        (&nearly_full, Compression::Zstd),
        (&nearly_full, Compression::Snappy),
        (&full, Compression::None),
    ] {
        let before = refused_requests(rig, "grpc");
        let answer = rig.call_with(compression, HeaderMap::new(), body.clone());
        let refused = answer.await.unwrap_err();
        let answer = (refused.code, refused.retry_delay);
        let expected = (Code::Unavailable, Some(Duration::from_secs(1)));
        assert_eq!(answer, expected, "{refused}");
        assert_eq!(refused_requests(rig, "grpc"), before + 1);
    }
    for (rig, compression) in [
        (&nearly_full, Compression::Gzip),
        (&nearly_full, Compression::Zlib),
        (&nearly_full, Compression::Deflate),
        (&nearly_full, Compression::Zstd),
        (&nearly_full, Compression::Snappy),
        (&nearly_full, Compression::SnappyFramed),
        (&nearly_full, Compression::Lz4),
        (&full, Compression::None),
    ] {
        for kind in [PROTOBUF, JSON] {
            let before = refused_requests(rig, "http");
            let body = body.clone();
            let reply = rig.send(HTTP_PATH, Method::POST, kind, compression, body);
            let reply = reply.await;
            assert_eq!(reply.status, 503, "{compression:?}");
            assert_eq!(reply.headers[RETRY_AFTER], "1");
            assert_eq!(refused_requests(rig, "http"), before + 1);
        }
    }
    // A small request is accepted.
    nearly_full.call(three_samples()).await.unwrap();
    let reply = nearly_full.post(PROTOBUF, three_samples()).await;
    assert_eq!(reply.status, 200);
    nearly_full.stop().await;
    full.stop().await;
}

#[tokio::test]
async fn requests_that_expand_beyond_the_memory_limit_are_refused() {
    // 500,000 profiles of two bytes, and as many of three.
    let wire = profiles_without_anything(500_000);
    let json = format!(
        "{{\"resourceProfiles\":[{{\"scopeProfiles\":[{{\"profiles\":[{}{{}}]}}]}}]}}",
        "{},".repeat(499_999)
    );
    let in_use = profcol_admission::memory_in_use().unwrap();
    let context = BuildContext {
        admission: Admission::new(in_use + (50 << 20)),
        ..testkit::context("otlp")
    };
    let rig = Fixture::in_context(BOTH, context).await;
    let refused = rig.call(wire.clone()).await.unwrap_err();
    let codes = [Code::ResourceExhausted, Code::Unavailable];
    assert!(codes.contains(&refused.code), "{refused}");
    for (kind, body) in [(PROTOBUF, wire), (JSON, json.into())] {
        let reply = rig.post(kind, body).await;
        assert!(
            [413, 503].contains(&reply.status.as_u16()),
            "{kind}: {}",
            reply.status
        );
    }
    assert!(rig.probe.taken().is_empty());
    rig.stop().await;
}

/// And one sample: batches without samples are not passed on.
fn profiles_without_anything(count: usize) -> Bytes {
    let mut model = testkit::profiles(1).into_model();
    let profiles = &mut model.resources[0].scopes[0].profiles;
    profiles.resize(count, Arc::default());
    Profiles::from_model(model).to_wire()
}

#[tokio::test]
async fn requests_beyond_all_memory_are_refused_permanently() {
    let rig = rig_in_use(|| Some(0)).await;
    let body = vec![0; 11 << 20];
    let gzip = Compression::Gzip;
    let refused = rig.call_with(gzip, HeaderMap::new(), body.clone()).await;
    let refused = refused.unwrap_err();
    let answer = (refused.code, refused.retry_delay);
    assert_eq!(answer, (Code::ResourceExhausted, None), "{refused}");
    let reply = rig
        .send(HTTP_PATH, Method::POST, PROTOBUF, gzip, body)
        .await;
    assert_eq!(reply.status, 413);
    rig.stop().await;
}

#[tokio::test]
async fn recorded_exports_arrive_over_every_protocol() {
    let rig = Fixture::new(BOTH).await;
    for (number, (proto, json)) in recordings().into_iter().enumerate() {
        let sent = Profiles::from_wire(proto.clone(), Validation::Reject).unwrap();
        let sent = observations(sent.profiles.model());
        assert!(rig.call(proto.clone()).await.unwrap().is_full());
        for (kind, body) in [(PROTOBUF, &proto), (JSON, &json)] {
            let reply = rig.post(kind, body.clone()).await;
            let nothing = if kind == JSON { "{}" } else { "" };
            assert_eq!(
                (reply.status.as_u16(), &*reply.body),
                (200, nothing.as_bytes())
            );
            assert_eq!(header(&reply, CONTENT_TYPE), kind);
        }
        let taken = rig.probe.taken();
        assert_eq!(taken.len(), 3);
        for (way, batch) in ["gRPC", "HTTP", "JSON"].iter().zip(&taken) {
            let arrived = observations(batch.profiles.model());
            assert!(arrived == sent, "export {} over {way}", number + 1);
        }
        // Unchanged batches keep their bytes.
        assert_eq!(taken[0].profiles.to_wire(), proto);
        assert_eq!(taken[1].profiles.to_wire(), proto);
    }
    rig.stop().await;
}

#[tokio::test]
async fn requests_without_samples_are_accepted_and_not_passed_on() {
    let rig = Fixture::new(BOTH).await;
    for empty in [Bytes::new(), testkit::profiles(0).to_wire()] {
        assert!(rig.call(empty.clone()).await.unwrap().is_full());
        assert_eq!(rig.post(PROTOBUF, empty).await.status, 200);
    }
    assert_eq!(rig.post(JSON, "{}").await.status, 200);
    assert!(rig.probe.taken().is_empty());
    assert_eq!(
        rig.count("otelcol_receiver_accepted_profile_samples", "grpc"),
        0
    );
    rig.stop().await;
}

#[tokio::test]
async fn pipeline_refusals_map_to_the_codes_of_each_protocol() {
    let rig = Fixture::new(BOTH).await;
    let later = |millis| Refusal::retry_after("busy", Duration::from_millis(millis));
    let too_large = Refusal::TooLarge {
        reason: "huge".into(),
        limit_bytes: 1,
    };
    for (refusal, code, delay, http, retry_after) in [
        (Refusal::retry("full"), Code::Unavailable, None, 503, "1"),
        (later(2500), Code::Unavailable, Some(2500), 503, "3"),
        (later(7000), Code::Unavailable, Some(7000), 503, "7"),
        (Refusal::permanent("no"), Code::Internal, None, 500, ""),
        (too_large, Code::ResourceExhausted, None, 413, ""),
    ] {
        let reason = refusal.to_string();
        rig.probe.refuse(refusal.clone());
        let status = rig.call(three_samples()).await.unwrap_err();
        let expected = Status::new(code, reason.clone());
        let expected = match delay {
            Some(millis) => expected.with_retry_delay(Duration::from_millis(millis)),
            None => expected,
        };
        assert_eq!(status, expected);

        rig.probe.refuse(refusal.clone());
        let reply = rig.post(PROTOBUF, three_samples()).await;
        assert_eq!(reply.status.as_u16(), http, "{reason}");
        assert_eq!(header(&reply, RETRY_AFTER), retry_after, "{reason}");
        assert_eq!(header(&reply, CONTENT_TYPE), PROTOBUF);
        assert_eq!(Status::from_protobuf(&reply.body), Ok(expected));
    }
    rig.probe.refuse(Refusal::retry("full"));
    let json = profcol_otlp::json::encode(
        testkit::profiles(1).model(),
        profcol_otlp::json::ResourceAttrEncoding::Plain,
    );
    let reply = rig.post(JSON, json).await;
    assert_eq!(reply.status, 503);
    let answer: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(answer, serde_json::json!({"code": 14, "message": "full"}));

    assert!(rig.probe.taken().is_empty());
    assert_eq!(
        rig.count("otelcol_receiver_refused_profile_samples", "grpc"),
        15
    );
    assert_eq!(
        rig.count("otelcol_receiver_refused_profile_samples", "http"),
        16
    );
    rig.stop().await;
}

#[tokio::test]
async fn an_invalid_request_is_refused_with_the_path_of_the_problem() {
    let rig = Fixture::new(BOTH).await;
    let status = rig.call(with_a_bad_sample()).await.unwrap_err();
    assert_eq!(status, Status::new(Code::InvalidArgument, BAD_SAMPLE));
    let reply = rig.post(PROTOBUF, with_a_bad_sample()).await;
    assert_eq!(reply.status, 400);
    assert_eq!(Status::from_protobuf(&reply.body), Ok(status));

    let good = three_samples();
    for cut in [&good[..good.len() - 1], b"\xff", b"no protobuf at all"] {
        let cut = Bytes::copy_from_slice(cut);
        let status = rig.call(cut.clone()).await.unwrap_err();
        assert_eq!(status.code, Code::InvalidArgument, "{status}");
        assert_eq!(rig.post(PROTOBUF, cut).await.status, 400);
    }
    for text in [
        "",
        "[]",
        "{\"resourceProfiles\": 3}",
        "{\"resourceProfiles\": [",
    ] {
        let reply = rig.post(JSON, text).await;
        assert_eq!(
            (reply.status.as_u16(), header(&reply, CONTENT_TYPE)),
            (400, JSON),
            "{text}"
        );
        let answer: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(answer["code"], 3);
    }
    assert!(rig.probe.taken().is_empty());
    assert!(rig.call(good).await.is_ok());
    rig.stop().await;
}

#[tokio::test]
async fn repair_drops_only_bad_samples_and_reports_them() {
    let rig = Fixture::new(&format!("{BOTH}validation: repair")).await;
    let warning = PartialSuccess {
        rejected_profiles: 0,
        error_message: "dropped bad samples: 1 (index_out_of_range)".to_owned(),
    };
    assert_eq!(rig.call(with_a_bad_sample()).await, Ok(warning.clone()));
    let reply = rig.post(PROTOBUF, with_a_bad_sample()).await;
    assert_eq!(PartialSuccess::decode(&reply.body), Ok(warning));
    let kept = |batch: &Batch| observations(batch.profiles.model());
    let mut sent = observations(testkit::profiles(3).model());
    sent.retain(|sample| !sample.stack.contains("function_1"));
    for (transport, batch) in ["grpc", "http"].into_iter().zip(rig.probe.taken()) {
        assert_eq!(kept(&batch), sent);
        assert_eq!(
            rig.count("otelcol_receiver_failed_profile_samples", transport),
            1
        );
        assert_eq!(
            rig.count("otelcol_receiver_accepted_profile_samples", transport),
            2
        );
    }
    let unreadable = rig.call("no protobuf at all").await.unwrap_err();
    assert_eq!(unreadable.code, Code::InvalidArgument);
    rig.stop().await;
}

#[tokio::test]
async fn wrong_paths_methods_and_content_types_get_a_hint() {
    let rig = Fixture::new(BOTH).await;
    let check = async |path: &str, method: Method, kind: &str, status: u16, word: &str| {
        let reply = rig
            .send(path, method, kind, Compression::None, three_samples())
            .await;
        let body = String::from_utf8_lossy(&reply.body).into_owned();
        assert_eq!(reply.status.as_u16(), status, "{path} {kind}: {body}");
        assert!(body.contains(word), "{body}");
        reply
    };
    check("/v1/profiles", Method::POST, PROTOBUF, 404, HTTP_PATH).await;
    check("/", Method::GET, PROTOBUF, 404, HTTP_PATH).await;
    let reply = check(HTTP_PATH, Method::GET, PROTOBUF, 405, "[POST]").await;
    assert_eq!(header(&reply, ALLOW), "POST");
    check(HTTP_PATH, Method::PUT, JSON, 405, "[POST]").await;
    check(HTTP_PATH, Method::POST, "text/plain", 415, PROTOBUF).await;
    check(HTTP_PATH, Method::POST, "application/jsonx", 415, JSON).await;
    assert!(rig.probe.taken().is_empty());
    check(
        HTTP_PATH,
        Method::POST,
        "Application/X-Protobuf; v=1",
        200,
        "",
    )
    .await;

    let client = grpc_client(&rig.grpc, Compression::None);
    let call = GrpcCall {
        path: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        message: &Message::from(three_samples()),
        headers: HeaderMap::new(),
        timeout: None,
    };
    let status = client.unary(call).await.unwrap_err();
    assert_eq!(status.code, Code::Unimplemented);
    rig.stop().await;
}

#[tokio::test]
async fn compressed_bodies_are_read_and_their_bytes_are_kept() {
    let rig = Fixture::new(BOTH).await;
    let sent = observations(testkit::profiles(3).model());
    let check = |encoding: &str| {
        let mut batch = rig.probe.taken().pop().unwrap();
        batch.profiles.keep_for(Some(encoding));
        assert_eq!(observations(batch.profiles.model()), sent);
        let kept = batch.profiles.compressed().unwrap();
        assert_eq!(kept.encoding, encoding);
        assert_ne!(kept.bytes, three_samples());
        let encoding = profcol_net::Encoding::from_name(encoding).unwrap();
        let plain = profcol_net::compress::decompress(encoding, &kept.bytes, 1 << 20);
        assert_eq!(plain.unwrap(), three_samples());
    };
    for compression in [Compression::Gzip, Compression::Zstd] {
        let name = compression.name();
        let answer = rig
            .call_with(compression, HeaderMap::new(), three_samples())
            .await;
        assert!(answer.is_ok(), "{answer:?}");
        check(name);
        let reply = rig
            .send(
                HTTP_PATH,
                Method::POST,
                PROTOBUF,
                compression,
                three_samples(),
            )
            .await;
        assert_eq!(reply.status, 200);
        check(name);
    }
    let json = profcol_otlp::json::encode(
        testkit::profiles(3).model(),
        profcol_otlp::json::ResourceAttrEncoding::Plain,
    );
    let reply = rig
        .send(HTTP_PATH, Method::POST, JSON, Compression::Gzip, json)
        .await;
    assert_eq!(reply.status, 200);
    let batch = rig.probe.taken().pop().unwrap();
    assert_eq!(observations(batch.profiles.model()), sent);
    assert!(
        batch.profiles.compressed().is_none(),
        "JSON is not what is sent on"
    );
    rig.stop().await;
}

#[tokio::test]
async fn repaired_requests_do_not_keep_the_bytes_of_the_bad_ones() {
    let rig = Fixture::new(&format!("{BOTH}validation: repair")).await;
    let answer = rig
        .call_with(Compression::Gzip, HeaderMap::new(), with_a_bad_sample())
        .await;
    assert!(answer.is_ok());
    let batch = rig.probe.taken().pop().unwrap();
    assert!(batch.profiles.compressed().is_none());
    assert_eq!(batch.profiles.sample_count(), 2);
    rig.stop().await;
}

#[tokio::test]
async fn answers_wait_for_the_delivery_if_configured() {
    let rig = Fixture::new(&format!("{BOTH}answer_when: delivered")).await;
    for (outcome, code, http) in [
        (Outcome::Delivered, None, 200),
        (Outcome::Undelivered, Some(Code::Unavailable), 503),
        (Outcome::Rejected, Some(Code::Internal), 500),
        (Outcome::Lost, Some(Code::Unavailable), 503),
    ] {
        let settled = AtomicBool::new(false);
        let settle = async {
            let batch = next_batch(&rig.probe).await;
            settled.store(true, Relaxed);
            batch.finalizers.settle(outcome);
        };
        let call = async {
            let answer = rig.call(three_samples()).await;
            assert!(
                settled.load(Relaxed),
                "answered before the outcome was known"
            );
            answer.err().map(|status| status.code)
        };
        let (answer, ()) = tokio::join!(call, settle);
        assert_eq!(answer, code, "{outcome:?}");

        let settle = async { next_batch(&rig.probe).await.finalizers.settle(outcome) };
        let (reply, ()) = tokio::join!(rig.post(PROTOBUF, three_samples()), settle);
        assert_eq!(reply.status.as_u16(), http, "{outcome:?}");
    }
    rig.stop().await;
}

async fn next_batch(probe: &Probe) -> Batch {
    wait_for("a batch", async || probe.taken().pop()).await
}

#[tokio::test]
async fn request_metadata_is_passed_on_only_if_configured() {
    let on = "protocols: {grpc: {endpoint: 127.0.0.1:0, include_metadata: true}, http: {endpoint: 127.0.0.1:0, include_metadata: true}}";
    for (options, expected) in [(BOTH, &[][..]), (on, &["db".to_owned()][..])] {
        let rig = Fixture::new(options).await;
        let mut headers = HeaderMap::new();
        headers.insert("x-team", HeaderValue::from_static("db"));
        rig.call_with(Compression::None, headers, three_samples())
            .await
            .unwrap();
        rig.post(PROTOBUF, three_samples()).await;
        for batch in rig.probe.taken() {
            assert_eq!(batch.metadata.get("X-Team"), expected);
            assert_eq!(batch.metadata.is_empty(), expected.is_empty());
        }
        rig.stop().await;
    }
}

#[tokio::test]
async fn listens_on_a_unix_socket_and_removes_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("otlp.sock");
    let endpoint = path.display();
    let options = format!("protocols: {{grpc: {{transport: unix, endpoint: {endpoint}}}}}");
    let rig = Fixture::new(&options).await;
    rig.call(three_samples()).await.unwrap();
    assert_eq!(rig.probe.taken().len(), 1);
    rig.stop().await;
    assert!(!path.exists());
}

/// An authenticator with a password.
#[derive(Debug)]
struct Door;

#[async_trait]
impl ServerAuth for Door {
    async fn authenticate(&self, headers: &HeaderMap) -> Result<AuthData, Status> {
        match headers.get(AUTHORIZATION) {
            Some(password) if password == "sesame" => Ok(AuthData::default()),
            _ => Err(Status::new(Code::Unauthenticated, "who are you?")),
        }
    }

    fn scheme(&self) -> Option<Scheme> {
        Some(Scheme::Basic)
    }
}

const LOCKED: &str = "protocols: {grpc: {endpoint: 127.0.0.1:0, auth: {authenticator: door}}, http: {endpoint: 127.0.0.1:0, auth: {authenticator: door}}}";

#[tokio::test]
async fn the_authenticator_decides_who_may_send() {
    let mut handles = Handles::default();
    handles.add::<Arc<dyn ServerAuth>>(Arc::new(Door));
    let context = BuildContext {
        extensions: Extensions::new(Arc::new(HashMap::from([(
            "door".parse().unwrap(),
            handles,
        )]))),
        ..testkit::context("otlp")
    };
    let rig = Fixture::in_context(LOCKED, context).await;
    let stranger = rig.call(three_samples()).await.unwrap_err();
    assert_eq!(stranger, Status::new(Code::Unauthenticated, "who are you?"));
    let reply = rig.post(PROTOBUF, three_samples()).await;
    assert_eq!(reply.status, 401);
    let challenge = Scheme::Basic.challenge();
    assert_eq!(reply.headers.get(WWW_AUTHENTICATE), challenge.as_ref());
    assert_eq!(Status::from_protobuf(&reply.body), Ok(stranger));
    assert!(rig.probe.taken().is_empty());

    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::from_static("sesame"));
    rig.call_with(Compression::None, headers, three_samples())
        .await
        .unwrap();
    assert_eq!(rig.probe.taken().len(), 1);
    rig.stop().await;
}

#[test]
fn an_error_names_a_missing_authenticator() {
    let config = load::<OtlpConfig>(LOCKED).unwrap();
    let error = Otlp::build(&config, &testkit::context("otlp"))
        .err()
        .unwrap();
    assert!(error.to_string().contains("\"door\""), "{error}");
}

#[tokio::test]
async fn requests_in_flight_finish_after_a_stop() {
    let rig = Fixture::new(&format!("{BOTH}answer_when: delivered")).await;
    let settle = async {
        let batch = next_batch(&rig.probe).await;
        rig.stop.cancel();
        batch.finalizers.settle(Outcome::Delivered);
    };
    let (answer, ()) = tokio::join!(rig.call(three_samples()), settle);
    assert!(answer.is_ok(), "{answer:?}");
    rig.stop().await;
}

#[tokio::test]
async fn a_bind_error_names_the_path_of_the_setting() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for protocol in ["grpc", "http"] {
        let options = format!("protocols: {{{protocol}: {{endpoint: \"{address}\"}}}}");
        let config = load::<OtlpConfig>(&options).unwrap();
        let error = Otlp::new(&config, &testkit::context("otlp"))
            .unwrap()
            .start()
            .await;
        let error = error.unwrap_err().to_string();
        let path = format!("receivers::otlp::protocols::{protocol}::endpoint: listen tcp ");
        assert!(error.starts_with(&path), "{error}");
        assert!(error.contains(&address.to_string()), "{error}");
    }
}

#[test]
fn at_least_one_protocol_is_required() {
    let error = load::<OtlpConfig>("protocols: {}").unwrap_err();
    let expected = "must specify at least one protocol when using the OTLP receiver";
    assert!(error.contains(expected), "{error}");
}

#[tokio::test]
async fn a_batch_with_an_id_is_taken_once_over_either_protocol() {
    let id = BatchId::unique();
    for (deduplicate, taken) in [("", 4), ("deduplicate: ", 2)] {
        let rig = Fixture::new(&format!("{BOTH}{deduplicate}")).await;
        // An id that is none is ignored.
        for value in [id.to_string(), id.to_string(), "no-id".to_owned()] {
            let headers = with_header(BatchId::HEADER, &value);
            let call = rig.call_with(Compression::None, headers, three_samples());
            call.await.unwrap();
        }
        let headers = with_header(BatchId::HEADER, &id.to_string().to_uppercase());
        let reply = rig.send_with(
            headers,
            HTTP_PATH,
            Method::POST,
            PROTOBUF,
            Compression::None,
            three_samples(),
        );
        assert_eq!(reply.await.status, 200);
        let batches = rig.probe.taken();
        assert_eq!(batches.len(), taken, "{deduplicate}");
        let with_id = batches.iter().filter(|batch| batch.id == id).count();
        assert_eq!(with_id, taken - 1, "the client's id is kept");
        rig.stop().await;
    }
}

#[test]
fn the_window_and_its_batches_are_bounded() {
    for option in ["window: 0s", "max_batches: 0"] {
        let options = format!("{BOTH}deduplicate: {{{option}}}");
        let error = load::<OtlpConfig>(&options).unwrap_err();
        assert!(error.contains("must be positive"), "{error}");
    }
}
