//! The options of `symbolize`.

use std::path::Path;

use profcol_config::{Config, Duration, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Names native code: functions, inlined ones included, with their files and lines.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct SymbolizeConfig {
    /// `all` names all that has an executable; `none` lets everything pass as it came, for places that name
    /// code themselves. Kernel and generated code has been named by the receiver.
    pub targets: Targets,
    /// `short`: C++ without parameters and return types, Rust without hashes; `full`: with them; `none`: as the
    /// linker sees it.
    pub demangle: Demangle,
    /// How long a batch waits for its names. After that it leaves as far as it is named; what was being read is
    /// there for the next one.
    pub timeout: Duration,
    /// Threads that read executables, at a low priority.
    pub workers: u32,
    /// Bytes, for names and for tables from which they are read.
    pub max_memory: u64,
    /// The share of one CPU that each worker may take, up to 1.
    pub max_cpu: f64,
    /// Executables that are held open until they are read, since their program or container may end before.
    pub max_open: u32,
    /// Where debug files are, on this host and in containers.
    pub debug_directories: Vec<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Targets {
    All,
    None,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Demangle {
    Short,
    Full,
    None,
}

impl Default for SymbolizeConfig {
    fn default() -> Self {
        Self {
            targets: Targets::All,
            demangle: Demangle::Short,
            timeout: Duration::from_secs(2),
            workers: 1,
            max_memory: 256 << 20,
            max_cpu: 0.5,
            max_open: 256,
            debug_directories: vec!["/usr/lib/debug".to_owned()],
        }
    }
}

impl Config for SymbolizeConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.timeout.is_negative() {
            problems.add("timeout", "must not be negative");
        }
        for (key, value, most) in [
            ("workers", self.workers, 64),
            ("max_open", self.max_open, 65_536),
        ] {
            if !(1..=most).contains(&value) {
                problems.add(key, format!("must be between 1 and {most}"));
            }
        }
        const LEAST: u64 = 16 << 20;
        if self.max_memory < LEAST {
            problems.add("max_memory", format!("must be at least {LEAST}"));
        }
        if !(self.max_cpu > 0.0 && self.max_cpu <= 1.0) {
            problems.add("max_cpu", "must be above 0 and at most 1");
        }
        for (position, directory) in self.debug_directories.iter().enumerate() {
            if !Path::new(directory).is_absolute() {
                let key = format!("debug_directories::{position}");
                problems.add(&key, format!("{directory:?} is not an absolute path"));
            }
        }
    }
}
