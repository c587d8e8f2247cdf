//! The options of `debuginfo`.

use profcol_config::{Duration, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the server needs to name native code: symbols and DWARF of the executables that samples met.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct DebuginfoConfig {
    /// Upload it, for executables that a receiver of this process sampled.
    pub upload: bool,
    /// Upload what names code, without code and data. Otherwise whole files go.
    pub strip: bool,
    /// Where debug files of stripped executables are, below the root of their process and of this one.
    pub directories: Vec<String>,
    /// Uploads at a time.
    pub max_parallel: u32,
    /// What is larger, in bytes, is not uploaded. A server takes 1,000,000,000 at most.
    pub max_file_size: u64,
    /// Executables that wait for their upload, each of them open, so that it can be uploaded after its
    /// program ended. When there are more, the one with the fewest samples is dropped and counted. Each takes one of
    /// the descriptors of this process, of which there are often no more than 1024. As many may wait while nothing is
    /// exported.
    pub max_open: u32,
    /// Bytes a second, over all uploads; 0 means as fast as it goes. A single upload is faster where it would not be
    /// done in less than half of `timeout` otherwise, and the next one waits for as much longer.
    pub rate_limit: u64,
    /// How long an upload over gRPC may take. A server cuts it off at its own limit, `--http-read-timeout`, which is 5s
    /// where nothing else is set. What does not arrive in that time goes compressed or without lines. Uploads to a
    /// signed URL take as long as `rate_limit` makes them.
    pub timeout: Duration,
    /// Where to remember for a week what the server has, so that it is not asked again after a restart. Without it that
    /// is remembered in memory alone.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub state_directory: String,
}

/// In bytes a second.
const SLOWEST: u64 = 1024;
/// More than any executable has.
const LARGEST: u64 = 1 << 40;

impl Default for DebuginfoConfig {
    fn default() -> Self {
        Self {
            upload: true,
            strip: true,
            directories: vec!["/usr/lib/debug".to_owned()],
            max_parallel: 1,
            max_file_size: 1_000_000_000,
            max_open: 256,
            rate_limit: 10 << 20,
            timeout: Duration::from_secs(5),
            state_directory: String::new(),
        }
    }
}

impl DebuginfoConfig {
    pub fn validate(&self, problems: &mut Problems) {
        for (key, value, most) in [
            ("max_parallel", self.max_parallel, 64),
            ("max_open", self.max_open, 65_536),
        ] {
            if !(1..=most).contains(&value) {
                problems.add(key, format!("must be between 1 and {most}"));
            }
        }
        if (1..SLOWEST).contains(&self.rate_limit) {
            problems.add("rate_limit", format!("must be 0 or at least {SLOWEST}"));
        }
        if self.max_file_size > LARGEST {
            problems.add("max_file_size", format!("must be at most {LARGEST}"));
        }
        if self.timeout <= Duration::ZERO {
            problems.add("timeout", "must be positive");
        }
        for (position, directory) in self.directories.iter().enumerate() {
            if !directory.starts_with('/') {
                let key = format!("directories::{position}");
                problems.add(&key, "must be an absolute path");
            }
        }
    }
}
