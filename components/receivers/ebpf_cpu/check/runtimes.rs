//! Which language runtimes are here, and whether their functions get names.
//!
//! [`RUNTIMES`] is the one place to extend: a runtime whose stacks profcol learns to read becomes [`Naming::Known`].

use std::collections::BTreeMap;
use std::fs;

use profcol_component::Check;
use profcol_processes::MappedFile;

use super::Processes;

/// So many processes of a runtime are named.
const SHOWN: usize = 5;

struct Runtime {
    /// For scripts.
    id: &'static str,
    name: &'static str,
    /// How the name of a file begins that only this runtime maps.
    files: &'static [&'static str],
    naming: Naming,
}

/// How functions of a runtime get their names.
#[derive(Clone, Copy)]
enum Naming {
    /// profcol reads its stacks.
    #[allow(dead_code, reason = "none yet")]
    Known,
    /// It writes a perf map or a jitdump when it is told to; this is how.
    ByMap {
        recipe: &'static str,
    },
    Unknown,
}

const RUNTIMES: &[Runtime] = &[
    Runtime {
        id: "python",
        name: "Python",
        files: &["python3", "python2", "libpython"],
        naming: Naming::ByMap {
            recipe: "Python 3.12 and later: start it with `python3 -X perf`, or set PYTHONPERFSUPPORT=1",
        },
    },
    Runtime {
        id: "node",
        name: "Node.js",
        files: &["node", "libnode.so"],
        naming: Naming::ByMap {
            recipe: "start it with `node --perf-basic-prof --interpreted-frames-native-stack`, or put that into NODE_OPTIONS",
        },
    },
    Runtime {
        id: "java",
        name: "Java",
        files: &["libjvm.so"],
        naming: Naming::ByMap {
            recipe: "start it with `java -XX:+PreserveFramePointer`, and run `jcmd PID Compiler.perfmap` (Java 17 and later)",
        },
    },
    Runtime {
        id: "dotnet",
        name: ".NET",
        files: &["libcoreclr.so"],
        naming: Naming::ByMap {
            recipe: "start it with DOTNET_PerfMapEnabled=1",
        },
    },
    Runtime {
        id: "erlang",
        name: "Erlang",
        files: &["beam.smp", "beam.jit.smp"],
        naming: Naming::ByMap {
            recipe: "start it with `erl +JPperf true`",
        },
    },
    Runtime {
        id: "ruby",
        name: "Ruby",
        files: &["ruby", "libruby"],
        naming: Naming::Unknown,
    },
    Runtime {
        id: "php",
        name: "PHP",
        files: &["php", "php-fpm", "libphp"],
        naming: Naming::Unknown,
    },
    Runtime {
        id: "perl",
        name: "Perl",
        files: &["perl", "libperl"],
        naming: Naming::Unknown,
    },
    Runtime {
        id: "luajit",
        name: "LuaJIT",
        files: &["luajit", "libluajit"],
        naming: Naming::Unknown,
    },
];

/// One for each runtime that is here.
pub(super) fn checks(processes: &Processes) -> Vec<Check> {
    // Which processes have it, and whether they have names.
    let mut found: BTreeMap<usize, Vec<(u32, bool)>> = BTreeMap::new();
    for (pid, files) in &processes.seen {
        if let Some(runtime) = runtime(files) {
            let is_named = has_map(processes, *pid, files);
            found.entry(runtime).or_default().push((*pid, is_named));
        }
    }
    if found.is_empty() {
        return vec![Check::new("runtimes", "no language runtime runs here")];
    }
    let found = found.into_iter();
    found
        .filter_map(|(runtime, pids)| Some(RUNTIMES.get(runtime)?.check(&pids)))
        .collect()
}

/// Its place in the list.
fn runtime(files: &[MappedFile]) -> Option<usize> {
    RUNTIMES.iter().position(|runtime| {
        files.iter().any(|file| {
            runtime
                .files
                .iter()
                .any(|known| is_file_of(file.name(), known))
        })
    })
}

/// `python3` is the beginning of `python3.11`, and `node` not that of `nodejs-like`.
fn is_file_of(name: &str, known: &str) -> bool {
    let rest = name.strip_prefix(known);
    rest.is_some_and(|rest| {
        !rest.starts_with(|c: char| {
            c.is_ascii_alphabetic() || c == '_' || (c == '-' && !known.starts_with("lib"))
        })
    })
}

/// Where processes write the names of code that they make.
fn has_map(processes: &Processes, pid: u32, files: &[MappedFile]) -> bool {
    let process = processes.proc.join(pid.to_string());
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    let own = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let own = own.and_then(|pids| pids.split_ascii_whitespace().next_back()?.parse().ok());
    let own: u32 = own.unwrap_or(pid);
    let is_dump = |file: &MappedFile| file.name() == format!("jit-{own}.dump");
    files.iter().any(is_dump) || process.join(format!("root/tmp/perf-{own}.map")).exists()
}

