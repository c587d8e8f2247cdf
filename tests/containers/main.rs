//! Container metadata of processes in real runtimes, started by the test: Docker, containerd, a pod by its
//! CRI, Podman, LXC, Docker in Docker, and a pod like in `kind`. profcol itself also runs in a container.
//!
//! Needs root, `containerd`, `runc`, `dockerd`, the client `docker`, `podman`, `lxc`, the right to load BPF programs, and a
//! static busybox.

mod docker;
mod nested;
mod others;
mod pods;
mod runtimes;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use profcol::REGISTRY;
use profcol_component::{Answer, Batch, Consumer, Stop, testkit};
use profcol_config::{Problems, Sources, yaml};
use profcol_otlp::json;
use profcol_profile::{Attributes, KeyValue, Profiles};
use profcol_test_harness::TIMEOUT;
use profcol_test_harness::support::{file, path, run, skip};
use tokio::task::JoinSet;

use runtimes::Runtimes;

#[derive(Default)]
struct Keep(Mutex<Vec<Profiles>>);

#[async_trait]
impl Consumer for Keep {
    async fn consume(&self, batch: Batch) -> Answer {
        self.0
            .lock()
            .expect("the mutex is not poisoned")
            .push(batch.profiles);
        Ok(())
    }
}

/// The expected metadata of a process, in attributes and in the command's output.
struct Expected {
    pid: u32,
    attributes: Vec<(&'static str, String)>,
}

impl Expected {
    fn new(pid: u32, attributes: &[(&'static str, &str)]) -> Self {
        let attributes = attributes.iter();
        Self {
            pid,
            attributes: attributes
                .map(|(key, value)| (*key, (*value).to_owned()))
                .collect(),
        }
    }

    /// The attributes that differ.
    fn missing<'a>(&'a self, found: &HashMap<String, String>) -> Vec<&'a (&'static str, String)> {
        let attributes = self.attributes.iter();
        attributes
            .filter(|(key, value)| found.get(*key) != Some(value))
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_have_container_metadata_from_real_runtimes() {
    let Some(mut runtimes) = Runtimes::find() else {
        return;
    };
    runtimes.start_containerd();
    runtimes.start_docker();
    runtimes.start_podmans_service();
    runtimes.start_nested();
    let expected = containers(&runtimes).await;
    for expected in &expected {
        shown_by_the_command(&runtimes, expected);
    }
    check_batches(&runtimes, &expected).await;
    check_profiler_in_a_container(&runtimes, expected);
}

/// Starts one container in each runtime.
async fn containers(runtimes: &Runtimes) -> Vec<Expected> {
    let inner = runtimes.run_in_nested_docker();
    let id = runtimes.inner_docker(&["inspect", "--format", "{{.Id}}", "inner"]);
    let id = id.expect("it starts");
    let in_pod = runtimes.run_in_pod().await;
    // Of the queried runtimes only the CRI reports this.
    let image = runtimes.docker(&["inspect", "--format", "{{.Id}}", "shop:5"]);
    let image = image.expect("it exists");
    vec![
        Expected::new(
            runtimes.run_in_docker("web"),
            &[
                ("container.name", "web"),
                ("container.runtime.name", "docker"),
                ("container.image.name", "shop"),
                ("container.image.tags", "2"),
                ("container.label.team", "shop"),
            ],
        ),
        Expected::new(
            runtimes.run_in_containerd(),
            &[
                ("container.id", "demo"),
                ("container.name", "demo"),
                ("container.runtime.name", "containerd"),
                ("containerd.namespace", "default"),
                ("container.label.tier", "db"),
            ],
        ),
        Expected::new(
            runtimes.run_in_podman(),
            &[
                ("container.name", "db"),
                ("container.runtime.name", "podman"),
                ("container.image.name", "localhost/shop"),
                ("container.image.tags", "4"),
                ("container.label.team", "data"),
            ],
        ),
        Expected::new(
            runtimes.run_in_lxc(),
            &[
                ("container.id", "mail"),
                ("container.name", "mail"),
                ("container.runtime.name", "lxc"),
            ],
        ),
        // Both run in the container `outer`: the innermost container counts.
        Expected::new(
            inner,
            &[
                ("container.id", id.trim()),
                ("container.name", "inner"),
                ("container.runtime.name", "docker"),
                ("container.image.tags", "3"),
            ],
        ),
        Expected::new(
            runtimes.run_in_nested_pod(),
            &[
                ("container.id", nested::IN_POD),
                ("container.name", "cart"),
                ("container.runtime.name", "containerd"),
                ("k8s.namespace.name", "shop"),
                ("k8s.pod.name", "cart-0"),
            ],
        ),
        Expected::new(
            in_pod,
            &[
                ("container.name", "checkout"),
                ("container.runtime.name", "containerd"),
                ("container.image.name", "docker.io/library/shop"),
                ("container.image.tags", "5"),
                ("container.image.id", image.trim()),
                ("k8s.namespace.name", "shop"),
                ("k8s.pod.name", "checkout-0"),
                ("k8s.pod.uid", pods::POD_UID),
                ("k8s.container.name", "checkout"),
            ],
        ),
    ]
}

fn shown_by_the_command(runtimes: &Runtimes, expected: &Expected) {
    let config = file(
        "profcol.yaml",
        format!(
            "receivers: {{nop: }}\nprocessors: {{container: {}}}\nexporters: {{nop: }}\nservice: {{pipelines: {{profiles: {{receivers: [nop], processors: [container], exporters: [nop]}}}}}}\n",
            options(runtimes, "")
        ),
    );
    let pid = expected.pid.to_string();
    let config = path(&config.path);
    let ended = run(&[
        "processes",
        "--pid",
        &pid,
        "--format",
        "json",
        "--config",
        config,
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let shown: HashMap<String, HashMap<String, serde_json::Value>> =
        serde_json::from_str(&ended.stdout).expect("it is JSON");
    let texts = shown.into_values().flatten();
    let found = texts.filter_map(|(key, value)| Some((key, value.as_str()?.to_owned())));
    let found = found.collect();
    let missing = expected.missing(&found);
    assert!(missing.is_empty(), "{missing:?}: {found:?}");
}

fn options(runtimes: &Runtimes, more: &str) -> String {
    format!(
        "{{sockets: {{docker: [{}, {}, {}], containerd: [{}, {}], cri: [{}]}}, labels: ['.*'], {more}}}",
        runtimes.docker_socket(),
        runtimes.podman_socket(),
        runtimes.inner_docker_socket(),
        runtimes.containerd_socket(),
        runtimes.inner_containerd_socket(),
        runtimes.containerd_socket(),
    )
}

fn texts(attributes: &Attributes) -> HashMap<String, String> {
    let text = |value| profcol_labels::text(value).unwrap_or_default().into_owned();
    let shown = attributes
        .iter()
        .map(|it| (it.key.to_string(), text(&it.value)));
    shown.collect()
}

/// The first batch queries the runtime and waits; a container that starts later is known through the runtime's events.
async fn check_batches(runtimes: &Runtimes, processes: &[Expected]) {
    let entry = REGISTRY.processors.iter().find(|it| it.name == "container");
    let entry = entry.expect("it is in the list");
    let mut sources = Sources::default();
    let source = sources.add("test", options(runtimes, "wait_for: 30s"), None);
    let node = yaml::parse(&sources, source.expect("short")).expect("YAML");
    let config = (entry.load)(&node, &mut Problems::default()).expect("good options");
    let context = testkit::context("container");
    let processor = (entry.build)(&*config, &context).expect("built");
    let processor: std::sync::Arc<dyn profcol_component::Processor> = processor.into();
    let stop = Stop::new();
    let mut running = JoinSet::new();
    let next = std::sync::Arc::new(Keep::default());
    running.spawn(std::sync::Arc::clone(&processor).run(next, stop.clone()));
    let attributes_of = async |pid: u32| {
        let cgroup = profcol_processes::ProcessDescription::read(pid, &Default::default())
            .and_then(|it| it.cgroup)
            .expect("it starts");
        let mut batch = testkit::batch(1);
        batch.profiles.update_resources(|resource| {
            resource.attributes = vec![KeyValue::new("process.linux.cgroup", cgroup.as_str())];
            true
        });
        let keep = Keep::default();
        processor.process(batch, &keep).await.expect("accepted");
        let left = keep
            .0
            .into_inner()
            .expect("the mutex is not poisoned")
            .remove(0);
        let resource = left.model().resources[0].resource.clone();
        texts(&resource.expect("it has one").attributes)
    };
    for expected in processes {
        let found = attributes_of(expected.pid).await;
        let missing = expected.missing(&found);
        assert!(missing.is_empty(), "{missing:?}: {found:?}");
    }
    let found = attributes_of(runtimes.run_in_docker("late")).await;
    assert_eq!(
        found.get("container.name").map(String::as_str),
        Some("late"),
        "{found:?}"
    );
    stop.cancel();
    running
        .join_next()
        .await
        .expect("it ran")
        .expect("the thread did not panic")
        .expect("no error");
}

/// It also has a cgroup namespace, where the paths of other processes begin with `/..`.
fn check_profiler_in_a_container(runtimes: &Runtimes, mut expected: Vec<Expected>) {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        skip("the kernel has no type information (BTF)");
        return;
    }
    let directory = runtimes.directory("profiles");
    let (profiles, own) = (
        directory.join("profiles.jsonl"),
        directory.join("own.jsonl"),
    );
    let config = format!(
        "\
receivers:
  ebpf_cpu: {{interval: 1s, frequency: 99}}
processors:
  process:
  container: {}
  resource_detection:
    detectors: [container, docker]
    docker: {{resource_attributes: {{container.name: {{enabled: true}}}}}}
exporters:
  file: {{path: {}}}
  file/own: {{path: {}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [ebpf_cpu], processors: [process, container], exporters: [file]}}
    profiles/own: {{receivers: [ebpf_cpu], processors: [resource_detection], exporters: [file/own]}}
",
        options(runtimes, "wait_for: 10s"),
        profiles.display(),
        own.display()
    );
    let file = runtimes.at("profcol.yaml");
    std::fs::write(&file, config).expect("written");
    let pid = runtimes.profile_from_a_container(env!("CARGO_BIN_EXE_profcol"), &file);
    expected.push(Expected::new(pid, &[("container.name", "profcol")]));
    let began = Instant::now();
    let mut found = HashMap::new();
    while began.elapsed() < TIMEOUT {
        found = profiled(&profiles);
        let is_told = |it: &Expected| {
            found
                .get(&it.pid)
                .is_some_and(|all| it.missing(all).is_empty())
        };
        if expected.iter().all(is_told) {
            break;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    for expected in &expected {
        let found = found.get(&expected.pid);
        let missing = found.map(|found| expected.missing(found));
        assert_eq!(missing, Some(vec![]), "{}: {found:?}", expected.pid);
    }
    check_own_container(runtimes, &profiled(&own));
}

/// The detectors find the same container regardless of the profiled process.
fn check_own_container(runtimes: &Runtimes, attributes: &HashMap<u32, HashMap<String, String>>) {
    let id = runtimes.docker(&["inspect", "--format", "{{.Id}}", "profcol"]);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("there is one");
    let expected = [
        ("container.id", id.expect("it starts")),
        ("container.name", "profcol".to_owned()),
        ("host.name", host),
    ];
    assert!(!attributes.is_empty());
    for attributes in attributes.values() {
        for (key, value) in &expected {
            let found = attributes.get(*key).map(String::as_str);
            assert_eq!(found, Some(value.trim()), "{key}: {attributes:?}");
        }
    }
}

/// The latest attributes of each process.
fn profiled(profiles: &Path) -> HashMap<u32, HashMap<String, String>> {
    let written = std::fs::read(profiles).unwrap_or_default();
    let lines = written.split_inclusive(|&byte| byte == b'\n');
    let whole = lines.filter(|line| line.ends_with(b"\n"));
    let models = whole.map(|line| json::decode(line).expect("it is OTLP"));
    let mut found = HashMap::new();
    for resource in models.flat_map(|model| model.resources.clone()) {
        let attributes = texts(&resource.resource.expect("it has one").attributes);
        let pid = attributes.get("process.pid").and_then(|it| it.parse().ok());
        found.insert(pid.expect("it has one"), attributes);
    }
    found
}
