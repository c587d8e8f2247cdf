//! Process attributes, read once and cached.
//!
//! A process is identified by its PID and start time. It stays cached for a while after its exit, because its last
//! profiles arrive then.

mod service_name;

use std::fs::File;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use profcol_processes::{
    BuildInfo, FileId, Host, ProcessDescription, ReadOptions, open_executable, runtime, timestamp,
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

/// What to read of a process.
#[derive(Clone, Debug, Default)]
pub struct ProcessOptions {
    pub command_args: bool,
    /// By name.
    pub environment_variables: Vec<String>,
    /// `service.name`, from the environment, the Kubernetes owner or the executable.
    pub service_name: bool,
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
    start: u64,
    created: Option<i64>,
}

pub struct ProcessCache {
    host: OnceLock<Host>,
    read_options: ReadOptions,
    variables: Vec<String>,
    processes: Mutex<BoundedCache<u32, (Instant, Arc<CachedProcess>)>>,
    executables: Mutex<BoundedCache<FileId, Arc<BuildInfo>>>,
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
        service_name::add(attributes, self)
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
        if read.elapsed() < MAX_AGE && process.created.is_some() {
            return Some(cached);
        }
        // A profile without a start time only identifies the PID.
        let start = ProcessDescription::start_of(process.pid);
        let is_same = start.is_none_or(|start| start == cached.start);
        let has_ended = start.is_none();
        (is_same && (has_ended || read.elapsed() < MAX_AGE)).then_some(cached)
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
        CachedProcess {
            attributes: self.attributes(described, executable.as_deref()),
            executable: described.path.as_ref().map(|_| described.name().to_owned()),
            service: service_name::from_environment(|name| described.variable(name)),
            refused: described.refused,
            start: described.start,
            created: self.created(described),
        }
    }

    fn created(&self, described: &ProcessDescription) -> Option<i64> {
        described.created(self.host()?)
    }

    fn build_info(&self, id: FileId, file: File) -> Option<Arc<BuildInfo>> {
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
