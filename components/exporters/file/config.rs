//! The options of `file`, compatible with the Collector.

use profcol_component::files;
use profcol_config::{Config, Duration, Present, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Writes profiles to files.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct FileConfig {
    /// Output file. With `group_by`, its one `*` is replaced by the value of the resource attribute.
    pub path: String,
    /// Append to an existing file at start; `false` truncates it. With `rotation` or `group_by`
    /// files are always appended to.
    pub append: bool,
    /// File rotation; disabled if absent.
    pub rotation: Present<Rotation>,
    /// `json` writes a line of OTLP JSON per batch, `proto` length-prefixed OTLP protobuf.
    pub format: Format,
    /// `zstd` compresses each batch separately and prefixes it with its length.
    pub compression: Compression,
    /// Interval between fsyncs of written data; `0s` means `1s`.
    pub flush_interval: Duration,
    /// Write resources to different files by an attribute; disabled if absent.
    pub group_by: Present<GroupBy>,
    /// Create missing directories.
    pub create_directory: bool,
    /// Octal permissions of created directories; empty means `0750`.
    pub directory_permissions: String,
}

/// When files are rotated and how many are kept.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct Rotation {
    /// Maximum size of a file before it is rotated; 0 means 100.
    pub max_megabytes: u64,
    /// Rotate files older than this and delete rotated files older than this; 0 means no age limit.
    pub max_days: u32,
    /// Maximum number of rotated files to keep; 0 keeps all.
    pub max_backups: usize,
    /// Use local time instead of UTC in the names of rotated files.
    pub localtime: bool,
}

/// Groups resources into files.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct GroupBy {
    /// `false` ignores the other options of this section, and writes one file.
    pub enabled: bool,
    /// Resource attribute whose value replaces the `*` in `path`. Resources without it are dropped and counted.
    pub resource_attribute: String,
    /// Maximum number of open files.
    pub max_open_files: usize,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-unknown" = "format type is not supported:"))]
pub enum Format {
    #[default]
    Json,
    Proto,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-unknown" = "compression is not supported:", "x-aliases" = { "": "none" }))]
pub enum Compression {
    #[default]
    None,
    Zstd,
}

const ALL_PERMISSIONS: u32 = 0o777;

// === defaults ===

impl Default for FileConfig {
    fn default() -> Self {
        Self {
            path: String::new(),
            append: false,
            rotation: Present::default(),
            format: Format::default(),
            compression: Compression::default(),
            flush_interval: Duration::from_secs(1),
            group_by: Present::default(),
            create_directory: false,
            directory_permissions: String::new(),
        }
    }
}

impl Default for Rotation {
    fn default() -> Self {
        Self {
            max_megabytes: 100,
            max_days: 0,
            max_backups: 100,
            localtime: false,
        }
    }
}

impl Default for GroupBy {
    fn default() -> Self {
        Self {
            enabled: false,
            resource_attribute: "fileexporter.path_segment".to_owned(),
            max_open_files: 100,
        }
    }
}

// === validation ===

impl Config for FileConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.path.is_empty() {
            problems.add("path", "path must be non-empty");
        }
        if self.append && self.compression != Compression::None {
            problems.add(
                "append",
                "append and compression enabled at the same time is not supported",
            );
        }
        if self.append && self.rotation.is_some() {
            problems.add(
                "append",
                "append and rotation enabled at the same time is not supported",
            );
        }
        if self.flush_interval.is_negative() {
            problems.add("flush_interval", "flush_interval must be larger than zero");
        }
        if let Some(group_by) = self.grouping() {
            self.validate_grouping(group_by, problems);
        }
        match parse_permissions(&self.directory_permissions) {
            Err(reason) => problems.add("directory_permissions", reason),
            Ok(Some(_)) if !self.create_directory => problems.add(
                "directory_permissions",
                "directory_permissions requires create_directory to be true",
            ),
            Ok(_) => {}
        }
    }
}

impl FileConfig {
    /// `group_by`, if enabled.
    pub(super) fn grouping(&self) -> Option<&GroupBy> {
        self.group_by.as_ref().filter(|group_by| group_by.enabled)
    }

    pub(super) fn permissions(&self) -> u32 {
        let parsed = parse_permissions(&self.directory_permissions);
        parsed.ok().flatten().unwrap_or(files::DIRECTORY_MODE)
    }

    fn validate_grouping(&self, group_by: &GroupBy, problems: &mut Problems) {
        if self.path.matches('*').count() != 1 {
            let message = "path must contain exactly one * when group_by is enabled";
            problems.add("path", message);
        } else if self.path.starts_with('*') {
            problems.add(
                "path",
                "path must not start with * when group_by is enabled",
            );
        }
        if group_by.resource_attribute.is_empty() {
            problems.add(
                "group_by::resource_attribute",
                "resource_attribute must not be empty when group_by is enabled",
            );
        }
        if group_by.max_open_files == 0 {
            problems.add("group_by::max_open_files", "must provide a positive size");
        }
    }
}

fn parse_permissions(text: &str) -> Result<Option<u32>, &'static str> {
    if text.is_empty() {
        return Ok(None);
    }
    let bits = u32::from_str_radix(text, 8)
        .map_err(|_| "directory_permissions value must be a valid octal representation")?;
    if bits & !ALL_PERMISSIONS != 0 {
        return Err("directory_permissions contain invalid bits for file access");
    }
    Ok(Some(bits))
}
