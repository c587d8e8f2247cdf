//! A fake Docker and a fake CRI runtime on Unix sockets: containers that come and go, and runtimes that hang, restart
//! or send garbage.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
use profcol_component::Meter;
use profcol_component::testkit::{context, load, wait_until};
use profcol_net::grpc::Status;
use profcol_net::{
    GrpcRequest, GrpcServer, GrpcServerSettings, GrpcServerStream, GrpcService, ListeningSockets,
    Transport, unknown_method,
};
use profcol_profile::proto::{Writer, tag};
use profcol_profile::{Attributes, KeyValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch as channel;
use tokio::task::JoinSet;

use super::*;
use crate::shared::testkit::{Keep, Running, batch_of, resource_after};

const ID: &str = "a0f18d14a93a68b4ae1f73909e5a0f6de7742724ce99cb200292d8ff12549494";
const OTHER: &str = "b0f18d14a93a68b4ae1f73909e5a0f6de7742724ce99cb200292d8ff12549494";

struct Fixture(Running<ContainerProcessor>);

impl Fixture {
    fn start(options: &str) -> Self {
        let config = load(options).unwrap();
        let processor = ContainerProcessor::new(&config, &context("container"));
        Self(Running::start(
            Arc::new(processor),
            Arc::new(Keep::default()),
        ))
    }

    /// The attributes added for a process in this cgroup.
    async fn filled(&self, cgroup: &str) -> Vec<(String, String)> {
        let batch = batch_of(vec![KeyValue::new(CGROUP, cgroup)]);
        let attributes = resource_after(&*self.0.processor, batch).await;
        let text = |value| profcol_labels::text(value).unwrap_or_default().into_owned();
        let shown = attributes.iter().skip(1);
        shown
            .map(|it| (it.key.to_string(), text(&it.value)))
            .collect()
    }

    /// Retries until the attribute has this value: runtimes are queried in the background.
    async fn wait_for(&self, cgroup: &str, key: &str, expected: &str) {
        let what = format!("{key}={expected}");
        wait_until(&what, async || {
            has(&self.filled(cgroup).await, key, expected)
        })
        .await;
    }

    async fn stop(self) {
        self.0.stop().await;
    }
}

fn has(found: &[(String, String)], key: &str, value: &str) -> bool {
    found.iter().any(|it| it.0 == key && it.1 == value)
}

fn docker_path(id: &str) -> String {
    format!("/system.slice/docker-{id}.scope")
}

fn options(kind: &str, socket: &Path, more: &str) -> String {
    let list = |name: &str| match name == kind {
        true => format!("{name}: [{}]", socket.display()),
        false => format!("{name}: []"),
    };
    let sockets = ["docker", "containerd", "cri"].map(list).join(", ");
    format!("{{sockets: {{{sockets}}}, {more}}}")
}

/// A fake Docker.
struct Docker {
    folder: tempfile::TempDir,
    list: Arc<Mutex<String>>,
    events: channel::Sender<String>,
    /// Like Podman, answers the request for events only with the first event.
    is_late: bool,
    tasks: JoinSet<()>,
}

impl Docker {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            list: Arc::default(),
            events: channel::Sender::new(String::new()),
            is_late: false,
            tasks: JoinSet::new(),
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("docker.sock")
    }

    fn set_containers(&self, containers: &[(&str, &str)]) {
        let shown = |(id, name): &(&str, &str)| {
            format!(
                r#"{{"Id":"{id}","Names":["/{name}"],"Image":"registry:5000/shop:2","ImageID":"sha256:12",
                "Labels":{{"team":"web","secret":"x"}},"State":"running"}}"#
            )
        };
        let list: Vec<String> = containers.iter().map(shown).collect();
        *self.list.lock() = format!("[{}]", list.join(","));
    }

    fn start(&mut self) {
        let listener = UnixListener::bind(self.socket()).unwrap();
        let (list, events, is_late) = (Arc::clone(&self.list), self.events.clone(), self.is_late);
        self.tasks.spawn(async move {
            let mut calls = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let list = list.lock().clone();
                calls.spawn(answer(socket, list, events.subscribe(), is_late));
            }
        });
    }

    fn goes_away(&mut self) {
        self.tasks = JoinSet::new();
        std::fs::remove_file(self.socket()).unwrap();
    }
}

