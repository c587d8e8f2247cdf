//! Podman, which has no daemon but Docker's API, and LXC, which has no API.

use std::process::Command;

use crate::runtimes::{BUSY, Runtimes, number, output};

/// Podman would raise these limits, which a virtual machine may not permit.
const LIMITS: [&str; 4] = [
    "--ulimit",
    "nofile=1024:1024",
    "--ulimit",
    "nproc=1024:1024",
];

impl Runtimes {
    /// Runs one container, called `db`.
    pub fn run_in_podman(&self) -> u32 {
        let archive = self.at("root.tar");
        self.podman(&["import", &archive, "shop:4"])
            .expect("imported");
        let arguments = ["run", "-d", "--network", "none", "--name", "db"];
        let image = ["--label", "team=data", "shop:4"];
        self.podman(&[&arguments[..], &LIMITS, &image, &BUSY].concat())
            .expect("runs");
        number(self.podman(&["inspect", "--format", "{{.State.Pid}}", "db"]))
    }

    pub fn start_podmans_service(&mut self) {
        let directories = self.podmans();
        let place = format!("unix://{}", self.podman_socket());
        let mut arguments: Vec<&str> = directories.iter().map(String::as_str).collect();
        arguments.extend(["system", "service", "--time", "0", &place]);
        self.run("podman", &arguments);
        self.until("Podman answers", |it| {
            std::os::unix::net::UnixStream::connect(it.podman_socket()).is_ok()
        });
    }

    pub fn podman_socket(&self) -> String {
        self.at("podman.sock")
    }

    pub fn podman(&self, arguments: &[&str]) -> Result<String, String> {
        output(Command::new("podman").args(self.podmans()).args(arguments))
    }

    /// Options for hosts without systemd, and for kernels without overlayfs on a temporary directory.
    fn podmans(&self) -> [String; 7] {
        [
            format!("--root={}", self.at("podman")),
            format!("--runroot={}", self.at("podman-run")),
            format!("--tmpdir={}", self.at("podman-tmp")),
            "--cgroup-manager=cgroupfs".to_owned(),
            "--storage-driver=vfs".to_owned(),
            "--events-backend=file".to_owned(),
            // crun refuses to run with both versions of cgroups.
            "--runtime=runc".to_owned(),
        ]
    }

    /// Runs one container, called `mail`.
    pub fn run_in_lxc(&self) -> u32 {
        let directory = self.directory("lxc/mail");
        let root = self.directory("root");
        for mounted in ["dev", "proc", "sys"] {
            self.directory(&format!("root/{mounted}"));
        }
        let script = root.join("bin/init");
        let [_, _, _, busy] = BUSY;
        std::fs::write(&script, format!("#!/bin/busybox sh\n{busy}\n")).expect("written");
        output(Command::new("chmod").arg("+x").arg(&script)).expect("changed");
        let config = format!(
            "lxc.uts.name = mail\nlxc.rootfs.path = dir:{}\nlxc.net.0.type = empty\n\
             lxc.init.cmd = /bin/init\nlxc.apparmor.profile = unconfined\n",
            root.display()
        );
        std::fs::write(directory.join("config"), config).expect("written");
        self.lxc("lxc-start", &["-d"]).expect("runs");
        number(self.lxc("lxc-info", &["-pH"]))
    }

    pub fn lxc(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let containers = self.at("lxc");
        output(
            Command::new(program)
                .args(["-P", &containers, "-n", "mail"])
                .args(arguments),
        )
    }
}
