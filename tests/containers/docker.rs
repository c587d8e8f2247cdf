//! Docker, and the containerd below it.

use std::process::Command;

use crate::pods::IMAGE;
use crate::runtimes::{BUSY, Runtimes, number, output};

/// Disables features that the tests do not need and that would change the host.
pub const ALONE: [&str; 4] = [
    "--iptables=false",
    "--ip6tables=false",
    "--bridge=none",
    "--storage-driver=vfs",
];

impl Runtimes {
    pub fn start_containerd(&mut self) {
        let (root, state) = (self.at("containerd"), self.at("containerd-state"));
        let socket = self.containerd_socket();
        // Not every kernel supports overlayfs on a temporary directory.
        let config = format!(
            "version = 2\nroot = {root:?}\nstate = {state:?}\n\
             [grpc]\naddress = {socket:?}\n[ttrpc]\naddress = \"{socket}.ttrpc\"\n\
             [plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"{IMAGE}\"\nrestrict_oom_score_adj = true\n\
             [plugins.\"io.containerd.grpc.v1.cri\".containerd]\nsnapshotter = \"native\"\n"
        );
        let file = self.at("containerd.toml");
        std::fs::write(&file, config).expect("written");
        self.run("containerd", &["--config", &file]);
        self.until("containerd answers", |it| it.ctr(&["version"]).is_ok());
    }

    pub fn start_docker(&mut self) {
        let (containerd, host) = (self.containerd_socket(), self.docker_host());
        let (data, exec, pid) = (
            self.at("docker"),
            self.at("docker-exec"),
            self.at("docker.pid"),
        );
        let places = [
            "--containerd",
            &containerd,
            "--host",
            &host,
            "--data-root",
            &data,
            "--exec-root",
            &exec,
            "--pidfile",
            &pid,
        ];
        self.run("dockerd", &[&ALONE[..], &places].concat());
        self.until("dockerd answers", |it| it.docker(&["version"]).is_ok());
        let archive = self.at("root.tar");
        self.docker(&["import", &archive, "shop:2"])
            .expect("imported");
    }

    /// Runs a containerd container without Docker, called `demo`.
    pub fn run_in_containerd(&self) -> u32 {
        let root = self.at("root");
        let arguments = ["run", "--rootfs", "-d", "--label", "tier=db", &root, "demo"];
        self.ctr(&[&arguments[..], &BUSY].concat()).expect("runs");
        self.pid_in_containerd(&[], "demo")
    }

    pub fn pid_in_containerd(&self, options: &[&str], id: &str) -> u32 {
        let tasks = self.ctr(&[options, &["tasks", "ls"]].concat());
        let tasks = tasks.expect("it starts");
        let task = tasks
            .lines()
            .find(|line| line.starts_with(id))
            .expect("it is listed");
        let pid = task.split_whitespace().nth(1).expect("a column");
        pid.parse().expect("a number")
    }

    /// Runs a container with a label.
    pub fn run_in_docker(&self, name: &str) -> u32 {
        let arguments = ["run", "-d", "--network", "none", "--label", "team=shop"];
        let named = ["--name", name, "shop:2"];
        self.docker(&[&arguments[..], &named, &BUSY].concat())
            .expect("runs");
        self.pid_of_docker(name)
    }

    pub fn pid_of_docker(&self, name: &str) -> u32 {
        number(self.docker(&["inspect", "--format", "{{.State.Pid}}", name]))
    }

    pub fn docker_socket(&self) -> String {
        self.at("docker.sock")
    }

    pub fn containerd_socket(&self) -> String {
        self.at("containerd.sock")
    }

    fn docker_host(&self) -> String {
        format!("unix://{}", self.docker_socket())
    }

    pub fn docker(&self, arguments: &[&str]) -> Result<String, String> {
        docker(&self.docker_socket(), arguments)
    }

    pub fn ctr(&self, arguments: &[&str]) -> Result<String, String> {
        let socket = self.containerd_socket();
        output(
            Command::new("ctr")
                .args(["--address", &socket])
                .args(arguments),
        )
    }
}

pub fn docker(socket: &str, arguments: &[&str]) -> Result<String, String> {
    let host = format!("unix://{socket}");
    output(
        Command::new("docker")
            .args(["--host", &host])
            .args(arguments),
    )
}
