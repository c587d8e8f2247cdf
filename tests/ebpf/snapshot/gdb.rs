//! A process stopped by gdb, and its stacks according to gdb.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use profcol_ebpf_common::walk::Registers;
use profcol_test_harness::support::{root, version_of};

pub struct Gdb {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// A thread's stack according to gdb.
#[derive(Default)]
pub struct Thread {
    pub registers: Registers,
    /// Innermost first.
    pub frames: Vec<Frame>,
}

pub struct Frame {
    pub ip: u64,
    /// Why gdb finds no caller.
    pub stop: String,
    pub name: String,
}

impl Gdb {
    /// The oldest tested release.
    pub const MIN_VERSION: (u32, u32) = (13, 1);

    pub fn is_there() -> bool {
        version_of("gdb").is_some_and(|version| version >= Self::MIN_VERSION)
    }

    /// Stops the process, wherever it is.
    pub fn attach(pid: u32) -> Self {
        let mut process = Command::new("gdb")
            .args(["-q", "-nx", "-batch", "-p", &pid.to_string(), "-x"])
            .arg(root().join("tests/ebpf/snapshot/look.py"))
            .env("DEBUGINFOD_URLS", "")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            input: process.stdin.take(),
            output: BufReader::new(process.stdout.take().unwrap()),
            process,
        }
    }

    /// Steps the process by some instructions.
    pub fn step(&mut self, instructions: u32) {
        // Fails if the process has exited, which the next `look` detects.
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{instructions}");
        }
    }

    /// None if the process is gone.
    pub fn look(&mut self) -> Option<Vec<Thread>> {
        let mut threads: Vec<Thread> = Vec::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            let mut words = line.split_whitespace();
            let kind = words.next();
            let mut number = || words.next()?.parse::<u64>().ok();
            match kind {
                Some("=looked") => return Some(threads),
                Some("=thread") => {
                    let mut register = || number().unwrap();
                    let registers = Registers {
                        ip: register(),
                        sp: register(),
                        fp: register(),
                        link: register(),
                    };
                    threads.push(Thread {
                        registers,
                        frames: Vec::new(),
                    });
                }
                Some("=frame") => {
                    let ip = number().unwrap();
                    let mut word = || words.next().unwrap_or_default().to_owned();
                    let (stop, name) = (word(), word());
                    let thread = threads.last_mut().unwrap();
                    thread.frames.push(Frame { ip, stop, name });
                }
                // gdb's own messages.
                _ => {}
            }
        }
    }
}

impl Drop for Gdb {
    fn drop(&mut self) {
        // gdb exits at the end of its input, and detaches from the process.
        self.input.take();
        let _ = self.process.wait();
    }
}
