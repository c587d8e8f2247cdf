//! The language runtimes of processes, found by the files that the processes map.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use profcol_ebpf_unwind::ElfCode;
use profcol_elf::{FileKey, Mapping};
use profcol_processes::{executable_path_in, mapped_code};

use crate::dotnet::CoreClr;
use crate::{FileRuntime, Runtime};

/// A runtime that is recognized; not each of them is supported.
#[derive(Debug)]
pub struct KnownRuntime {
    /// For scripts.
    pub id: &'static str,
    pub name: &'static str,
    /// What its files contain, if it is one of those that profcol reads.
    runtime: Option<Runtime>,
    is_unread: bool,
    /// Prefixes of the names of files that only this runtime maps.
    files: &'static [&'static str],
    /// Those that contain it, and not just a program that loads it. Without a runtime that can be read, one of them is unsupported.
    whole: &'static [&'static str],
}

/// A runtime of which profcol reads no version.
const fn unread(
    id: &'static str,
    name: &'static str,
    files: &'static [&'static str],
) -> KnownRuntime {
    KnownRuntime {
        id,
        name,
        runtime: None,
        is_unread: true,
        files,
        whole: files,
    }
}

/// Also a part of programs with any name.
const DOTNET: KnownRuntime = KnownRuntime {
    id: "dotnet",
    name: ".NET",
    runtime: Some(Runtime::DotNet),
    is_unread: false,
    files: &["libcoreclr.so"],
    whole: &["libcoreclr.so"],
};

const KNOWN: &[KnownRuntime] = &[
    KnownRuntime {
        id: "python",
        name: "Python",
        runtime: Some(Runtime::Python),
        is_unread: false,
        files: &["python3", "python2", "libpython"],
        whole: &["python2", "libpython2"],
    },
    KnownRuntime {
        id: "node",
        name: "Node.js",
        runtime: Some(Runtime::V8),
        is_unread: false,
        files: &["node", "libnode.so"],
        whole: &[],
    },
    // Before Java: it has a `libjvm.so`, too.
    unread("openj9", "OpenJ9", &["libj9vm"]),
    KnownRuntime {
        id: "java",
        name: "Java",
        runtime: Some(Runtime::Java),
        is_unread: false,
        files: &["libjvm.so"],
        whole: &["libjvm.so"],
    },
    DOTNET,
    KnownRuntime {
        id: "erlang",
        name: "Erlang",
        runtime: Some(Runtime::Beam),
        is_unread: false,
        files: &["beam.smp", "beam.jit.smp"],
        whole: &["beam.smp", "beam.jit.smp"],
    },
    KnownRuntime {
        id: "ruby",
        name: "Ruby",
        runtime: Some(Runtime::Ruby),
        is_unread: false,
        files: &["ruby", "libruby"],
        whole: &[],
    },
    KnownRuntime {
        id: "php",
        name: "PHP",
        runtime: Some(Runtime::Php),
        is_unread: false,
        files: &["php", "php-fpm", "libphp"],
        whole: &[],
    },
    KnownRuntime {
        id: "perl",
        name: "Perl",
        runtime: Some(Runtime::Perl),
        is_unread: false,
        files: &["perl", "libperl"],
        whole: &[],
    },
    KnownRuntime {
        id: "luajit",
        name: "LuaJIT",
        runtime: Some(Runtime::LuaJit),
        is_unread: false,
        files: &["luajit", "libluajit"],
        whole: &[],
    },
    KnownRuntime {
        runtime: Some(Runtime::V8),
        ..unread("deno", "Deno", &["deno"])
    },
    KnownRuntime {
        runtime: Some(Runtime::V8),
        ..unread("electron", "Electron", &["electron"])
    },
    unread("bun", "Bun", &["bun"]),
    unread("pypy", "PyPy", &["pypy", "libpypy"]),
    unread("mono", "Mono", &["mono", "mono-sgen", "libmonosgen"]),
    unread("dart", "Dart", &["dart", "dartvm", "dartaotruntime"]),
    unread("julia", "Julia", &["libjulia-internal"]),
    unread("r", "R", &["libR.so"]),
    unread("lua", "Lua", &["lua"]),
    unread("tcl", "Tcl", &["tclsh"]),
    unread("guile", "Guile", &["guile"]),
    unread("racket", "Racket", &["racket"]),
    unread("ocaml", "OCaml bytecode", &["ocamlrun"]),
    unread("spidermonkey", "SpiderMonkey", &["libmozjs"]),
];

