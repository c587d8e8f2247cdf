//! A JVM that runs the test program.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use profcol_ebpf_common::interpreter::hotspot::{CodeCache, CodeFrame};
use profcol_ebpf_interpreters::FunctionError;
use profcol_ebpf_interpreters::ProcessMemory;
use profcol_ebpf_interpreters::hotspot::{Code, HotSpot, JavaFrame, Layout};
use profcol_ebpf_unwind::ElfCode;

use crate::expected::Expected;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hotspot/Chains.java");

pub struct Jvm {
    child: Child,
    pub expected: Expected,
    pub memory: ProcessMemory,
    pub bias: u64,
    pub layout: Layout,
    pub cache: CodeCache,
    known: RefCell<HashMap<(u32, u64, u32), Code>>,
}

/// None without a compiler.
pub fn compile() -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir().unwrap();
    let mut javac = Command::new("javac");
    javac.args(["-nowarn", "--release", "11", "-d"]);
    javac.arg(directory.path()).arg(SOURCE);
    let output = javac.output().ok()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Some(directory)
}

impl Jvm {
    /// None if it does not support a flag.
    pub fn start(java: &Path, flags: &[&str], classes: &Path) -> Option<Self> {
        let mut command = Command::new(java);
        command.args(flags).arg("-cp").arg(classes).arg("Chains");
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let lines: Vec<String> = lines
            .map(Result::unwrap)
            .take_while(|line| line != "ready")
            .collect();
        if lines.is_empty() {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        let pid = child.id();
        let (file, start, offset) = library(pid);
        let file = File::open(file).unwrap();
        let code = ElfCode::read(&file).unwrap();
        let hotspot = HotSpot::detect(&code, &file).unwrap().unwrap();
        let memory = ProcessMemory::open(pid).unwrap();
        let bias = hotspot.bias(start, offset);
        let layout = Layout::read(&hotspot, &memory, bias).unwrap().unwrap();
        let cache = layout.code_cache(&memory, bias).unwrap().unwrap();
        Some(Self {
            child,
            expected: Expected::parse(&lines),
            memory,
            bias,
            layout,
            cache,
            known: RefCell::default(),
        })
    }

    /// The functions of a frame; caches code.
    pub fn names(&self, found: CodeFrame) -> Result<Vec<JavaFrame>, FunctionError> {
        let CodeFrame {
            runtime,
            function,
            detail,
        } = found;
        let generation = detail.generation();
        let key = (runtime, function, generation);
        let mut known = self.known.borrow_mut();
        if let Some(code) = known.get(&key) {
            return Ok(code.frames(detail.position()));
        }
        let code = Code::read(
            &self.layout,
            &self.memory,
            self.bias,
            runtime,
            function,
            generation,
        )?;
        let frames = code.frames(detail.position());
        known.insert(key, code);
        Ok(frames)
    }

    pub fn version(&self) -> String {
        self.layout.version.to_string()
    }

    /// The threads that run chains.
    pub fn threads(&self) -> Vec<i32> {
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            let found = self.named_threads();
            if !found.is_empty() || Instant::now() > until {
                return found;
            }
        }
    }

    fn named_threads(&self) -> Vec<i32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        tasks
            .filter_map(|task| {
                let path = task.ok()?.path();
                let name = fs::read_to_string(path.join("comm")).ok()?;
                let is_own = name.starts_with("chains") || name.starts_with("ForkJoinPool-1-");
                is_own.then(|| path.file_name()?.to_str()?.parse().ok())?
            })
            .collect()
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The file of the runtime, and start and offset of a mapping of its code.
fn library(pid: u32) -> (PathBuf, u64, u64) {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mapping = maps
        .lines()
        .find(|line| line.ends_with("/libjvm.so") && line.contains(" r-xp "))
        .expect("a mapping of libjvm.so");
    let mut fields = mapping.split_whitespace();
    let start = fields.next().unwrap().split('-').next().unwrap();
    let offset = fields.nth(1).unwrap();
    let number = |text| u64::from_str_radix(text, 16).unwrap();
    let path = fields.nth(2).unwrap().into();
    (path, number(start), number(offset))
}