async fn answer(
    mut socket: UnixStream,
    list: String,
    mut events: channel::Receiver<String>,
    is_late: bool,
) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match socket.read_u8().await {
            Ok(byte) => request.push(byte),
            Err(_) => return,
        }
    }
    let head =
        "HTTP/1.1 200 OK\r\nServer: Docker/20.10 (linux)\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    if request.starts_with(b"GET /events") && is_late && events.changed().await.is_ok() {
        events.mark_changed();
    }
    let _ = socket.write_all(head.as_bytes()).await;
    if !request.starts_with(b"GET /events") {
        let _ = socket
            .write_all((chunk(&list) + "0\r\n\r\n").as_bytes())
            .await;
        return;
    }
    while events.changed().await.is_ok() {
        let event = events.borrow_and_update().clone();
        // In two pieces, as the network may split it.
        let (first, second) = event.split_at(event.len() / 2);
        for piece in [first, second] {
            if socket.write_all(chunk(piece).as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

fn event(action: &str, id: &str) -> String {
    format!("{{\"Type\":\"container\",\"Action\":\"{action}\",\"Actor\":{{\"ID\":\"{id}\"}}}}\n")
}

#[tokio::test]
async fn reads_the_id_from_the_path_and_keeps_existing_attributes() {
    let directory = Directory::new(&[], Meter::default().counter("dropped", "x", &[]));
    let check = |before: &[(&str, &str)], expected: &[(&str, &str)]| {
        let pairs = |pairs: &[(&str, &str)]| -> Attributes {
            let pairs = pairs.iter();
            let replaced = pairs.map(|(key, value)| (key, value.replace("ID", ID)));
            replaced
                .map(|(key, value)| KeyValue::new(key, value.as_str()))
                .collect()
        };
        let (mut attributes, expected) = (pairs(before), pairs(expected));
        let is_changed = attributes != expected;
        assert_eq!(
            add_container(&mut attributes, &directory),
            is_changed,
            "{before:?}"
        );
        assert_eq!(attributes, expected, "{before:?}");
    };
    let docker = (CGROUP, "/system.slice/docker-ID.scope");
    let (known, runtime) = (("container.id", "ID"), ("container.runtime.name", "docker"));
    check(&[], &[]);
    check(&[(CGROUP, "/user.slice")], &[(CGROUP, "/user.slice")]);
    check(&[docker], &[docker, known, runtime]);
    check(
        &[("container.id", "x"), docker],
        &[("container.id", "x"), docker, runtime],
    );
    let lxc = (CGROUP, "/lxc.payload.web/system.slice/ssh.service");
    check(
        &[lxc],
        &[
            lxc,
            ("container.id", "web"),
            ("container.runtime.name", "lxc"),
            ("container.name", "web"),
        ],
    );
    check(
        &[(CGROUP, "/ecs/task/ID")],
        &[(CGROUP, "/ecs/task/ID"), known],
    );
}

#[tokio::test]
async fn adds_names_images_and_labels_from_docker() {
    let mut docker = Docker::new();
    docker.set_containers(&[(ID, "web")]);
    docker.start();
    let options = options("docker", &docker.socket(), "labels: [team], wait_for: 1m");
    let running = Fixture::start(&options);
    let found = running.filled(&docker_path(ID)).await;
    let expected = [
        ("container.id", ID),
        ("container.runtime.name", "docker"),
        ("container.name", "web"),
        ("container.image.name", "registry:5000/shop"),
        ("container.image.id", "sha256:12"),
        ("container.image.tags", "2"),
        ("container.label.team", "web"),
    ];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(found, expected);
    assert_eq!(running.0.processor.failed.get(), 0);
    running.stop().await;
}

#[tokio::test]
async fn follows_changes_and_remembers_stopped_containers() {
    for is_late in [false, true] {
        check_changes(is_late).await;
    }
}

async fn check_changes(is_late: bool) {
    let mut docker = Docker::new();
    docker.is_late = is_late;
    docker.set_containers(&[(ID, "web")]);
    docker.start();
    let running = Fixture::start(&options("docker", &docker.socket(), ""));
    running
        .wait_for(&docker_path(ID), "container.name", "web")
        .await;
    docker.set_containers(&[(ID, "web"), (OTHER, "db")]);
    docker
        .events
        .send_replace(event("create", OTHER) + &event("exec_start: ls", OTHER));
    running
        .wait_for(&docker_path(OTHER), "container.name", "db")
        .await;
    docker.set_containers(&[(ID, "shop"), (OTHER, "db")]);
    docker.events.send_replace(event("rename", ID));
    running
        .wait_for(&docker_path(ID), "container.name", "shop")
        .await;
    docker.set_containers(&[(OTHER, "db2")]);
    docker
        .events
        .send_replace(event("destroy", ID) + &event("rename", OTHER));
    running
        .wait_for(&docker_path(OTHER), "container.name", "db2")
        .await;
    let ended = running.filled(&docker_path(ID)).await;
    assert!(has(&ended, "container.name", "shop"), "{ended:?}");
    running.stop().await;
}

#[tokio::test]
async fn reconnects_to_a_runtime() {
    let mut docker = Docker::new();
    let running = Fixture::start(&options("docker", &docker.socket(), ""));
    let found = running.filled(&docker_path(ID)).await;
    assert_eq!(found.len(), 2, "by the path alone: {found:?}");
    docker.set_containers(&[(ID, "web")]);
    docker.start();
    // New containers trigger another query.
    let mut number = 0;
    let mut is_named = async |id: &str| {
        number += 1;
        let other = format!("{number:064x}");
        running.filled(&docker_path(&other)).await;
        running.filled(&docker_path(id)).await.len() > 2
    };
    wait_until("the first name", async || is_named(ID).await).await;
    docker.goes_away();
    let found = running.filled(&docker_path(ID)).await;
    assert!(
        has(&found, "container.name", "web"),
        "it may run still: {found:?}"
    );
    docker.set_containers(&[(OTHER, "db")]);
    docker.start();
    wait_until("the other name", async || is_named(OTHER).await).await;
    let found = running.filled(&docker_path(ID)).await;
    assert!(has(&found, "container.name", "web"), "it ended: {found:?}");
    running.stop().await;
}

#[tokio::test]
async fn a_runtime_that_hangs_or_sends_garbage_delays_no_batch() {
    for kind in ["docker", "containerd", "cri"] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let running = Fixture::start(&options(kind, &socket, "wait_for: 200ms"));
        // The socket is not accepted.
        let found = running.filled(&docker_path(ID)).await;
        assert_eq!(found.len(), 2, "{kind}: {found:?}");
        running.stop().await;
        for rubbish in [
            "",
            "HTTP/1.1 200 OK\r\n\r\n[{]",
            "HTTP/1.1 500 No\r\n\r\n",
            "\0\0\u{7}",
        ] {
            let mut talking = JoinSet::new();
            let listener = &listener;
            let running = Fixture::start(&options(kind, &socket, ""));
            let talk = async {
                loop {
                    let (mut socket, _) = listener.accept().await.unwrap();
                    talking.spawn(async move {
                        let _ = socket.write_all(rubbish.as_bytes()).await;
                    });
                }
            };
            let query = async {
                let found = running.filled(&docker_path(ID)).await;
                assert_eq!(found.len(), 2, "{kind}, {rubbish:?}: {found:?}");
                let failed = &running.0.processor.failed;
                wait_until("a failure", async || failed.get() > 0).await;
            };
            tokio::select! { () = talk => {}, () = query => {} }
            running.stop().await;
        }
    }
}

#[tokio::test]
async fn queries_no_runtime_without_containers() {
    let mut docker = Docker::new();
    docker.start();
    let options = options("docker", &docker.socket(), "wait_for: 1m");
    let running = Fixture::start(&options);
    let found = running.filled("/system.slice/ssh.service").await;
    assert_eq!(found, []);
    let found = running.filled("/lxc.payload.web").await;
    assert!(has(&found, "container.name", "web"), "{found:?}");
    running.stop().await;
    let off = Fixture::start("{sockets: {enabled: false}, wait_for: 1m}");
    let found = off.filled(&docker_path(ID)).await;
    assert_eq!(found.len(), 2, "{found:?}");
    off.stop().await;
}

/// A CRI runtime with one container.
struct Cri {
    has_events: bool,
}

impl GrpcService for Cri {
    fn admit(&self, path: &str, _: &HeaderMap) -> Result<(), Status> {
        match path.starts_with("/runtime.v1.RuntimeService/") {
            true => Ok(()),
            false => Err(unknown_method(path)),
        }
    }

    async fn call(&self, request: GrpcRequest) -> Result<Bytes, Status> {
        let message = |fields: &[(u32, &[u8])]| {
            let mut message = Writer::default();
            for (field, bytes) in fields {
                message.bytes(tag::len(*field), bytes);
            }
            message.into_vec()
        };
        let method = request.path.rsplit('/').next().unwrap();
        Ok(match method {
            "Version" => message(&[(1, b"0.1.0"), (2, b"cri-o"), (3, b"1.30.0")]),
            "ListContainers" => {
                let label =
                    |key: &str, value: &str| message(&[(1, key.as_bytes()), (2, value.as_bytes())]);
                let container = message(&[
                    (1, ID.as_bytes()),
                    (2, b"sandbox"),
                    (3, &message(&[(1, b"main")])),
                    (4, &message(&[(1, b"quay.io/shop@sha256:77")])),
                    (5, b"ref"),
                    (8, &label("io.kubernetes.pod.name", "web-1")),
                    (8, &label("io.kubernetes.pod.namespace", "shop")),
                    (8, &label("app", "web")),
                ]);
                message(&[(1, &container)])
            }
            _ => return Err(unknown_method(&request.path)),
        }
        .into())
    }

    fn is_streaming(&self, path: &str) -> bool {
        self.has_events && path.ends_with("/GetContainerEvents")
    }

    async fn stream(&self, conversation: GrpcServerStream) -> Result<(), Status> {
        std::future::pending::<()>().await;
        drop(conversation);
        Ok(())
    }
}

#[tokio::test]
async fn cri_runtimes_report_the_pod_with_or_without_events() {
    for has_events in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("crio.sock");
        let settings = GrpcServerSettings {
            endpoint: socket.to_str().unwrap().to_owned(),
            transport: Transport::Unix,
            ..GrpcServerSettings::default()
        };
        let server = GrpcServer::bind(&settings, None, &ListeningSockets::default()).unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(server.serve(Cri { has_events }, std::future::pending()));
        let options = options("cri", &socket, "labels: [app], wait_for: 1m");
        let running = Fixture::start(&options);
        let path = format!("/kubepods.slice/kubepods-pod1.slice/crio-{ID}.scope");
        let found = running.filled(&path).await;
        let expected = [
            ("container.id", ID),
            ("container.runtime.name", "cri-o"),
            ("container.name", "main"),
            ("container.image.name", "quay.io/shop"),
            ("container.image.id", "ref"),
            ("k8s.namespace.name", "shop"),
            ("k8s.pod.name", "web-1"),
            ("container.image.repo_digests", "quay.io/shop@sha256:77"),
            ("container.label.app", "web"),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(found, expected);
        running.stop().await;
    }
}

#[test]
fn validates_the_options() {
    for (options, expected) in [
        (
            "sockets: {docker: [docker.sock]}",
            "sockets::docker::0: \"docker.sock\" is not an absolute path",
        ),
        (
            "labels: ['(']",
            "labels::0: invalid regular expression \"(\"",
        ),
        ("wait_for: 2m", "wait_for: must be between 0s and 1m"),
    ] {
        let error = load::<ContainerConfig>(options).unwrap_err();
        assert!(error.contains(expected), "{options}: {error}");
    }
}
