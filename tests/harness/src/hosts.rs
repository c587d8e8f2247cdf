//! Names of hosts for one program.

use std::fs;
use std::net::IpAddr;
use std::process::Command;

use crate::peers::Process;
use crate::support::{File, file, path, program, skip};

/// A file mounted over `/etc/hosts` for the profcol under test.
pub struct Hosts(File);

impl Hosts {
    /// `None` if that is impossible here.
    pub fn new(addresses: &[(IpAddr, &str)]) -> Option<Self> {
        let hosts = Self(file("hosts", ""));
        hosts.set(addresses);
        let allowed = Command::new("unshare").args(["--mount", "true"]).status();
        if allowed.is_ok_and(|status| status.success()) {
            return Some(hosts);
        }
        skip("only root can give a program an /etc/hosts of its own");
        None
    }

    pub fn set(&self, addresses: &[(IpAddr, &str)]) {
        let lines = addresses
            .iter()
            .map(|(address, name)| format!("{address} {name}\n"));
        // Written in place, because this inode is mounted.
        fs::write(&self.0.path, lines.collect::<String>()).expect("the test owns the file");
    }

    pub fn profcol(&self, config: &str) -> Process {
        let script = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", script])
            .args([path(&self.0.path), path(&program())]);
        Process::start_as(&mut command, &[], config)
    }
}
