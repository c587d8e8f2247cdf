//! Real runtimes: a Docker and a containerd of their own run a container each, and profcol says whose a
//! process in them is.
//!
//! Needs root, `containerd`, `runc`, `dockerd`, the client `docker`, and a busybox that needs no libraries.

mod support;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use profcol::REGISTRY;
use profcol_component::{Answer, Batch, Consumer, Stop, testkit};
use profcol_config::{Problems, Sources, yaml};
use profcol_profile::{KeyValue, Profiles};
use support::{path, run, skip};
use tokio::task::JoinSet;

/// Both daemons, their files in one folder, and a container in each.
struct Runtimes {
    folder: tempfile::TempDir,
    daemons: Vec<Child>,
}

impl Runtimes {
    /// None where they cannot run.
    fn start() -> Option<Self> {
        let programs = ["containerd", "runc", "dockerd", "docker", "ctr"];
        let lacks = programs.iter().find(|program| !is_installed(program));
        if let Some(program) = lacks {
            skip(&format!("{program} is not installed"));
            return None;
        }
        if std::fs::read_dir("/proc/1/fd").is_err() {
            skip("containers need root");
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut runtimes = Self {
            daemons: Vec::new(),
            folder,
        };
        runtimes.start_containerd();
        runtimes.start_docker();
        runtimes.fill();
        Some(runtimes)
    }

    fn at(&self, name: &str) -> String {
        path(&self.folder.path().join(name)).to_owned()
    }

    fn start_containerd(&mut self) {
        let (root, state) = (self.at("containerd"), self.at("containerd-state"));
        let socket = self.at("containerd.sock");
        // The plug-in for Kubernetes wants a network, and nothing here needs it.
        let config = format!(
            "version = 2\nroot = {root:?}\nstate = {state:?}\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n\
             [grpc]\naddress = {socket:?}\n[ttrpc]\naddress = \"{socket}.ttrpc\"\n"
        );
        let file = self.at("containerd.toml");
        std::fs::write(&file, config).expect("written");
        self.run("containerd", &["--config", &file]);
        self.until("containerd answers", |it| it.ctr(&["version"]).is_ok());
    }

    fn start_docker(&mut self) {
        let (containerd, socket) = (self.at("containerd.sock"), self.docker_host());
        let (data, exec, pid) = (
            self.at("docker"),
            self.at("docker-exec"),
            self.at("docker.pid"),
        );
        let arguments = [
            "--iptables=false",
            "--ip6tables=false",
            "--bridge=none",
            "--storage-driver=vfs",
            "--containerd",
            &containerd,
            "--host",
            &socket,
            "--data-root",
            &data,
            "--exec-root",
            &exec,
            "--pidfile",
            &pid,
        ];
        self.run("dockerd", &arguments);
        self.until("dockerd answers", |it| it.docker(&["version"]).is_ok());
    }

    /// One container in each.
    fn fill(&self) {
        let root = self.folder.path().join("root");
        std::fs::create_dir_all(root.join("bin")).expect("made");
        std::fs::copy("/bin/busybox", root.join("bin/busybox")).expect("busybox is there");
        let archive = self.at("root.tar");
        output(Command::new("tar").args(["-C", path(&root), "-cf", &archive, "."]))
            .expect("packed");
        self.docker(&["import", &archive, "shop:2"])
            .expect("imported");
        let sleep = ["/bin/busybox", "sleep", "1000"];
        let docker = [
            "run",
            "-d",
            "--network",
            "none",
            "--name",
            "web",
            "--label",
            "team=shop",
            "shop:2",
        ];
        self.docker(&[&docker[..], &sleep].concat()).expect("runs");
        let ctr = [
            "run",
            "--rootfs",
            "-d",
            "--label",
            "tier=db",
            path(&root),
            "demo",
        ];
        self.ctr(&[&ctr[..], &sleep].concat()).expect("runs");
    }

    fn run(&mut self, program: &str, arguments: &[&str]) {
        let log = std::fs::File::create(self.at(&format!("{program}.log"))).expect("made");
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.daemons.push(child.expect("it is installed"));
    }

    fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..600 {
            if is_so(self) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let log = |name: &str| std::fs::read_to_string(self.at(name)).unwrap_or_default();
        panic!(
            "not so within 30 s: {what}\n{}{}",
            log("containerd.log"),
            log("dockerd.log")
        );
    }

    fn docker_host(&self) -> String {
        format!("unix://{}", self.at("docker.sock"))
    }

    fn docker(&self, arguments: &[&str]) -> Result<String, String> {
        output(
            Command::new("docker")
                .arg("--host")
                .arg(self.docker_host())
                .args(arguments),
        )
    }

    fn ctr(&self, arguments: &[&str]) -> Result<String, String> {
        output(
            Command::new("ctr")
                .args(["--address", &self.at("containerd.sock")])
                .args(arguments),
        )
    }

    fn pid_of_docker(&self, name: &str) -> u32 {
        let pid = self.docker(&["inspect", "--format", "{{.State.Pid}}", name]);
        pid.expect("it runs").trim().parse().expect("a number")
    }

    fn pid_of_containerd(&self, id: &str) -> u32 {
        let tasks = self.ctr(&["tasks", "ls"]).expect("it runs");
        let task = tasks
            .lines()
            .find(|line| line.starts_with(id))
            .expect("it is listed");
        let pid = task.split_whitespace().nth(1).expect("a column");
        pid.parse().expect("a number")
    }

    fn options(&self, more: &str) -> String {
        let (docker, containerd) = (self.at("docker.sock"), self.at("containerd.sock"));
        format!(
            "{{sockets: {{docker: [{docker}], containerd: [{containerd}], cri: []}}, labels: ['.*'], {more}}}"
        )
    }
}

impl Drop for Runtimes {
    fn drop(&mut self) {
        let _ = self.docker(&["rm", "--force", "web", "late"]);
        let _ = self.ctr(&["tasks", "kill", "--signal", "9", "demo"]);
        let _ = self.ctr(&["tasks", "rm", "--force", "demo"]);
        for daemon in self.daemons.iter_mut().rev() {
            // They clean up after themselves when they are asked to end.
            let _ = output(Command::new("kill").arg(daemon.id().to_string()));
            let _ = daemon.wait();
        }
        // What they could not unmount would keep the folder.
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let ours = mounts
            .lines()
            .rev()
            .filter_map(|line| line.split(' ').nth(1));
        for mount in ours.filter(|mount| Path::new(mount).starts_with(self.folder.path())) {
            let _ = output(Command::new("umount").args(["--lazy", mount]));
        }
    }
}

fn is_installed(program: &str) -> bool {
    let folders = ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"];
    folders
        .iter()
        .any(|folder| Path::new(folder).join(program).exists())
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}

#[derive(Default)]
struct Keep(Mutex<Vec<Profiles>>);

#[async_trait]
impl Consumer for Keep {
    async fn consume(&self, batch: Batch) -> Answer {
        self.0.lock().expect("nobody panicked").push(batch.profiles);
        Ok(())
    }
}

/// As the attribute says it, and as the command shows it.
type Expected<'a> = &'a [(&'a str, &'a str)];

#[tokio::test(flavor = "multi_thread")]
async fn real_runtimes_tell_whose_a_process_is() {
    let Some(runtimes) = Runtimes::start() else {
        return;
    };
    let docker: Expected<'_> = &[
        ("container.name", "web"),
        ("container.runtime.name", "docker"),
        ("container.image.name", "shop"),
        ("container.image.tags", "2"),
        ("container.label.team", "shop"),
    ];
    let containerd: Expected<'_> = &[
        ("container.id", "demo"),
        ("container.name", "demo"),
        ("container.runtime.name", "containerd"),
        ("containerd.namespace", "default"),
        ("container.label.tier", "db"),
    ];
    let (web, demo) = (
        runtimes.pid_of_docker("web"),
        runtimes.pid_of_containerd("demo"),
    );
    shown_by_the_command(&runtimes, web, docker);
    shown_by_the_command(&runtimes, demo, containerd);
    told_to_batches(&runtimes, &[(web, docker), (demo, containerd)]).await;
}