/// The runtime of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LanguageRuntime {
    pub name: &'static str,
    /// None where its file states the version in an unknown way.
    pub version: Option<String>,
    /// Why its functions are not shown.
    pub unsupported: Option<String>,
}

/// The language runtimes of these processes, by PID. Processes without one are absent.
pub fn language_runtimes(proc: &Path, pids: &[u32]) -> HashMap<u32, LanguageRuntime> {
    let mut detector = Detector::default();
    let runtimes = pids.iter().filter_map(|&pid| {
        // Processes that have ended, and those of other users, have no mappings to read.
        let process = proc.join(pid.to_string());
        let files = mapped_code(&process).ok()?;
        Some((pid, detector.language_runtime(&process, &files)?))
    });
    runtimes.collect()
}

/// Detects interpreters in the files of processes. Many processes share their files, so results are cached by file.
#[derive(Default)]
pub struct Detector {
    found: HashMap<FileKey, Option<FileRuntime>>,
    /// Executables that contain .NET.
    single_file: HashMap<FileKey, bool>,
}

impl Detector {
    fn language_runtime(&mut self, process: &Path, files: &[Mapping]) -> Option<LanguageRuntime> {
        let runtime = self.runtime(process, files)?;
        let (version, unsupported) = match self.detect(runtime, process, files) {
            Some(found) => (found.version, found.unsupported),
            None => (None, Some(runtime.unsupported())),
        };
        Some(LanguageRuntime {
            name: runtime.name,
            version,
            unsupported,
        })
    }

    /// The runtime of a process, by the names of its files, or by the contents of its executable.
    pub fn runtime(&mut self, process: &Path, files: &[Mapping]) -> Option<&'static KnownRuntime> {
        let by_name = KnownRuntime::of_files(files);
        if by_name.is_some() {
            return by_name;
        }
        let executable = executable_path_in(process)?;
        let mut files = files.iter();
        let file = files.find(|file| file.path.to_string_lossy() == executable)?;
        let contains_dotnet = self.single_file.entry(file.file?).or_insert_with(|| {
            let open = file.open(process).ok();
            open.is_some_and(|file| has_dotnet(&file))
        });
        contains_dotnet.then_some(&DOTNET)
    }

    /// This runtime in these files. None where no file has one that can be read.
    pub fn detect(
        &mut self,
        runtime: &KnownRuntime,
        process: &Path,
        files: &[Mapping],
    ) -> Option<FileRuntime> {
        let found = files.iter().filter_map(|file| {
            let cached = self.found.entry(file.file?);
            cached
                .or_insert_with(|| {
                    let file = file.open(process).ok()?;
                    FileRuntime::find(&ElfCode::read(&file).ok()?, &file)
                })
                .clone()
        });
        // A program may load others, too.
        let found = found.filter(|it| Some(it.runtime) == runtime.runtime);
        // One file may be refused and another one supported.
        found.reduce(|first, second| match first.unsupported {
            Some(_) if second.unsupported.is_none() => second,
            _ => first,
        })
    }
}

fn has_dotnet(file: &File) -> bool {
    let code = ElfCode::read(file).ok();
    code.is_some_and(|code| !matches!(CoreClr::detect(&code, file), Ok(None)))
}

impl KnownRuntime {
    pub fn of_files(files: &[Mapping]) -> Option<&'static Self> {
        let names: Vec<&str> = files.iter().filter_map(Mapping::name).collect();
        let maps = |prefix: &&str| names.iter().any(|name| has_prefix(name, prefix));
        KNOWN.iter().find(|it| it.files.iter().any(maps))
    }

    /// The runtime that a file without a known one contains, by its name.
    pub fn of_unread_file(path: &Path) -> Option<&'static Self> {
        let name = path.file_name()?.to_str()?;
        let mut known = KNOWN.iter();
        known.find(|it| it.whole.iter().any(|prefix| has_prefix(name, prefix)))
    }

    /// Those of which no version is read.
    pub fn unread() -> impl Iterator<Item = &'static Self> {
        KNOWN.iter().filter(|it| it.is_unread)
    }

    /// Why its functions are not shown.
    pub fn unsupported(&self) -> String {
        format!("{} is not supported", self.name)
    }
}

