//! A process as described by `/proc`.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::Host;

/// Size limit of command lines and environments.
const MAX_BYTES: u64 = 128 << 10;
/// The path of a program whose private mount is gone, such as runc's copy of itself.
const ROOT: &str = "/";
/// Size limit of the arguments kept.
const ARGUMENTS: usize = 4096;

/// Data that may contain secrets and is only read on request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    pub arguments: bool,
    /// Environment variables by name.
    pub environment: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessDescription {
    pub pid: u32,
    /// In ticks since boot: together with the PID it identifies the process.
    pub start: u64,
    /// The kernel's name of the process (`comm`).
    pub comm: String,
    /// 0 if there is no visible parent.
    pub parent: u32,
    pub user: Option<u32>,
    /// The PID in its own namespace, if different.
    pub own_pid: Option<u32>,
    /// In its mount namespace; kernel threads have none.
    pub path: Option<String>,
    pub cgroup: Option<String>,
    pub arguments: Vec<String>,
    /// The requested variables.
    pub environment: Vec<(String, String)>,
    /// Number of files that could not be read for lack of permission.
    pub refused: u32,
}

/// The PIDs of all visible processes.
pub fn pids() -> Vec<u32> {
    pids_in(Path::new("/proc"))
}

/// Like `pids`, for a `/proc` mounted elsewhere.
pub fn pids_in(proc: &Path) -> Vec<u32> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids
}

impl ProcessDescription {
    /// `None` if there is no such process, or if its PID was reused meanwhile.
    pub fn read(pid: u32, options: &ReadOptions) -> Option<Self> {
        Self::read_in(Path::new("/proc"), pid, options)
    }

    /// The start time of the process with this PID, in ticks.
    pub fn start_of(pid: u32) -> Option<u64> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(Stat::parse(&stat)?.start)
    }

    /// The last part of the path, or the kernel's name if there is no path.
    pub fn name(&self) -> &str {
        let path = self.path.as_deref();
        path.and_then(|path| path.rsplit('/').next())
            .unwrap_or(&self.comm)
    }

    /// Creation time in milliseconds since the Unix epoch.
    pub fn created(&self, host: &Host) -> Option<i64> {
        host.time_of(self.start)
    }

    pub fn variable(&self, name: &str) -> Option<&str> {
        let variable = self.environment.iter().find(|(key, _)| key == name);
        variable.map(|(_, value)| value.as_str())
    }

    fn read_in(proc: &Path, pid: u32, options: &ReadOptions) -> Option<Self> {
        let mut files = Files {
            directory: proc.join(pid.to_string()),
            refused: 0,
        };
        let stat = Stat::parse(&files.text("stat")?)?;
        let status = files.text("status").unwrap_or_default();
        let cgroup = files.text("cgroup");
        let path = files.link("exe").filter(|path| path != ROOT);
        let arguments = match options.arguments {
            true => arguments(&files.bytes("cmdline").unwrap_or_default()),
            false => Vec::new(),
        };
        let environment = match options.environment.is_empty() {
            true => Vec::new(),
            false => variables(
                &files.bytes("environ").unwrap_or_default(),
                &options.environment,
            ),
        };
        // All data is of the same process if the PID was not reused meanwhile.
        let start = Stat::parse(&files.text("stat")?)?.start;
        (start == stat.start).then(|| Self {
            pid,
            start,
            comm: stat.comm,
            parent: stat.parent,
            user: field(&status, "Uid:").and_then(|mut it| it.next()?.parse().ok()),
            own_pid: field(&status, "NSpid:")
                .and_then(|it| it.last()?.parse().ok())
                .filter(|&own| own != pid),
            path,
            cgroup: cgroup.as_deref().and_then(cgroup_in).map(str::to_owned),
            arguments,
            environment,
            refused: files.refused,
        })
    }
}

/// Formats milliseconds since the Unix epoch.
pub fn timestamp(milliseconds: i64) -> Option<String> {
    let time = Timestamp::from_millisecond(milliseconds).ok()?;
    Some(format!("{time:.3}"))
}

