//! A running profcol whose configuration changes.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use tempfile::TempDir;

use crate::backend::{Client, endpoint_in, wait_until};
use crate::support::{path, profcol};

/// The log lines about a reload.
pub const RELOADED: &str = "Reloaded the configuration.";
pub const REFUSED: &str = "Failed to reload the configuration.";

/// A running profcol whose configuration changes.
pub struct Rig {
    child: Child,
    directory: TempDir,
}

impl Rig {
    pub fn start(config: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        // As in a mounted ConfigMap.
        fs::create_dir(file("0")).unwrap();
        fs::write(file("0").join("config.yaml"), config).unwrap();
        symlink("0", file("..data")).unwrap();
        symlink("..data/config.yaml", file("config.yaml")).unwrap();
        let output = fs::File::create(file("output")).unwrap();
        let child = profcol(&["--config", path(&file("config.yaml"))])
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .unwrap();
        let rig = Self { child, directory };
        rig.wait_for("Everything is ready", 1);
        rig
    }

    /// Replaces the configuration as the kubelet does.
    pub fn write(&self, version: &str, config: &str) {
        let file = |name: &str| self.directory.path().join(name);
        fs::create_dir(file(version)).unwrap();
        fs::write(file(version).join("config.yaml"), config).unwrap();
        symlink(version, file("..data_tmp")).unwrap();
        fs::rename(file("..data_tmp"), file("..data")).unwrap();
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success());
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn output(&self) -> String {
        fs::read_to_string(self.directory.path().join("output")).unwrap()
    }

    pub fn count(&self, text: &str) -> usize {
        self.output().matches(text).count()
    }

    pub fn wait_for(&self, text: &str, times: usize) {
        wait_until(&format!("{text:?} in the log"), || {
            self.count(text) >= times
        });
    }

    /// Replaces the configuration this many times while three clients keep sending. Returns how often they sent.
    pub fn reload_under_load(
        &self,
        times: usize,
        config: impl Fn(usize) -> String,
        send: impl Fn(&Client) + Sync,
    ) -> usize {
        let (has_ended, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                let client = self.client();
                let (has_ended, sent, send) = (&has_ended, &sent, &send);
                scope.spawn(move || {
                    while !has_ended.load(Ordering::Relaxed) {
                        send(&client);
                        sent.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for number in 1..=times {
                self.write(&number.to_string(), &config(number));
                self.signal("-HUP");
                self.wait_for(RELOADED, number);
            }
            has_ended.store(true, Ordering::Relaxed);
        });
        sent.into_inner()
    }

    pub fn client(&self) -> Client {
        Client::new(endpoint_in(&self.output(), "grpc"))
    }

    /// Waits until it has exited, in whatever way. Returns its output.
    pub fn wait_for_end(mut self) -> String {
        self.child.wait().unwrap();
        self.output()
    }

    pub fn stop(mut self) -> String {
        self.signal("-TERM");
        let status = self.child.wait().unwrap();
        let output = self.output();
        assert!(status.success(), "{status}: {output}");
        output
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Both fail only if it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
