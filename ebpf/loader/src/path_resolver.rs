//! The roots below which a sampled file may be, the most reliable first.
//!
//! While the process lives, its mapping leads to the file, whatever has happened to the path. After that the
//! path is resolved in the mount namespace of the process, through any process in it. If none is left,
//! another container of the same image may have the file. No candidate is trusted: the opener verifies
//! the opened file with the kernel.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use profcol_ebpf_common::record;
use profcol_elf::map_files_link;

/// Minimum time between scans of all processes for their namespaces.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of scanned processes and cached namespaces.
const MAX_PROCESSES: usize = 1 << 16;
const MAX_NAMESPACES: usize = 1024;
/// Maximum number of other namespaces in which to try a path.
const MAX_OTHER_NAMESPACES: usize = 8;

const OWN_ROOT: &str = "/";

#[derive(Default)]
pub struct PathResolver {
    own: Option<u32>,
    /// One process per namespace.
    members: HashMap<u32, u32>,
    scanned: Option<Instant>,
}

impl PathResolver {
    pub fn new() -> Self {
        Self {
            own: namespace_of("self"),
            ..Self::default()
        }
    }

    /// The link to the file, valid while its process lives.
    pub fn map_files_link(file: &record::File) -> PathBuf {
        let record::File {
            pid, start, end, ..
        } = *file;
        let process = PathBuf::from(format!("/proc/{pid}"));
        if start == 0 && end == 0 {
            return process.join("exe");
        }
        map_files_link(&process, &(start..end))
    }

    /// Roots below which the path may lead to the file.
    pub fn roots(&mut self, file: &record::File, path: &Path) -> Vec<PathBuf> {
        if !path.is_absolute() {
            return Vec::new();
        }
        if self.own == Some(file.mount_namespace) {
            return vec![OWN_ROOT.into()];
        }
        self.scan_if_due();
        let mut roots = vec![root_of(file.pid), root_of(file.parent)];
        if let Some(&member) = self.members.get(&file.mount_namespace) {
            roots.push(root_of(member));
        }
        roots.extend([OWN_ROOT.into(), root_of(1)]);
        roots.extend(self.other_namespaces(file.mount_namespace));
        roots
    }

    fn other_namespaces(&self, namespace: u32) -> impl Iterator<Item = PathBuf> + '_ {
        let other = move |of: u32| of != namespace && Some(of) != self.own;
        self.members
            .iter()
            .filter(move |&(&of, _)| other(of))
            .map(|(_, &pid)| root_of(pid))
            .take(MAX_OTHER_NAMESPACES)
    }

    fn scan_if_due(&mut self) {
        if self
            .scanned
            .is_some_and(|scanned| scanned.elapsed() < SCAN_INTERVAL)
        {
            return;
        }
        self.scanned = Some(Instant::now());
        self.members.clear();
        let Ok(processes) = fs::read_dir("/proc") else {
            return;
        };
        let numbers = processes
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        for pid in numbers.take(MAX_PROCESSES) {
            if self.members.len() >= MAX_NAMESPACES {
                break;
            }
            if let Some(namespace) = namespace_of(&pid.to_string()) {
                self.members.entry(namespace).or_insert(pid);
            }
        }
    }
}

/// The number in `mnt:[4026531841]`.
fn namespace_of(process: &str) -> Option<u32> {
    let namespace = fs::read_link(format!("/proc/{process}/ns/mnt")).ok()?;
    let number = namespace.to_str()?.strip_prefix("mnt:[")?;
    number.strip_suffix(']')?.parse().ok()
}

fn root_of(pid: u32) -> PathBuf {
    format!("/proc/{pid}/root").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_our_own_namespace_has_one_root() {
        let mut path_resolver = PathResolver::new();
        let Some(own) = path_resolver.own else {
            panic!("this process has a mount namespace");
        };
        let file = |mount_namespace| record::File {
            pid: 7,
            parent: 8,
            mount_namespace,
            ..record::File::default()
        };
        let path = Path::new("/usr/bin/true");
        assert_eq!(path_resolver.roots(&file(own), path), [Path::new("/")]);
        let elsewhere = path_resolver.roots(&file(1), path);
        for root in ["/proc/7/root", "/proc/8/root", "/"] {
            assert!(elsewhere.contains(&root.into()), "{elsewhere:?}");
        }
        assert!(
            path_resolver
                .roots(&file(1), Path::new("cut/off"))
                .is_empty()
        );
        assert!(
            path_resolver.members.contains_key(&own),
            "the scan found this process"
        );
    }
}
