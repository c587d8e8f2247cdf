//! Docker in Docker, and next to it a container of a pod, as in `kind`.

use profcol_test_harness::support::path;

use crate::docker::{ALONE, docker};
use crate::runtimes::{BUSY, Runtimes, number};

/// The rights of a container that starts others or profiles the host.
const RIGHTS: [&str; 14] = [
    "--cap-add",
    "SYS_ADMIN",
    "--cap-add",
    "SYS_PTRACE",
    "--cap-add",
    "SYSLOG",
    "--cap-add",
    "DAC_READ_SEARCH",
    "--cap-add",
    "NET_ADMIN",
    "--security-opt",
    "seccomp=unconfined",
    "--security-opt",
    "apparmor=unconfined",
];

/// The ID given to the inner containerd, which does not generate one.
pub const IN_POD: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0";

impl Runtimes {
    /// Runs a container with this host's programs, this directory, and a cgroup namespace of its own.
    fn run_like_a_host(&self, name: &str, more: &[&str], command: &[&str]) {
        let shared = format!("{0}:{0}", path_of(self));
        let alone = ["run", "-d", "--network", "none", "--cgroupns", "private"];
        let sees = ["--name", name, "-v", "/usr:/usr:ro", "-v", &shared];
        let arguments = [&alone[..], &sees, &RIGHTS, more, &["host:1"], command].concat();
        self.docker(&arguments).expect("runs");
    }

    fn import_host(&self) {
        for directory in ["dev", "etc", "proc", "run", "sys", "tmp", "usr", "var/lib"] {
            self.directory(&format!("host/{directory}"));
        }
        for name in ["bin", "lib", "lib64", "sbin"] {
            let link = self.at(&format!("host/{name}"));
            std::os::unix::fs::symlink(format!("usr/{name}"), link).expect("created");
        }
        let archive = self.pack("host");
        self.docker(&["import", &archive, "host:1"])
            .expect("imported");
    }

    /// Starts Docker inside the container `outer`.
    pub fn start_nested(&self) {
        self.import_host();
        let work = self.at("inner");
        self.directory("inner");
        let alone = ALONE.join(" ");
        // With cgroup v2, the container's first process prevents child cgroups.
        let script = format!(
            "while read -r _ at _; do case $at in /sys/fs/cgroup*) mount -o remount,bind,rw $at;; esac; done </proc/mounts\n\
             if [ -e /sys/fs/cgroup/cgroup.procs ]; then mkdir /sys/fs/cgroup/init; echo $$ >/sys/fs/cgroup/init/cgroup.procs; fi\n\
             exec dockerd {alone} --host unix://{work}/docker.sock --data-root {work}/data --exec-root {work}/exec \
             --pidfile {work}/pid >{work}.log 2>&1\n"
        );
        let file = self.at("inner/start");
        std::fs::write(&file, script).expect("written");
        self.run_like_a_host("outer", &[], &["/bin/sh", &file]);
        self.until("the inner dockerd answers", |it| {
            it.inner_docker(&["version"]).is_ok()
        });
        let archive = self.at("root.tar");
        self.inner_docker(&["import", &archive, "shop:3"])
            .expect("imported");
    }

    /// Runs a container of the inner Docker, called `inner`.
    pub fn run_in_nested_docker(&self) -> u32 {
        let arguments = ["run", "-d", "--network", "none", "--name", "inner"];
        self.inner_docker(&[&arguments[..], &["shop:3"], &BUSY].concat())
            .expect("runs");
        let inside = self.inner_docker(&["inspect", "--format", "{{.State.Pid}}", "inner"]);
        self.outside(number(inside))
    }

    pub fn inner_docker(&self, arguments: &[&str]) -> Result<String, String> {
        docker(&self.inner_docker_socket(), arguments)
    }

    /// Runs a container of a pod in the inner Docker's containerd.
    pub fn run_in_nested_pod(&self) -> u32 {
        let cgroup = format!("kubelet/kubepods/besteffort/pod7d6f-42/{IN_POD}");
        let root = self.at("root");
        let arguments = [
            "run",
            "--rootfs",
            "-d",
            "--cgroup",
            &cgroup,
            "--label",
            "io.kubernetes.pod.name=cart-0",
            "--label",
            "io.kubernetes.pod.namespace=shop",
            "--label",
            "io.kubernetes.container.name=cart",
            &root,
            IN_POD,
        ];
        self.inner_ctr(&[&arguments[..], &BUSY].concat())
            .expect("runs");
        let tasks = self.inner_ctr(&["tasks", "ls"]).expect("it starts");
        let task = tasks.lines().find(|line| line.starts_with(IN_POD));
        let pid = task.and_then(|task| task.split_whitespace().nth(1));
        self.outside(pid.expect("it is listed").parse().expect("a number"))
    }

    /// Runs in `outer`, because containerd must find the pipes that `ctr` creates.
    fn inner_ctr(&self, arguments: &[&str]) -> Result<String, String> {
        let socket = self.inner_containerd_socket();
        let ctr = ["exec", "outer", "ctr", "--address", &socket];
        self.docker(&[&ctr[..], &["--namespace", "k8s.io"], arguments].concat())
    }

    /// Translates a PID in the container `outer` to one on this host.
    fn outside(&self, inside: u32) -> u32 {
        let outer = self.pid_of_docker("outer");
        let is_it = |pid: u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            // The first is the PID on this host, and the last that in its own container.
            let number = numbers.and_then(|numbers| numbers.split_whitespace().nth(1));
            number == Some(&inside.to_string()) && is_below(pid, outer)
        };
        let processes = std::fs::read_dir("/proc").expect("it exists");
        let mut pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.find(|&pid| is_it(pid)).expect("it starts")
    }

    /// Runs profcol in a container called `profcol`, which sees all processes of the host.
    pub fn profile_from_a_container(&self, program: &str, config: &str) -> u32 {
        let mounted = format!("{program}:/profcol:ro");
        let host = format!("DOCKER_HOST=unix://{}", self.docker_socket());
        let more = ["--pid", "host", "-v", &mounted, "-e", &host];
        self.run_like_a_host("profcol", &more, &["/profcol", "--config", config]);
        self.pid_of_docker("profcol")
    }

    pub fn inner_docker_socket(&self) -> String {
        self.at("inner/docker.sock")
    }

    pub fn inner_containerd_socket(&self) -> String {
        self.at("inner/exec/containerd/containerd.sock")
    }

    pub fn remove_inner(&self) {
        let _ = self.inner_docker(&["rm", "--force", "inner"]);
        let _ = self.inner_ctr(&["tasks", "kill", "--signal", "9", IN_POD]);
        let _ = self.inner_ctr(&["tasks", "rm", "--force", IN_POD]);
    }
}

fn path_of(runtimes: &Runtimes) -> &str {
    path(runtimes.all())
}

/// Whether it is a descendant of the other: the first process of a container descends from its runtime.
fn is_below(pid: u32, ancestor: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    match parent.and_then(|parent| parent.trim().parse().ok()) {
        None | Some(0) => false,
        Some(parent) => parent == ancestor || is_below(parent, ancestor),
    }
}
