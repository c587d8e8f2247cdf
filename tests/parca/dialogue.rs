//! Calls of agents, and calls to servers.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::http::HeaderMap;
use bytes::Bytes;
use profcol_net::grpc::{Code, Status};
use profcol_net::{
    Compression, GrpcCall, GrpcClient, GrpcClientSettings, GrpcRequest, GrpcServer,
    GrpcServerSettings, GrpcService, Message, unknown_method,
};
use profcol_parca::service::{WRITE, WRITE_ARROW, request};
use profcol_profile::{Profiles, Validation};

use crate::backend::{self, Client, wait_until};
use crate::peers::profcol;
use crate::support::golden;
use crate::{Server, messages, total};

fn recordings(folder: &str) -> Vec<PathBuf> {
    let Some(folder) = golden(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "frames"))
        .collect();
    paths.sort();
    paths
}

fn client(server: &Server) -> GrpcClient {
    let mut settings = GrpcClientSettings {
        endpoint: server.address.to_string(),
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

/// What a server answers to messages sent one after the other, each after the answer to the one before.
async fn write(client: &GrpcClient, messages: &[Vec<u8>]) -> Result<Vec<Bytes>, Status> {
    let mut call = client.stream(WRITE, None).await?;
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

async fn write_arrow(client: &GrpcClient, message: &[u8]) -> Result<(), Status> {
    let message = Message::from(Bytes::copy_from_slice(message));
    let call = GrpcCall {
        path: WRITE_ARROW,
        message: &message,
        headers: HeaderMap::new(),
        timeout: None,
    };
    client.unary(call).await.map(|_| ())
}

#[test]
fn answers_recorded_agents_as_the_recorded_server_did() {
    let server = Server::new();
    let runtime = runtime();
    let client = runtime.block_on(async { client(&server) });
    let mut expected = 0;
    // Rows of the first records, by an independent reader.
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
            .block_on(write_arrow(&client, &recorded[0].1))
            .unwrap();
        expected += rows;
    }
    wait_until("everything to arrive", || server.total() >= expected);
    assert_eq!(server.total(), expected);
}

/// The ids that a server asks for.
fn ids(answer: &[u8]) -> Vec<Box<[u8]>> {
    let record = profcol_parca::service::record(answer).unwrap();
    let batch = profcol_parca::ipc::read(record, 1 << 20).unwrap().unwrap();
    profcol_parca::v1::read_wanted(&batch).unwrap()
}

#[test]
fn refuses_what_a_real_server_refuses() {
    let server = Server::new();
    let runtime = runtime();
    let client = runtime.block_on(async { client(&server) });
    let garbage = request(b"no record of Arrow").to_vec();
    let (v1, v2) = (recordings("parca/online-v1"), recordings("parca/online-v2"));
    let (Some(v1), Some(v2)) = (v1.first(), v2.first()) else {
        return;
    };
    let (v1, v2) = (messages(v1), messages(v2));
    let (samples, stacks) = (&v1[0].1, &v1[2].1);
    let other_stacks = messages(&recordings("parca/online-v1")[1])[2].1.clone();
    let check = |name: &str, outcome: Result<(), Status>, code: Code, says: &str| {
        let status = outcome.expect_err(name);
        assert_eq!(status.code, code, "{name}: {status}");
        assert!(status.message.contains(says), "{name}: {status}");
    };
    let written = |messages: &[Vec<u8>]| runtime.block_on(write(&client, messages)).map(|_| ());
    let sent = |message: &[u8]| runtime.block_on(write_arrow(&client, message));
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
        let mut call = client.stream(WRITE, None).await?;
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
    // It goes on.
    written(&[samples.clone(), stacks.clone()]).unwrap();
    wait_until("the good one to arrive", || server.total() > 0);
}

/// A profcol that sends to `parca`.
fn agent(to: std::net::SocketAddr, options: &str) -> (crate::peers::Process, Client) {
    let mut process = profcol(&format!(
        "\
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}}}}}
exporters:
  parca: {{endpoint: \"{to}\", tls: {{insecure: true}}, external_labels: {{cluster: demo}}, {options}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [parca]}}
"
    ));
    process.wait_for_output("to be ready", |said| said.contains("Everything is ready"));
    let client = Client::new(backend::endpoint_in(&process.output(), "grpc"));
    (process, client)
}

fn profiles() -> Option<Profiles> {
    let body = std::fs::read(golden("otlp/profiler/export-03.pb")?).unwrap();
    let received = Profiles::from_wire(body.into(), Validation::Reject).unwrap();
    Some(received.profiles)
}

/// Names of functions and files of all frames, each with how often it was seen at the top of a stack.
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
fn what_is_sent_arrives_with_its_names_in_either_schema() {
    let Some(profiles) = profiles() else {
        return;
    };
    for schema in ["auto", "v1", "v2"] {
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

/// A server from before `Write`, or one that is not Parca's.
struct OnlyArrow(Arc<Mutex<Vec<usize>>>);

impl GrpcService for OnlyArrow {
    fn admit(&self, path: &str, _: &HeaderMap) -> Result<(), Status> {
        if path == WRITE_ARROW {
            return Ok(());
        }
        Err(unknown_method(path))
    }

    async fn call(&self, request: GrpcRequest) -> Result<Bytes, Status> {
        self.0.lock().unwrap().push(request.message.plain.len());
        Ok(Bytes::new())
    }
}

#[test]
fn a_server_without_the_dialogue_gets_the_other_schema() {
    let Some(profiles) = profiles() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let settings = GrpcServerSettings {
        endpoint: "127.0.0.1:0".into(),
        ..GrpcServerSettings::default()
    };
    let server = {
        let _inside = runtime.enter();
        GrpcServer::bind(&settings, None).unwrap()
    };
    let address = server.local_addr().to_string().parse().unwrap();
    let taken = Arc::new(Mutex::new(Vec::new()));
    runtime.spawn(server.serve(OnlyArrow(Arc::clone(&taken)), std::future::pending()));
    let (mut process, client) = agent(address, "");
    for sent in 1..=2 {
        client.send(&profiles).unwrap();
        wait_until("it to arrive", || taken.lock().unwrap().len() == sent);
    }
    process.wait_for_output("to say so once", |said| {
        said.matches("does not take profiles in schema v1").count() == 1
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
}

#[test]
fn nothing_is_lost_while_the_server_is_away() {
    let Some(profiles) = profiles() else {
        return;
    };
    let nobody = backend::Nobody::new();
    let retry = "retry_on_failure: {initial_interval: 100ms, max_interval: 200ms}";
    let (_agent, client) = agent(nobody.address, retry);
    for _ in 0..3 {
        client.send(&profiles).unwrap();
    }
    let destination = backend::Destination::new(backend::Mode::Take);
    let mut late = profcol(&format!(
        "\
receivers:
  parca: {{endpoint: \"{}\"}}
exporters:
  otlp_grpc: {{endpoint: {}, tls: {{insecure: true}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [parca], exporters: [otlp_grpc]}}
",
        nobody.address, destination.address
    ));
    late.wait_for_output("to be ready", |said| said.contains("Everything is ready"));
    let sum: i64 = 3 * leaves(&[profiles]).values().sum::<i64>();
    wait_until("everything to arrive", || total(&destination) >= sum);
    assert_eq!(total(&destination), sum);
}
