//! Calls from agents, and calls to servers.

use std::net::SocketAddr;
use std::path::PathBuf;

use ::http::HeaderMap;
use bytes::Bytes;
use profcol_net::grpc::{Code, Status};
use profcol_net::{Compression, GrpcCall, GrpcClient, GrpcClientSettings, Message};
use profcol_parca::service::{WRITE, WRITE_ARROW, WRITE_RAW, request};
use profcol_profile::Profiles;
use profcol_test_harness::backend::stuck::{Stuck, StuckServer};
use profcol_test_harness::backend::{
    Client, ClosedPort, Destination, Mode, endpoint_in, wait_until,
};
use profcol_test_harness::peers::{Process, profcol};
use profcol_test_harness::support::{golden, path, root};

use crate::script::{Answer, Script};
use crate::{Server, listening, messages, profiles, sum, total};

fn recordings(folder: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(golden(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "frames"))
        .collect();
    paths.sort();
    paths
}

fn client(server: &Server) -> GrpcClient {
    client_of(server.address)
}

fn client_of(server: SocketAddr) -> GrpcClient {
    let mut settings = GrpcClientSettings {
        endpoint: server.to_string(),
        compression: Compression::None,
        ..GrpcClientSettings::default()
    };
    settings.tls.insecure = true;
    GrpcClient::new(&settings, None, "test").unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// The server's responses to messages, each sent after the response to the previous one.
async fn write(client: &GrpcClient, messages: &[Vec<u8>]) -> Result<Vec<Bytes>, Status> {
    let mut call = client.stream(WRITE, HeaderMap::new(), None).await?;
    let mut answers = Vec::new();
    for (position, message) in messages.iter().enumerate() {
        let is_last = position + 1 == messages.len();
        call.send(message.clone().into(), is_last).await?;
        if !is_last {
            answers.extend(call.receive().await?);
        }
    }
    answers.extend(call.receive().await?);
    Ok(answers)
}

async fn unary(client: &GrpcClient, path: &'static str, message: &[u8]) -> Result<Bytes, Status> {
    let message = Message::from(Bytes::copy_from_slice(message));
    let call = GrpcCall {
        path,
        message: &message,
        headers: HeaderMap::new(),
        timeout: None,
    };
    client.unary(call).await.map(|reply| reply.message)
}

#[test]
fn responds_to_recorded_agents_like_the_recorded_server() {
    let server = Server::new();
    let runtime = runtime();
    let client = runtime.block_on(async { client(&server) });
    let mut expected = 0;
    // Row counts of the first records, from an independent reader.
    for (path, rows) in recordings("parca/online-v1")
        .iter()
        .zip([40, 105, 82, 98, 97, 73])
    {
        let recorded = messages(path);
        let [(true, samples), (false, wanted), (true, stacks)] = &recorded[..] else {
            panic!("{} messages in {}", recorded.len(), path.display());
        };
        let sent = [samples.clone(), stacks.clone()];
        let answers = runtime.block_on(write(&client, &sent)).unwrap();
        assert_eq!(ids(&answers[0]), ids(wanted), "{}", path.display());
        assert_eq!(answers.len(), 1);
        expected += rows;
    }
    for (path, rows) in recordings("parca/online-v2")
        .iter()
        .zip([37, 115, 80, 90, 76, 96])
    {
        let recorded = messages(path);
        runtime
            .block_on(unary(&client, WRITE_ARROW, &recorded[0].1))
            .unwrap();
        expected += rows;
    }
    wait_until("everything to arrive", || server.total() >= expected);
    assert_eq!(server.total(), expected);
}

#[test]
fn accepted_batches_of_agents_survive_a_kill_in_a_stored_queue() {
    let storage = tempfile::tempdir().unwrap();
    let closed = ClosedPort::reserve();
    let start = || {
        let mut process = profcol(&format!(
            "\
extensions:
  file_storage: {{directory: \"{}\"}}
receivers:
  parca: {{endpoint: 127.0.0.1:0}}
exporters:
  otlp_grpc:
    endpoint: {}
    tls: {{insecure: true}}
    sending_queue: {{storage: file_storage}}
    retry_on_failure: {{initial_interval: 50ms, max_interval: 100ms, max_elapsed_time: 0s}}
service:
  extensions: [file_storage]
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [parca], exporters: [otlp_grpc]}}
",
            path(storage.path()),
            closed.address
        ));
        let address = listening(&mut process);
        (process, address)
    };
    let (killed, address) = start();
    let runtime = runtime();
    let client = runtime.block_on(async { client_of(address) });
    let mut expected = 0;
    for (path, rows) in recordings("parca/online-v2")
        .iter()
        .zip([37, 115, 80, 90, 76, 96])
    {
        let recorded = messages(path);
        let sent = unary(&client, WRITE_ARROW, &recorded[0].1);
        runtime.block_on(sent).unwrap();
        expected += rows;
    }
    // With SIGKILL.
    drop(killed);
    let destination = Destination::on(closed.address, Mode::Take);
    let (_next, _) = start();
    wait_until("everything to arrive", || total(&destination) >= expected);
    assert_eq!(total(&destination), expected);
}

/// The IDs that a server requests.
fn ids(answer: &[u8]) -> Vec<Box<[u8]>> {
    let record = profcol_parca::service::record(answer).unwrap();
    let batch = profcol_parca::ipc::read(record, 1 << 20).unwrap().unwrap();
    profcol_parca::v1::read_stack_request(&batch).unwrap()
}

#[test]
fn refuses_like_a_real_server() {
    let server = Server::new();
    let runtime = runtime();
    let client = runtime.block_on(async { client(&server) });
    let garbage = request(b"no record of Arrow").to_vec();
    let (v1, v2) = (recordings("parca/online-v1"), recordings("parca/online-v2"));
    let other_stacks = messages(&v1[1])[2].1.clone();
    let (v1, v2) = (messages(&v1[0]), messages(&v2[0]));
    let (samples, stacks) = (&v1[0].1, &v1[2].1);
    let check = |name: &str, outcome: Result<(), Status>, code: Code, says: &str| {
        let status = outcome.expect_err(name);
        assert_eq!(status.code, code, "{name}: {status}");
        assert!(status.message.contains(says), "{name}: {status}");
    };
    let written = |messages: &[Vec<u8>]| runtime.block_on(write(&client, messages)).map(|_| ());
    let unary = |path, message: &[u8]| runtime.block_on(unary(&client, path, message)).map(|_| ());
    let sent = |message: &[u8]| unary(WRITE_ARROW, message);
    let invalid = Code::InvalidArgument;
    check("garbage", sent(&garbage), invalid, "byte");
    check("nothing", sent(&[]), invalid, "byte");
    check("v1 on WriteArrow", sent(samples), invalid, "v1");
    check("cut off", sent(&v2[0].1[..5000]), invalid, "");
    let garbage = vec![garbage.clone(), garbage];
    check("garbage on Write", written(&garbage), invalid, "byte");
    check(
        "v2 on Write",
        written(&[v2[0].1.clone(), stacks.clone()]),
        invalid,
        "v2",
    );
    let sent = |message: &[u8]| unary(WRITE_RAW, message);
    check("garbage on WriteRaw", sent(b"\x12\xff"), invalid, "request");
    // A series without a name, and series with an invalid pprof or a truncated gzip.
    check("no name", sent(b"\x12\x00"), invalid, "__name__");
    let named = b"\x0a\x11\x0a\x0f\x0a\x08__name__\x12\x03cpu";
    let with_file = |file: &[u8]| {
        let length = file.len() as u8;
        let sample = [&[0x12, length + 2, 0x0a, length], file].concat();
        let length = (named.len() + sample.len()) as u8;
        [&[0x12, length], &named[..], &sample].concat()
    };
    check("no pprof", sent(&with_file(b"none")), invalid, "profile");
    let torn = with_file(b"\x1f\x8b\x08\x00");
    check("half a gzip", sent(&torn), Code::Unknown, "decompress");
    unary(WRITE_RAW, &with_file(b"")).unwrap();
    unary(WRITE_RAW, b"").unwrap();
    let crossed = [samples.clone(), other_stacks];
    check(
        "stacks of another",
        written(&crossed),
        invalid,
        "missing stack",
    );
    let twice = [samples.clone(), samples.clone()];
    check("samples for stacks", written(&twice), invalid, "column");
    let silent = runtime.block_on(async {
        let mut call = client.stream(WRITE, HeaderMap::new(), None).await?;
        call.send(samples.clone().into(), false).await?;
        call.receive().await?;
        call.receive().await.map(|_| ())
    });
    check(
        "no stacks at all",
        silent,
        Code::DeadlineExceeded,
        "write_timeout",
    );
    // It keeps working.
    written(&[samples.clone(), stacks.clone()]).unwrap();
    wait_until("the good one to arrive", || server.total() > 0);
}

#[test]
fn a_record_that_panics_in_arrow_is_refused_silently() {
    let server = Server::new();
    let runtime = runtime();
    let client = runtime.block_on(async { client(&server) });
    let seed = root().join("fuzz/seeds/parca/samples-v1-lz4");
    let mut record = std::fs::read(seed).unwrap();
    // The offset of a buffer, now misaligned for its values.
    assert_eq!(std::mem::replace(&mut record[2512], 127), 24);
    let sent = runtime.block_on(unary(&client, WRITE_ARROW, &request(&record)));
    let refused = sent.unwrap_err();
    assert_eq!(refused.code, Code::InvalidArgument);
    let says = "inconsistent record: assertion failed";
    assert!(refused.message.contains(says), "{refused}");
    let output = server.process.output();
    assert!(!output.contains("panicked"), "{output}");
}

/// A profcol that sends to `parca`.
pub fn agent(to: SocketAddr, options: &str) -> (Process, Client) {
    let mut process = profcol(&format!(
        "\
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}}}}}
exporters:
  parca: {{endpoint: \"{to}\", tls: {{insecure: true}}, external_labels: {{cluster: demo}}, {options}}}
service:
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [parca]}}
"
    ));
    process.wait_for_output("to be ready", |output| {
        output.contains("Everything is ready")
    });
    let client = Client::new(endpoint_in(&process.output(), "grpc"));
    (process, client)
}

/// Function and file names of all frames, each with its number of samples at the top of a stack.
fn leaves(taken: &[Profiles]) -> std::collections::BTreeMap<String, i64> {
    let mut leaves = std::collections::BTreeMap::new();
    for taken in taken {
        let model = taken.model();
        let dictionary = &model.dictionary;
        for profile in model.profiles() {
            for sample in profile.samples.iter() {
                let Some(&leaf) = dictionary.stacks.get(sample.stack).first() else {
                    continue;
                };
                let leaf = dictionary.locations.get(leaf);
                let name = leaf.lines.first().and_then(|line| {
                    let function = dictionary.functions.get(line.function)?;
                    Some(dictionary.strings.get(function.name).to_owned())
                });
                let name = name.unwrap_or_else(|| format!("{:#x}", leaf.location.address));
                let value = match sample.values {
                    [] => sample.timestamps.len() as i64,
                    values => values.iter().sum(),
                };
                *leaves.entry(name).or_default() += value;
            }
        }
    }
    leaves
}

#[test]
fn samples_arrive_with_names_in_each_schema() {
    let profiles = profiles();
    for schema in ["auto", "v1", "v2", "pprof"] {
        let server = Server::new();
        let (_agent, client) = agent(server.address, &format!("schema: {schema}"));
        client.send(&profiles).unwrap();
        let expected = leaves(std::slice::from_ref(&profiles));
        let sum: i64 = expected.values().sum();
        assert!(sum > 0);
        wait_until("everything to arrive", || server.total() >= sum);
        let taken = server.destination.taken();
        assert_eq!(leaves(&taken), expected, "{schema}");
        for resource in &taken[0].model().resources {
            let attributes = &resource.resource.as_ref().unwrap().attributes;
            let cluster = attributes.iter().find(|found| &*found.key == "cluster");
            assert_eq!(cluster.unwrap().value.as_str(), Some("demo"));
        }
    }
}

/// A server with these methods, and an agent with automatic schema selection.
fn old_server(methods: &[&'static str]) -> (Script, Process, Client) {
    let server = Script::new();
    server.knows(methods);
    let (process, client) = agent(server.address, "");
    (server, process, client)
}

#[test]
fn a_server_gets_the_first_supported_schema() {
    let profiles = profiles();
    let (server, mut process, client) = old_server(&[WRITE_ARROW]);
    let sum = sum(std::slice::from_ref(&profiles));
    let mut expected = 0;
    // The log has this many choices when the response has arrived.
    let mut next = |server: &Script, path: &str, choices: usize| {
        client.send(&profiles).unwrap();
        expected += sum;
        wait_until("it to arrive", || server.total() == expected);
        assert_eq!(server.paths().last().map(String::as_str), Some(path));
        process.wait_for_output("to log the choice", |output| {
            output
                .matches("The server accepts profiles in this schema.")
                .count()
                == choices
        });
    };
    next(&server, WRITE_ARROW, 1);
    next(&server, WRITE_ARROW, 1);
    // It tried the unsupported method once.
    assert_eq!(server.paths(), [WRITE, WRITE_ARROW, WRITE_ARROW]);
    // The server is replaced by an older one, and that by a newer one with one method.
    server.knows(&[WRITE_RAW]);
    next(&server, WRITE_RAW, 2);
    server.knows(&[WRITE]);
    next(&server, WRITE, 3);
    process.wait_for_output("to log the unsupported method", |output| {
        let not_known = output.matches("does not support this schema");
        not_known.count() == 3
    });
}

#[test]
fn logs_a_server_without_any_method() {
    let profiles = profiles();
    let (_server, mut process, client) = old_server(&[]);
    client.send(&profiles).unwrap();
    process.wait_for_output("to log it", |output| {
        output.contains("supports none of the three schemas") && output.contains("dropped_samples")
    });
}

/// An agent with short timeouts and retry delays.
const SHORT_DELAYS: &str =
    "schema: v1, timeout: 5s, retry_on_failure: {initial_interval: 50ms, max_interval: 50ms}";

#[test]
fn an_old_server_gets_lines_without_columns() {
    let profiles = profiles();
    let server = Script::new();
    // It is briefly down when the agent retries.
    let away = Answer::Refuse(Status::new(Code::Unavailable, "not now"));
    server.next([Answer::RefuseColumns, away, Answer::RefuseColumns]);
    let (mut process, client) = agent(server.address, SHORT_DELAYS);
    let sum = sum(std::slice::from_ref(&profiles));
    client.send(&profiles).unwrap();
    wait_until("it to arrive", || server.total() == sum);
    // Only then has the server's acknowledgement arrived.
    process.wait_for_output("to log it", |output| {
        output.contains("does not support line columns")
    });
    client.send(&profiles).unwrap();
    wait_until("the next to arrive", || server.total() == 2 * sum);
    // The second batch is sent without columns at once.
    assert_eq!(server.paths().len(), 5);
    assert_eq!(server.has_columns(), [true, true, false, false]);
}

#[test]
fn a_batch_is_retried_while_the_answer_may_change() {
    let profiles = profiles();
    let server = Script::new();
    let (mut process, client) = agent(server.address, SHORT_DELAYS);
    let sum = sum(std::slice::from_ref(&profiles));
    let mut expected = 0;
    let mut arrives_after = |answers: &[Answer]| {
        server.next(answers.iter().cloned());
        client.send(&profiles).unwrap();
        expected += sum;
        wait_until("it to arrive", || server.total() == expected);
        assert_eq!(server.total(), expected, "{answers:?}");
    };
    for code in [
        Code::Cancelled,
        Code::DeadlineExceeded,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unavailable,
        Code::DataLoss,
    ] {
        let status = Status::new(code, "not now");
        arrives_after(&[Answer::Refuse(status.clone()), Answer::RefuseAtEnd(status)]);
    }
    arrives_after(&[Answer::NeverAsk]);
    arrives_after(&[Answer::AskAlsoForUnknown]);
    // A server that responds successfully without a request has all it needs.
    server.next([Answer::CloseEarly]);
    client.send(&profiles).unwrap();
    arrives_after(&[]);

    for code in Code::ALL {
        let is_final = !matches!(
            code,
            Code::Ok
                | Code::Cancelled
                | Code::DeadlineExceeded
                | Code::Aborted
                | Code::OutOfRange
                | Code::Unavailable
                | Code::DataLoss
        );
        if is_final {
            let status = Status::new(code, format!("never {code}"));
            // If columns may be the reason, it retries once without them.
            server.next([Answer::Refuse(status.clone()), Answer::Refuse(status)]);
            client.send(&profiles).unwrap();
            process.wait_for_output("to log it", |output| {
                let lines = output.lines();
                let mut lines = lines.filter(|line| line.contains("dropped_samples"));
                lines.any(|line| line.contains(&format!("never {code}")))
            });
            server.forget_answers();
        }
    }
    server.next([Answer::AskWithGarbage, Answer::AskWithGarbage]);
    client.send(&profiles).unwrap();
    process.wait_for_output("to log it", |output| {
        output.contains("failed to decode the server's stack request")
    });
}

#[test]
fn a_server_that_crashes_midway_gets_the_batch_after_a_restart() {
    let profiles = profiles();
    let server = Script::new();
    server.next([Answer::NeverAsk]);
    let address = server.address;
    let (_agent, client) = agent(
        address,
        &SHORT_DELAYS.replace("timeout: 5s", "timeout: 60s"),
    );
    client.send(&profiles).unwrap();
    wait_until("the call to begin", || server.paths().len() == 1);
    drop(server);
    let server = Script::on(address);
    let sum = sum(std::slice::from_ref(&profiles));
    wait_until("it to arrive", || server.total() == sum);
}

#[test]
fn oversized_batches_arrive_in_pieces() {
    let profiles = profiles();
    for (schema, bytes) in [("v1", 20_000), ("v2", 20_000), ("pprof", 4_000)] {
        let server = Script::new();
        server.takes_at_most(bytes);
        let (_agent, client) = agent(server.address, &format!("schema: {schema}"));
        client.send(&profiles).unwrap();
        let sum = sum(std::slice::from_ref(&profiles));
        wait_until("all of it to arrive", || server.total() >= sum);
        assert_eq!(server.total(), sum, "{schema}");
        assert!(server.taken() > 1, "{schema}");
    }
}

#[test]
fn nothing_is_lost_while_the_server_is_down() {
    let profiles = profiles();
    let closed = ClosedPort::reserve();
    let retry = "retry_on_failure: {initial_interval: 100ms, max_interval: 200ms}";
    let (_agent, client) = agent(closed.address, retry);
    for _ in 0..3 {
        client.send(&profiles).unwrap();
    }
    let late = Server::with(&closed.address.to_string(), "");
    let sum: i64 = 3 * leaves(&[profiles]).values().sum::<i64>();
    wait_until("everything to arrive", || late.total() >= sum);
    assert_eq!(late.total(), sum);
}

#[test]
fn servers_that_answer_byte_by_byte_cost_only_time() {
    let profiles = profiles();
    for schema in ["v1", "v2"] {
        for how in [
            Stuck::Headers,
            Stuck::Trailers,
            Stuck::Window,
            Stuck::Settings,
        ] {
            let server = Script::new();
            let stuck = StuckServer::before(server.address, how);
            let options = format!(
                "schema: {schema}, timeout: 5s, retry_on_failure: {{initial_interval: 20ms, max_interval: 100ms, max_elapsed_time: 0s}}"
            );
            let (_agent, client) = agent(stuck.address, &options);
            client.send(&profiles).unwrap();
            stuck.wait_for_connections(2);
            assert_eq!(server.total(), 0, "{schema} {how:?}");
            stuck.behave();
            let sum = sum(std::slice::from_ref(&profiles));
            wait_until("all of it to arrive", || server.total() >= sum);
            assert_eq!(server.total(), sum, "{schema} {how:?}");
        }
    }
}

const DEBUGINFO: &str = "/parca.debuginfo.v1alpha1.DebuginfoService/";

#[test]
fn debuginfo_calls_and_responses_are_forwarded() {
    let upstream = Script::new();
    let options = format!(
        "debuginfo_upstream: {{endpoint: \"{}\", tls: {{insecure: true}}}}",
        upstream.address
    );
    let server = Server::with("127.0.0.1:0", &options);
    let runtime = runtime();
    let client = runtime.block_on(async { client(&server) });
    let paths = [
        "/parca.debuginfo.v1alpha1.DebuginfoService/ShouldInitiateUpload",
        "/parca.debuginfo.v1alpha1.DebuginfoService/InitiateUpload",
        "/parca.debuginfo.v1alpha1.DebuginfoService/Upload",
        "/parca.debuginfo.v1alpha1.DebuginfoService/MarkUploadFinished",
    ];
    let recorded = recordings("parca/debuginfo");
    for (path, file) in paths.into_iter().zip(&recorded) {
        assert!(file.to_string_lossy().contains(&path[DEBUGINFO.len()..]));
        let (sent, answered): (Vec<_>, Vec<_>) = messages(file)
            .into_iter()
            .partition(|(is_sent, _)| *is_sent);
        let sent: Vec<Vec<u8>> = sent.into_iter().map(|(_, message)| message).collect();
        let answer = answered[0].1.clone();
        upstream.next([Answer::Say(answer.clone())]);
        let response = if path.ends_with("/Upload") {
            runtime.block_on(async {
                let mut call = client.stream(path, HeaderMap::new(), None).await?;
                for (position, message) in sent.iter().enumerate() {
                    let is_last = position + 1 == sent.len();
                    call.ready().await?;
                    call.send(message.clone().into(), is_last).await?;
                }
                let answer = call.receive().await?.unwrap();
                call.receive().await.map(|end| {
                    assert_eq!(end, None);
                    answer
                })
            })
        } else {
            runtime.block_on(unary(&client, path, &sent[0]))
        };
        assert_eq!(response.unwrap(), answer, "{path}");
        assert_eq!(upstream.heard(), sent, "{path}");
    }
    // Upstream refusals are forwarded.
    let status = Status::new(Code::FailedPrecondition, "in progress");
    upstream.next([Answer::Refuse(status.clone())]);
    let refused = runtime.block_on(unary(&client, paths[1], b"")).unwrap_err();
    assert_eq!(
        (refused.code, refused.message),
        (status.code, status.message)
    );
}

#[test]
fn debuginfo_is_declined_without_an_upstream() {
    let server = Server::new();
    let runtime = runtime();
    let client = runtime.block_on(async { client(&server) });
    let path = "/parca.debuginfo.v1alpha1.DebuginfoService/ShouldInitiateUpload";
    let answer = runtime
        .block_on(unary(&client, path, b"\x0a\x04abcd"))
        .unwrap();
    // Only the reason: protobuf omits false.
    assert_eq!(answer[0], 0x12);
    assert!(String::from_utf8_lossy(&answer).contains("debuginfo_upstream"));
    let path = "/parca.debuginfo.v1alpha1.DebuginfoService/InitiateUpload";
    let refused = runtime.block_on(unary(&client, path, b"")).unwrap_err();
    assert_eq!(refused.code, Code::FailedPrecondition, "{refused}");
}

/// Runs `work` concurrently for each client.
fn at_once<T: Send>(clients: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(&work)).collect();
        let done = threads.into_iter().map(|thread| thread.join().unwrap());
        done.collect()
    })
}

