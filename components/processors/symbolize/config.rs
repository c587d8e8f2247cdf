//! The options of `symbolize`.

use std::path::Path;

use profcol_config::{Config, Duration, Present, Problems};
use profcol_net::is_http_url;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Symbolizes locations: functions, inlined ones included, with files and lines.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct SymbolizeConfig {
    /// What is named, if the receiver did not: `kernel`: this host's kernel; `interpreted`: that, and code that
    /// runtimes generated, for places that name native code themselves; `all`: native code too; `none`: nothing.
    pub targets: Targets,
    /// Take profiles that do not say which host they come from for this host's: by that the kernel and generated code
    /// are named.
    pub assume_local: bool,
    /// `short`: C++ without parameters and return types, Rust without hashes, both with their template and generic
    /// arguments; `full`: with all of it; `none`: as the linker sees it. Swift and D stay as the linker sees them.
    pub demangle: Demangle,
    /// How long a batch waits for its names. After that it leaves as far as it is named; the rest is there for the
    /// next one, and for `top` and `pprof_file` when they print or write. Once a batch has waited in vain, none waits
    /// until the workers have caught up.
    pub timeout: Duration,
    /// Number of threads that read executables.
    pub workers: u32,
    /// How the workers are scheduled: `low` behind everything else on the host, so that names come late while it is
    /// busy; `normal` like any other program, for somebody who waits for names. Either way within `max_cpu`.
    pub priority: Priority,
    /// Bytes, for names and for tables from which they are read.
    pub max_memory: u64,
    /// The share of one CPU that each worker may take, up to 1.
    pub max_cpu: f64,
    /// Executables that are held open until they are read, since their program or container may end before.
    pub max_open: u32,
    /// Where debug files are, on this host and in containers.
    pub debug_directories: Vec<String>,
    /// Ask debuginfod servers for what is not on this host. Without this section nobody is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub debuginfod: Present<DebuginfodConfig>,
}

/// Servers that give executables and debug files by build id. They learn which programs run here.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default)]
pub struct DebuginfodConfig {
    /// `http://` or `https://`, tried in order. Empty: those in the environment variable `DEBUGINFOD_URLS`.
    pub urls: Vec<String>,
    /// Cache directory; created with access for this user only.
    pub cache_directory: String,
    /// What they may take on disk. The oldest go first; a larger file is not fetched.
    pub cache_bytes: u64,
    /// How long one file may take. Batches do not wait for it.
    pub timeout: Duration,
}

impl Default for DebuginfodConfig {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            cache_directory: "/var/cache/profcol/debuginfod".to_owned(),
            cache_bytes: 4 << 30,
            timeout: Duration::from_secs(120),
        }
    }
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Targets {
    All,
    Kernel,
    Interpreted,
    None,
}

impl Targets {
    pub fn has_native(self) -> bool {
        self == Self::All
    }

    pub fn has_generated(self) -> bool {
        matches!(self, Self::All | Self::Interpreted)
    }
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    Low,
    Normal,
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
            assume_local: false,
            demangle: Demangle::Short,
            timeout: Duration::from_secs(2),
            workers: 1,
            priority: Priority::Low,
            max_memory: 256 << 20,
            max_cpu: 0.5,
            max_open: 256,
            debug_directories: vec!["/usr/lib/debug".to_owned()],
            debuginfod: Present(None),
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
        if let Some(debuginfod) = &*self.debuginfod {
            problems.nested("debuginfod", |problems| debuginfod.validate(problems));
        }
    }
}

impl Config for DebuginfodConfig {
    fn validate(&self, problems: &mut Problems) {
        for (position, url) in self.urls.iter().enumerate() {
            if !is_http_url(url) {
                let problem = format!("{url:?} is no URL; write http://host or https://host");
                problems.add(&format!("urls::{position}"), problem);
            }
        }
        let directory = &self.cache_directory;
        if !Path::new(directory).is_absolute() {
            let problem = format!("{directory:?} is not an absolute path");
            problems.add("cache_directory", problem);
        }
        if self.cache_bytes == 0 {
            problems.add("cache_bytes", "must be above 0");
        }
        if self.timeout <= Duration::ZERO {
            problems.add("timeout", "must be positive");
        }
    }
}
