//! The language runtimes on this host, and whether their functions get names.
//!
//! profcol recognizes the interpreters that it unwinds by itself. [`RUNTIMES`] has the instructions for the others.

use std::collections::BTreeMap;
use std::fs;

use profcol_component::Check;
use profcol_ebpf_interpreters::language_runtimes::{Detector, KnownRuntime};
use profcol_processes::Mapping;

use super::{Process, Processes};

/// Number of processes listed per runtime.
const SHOWN: usize = 5;

/// How to make a runtime write a perf map or a jitdump where profcol does not unwind it. The others have no such option.
const RECIPES: &[(&str, &str)] = &[
    (
        "python",
        "Python 3.12 and later: start it with `python3 -X perf`, or set PYTHONPERFSUPPORT=1",
    ),
    (
        "node",
        "start it with `node --perf-basic-prof --interpreted-frames-native-stack`, or put that into NODE_OPTIONS",
    ),
    (
        "java",
        "start it with `java -XX:+PreserveFramePointer`, and run `jcmd PID Compiler.perfmap` (Java 17 and later)",
    ),
    (
        "dotnet",
        "start it with DOTNET_PerfMapEnabled=1 (before .NET 6 COMPlus_PerfMapEnabled=1)",
    ),
    ("erlang", "start it with `erl +JPperf true`"),
];

/// One for each runtime that is here.
pub(super) fn checks(processes: &Processes) -> Vec<Check> {
    let mut runtimes: BTreeMap<&str, (&KnownRuntime, Vec<Instance>)> = BTreeMap::new();
    let mut detector = Detector::default();
    for process in &processes.seen {
        let Process {
            pid,
            directory,
            files,
        } = process;
        if let Some(runtime) = detector.runtime(directory, files) {
            let detected = detector.detect(runtime, directory, files);
            let (_, instances) = runtimes
                .entry(runtime.id)
                .or_insert_with(|| (runtime, Vec::new()));
            instances.push(Instance {
                pid: *pid,
                is_named: has_map(process)
                    || detected.as_ref().is_some_and(|it| it.unsupported.is_none()),
                refusal: detected.and_then(|it| it.unsupported),
            });
        }
    }
    if runtimes.is_empty() {
        return vec![Check::new("runtimes", "no language runtime found")];
    }
    let runtimes = runtimes.into_values();
    runtimes
        .map(|(runtime, instances)| check(runtime, &instances))
        .collect()
}

/// A process with a runtime.
struct Instance {
    pid: u32,
    is_named: bool,
    /// Why profcol cannot unwind it, although it supports the runtime.
    refusal: Option<String>,
}

/// Whether the process wrote a perf map or a jitdump.
fn has_map(process: &Process) -> bool {
    let status = fs::read_to_string(process.directory.join("status")).unwrap_or_default();
    let own = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let own = own.and_then(|pids| pids.split_ascii_whitespace().next_back()?.parse().ok());
    let own: u32 = own.unwrap_or(process.pid);
    let dump = format!("jit-{own}.dump");
    let is_dump = |file: &Mapping| file.name() == Some(&*dump);
    let perf_map = process.directory.join(format!("root/tmp/perf-{own}.map"));
    process.files.iter().any(is_dump) || perf_map.exists()
}

fn check(runtime: &KnownRuntime, instances: &[Instance]) -> Check {
    let KnownRuntime { id, name, .. } = runtime;
    let unnamed = instances.iter().filter(|it| !it.is_named);
    let pids: Vec<u32> = unnamed.clone().map(|it| it.pid).collect();
    let mut found = format!("{name} in {} processes", instances.len());
    if pids.is_empty() {
        found += ", with function names";
        return Check::new(format!("runtime_{id}"), found);
    }
    found += &format!(", without function names in {}", shown(&pids));
    if let Some(refusal) = unnamed.clone().find_map(|it| it.refusal.as_ref()) {
        found += &format!(": {refusal}");
    }
    let recipe = RECIPES.iter().find(|(known, _)| known == id);
    Check::new(format!("runtime_{id}"), found).warn(
        format!("functions in {name} appear as those of its runtime, or as [anon]"),
        match recipe {
            Some((_, recipe)) => (*recipe).to_owned(),
            None => {
                format!("no setting helps: profcol does not unwind {name} yet")
            }
        },
    )
}

