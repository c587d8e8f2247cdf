//! Builds the programs of `tests/ebpf/programs`.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::programs::Program;
use crate::support::{root, skip, target};

/// A cache of built programs across tests and runs. Several tests profile the same programs, and building all of them
/// takes a minute.
fn cache() -> PathBuf {
    target().join("tmp/programs")
}

/// A hash of all possible sources.
static SOURCES: LazyLock<u64> = LazyLock::new(|| {
    let directories = ["tests/ebpf/programs", "benches/ebpf/programs"];
    let entries = directories.map(|directory| fs::read_dir(root().join(directory)).unwrap());
    let files = entries
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.is_file()).collect();
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        (&file, fs::read(&file).unwrap()).hash(&mut hasher);
    }
    hasher.finish()
});

/// A directory for built programs.
pub struct Workshop(tempfile::TempDir);

impl Workshop {
    pub fn open() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Debian's linker has its version in the name, and compilers look for one without.
        if let Some(linker) = ["/usr/bin/ld.lld", "/usr/bin/ld.lld-14"]
            .into_iter()
            .find(|linker| Path::new(linker).exists())
        {
            symlink(linker, directory.path().join("ld.lld")).unwrap();
        }
        Self(directory)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Builds a program after its parts.
    pub fn build_all(&self, program: &Program) -> Option<Vec<PathBuf>> {
        let executable = (program.name, program.command);
        program
            .parts
            .iter()
            .chain([&executable])
            .map(|(name, command)| self.build(name, command))
            .collect()
    }

    /// Runs a compiler whose output is `name`. Words of `command` that name a source refer to the programs directory, and
    /// those that begin with `@` to built files. Variables may precede the command, as in a shell. None if the
    /// compiler or linker is missing.
    pub fn build(&self, name: &str, command: &str) -> Option<PathBuf> {
        let mut words = command.split_whitespace().peekable();
        let variables: Vec<_> =
            std::iter::from_fn(|| words.next_if(|word| word.contains('='))?.split_once('='))
                .collect();
        let compiler = words.next().unwrap();
        let output = self.path(name);
        if output.exists() {
            // A running program may be loading it.
            return Some(output);
        }
        let cached = cached(name, command);
        // Not by this process: children that other threads fork meanwhile would hold the file open for writing, and the
        // kernel runs no such file.
        let copy = Command::new("cp").args([&cached, &output]).output();
        if copy.is_ok_and(|copy| copy.status.success()) {
            return Some(output);
        }
        let mut building = Command::new(compiler);
        building.envs(variables);
        match compiler {
            "zig" => {
                let cache = self.path("zig-cache");
                building
                    .arg("build-exe")
                    .arg(format!("-femit-bin={}", output.display()))
                    .arg("--cache-dir")
                    .arg(&cache)
                    .arg("--global-cache-dir")
                    .arg(&cache);
            }
            "fpc" => {
                building
                    .arg(format!("-o{}", output.display()))
                    .arg(format!("-FU{}", self.0.path().display()));
            }
            "go" => {
                let with_c = if command.contains("cgo") { "1" } else { "0" };
                building.arg("build").env("CGO_ENABLED", with_c);
                building.arg("-o").arg(&output);
            }
            _ => {
                building.arg("-o").arg(&output);
            }
        }
        for word in words {
            let source = root().join("tests/ebpf/programs").join(word);
            if let Some(built) = word.strip_prefix('@') {
                building.arg(self.path(built));
            } else if source.is_file() {
                building.arg(source);
            } else {
                building.arg(word);
            }
        }
        if command.contains("-fuse-ld=lld") {
            building.arg("-B").arg(self.0.path());
            if !self.path("ld.lld").exists() {
                skip("no ld.lld here; on Debian `apt-get install lld`");
                return None;
            }
        }
        if command.contains("-fuse-ld=mold") && !Path::new("/usr/bin/ld.mold").exists() {
            skip("no mold here; on Debian `apt-get install mold`");
            return None;
        }
        let built = match building.output() {
            Ok(built) => built,
            Err(error) => {
                skip(&format!("{compiler} does not run: {error}"));
                return None;
            }
        };
        assert!(
            built.status.success(),
            "{command}: {}",
            String::from_utf8_lossy(&built.stderr)
        );
        // Executables linked with a part contain the path of its directory, so they are not cached.
        if !command.contains('@') {
            fs::create_dir_all(cache()).unwrap();
            // Another test may write the same file.
            let whole = tempfile::NamedTempFile::new_in(cache()).unwrap();
            fs::copy(&output, whole.path()).unwrap();
            whole.persist(cached).unwrap();
        }
        Some(output)
    }
}

/// The cached program. The compiler is not part of the key: clean the target directory after installing another one.
fn cached(name: &str, command: &str) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (name, command, *SOURCES).hash(&mut hasher);
    cache().join(format!("{name}-{:016x}", hasher.finish()))
}