#[test]
fn a_hanging_or_missing_upstream_delays_clients_briefly_and_leaks_nothing() {
    const ASK: &str = "/parca.debuginfo.v1alpha1.DebuginfoService/ShouldInitiateUpload";
    const UPLOAD: &str = "/parca.debuginfo.v1alpha1.DebuginfoService/Upload";
    /// More than the concurrency limit.
    const CLIENTS: usize = 6;
    let upstream = Script::new();
    let address = upstream.address;
    let options = format!(
        "debuginfo_idle_timeout: 6s, \
         debuginfo_upstream: {{endpoint: \"{address}\", tls: {{insecure: true}}}}"
    );
    let server = Server::with("127.0.0.1:0", &options);
    // Larger than any window, so that an upstream that does not read blocks it.
    let upload = || {
        let runtime = runtime();
        runtime.block_on(async {
            let client = client(&server);
            let mut call = client.stream(UPLOAD, HeaderMap::new(), None).await?;
            for number in 0..32 {
                let sent = async {
                    call.ready().await?;
                    call.send(vec![1; 256 << 10].into(), number == 31).await
                };
                if sent.await.is_err() {
                    break;
                }
            }
            while call.receive().await?.is_some() {}
            Ok::<_, Status>(())
        })
    };
    let ask = || {
        let runtime = runtime();
        runtime.block_on(async {
            let message = Message::from(Bytes::new());
            let call = GrpcCall {
                path: ASK,
                message: &message,
                headers: HeaderMap::new(),
                timeout: Some(std::time::Duration::from_secs(5)),
            };
            client(&server).unary(call).await.map(|_| ())
        })
    };
    let codes = |outcomes: Vec<Result<(), Status>>| {
        let codes = outcomes.into_iter().map(|outcome| match outcome {
            Ok(()) => Code::Ok,
            Err(status) => status.code,
        });
        codes.collect::<Vec<_>>()
    };
    let open = || {
        let folder = format!("/proc/{}/fd", server.process.pid());
        std::fs::read_dir(folder).unwrap().count()
    };
    let before = open();

    upstream.next(vec![Answer::Hang; 2 * CLIENTS]);
    assert_eq!(
        codes(at_once(CLIENTS, ask)),
        [Code::DeadlineExceeded; CLIENTS]
    );
    let begin = std::time::Instant::now();
    assert_eq!(
        codes(at_once(CLIENTS, upload)),
        [Code::DeadlineExceeded; CLIENTS]
    );
    // A few times the configured timeout: clients wait for their turn, and the machine may be busy.
    assert!(begin.elapsed() < std::time::Duration::from_secs(45));
    upstream.forget_answers();

    let status = Status::new(Code::ResourceExhausted, "the disk is full");
    upstream.next(vec![Answer::Refuse(status); 2 * CLIENTS]);
    assert_eq!(
        codes(at_once(CLIENTS, ask)),
        [Code::ResourceExhausted; CLIENTS]
    );
    assert_eq!(
        codes(at_once(CLIENTS, upload)),
        [Code::ResourceExhausted; CLIENTS]
    );

    drop(upstream);
    assert_eq!(codes(at_once(CLIENTS, ask)), [Code::Unavailable; CLIENTS]);
    assert_eq!(
        codes(at_once(CLIENTS, upload)),
        [Code::Unavailable; CLIENTS]
    );

    let upstream = Script::on(address);
    upstream.next(vec![Answer::Say(Vec::new()); 2 * CLIENTS]);
    wait_until("it to be found again", || ask().is_ok());
    assert_eq!(codes(at_once(CLIENTS, upload)), [Code::Ok; CLIENTS]);
    drop(upstream);
    wait_until("all connections to be closed", || open() <= before);
}