fn shown(pids: &[u32]) -> String {
    let first: Vec<String> = pids.iter().take(SHOWN).map(u32::to_string).collect();
    let more = if pids.len() > SHOWN { ", …" } else { "" };
    format!("{} (PID {}{more})", pids.len(), first.join(", "))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use profcol_ebpf_interpreters::language_runtimes::language_runtimes;
    use profcol_test_skip::skip;

    use super::super::Host;
    use super::*;

    fn checked(host: &Host) -> Vec<(String, bool)> {
        let checks = checks(&host.processes()).into_iter();
        checks
            .map(|check| (check.name, check.problem.is_none()))
            .collect()
    }

    #[test]
    fn a_perf_map_or_a_jitdump_gives_names() {
        let host = Host::new().with_process(5, "node", &["/bin/node"]);
        assert_eq!(checked(&host), [("runtime_node".to_owned(), false)]);
        let host = host.with("5/root/tmp/perf-5.map", "");
        assert_eq!(checked(&host), [("runtime_node".to_owned(), true)]);
        let host = Host::new().with_process(5, "java", &["/lib/libjvm.so", "/tmp/jit-5.dump"]);
        assert_eq!(checked(&host), [("runtime_java".to_owned(), true)]);
    }

    #[test]
    fn finds_a_perf_map_by_the_pid_in_the_container() {
        let host = Host::new()
            .with_process(500, "node", &["/bin/node"])
            .with("500/status", "NSpid:\t500\t7\n")
            .with("500/root/tmp/perf-7.map", "");
        assert_eq!(checked(&host), [("runtime_node".to_owned(), true)]);
    }

    #[test]
    fn lists_processes_without_names_and_the_fix() {
        let mut host = Host::new();
        for pid in 1..=7 {
            host = host.with_process(pid, "node", &["/bin/node"]);
        }
        let check = checks(&host.processes()).remove(0);
        assert!(
            check
                .found
                .ends_with("function names in 7 (PID 1, 2, 3, 4, 5, …)"),
            "{check:?}"
        );
        let fix = check.problem.unwrap().fix;
        assert!(fix.contains("--perf-basic-prof"), "{fix}");
        let none = checks(&Host::new().processes());
        assert_eq!(none.len(), 1);
        assert_eq!(none[0].problem, None);
    }

    #[test]
    fn a_runtime_of_which_no_version_is_read_has_no_names() {
        let host = Host::new().with_process(5, "deno", &["/usr/bin/deno"]);
        let check = checks(&host.processes()).remove(0);
        assert_eq!(check.name, "runtime_deno");
        assert!(check.found.contains("Deno in 1 processes"), "{check:?}");
        let fix = check.problem.unwrap().fix;
        assert_eq!(fix, "no setting helps: profcol does not unwind Deno yet");
    }

    #[test]
    fn a_supported_python_has_names() {
        let Some(python) = python() else {
            return;
        };
        let host = Host::new().with_process(5, "python3", &["/usr/bin/python3"]);
        let links = host.0.path().join("5/map_files");
        fs::create_dir(&links).unwrap();
        symlink(python, links.join("0-fff")).unwrap();
        let expected = cfg!(target_arch = "x86_64");
        assert_eq!(checked(&host), [("runtime_python".to_owned(), expected)]);
        let runtime = language_runtimes(host.0.path(), &[5]).remove(&5).unwrap();
        assert_eq!(runtime.name, "Python");
        let is_of_3 = |version: &String| version.starts_with("3.");
        assert_eq!(runtime.version.is_some_and(|it| is_of_3(&it)), expected);
        assert_eq!(runtime.unsupported.is_none(), expected);
    }

    /// The file with this host's Python interpreter.
    fn python() -> Option<std::path::PathBuf> {
        let script = "import sysconfig,sys,os\nd=sysconfig.get_config_var\n\
            l=os.path.join(d('LIBDIR') or '',d('INSTSONAME') or '')\n\
            print(l if d('Py_ENABLE_SHARED') and os.path.isfile(l) else os.path.realpath(sys.executable))";
        let output = std::process::Command::new("python3")
            .args(["-c", script])
            .output();
        let Ok(output) = output.map_err(|_| skip("python3 is not installed")) else {
            return None;
        };
        Some(String::from_utf8(output.stdout).unwrap().trim().into())
    }
}
