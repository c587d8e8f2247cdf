//! Process attributes, read once and cached.
//!
//! A process is identified by its PID and start time. It stays cached for a while after its exit, because its last
//! profiles arrive then.

mod published;
mod service_name;

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use profcol_processes::{
    BuildInfo, ContextError, FileVersion, Host, ProcessDescription, ReadOptions, open_executable,
    process_context, runtime, timestamp,
};
use profcol_profile::{Attributes, KeyValue, Value, attributes_size};

use self::service_name::VARIABLES;
use crate::attributes::{PID, add_missing};
use crate::cache::BoundedCache;
use crate::local_process::LocalProcess;

/// Approximate memory for processes: a few thousand of them.
const MAX_PROCESS_BYTES: usize = 16 << 20;
const MAX_EXECUTABLES: usize = 4096;
/// Processes are read again after this time: exec may have replaced the program.
const MAX_AGE: Duration = Duration::from_secs(60);
/// A young process may not have published its context yet: it is read again when it is twice as old.
const MIN_AGE: Duration = Duration::from_secs(1);

/// What to read of a process.
#[derive(Clone, Debug, Default)]
pub struct ProcessOptions {
    pub command_args: bool,
    /// By name.
    pub environment_variables: Vec<String>,
    /// `service.name`, from the environment, the Kubernetes owner or the executable.
    pub service_name: bool,
    /// The resource attributes that the process publishes: its process context.
    pub process_context: bool,
}

#[derive(Clone, Debug, Default)]
pub struct CachedProcess {
    attributes: Attributes,
    /// The file name; kernel threads have none.
    pub executable: Option<String>,
    /// `service.name` from the environment.
    pub service: Option<String>,
    /// Number of files in /proc that could not be read: permission denied.
    pub refused: u32,
    /// Whether its process context could not be read.
    pub has_invalid_context: bool,
    start: u64,
    created: Option<i64>,
}

pub struct ProcessCache {
    host: OnceLock<Host>,
    read_options: ReadOptions,
    variables: Vec<String>,
    reads_context: bool,
    processes: Mutex<BoundedCache<u32, (Instant, Arc<CachedProcess>)>>,
    executables: Mutex<BoundedCache<FileVersion, Arc<BuildInfo>>>,
}