/// Parses a time to milliseconds since the Unix epoch.
pub fn milliseconds(text: &str) -> Option<i64> {
    Some(text.parse::<Timestamp>().ok()?.as_millisecond())
}

/// The deepest cgroup path of a process; `None` if it is at every root. The kernel lists v1 hierarchies first, and they
/// win if two paths are equally deep: a container may only exist in them.
pub fn cgroup_in(text: &str) -> Option<&str> {
    let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let depth = |path: &str| {
        let names = path.split('/').filter(|name| !matches!(*name, "" | ".."));
        names.count()
    };
    let deepest = |deepest, path| match depth(path) > depth(deepest) {
        true => path,
        false => deepest,
    };
    Some(paths.fold("", deepest)).filter(|path| !path.is_empty())
}

struct Stat {
    comm: String,
    parent: u32,
    start: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name may contain brackets.
        let (before, after) = text.rsplit_once(')')?;
        let (_, comm) = before.split_once('(')?;
        let mut fields = after.split_ascii_whitespace();
        let parent = fields.nth(1)?.parse().ok()?;
        let start = fields.nth(17)?.parse().ok()?;
        Some(Self {
            comm: comm.to_owned(),
            parent,
            start,
        })
    }
}

struct Files {
    directory: PathBuf,
    refused: u32,
}

impl Files {
    fn bytes(&mut self, name: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = fs::File::open(self.directory.join(name));
        let read = file.and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
        self.counted(read).map(|_| bytes)
    }

    fn text(&mut self, name: &str) -> Option<String> {
        let bytes = self.bytes(name)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn link(&mut self, name: &str) -> Option<String> {
        let path = fs::read_link(self.directory.join(name));
        Some(without_mark(&self.counted(path)?))
    }

    fn counted<T>(&mut self, read: io::Result<T>) -> Option<T> {
        if let Err(error) = &read
            && error.kind() == ErrorKind::PermissionDenied
        {
            self.refused += 1;
        }
        read.ok()
    }
}

/// The path of a process's executable in its mount namespace.
pub fn executable_path(pid: u32) -> Option<String> {
    executable_path_in(Path::new(&format!("/proc/{pid}")))
}

/// The same for the process with this directory.
pub fn executable_path_in(process: &Path) -> Option<String> {
    let path = fs::read_link(process.join("exe")).ok()?;
    Some(without_mark(&path)).filter(|path| path != ROOT)
}

/// Removes the mark of deleted files.
fn without_mark(path: &Path) -> String {
    let path = path.to_string_lossy();
    path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned()
}

fn field<'a>(status: &'a str, name: &str) -> Option<std::str::SplitAsciiWhitespace<'a>> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_ascii_whitespace())
}

/// Arguments in the kernel's format, each terminated by a zero byte. A truncated last argument is kept as far as it
/// goes.
pub fn arguments(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.get(..ARGUMENTS).unwrap_or(bytes);
    let whole = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if whole.is_empty() {
        return Vec::new();
    }
    let argument = |bytes| String::from_utf8_lossy(bytes).into_owned();
    whole.split(|&byte| byte == 0).map(argument).collect()
}