/// `python3` is the prefix of `python3.11`, but `node` is not one of `nodejs-like`.
fn has_prefix(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| {
        !rest.starts_with(|c: char| {
            c.is_ascii_alphabetic() || c == '_' || (c == '-' && !prefix.starts_with("lib"))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use profcol_test_skip::skip;

    use super::*;

    /// A `/proc` in which process 5 maps the code of a file, on no real device.
    fn proc(file: &str) -> tempfile::TempDir {
        let proc = tempfile::tempdir().unwrap();
        let maps = format!("1000-2000 r-xp 00000000 00:00 7 {file}\n");
        std::fs::create_dir(proc.path().join("5")).unwrap();
        std::fs::write(proc.path().join("5/maps"), maps).unwrap();
        proc
    }

    #[test]
    fn runtimes_are_found_by_the_files_that_they_map() {
        for (file, expected) in [
            ("/usr/bin/python3.11", Some("python")),
            ("/usr/lib/libpython3.12.so.1.0", Some("python")),
            ("/usr/bin/python3-config-like", None),
            ("/usr/local/bin/node", Some("node")),
            ("/usr/bin/nodemon", None),
            ("/usr/lib/jvm/17/lib/server/libjvm.so", Some("java")),
            ("/usr/share/dotnet/shared/8/libcoreclr.so", Some("dotnet")),
            ("/usr/bin/dotnet-like", None),
            ("/usr/bin/perl", Some("perl")),
            ("/usr/bin/perlbal", None),
            ("/usr/sbin/php-fpm8.2", Some("php")),
            ("/usr/bin/php8.2", Some("php")),
            ("/usr/lib/libperl.so.5.36", Some("perl")),
            ("/usr/local/bin/deno", Some("deno")),
            ("/usr/bin/mono-sgen", Some("mono")),
            ("/usr/lib/libmonosgen-2.0.so.1.0.0", Some("mono")),
            ("/usr/lib/libjulia-internal.so.1.10.4", Some("julia")),
            ("/usr/bin/lua5.4", Some("lua")),
            ("/opt/semeru/lib/default/libj9vm29.so", Some("openj9")),
            ("/bin/sh", None),
        ] {
            let proc = proc(file);
            let files = mapped_code(&proc.path().join("5")).unwrap();
            let found = KnownRuntime::of_files(&files).map(|it| it.id);
            assert_eq!(found, expected, "{file}");
        }
    }

    #[test]
    fn files_that_contain_an_unread_runtime_are_known_by_name() {
        for (file, expected) in [
            ("/usr/local/bin/deno", Some("deno")),
            ("/usr/bin/python2.7", Some("python")),
            ("/usr/lib/erlang/erts-13.1/bin/beam.smp", Some("erlang")),
            // It may load the interpreter from a library.
            ("/usr/bin/python3.15", None),
            ("/usr/bin/node", None),
            ("/", None),
        ] {
            let found = KnownRuntime::of_unread_file(Path::new(file));
            assert_eq!(found.map(|it| it.id), expected, "{file}");
        }
    }

    #[test]
    fn programs_that_contain_dotnet_are_found_by_their_contents() {
        let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
        for (directory, program) in [
            (
                "dotnet-8.0.30",
                "@microsoft/sarif-multitool-linux/Sarif.Multitool",
            ),
            ("dotnet-9.0.11", "@azure/mcp-linux-x64/dist/azmcp"),
            ("dotnet-10.0.11", "@azure/mcp-linux-x64/dist/azmcp"),
        ] {
            let program = tools.join(directory).join("node_modules").join(program);
            if !program.exists() {
                skip("no .NET below target/tools");
                return;
            }
            let proc = proc("/opt/any-name");
            let process = proc.path().join("5");
            symlink("/opt/any-name", process.join("exe")).unwrap();
            std::fs::create_dir(process.join("map_files")).unwrap();
            symlink(program, process.join("map_files/1000-2000")).unwrap();
            let expected = match cfg!(target_arch = "x86_64") {
                true => directory.strip_prefix("dotnet-"),
                false => None,
            };
            let found = language_runtimes(proc.path(), &[5]).remove(&5).unwrap();
            assert_eq!(found.name, ".NET");
            assert_eq!(found.version.as_deref(), expected, "{found:?}");
            assert_eq!(found.unsupported.is_none(), expected.is_some(), "{found:?}");
        }
    }

    #[test]
    fn an_unsupported_runtime_is_reported_as_such() {
        let proc = proc("/usr/bin/luajit");
        let expected = LanguageRuntime {
            name: "LuaJIT",
            version: None,
            unsupported: Some("LuaJIT is not supported".to_owned()),
        };
        assert_eq!(
            language_runtimes(proc.path(), &[5, 6]),
            [(5, expected)].into()
        );
    }
}
