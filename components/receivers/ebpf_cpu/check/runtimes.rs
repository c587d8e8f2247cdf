//! Which language runtimes are here, and whether their functions get names.
//!
//! An interpreter whose stacks profcol learns to follow is known here by itself. [`RUNTIMES`] says what to do for those that it
//! does not.

use std::collections::{BTreeMap, HashMap};
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

/// How functions get names where profcol does not follow the stacks of the runtime itself.
#[derive(Clone, Copy)]
enum Naming {
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

/// What runs the functions of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LanguageRuntime {
    pub name: &'static str,
    /// Where its file says it in a way that is understood here.
    pub version: Option<String>,
    /// Why its functions are not shown.
    pub unsupported: Option<String>,
}

/// The language runtimes of the processes that have one, by PID.
pub(super) fn by_process(processes: &Processes) -> HashMap<u32, LanguageRuntime> {
    let mut interpreters = Interpreters::default();
    let found = processes.seen.iter().filter_map(|(pid, files)| {
        let runtime = RUNTIMES.get(runtime(files)?)?;
        let (version, unsupported) = match interpreters.followed(processes, *pid, files) {
            Some(Ok(version)) => (Some(version), None),
            Some(Err(reason)) => (None, Some(reason)),
            None => (None, Some(format!("{} is not supported", runtime.name))),
        };
        Some((
            *pid,
            LanguageRuntime {
                name: runtime.name,
                version,
                unsupported,
            },
        ))
    });
    found.collect()
}

/// One for each runtime that is here.
pub(super) fn checks(processes: &Processes) -> Vec<Check> {
    let mut found: BTreeMap<usize, Vec<Instance>> = BTreeMap::new();
    let mut interpreters = Interpreters::default();
    for (pid, files) in &processes.seen {
        if let Some(runtime) = runtime(files) {
            let followed = interpreters.followed(processes, *pid, files);
            found.entry(runtime).or_default().push(Instance {
                pid: *pid,
                is_named: has_map(processes, *pid, files) || matches!(followed, Some(Ok(_))),
                refusal: followed.and_then(Result::err),
            });
        }
    }
    if found.is_empty() {
        return vec![Check::new("runtimes", "no language runtime runs here")];
    }
    let found = found.into_iter();
    found
        .filter_map(|(runtime, instances)| Some(RUNTIMES.get(runtime)?.check(&instances)))
        .collect()
}

/// A process with a runtime.
struct Instance {
    pid: u32,
    is_named: bool,
    /// Why its stacks are not followed, of an interpreter that is.
    refusal: Option<String>,
}

/// What is known of files: many processes have the same.
#[derive(Default)]
struct Interpreters<'a>(HashMap<(&'a str, u64), Option<Result<String, String>>>);

impl<'a> Interpreters<'a> {
    /// The version of the interpreter in these files, or why its stacks are not followed.
    fn followed(
        &mut self,
        processes: &Processes,
        pid: u32,
        files: &'a [MappedFile],
    ) -> Option<Result<String, String>> {
        let found = files.iter().filter_map(|file| {
            let read = || {
                let opened = file.open(&processes.proc, pid).ok()?;
                profcol_ebpf_loader::interpreter(&opened)
            };
            let key = (file.device.as_str(), file.inode);
            self.0.entry(key).or_insert_with(read).clone()
        });
        // What one file refuses another one may have.
        found.reduce(|first, second| first.or(second))
    }
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
    fn check(&self, instances: &[Instance]) -> Check {
        let name = self.name;
        let unnamed = instances.iter().filter(|it| !it.is_named);
        let pids: Vec<u32> = unnamed.clone().map(|it| it.pid).collect();
        let mut found = format!("{name} in {} processes", instances.len());
        if pids.is_empty() {
            found += ", whose functions have names";
            return Check::new(format!("runtime_{}", self.id), found);
        }
        found += &format!(", without names of its functions in {}", shown(&pids));
        if let Some(refusal) = unnamed.clone().find_map(|it| it.refusal.as_ref()) {
            found += &format!(": {refusal}");
        }
        Check::new(format!("runtime_{}", self.id), found).warn(
            format!("functions in {name} show as those of its runtime, or as [anon]"),
            match self.naming {
                Naming::Unknown => {
                    format!(
                        "there is nothing to set: profcol does not follow the stacks of {name} yet"
                    )
                }
                Naming::ByMap { recipe } => recipe.to_owned(),
            },
        )
    }
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
            check
                .found
                .ends_with("functions in 7 (PID 1, 2, 3, 4, 5, …)"),
            "{check:?}"
        );
        let fix = check.problem.unwrap().fix;
        assert!(fix.contains("--perf-basic-prof"), "{fix}");
        let none = checks(&Host::new().processes());
        assert_eq!(none.len(), 1);
        assert_eq!(none[0].problem, None);
    }

    #[test]
    fn a_runtime_that_is_not_followed_is_named_as_such() {
        let host = Host::new().with_process(5, "perl", &["/usr/bin/perl"]);
        let host = host.with_process(6, "sh", &["/bin/sh"]);
        let expected = LanguageRuntime {
            name: "Perl",
            version: None,
            unsupported: Some("Perl is not supported".to_owned()),
        };
        assert_eq!(by_process(&host.processes()), [(5, expected)].into());
    }

    #[test]
    fn a_python_whose_stacks_are_followed_has_names() {
        let Some(python) = python() else {
            return;
        };
        let linked = |file: &str| {
            let host = Host::new().with_process(5, "python3", &[file]);
            let place = host
                .0
                .path()
                .join("5/root")
                .join(file.trim_start_matches('/'));
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::copy(&python, place).unwrap();
            host
        };
        let host = linked("/usr/bin/python3");
        let expected = cfg!(target_arch = "x86_64");
        assert_eq!(told(&host), [("runtime_python".to_owned(), expected)]);
        let runtime = by_process(&host.processes()).remove(&5).unwrap();
        assert_eq!(runtime.name, "Python");
        let is_of_3 = |version: &String| version.starts_with("3.");
        assert_eq!(runtime.version.is_some_and(|it| is_of_3(&it)), expected);
        assert_eq!(runtime.unsupported.is_none(), expected);
    }

    /// The file that has the interpreter of this host.
    fn python() -> Option<std::path::PathBuf> {
        let script = "import sysconfig,sys,os\nd=sysconfig.get_config_var\n\
            l=os.path.join(d('LIBDIR') or '',d('INSTSONAME') or '')\n\
            print(l if d('Py_ENABLE_SHARED') and os.path.isfile(l) else os.path.realpath(sys.executable))";
        let output = std::process::Command::new("python3")
            .args(["-c", script])
            .output();
        let Ok(output) = output.map_err(|_| skipped()) else {
            return None;
        };
        Some(String::from_utf8(output.stdout).unwrap().trim().into())
    }

    fn skipped() {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "skipped: python3 is not installed");
    }
}