fn variables(bytes: &[u8], names: &[String]) -> Vec<(String, String)> {
    let variables = bytes.split(|&byte| byte == 0);
    let named = variables.filter_map(|variable| {
        let text = String::from_utf8_lossy(variable);
        let (name, value) = text.split_once('=')?;
        let is_requested = names.iter().any(|it| it == name);
        is_requested.then(|| (name.to_owned(), value.to_owned()))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chooses_the_most_specific_path() {
        for (text, expected) in [
            ("0::/system.slice/a.service\n", "/system.slice/a.service"),
            ("0::/\n", ""),
            ("", ""),
            ("garbage\n0::\n", ""),
            (
                "12:pids:/system.slice\n1:name=systemd:/system.slice/a.service\n0::/system.slice/a.service\n",
                "/system.slice/a.service",
            ),
            (
                "12:cpu,cpuacct:/docker/x\n1:name=systemd:/\n0::/\n",
                "/docker/x",
            ),
            (
                "12:cpu:/docker/x\n0::/system.slice/a.service\n",
                "/docker/x",
            ),
            (
                "4:memory:/docker/x/docker/y\n0::/docker/x\n",
                "/docker/x/docker/y",
            ),
            ("4:memory:/../x/y\n0::/../../x\n", "/../x/y"),
            ("0::/a:b/c\n", "/a:b/c"),
        ] {
            let path = cgroup_in(text).unwrap_or_default();
            assert_eq!(path, expected, "{text:?}");
        }
    }

    /// A process as a set of files.
    fn process(files: &[(&str, &[u8])], options: &ReadOptions) -> Option<ProcessDescription> {
        let proc = tempfile::tempdir().expect("a temporary directory");
        let directory = proc.path().join("7");
        fs::create_dir(&directory).expect("made");
        for (name, content) in files {
            fs::write(directory.join(name), content).expect("written");
        }
        ProcessDescription::read_in(proc.path(), 7, options)
    }

    const STAT: (&str, &[u8]) = (
        "stat",
        b"7 (a) b) S 3 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1000 10",
    );

    #[test]
    fn missing_files_leave_fields_empty() {
        let everything = ReadOptions {
            arguments: true,
            environment: vec!["A".into()],
        };
        let described = process(&[STAT], &everything).expect("is a process");
        assert_eq!(
            (described.comm.as_str(), described.parent, described.start),
            ("a) b", 3, 4711)
        );
        assert_eq!(
            (described.user, described.path.as_deref(), described.refused),
            (None, None, 0)
        );
        assert_eq!(described.name(), "a) b");
        let files: &[(&str, &[u8])] = &[
            STAT,
            ("status", b"Name:\ta\nUid:\t33\t33\t33\t33\nNSpid:\t7\t1\n"),
            ("cmdline", b"sh\0-c\0\0"),
            ("environ", b"B=2\0A=1=1\0"),
            ("cgroup", b"0::/x\n"),
        ];
        let described = process(files, &everything).expect("is a process");
        assert_eq!((described.user, described.own_pid), (Some(33), Some(1)));
        assert_eq!(described.arguments, ["sh", "-c", ""]);
        assert_eq!(described.environment, [("A".to_owned(), "1=1".to_owned())]);
        assert_eq!(described.cgroup.as_deref(), Some("/x"));
        let described = process(files, &ReadOptions::default()).expect("is a process");
        assert!(described.arguments.is_empty() && described.environment.is_empty());
        for broken in ["", "7 (a", "7 (a) S x", "7 (a) S 3"] {
            let broken = process(&[("stat", broken.as_bytes())], &everything);
            assert_eq!(broken, None);
        }
    }

    #[test]
    fn a_program_whose_mount_is_gone_has_no_path() {
        let proc = tempfile::tempdir().expect("a temporary directory");
        let directory = proc.path().join("7");
        fs::create_dir(&directory).expect("made");
        fs::write(directory.join(STAT.0), STAT.1).expect("written");
        std::os::unix::fs::symlink("/", directory.join("exe")).expect("linked");
        let described = ProcessDescription::read_in(proc.path(), 7, &ReadOptions::default())
            .expect("is a process");
        assert_eq!(
            (described.path.as_deref(), described.name()),
            (None, "a) b")
        );
    }

    #[test]
    fn splits_arguments_at_zero_bytes() {
        for (bytes, expected) in [
            ("", &[][..]),
            ("true\0", &["true"]),
            ("sh\0-c\0\0", &["sh", "-c", ""]),
            ("cut\0of", &["cut", "of"]),
        ] {
            assert_eq!(arguments(bytes.as_bytes()), expected, "{bytes:?}");
        }
    }

    #[test]
    fn reads_this_process() {
        let pid = std::process::id();
        let described = ProcessDescription::read(pid, &ReadOptions::default()).expect("runs");
        assert_eq!(Some(described.start), ProcessDescription::start_of(pid));
        assert!(
            described.path.is_some() && described.user.is_some() && described.parent > 0,
            "{described:?}"
        );
        let created = described.created(&Host::read()).and_then(timestamp);
        let created = created.expect("the boot time is known");
        assert!(created.starts_with("20"), "{created}");
        assert!(pids().contains(&pid));
    }
}