#[derive(Debug, thiserror::Error)]
enum InvalidContext {
    #[error(transparent)]
    Mapping(#[from] ContextError),
    #[error(transparent)]
    Payload(#[from] prost::DecodeError),
}

/// The time since `created`, in milliseconds since the Unix epoch.
fn age(created: i64) -> Option<Duration> {
    let created = UNIX_EPOCH + Duration::from_millis(created.try_into().ok()?);
    SystemTime::now().duration_since(created).ok()
}

// === impl CachedProcess ===

impl CachedProcess {
    /// Adds missing attributes; returns whether anything was added.
    pub fn fill(&self, attributes: &mut Attributes) -> bool {
        let own = self.attributes.iter();
        add_missing(attributes, own.map(|it| (&*it.key, Some(it.value.clone()))))
    }

    /// Adds `service.name` if missing; returns whether it did.
    pub fn fill_service_name(&self, attributes: &mut Attributes) -> bool {
        service_name::add(
            attributes,
            self.service.as_deref(),
            self.executable.as_deref(),
        )
    }
}

// === impl ProcessCache ===

impl ProcessCache {
    pub fn new(options: &ProcessOptions) -> Self {
        let mut environment = options.environment_variables.clone();
        if options.service_name {
            environment.extend(VARIABLES.map(str::to_owned));
        }
        Self {
            host: OnceLock::new(),
            read_options: ReadOptions {
                arguments: options.command_args,
                environment,
            },
            variables: options.environment_variables.clone(),
            reads_context: options.process_context,
            processes: Mutex::new(BoundedCache::new(MAX_PROCESS_BYTES)),
            executables: Mutex::new(BoundedCache::new(MAX_EXECUTABLES)),
        }
    }

    pub fn set_host(&self, host: Host) {
        self.host.get_or_init(|| host);
    }

    pub fn host(&self) -> Option<&Host> {
        self.host.get()
    }

    /// The cached process, unless it must be read again.
    pub fn find(&self, process: &LocalProcess) -> Option<Arc<CachedProcess>> {
        let (read, cached) = self.processes.lock().get(&process.pid)?;
        if !process.matches_start(cached.created) {
            return None;
        }
        let max_age = self.max_age(&cached, read);
        if read.elapsed() < max_age && process.created.is_some() {
            return Some(cached);
        }
        // A profile without a start time only identifies the PID.
        let start = ProcessDescription::start_of(process.pid);
        let is_same = start.is_none_or(|start| start == cached.start);
        let has_ended = start.is_none();
        (is_same && (has_ended || read.elapsed() < max_age)).then_some(cached)
    }

    /// How long what was read of a process at `read` is valid.
    fn max_age(&self, process: &CachedProcess, read: Instant) -> Duration {
        let age = process.created.filter(|_| self.reads_context).and_then(age);
        let at_read = age.map(|age| age.saturating_sub(read.elapsed()));
        at_read.map_or(MAX_AGE, |age| age.clamp(MIN_AGE, MAX_AGE))
    }

    /// `None` if it exited, or if the PID was reused.
    pub fn read(&self, process: &LocalProcess) -> Option<Arc<CachedProcess>> {
        let described = ProcessDescription::read(process.pid, &self.read_options)?;
        let cached = Arc::new(self.describe(&described));
        if !process.matches_start(cached.created) {
            return None;
        }
        let service = cached.service.as_ref().map_or(0, String::len);
        let weight = size_of::<CachedProcess>() + attributes_size(&cached.attributes) + service;
        let entry = (Instant::now(), Arc::clone(&cached));
        self.processes.lock().insert(process.pid, entry, weight);
        Some(cached)
    }

    fn describe(&self, described: &ProcessDescription) -> CachedProcess {
        // Kernel threads have no executable.
        let file = described
            .path
            .as_ref()
            .and_then(|_| open_executable(described.pid));
        let executable = file.and_then(|(id, file)| self.build_info(id, file));
        let published = self.published(described);
        let has_invalid_context = published.is_err();
        let mut attributes = self.attributes(described, executable.as_deref());
        attributes.extend(published.unwrap_or_default());
        CachedProcess {
            attributes,
            has_invalid_context,
            executable: described.path.as_ref().map(|_| described.name().to_owned()),
            service: service_name::from_environment(|name| described.variable(name)),
            refused: described.refused,
            start: described.start,
            created: self.created(described),
        }
    }

    /// What the process publishes about itself. Its keys are none of those that are read from procfs.
    fn published(&self, described: &ProcessDescription) -> Result<Attributes, InvalidContext> {
        if !self.reads_context || described.path.is_none() {
            return Ok(Attributes::new());
        }
        let invalid = |error: InvalidContext| {
            tracing::debug!(pid = described.pid, %error, "Failed to read the process context.");
            error
        };
        match process_context(Path::new("/proc"), described.pid) {
            Ok(Some(payload)) => published::attributes(&payload).map_err(|it| invalid(it.into())),
            Ok(None) => Ok(Attributes::new()),
            // It is gone, or belongs to another user: counted elsewhere.
            Err(ContextError::Read(_)) => Ok(Attributes::new()),
            Err(error) => Err(invalid(error.into())),
        }
    }

    fn created(&self, described: &ProcessDescription) -> Option<i64> {
        described.created(self.host()?)
    }

    fn build_info(&self, id: FileVersion, file: File) -> Option<Arc<BuildInfo>> {
        if let Some(info) = self.executables.lock().get(&id) {
            return Some(info);
        }
        let executable = Arc::new(BuildInfo::read(&file)?);
        self.executables
            .lock()
            .insert(id, Arc::clone(&executable), 1);
        Some(executable)
    }

    fn attributes(
        &self,
        described: &ProcessDescription,
        executable: Option<&BuildInfo>,
    ) -> Attributes {
        let text = |text: Option<&str>| text.map(Value::from);
        let integer = |number: u32| Value::from(i64::from(number));
        let owner = described.user.map(|user| match self.host() {
            Some(host) => host.user(user),
            None => user.to_string(),
        });
        let created = self.created(described).and_then(timestamp);
        let compiler = executable.and_then(|it| it.compiler.as_deref());
        let runtime =
            runtime(described.name()).or_else(|| compiler?.starts_with("Go").then_some("go"));
        let build_id = executable.and_then(|it| it.build_id.as_deref());
        let go_build_id = executable.and_then(|it| it.go_build_id.as_deref());
        let arguments = described
            .arguments
            .iter()
            .map(|it| Value::from(it.as_str()));
        let arguments: Vec<Value> = arguments.collect();
        let attributes = [
            ("process.comm", text(Some(&described.comm))),
            ("process.executable.name", text(Some(described.name()))),
            ("process.executable.path", text(described.path.as_deref())),
            ("process.executable.build_id.gnu", text(build_id)),
            ("process.executable.build_id.go", text(go_build_id)),
            ("process.executable.compiler", text(compiler)),
            (
                "process.executable.static",
                executable.map(|it| it.is_static.into()),
            ),
            (
                "process.executable.stripped",
                executable.map(|it| it.is_stripped.into()),
            ),
            ("process.runtime.name", text(runtime)),
            ("process.parent_pid", Some(integer(described.parent))),
            ("process.owner", text(owner.as_deref())),
            ("process.creation.time", text(created.as_deref())),
            ("process.vpid", described.own_pid.map(integer)),
            ("process.linux.cgroup", text(described.cgroup.as_deref())),
            (
                "process.command_args",
                (!arguments.is_empty()).then(|| Value::Array(arguments.into())),
            ),
        ];
        let attributes = attributes
            .into_iter()
            .filter_map(|(key, value)| Some(KeyValue::new(key, value?)));
        let variables = described.environment.iter();
        let variables = variables.filter(|(name, _)| self.variables.contains(name));
        let variables = variables.map(|(name, value)| {
            KeyValue::new(
                &format!("process.environment_variable.{name}"),
                value.as_str(),
            )
        });
        attributes.chain(variables).collect()
    }
}

/// The attributes of a local process, read once. `None` if there is no such process.
pub fn attributes_of(pid: u32, options: &ProcessOptions) -> Option<Attributes> {
    let cache = ProcessCache::new(options);
    cache.set_host(Host::read());
    let process = cache.read(&LocalProcess::running(pid))?;
    let mut attributes = Attributes::new();
    add_missing(&mut attributes, [(PID, Some(i64::from(pid).into()))]);
    process.fill(&mut attributes);
    if options.service_name {
        process.fill_service_name(&mut attributes);
    }
    Some(attributes)
}
