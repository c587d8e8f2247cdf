//! The options of `debuginfo`.

use profcol_config::{Duration, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Upload of symbols and DWARF of sampled executables, so that the server can symbolize native code.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct DebuginfoConfig {
    /// Upload debuginfo of executables sampled by a receiver of this process.
    pub upload: bool,
    /// Strip code and data before uploading; `false` uploads whole files.
    pub strip: bool,
    /// Directories with separate debug files, relative to the root of the sampled process and of this one.
    pub directories: Vec<String>,
    /// Maximum number of concurrent uploads.
    pub max_parallel: u32,
    /// Files larger than this, in bytes, are not uploaded. The server's limit is 1,000,000,000.
    pub max_file_size: u64,
    /// Maximum number of executables queued for upload. Each is kept open so that it can be
    /// uploaded after its process exited, and uses one file descriptor of this process (often
    /// limited to 1024). If the queue is full, the executable with the fewest samples is dropped
    /// and counted. As many more may wait until the next export.
    pub max_open: u32,
    /// Rate limit of all uploads, in bytes per second; 0 means no limit. An upload exceeds it if it
    /// would otherwise take more than half of `timeout`; the next upload is delayed accordingly.
    pub rate_limit: u64,
    /// Timeout of an upload over gRPC. The server has its own limit, `--http-read-timeout`, 5s by
    /// default. Files that would exceed it are uploaded compressed or without line tables. Uploads
    /// to a signed URL are limited only by `rate_limit`.
    pub timeout: Duration,
    /// Directory for the cache of uploaded build IDs, kept for a week, so that the server is not
    /// queried again after a restart. If empty, the cache is in memory only.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub state_directory: String,
}

/// In bytes per second.
const MIN_RATE_LIMIT: u64 = 1024;
/// Larger than any executable.
const MAX_FILE_SIZE: u64 = 1 << 40;

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
        for (key, value, max) in [
            ("max_parallel", self.max_parallel, 64),
            ("max_open", self.max_open, 65_536),
        ] {
            if !(1..=max).contains(&value) {
                problems.add(key, format!("must be between 1 and {max}"));
            }
        }
        if (1..MIN_RATE_LIMIT).contains(&self.rate_limit) {
            problems.add(
                "rate_limit",
                format!("must be 0 or at least {MIN_RATE_LIMIT}"),
            );
        }
        if self.max_file_size > MAX_FILE_SIZE {
            problems.add("max_file_size", format!("must be at most {MAX_FILE_SIZE}"));
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