fn shown_by_the_command(runtimes: &Runtimes, pid: u32, expected: Expected<'_>) {
    let config = support::file(
        "profcol.yaml",
        format!(
            "receivers: {{nop: }}\nprocessors: {{container: {}}}\nexporters: {{nop: }}\nservice: {{pipelines: {{profiles: {{receivers: [nop], processors: [container], exporters: [nop]}}}}}}\n",
            runtimes.options("")
        ),
    );
    let pid = pid.to_string();
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
    let shown: serde_json::Value = serde_json::from_str(&ended.stdout).expect("it is JSON");
    for (key, value) in expected {
        let found = shown.get(&pid).and_then(|it| it.get(key));
        assert_eq!(
            found.and_then(|it| it.as_str()),
            Some(*value),
            "{key}: {shown}"
        );
    }
}

/// The first batch asks, and waits; one of a container that starts later is known by what the runtime
/// tells of itself.
async fn told_to_batches(runtimes: &Runtimes, processes: &[(u32, Expected<'_>)]) {
    let entry = REGISTRY.processors.iter().find(|it| it.name == "container");
    let entry = entry.expect("it is in the list");
    let mut sources = Sources::default();
    let source = sources.add("test", runtimes.options("wait_for: 30s"), None);
    let node = yaml::parse(&sources, source.expect("short")).expect("YAML");
    let config = (entry.load)(&node, &mut Problems::default()).expect("good options");
    let context = testkit::context("container");
    let processor = (entry.build)(&*config, &context).expect("built");
    let processor: std::sync::Arc<dyn profcol_component::Processor> = processor.into();
    let stop = Stop::new();
    let mut running = JoinSet::new();
    let next = std::sync::Arc::new(Keep::default());
    running.spawn(std::sync::Arc::clone(&processor).run(next, stop.clone()));
    let told = async |pid: u32| {
        let cgroup = profcol_processes::Described::read(pid, &Default::default())
            .and_then(|it| it.cgroup)
            .expect("it runs");
        let mut batch = testkit::batch(1);
        batch.profiles.update_resources(|resource| {
            resource.attributes = vec![KeyValue::new("process.linux.cgroup", cgroup.as_str())];
            true
        });
        let keep = Keep::default();
        processor.process(batch, &keep).await.expect("accepted");
        let left = keep.0.into_inner().expect("nobody panicked").remove(0);
        let resource = left.model().resources[0].resource.clone();
        let attributes = resource.expect("it has one").attributes.clone();
        let text = |value| profcol_labels::text(value).unwrap_or_default().into_owned();
        let shown = attributes
            .iter()
            .map(|it| (it.key.to_string(), text(&it.value)));
        shown.collect::<Vec<_>>()
    };
    for (pid, expected) in processes {
        let found = told(*pid).await;
        for (key, value) in *expected {
            assert!(
                found.contains(&((*key).to_owned(), (*value).to_owned())),
                "{key}: {found:?}"
            );
        }
    }
    let late = [
        "run",
        "-d",
        "--network",
        "none",
        "--name",
        "late",
        "shop:2",
        "/bin/busybox",
        "sleep",
        "1000",
    ];
    runtimes.docker(&late).expect("runs");
    let found = told(runtimes.pid_of_docker("late")).await;
    let name = ("container.name".to_owned(), "late".to_owned());
    assert!(found.contains(&name), "{found:?}");
    stop.cancel();
    running
        .join_next()
        .await
        .expect("it ran")
        .expect("no panic")
        .expect("no error");
}