impl Runtime {
    fn check(&self, processes: &[(u32, bool)]) -> Check {
        let name = self.name;
        let unnamed: Vec<u32> = processes
            .iter()
            .filter(|(_, is_named)| !is_named)
            .map(|(pid, _)| *pid)
            .collect();
        let count = processes.len();
        let check = |found: String| Check::new(format!("runtime_{}", self.id), found);
        let natively = format!("functions in {name} show as those of its runtime, or as [anon]");
        match self.naming {
            Naming::Known => check(format!(
                "{name} in {count} processes, whose functions have names"
            )),
            Naming::Unknown => check(format!("{name} in {}", shown(&pids(processes)))).warn(
                natively,
                format!("there is nothing to set: profcol does not read the stacks of {name} yet"),
            ),
            Naming::ByMap { .. } if unnamed.is_empty() => check(format!(
                "{name} in {count} processes, all with a perf map or a jitdump"
            )),
            Naming::ByMap { recipe } => check(format!(
                "{name} in {count} processes, without a perf map or a jitdump in {}",
                shown(&unnamed)
            ))
            .warn(natively, recipe),
        }
    }
}

fn pids(processes: &[(u32, bool)]) -> Vec<u32> {
    processes.iter().map(|(pid, _)| *pid).collect()
}

fn shown(pids: &[u32]) -> String {
    let first: Vec<String> = pids.iter().take(SHOWN).map(u32::to_string).collect();
    let more = if pids.len() > SHOWN { ", …" } else { "" };
    format!("{} (PID {}{more})", pids.len(), first.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::Host;
    use super::*;

    fn told(host: &Host) -> Vec<(String, bool)> {
        let checks = checks(&host.processes()).into_iter();
        checks
            .map(|check| (check.name, check.problem.is_none()))
            .collect()
    }

    #[test]
    fn runtimes_go_by_the_files_that_they_map() {
        for (file, expected) in [
            ("/usr/bin/python3.11", Some("python")),
            ("/usr/lib/libpython3.12.so.1.0", Some("python")),
            ("/usr/bin/python3-config-like", None),
            ("/usr/local/bin/node", Some("node")),
            ("/usr/bin/nodemon", None),
            ("/usr/lib/jvm/17/lib/server/libjvm.so", Some("java")),
            ("/usr/bin/perl", Some("perl")),
            ("/usr/bin/perlbal", None),
            ("/usr/sbin/php-fpm8.2", Some("php")),
            ("/usr/bin/php8.2", Some("php")),
            ("/usr/lib/libperl.so.5.36", Some("perl")),
            ("/bin/sh", None),
        ] {
            let host = Host::new().with_process(5, "x", &[file]);
            let processes = host.processes();
            let found = runtime(&processes.seen[0].1);
            let found = found.map(|it| RUNTIMES[it].id);
            assert_eq!(found, expected, "{file}");
        }
    }

    #[test]
    fn a_perf_map_or_a_jitdump_gives_names() {
        let host = Host::new().with_process(5, "node", &["/bin/node"]);
        assert_eq!(told(&host), [("runtime_node".to_owned(), false)]);
        let host = host.with("5/root/tmp/perf-5.map", "");
        assert_eq!(told(&host), [("runtime_node".to_owned(), true)]);
        let host = Host::new().with_process(5, "java", &["/lib/libjvm.so", "/tmp/jit-5.dump"]);
        assert_eq!(told(&host), [("runtime_java".to_owned(), true)]);
    }

    #[test]
    fn a_process_of_a_container_is_known_by_its_number_there() {
        let host = Host::new()
            .with_process(500, "node", &["/bin/node"])
            .with("500/status", "NSpid:\t500\t7\n")
            .with("500/root/tmp/perf-7.map", "");
        assert_eq!(told(&host), [("runtime_node".to_owned(), true)]);
    }

    #[test]
    fn what_lacks_names_says_which_and_how() {
        let mut host = Host::new();
        for pid in 1..=7 {
            host = host.with_process(pid, "node", &["/bin/node"]);
        }
        let check = checks(&host.processes()).remove(0);
        assert!(
            check.found.ends_with("in 7 (PID 1, 2, 3, 4, 5, …)"),
            "{check:?}"
        );
        let fix = check.problem.unwrap().fix;
        assert!(fix.contains("--perf-basic-prof"), "{fix}");
        let none = checks(&Host::new().processes());
        assert_eq!(none.len(), 1);
        assert_eq!(none[0].problem, None);
    }
}
