//! What is known of processes, within bounds.
//!
//! A process is its number and the time when it started. What was read of it stays for a while after
//! it ended, since its last profiles come then.

use std::fs::File;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use profcol_processes::{BuildInfo, FileId, Host, Wanted, open_executable, runtime, timestamp};
use profcol_profile::{KeyValue, Value, attributes_size};

use super::service::{self, VARIABLES};
use super::{Attributes, Described, ProcessConfig};
use crate::shared::generations::Generations;
use crate::shared::local::LocalProcess;
use crate::shared::locks::lock;
use crate::shared::lookup::add_missing;

/// About how much memory is spent on processes: some thousands of them.
const BYTES: usize = 16 << 20;
/// Executables that are remembered.
const EXECUTABLES: usize = 4096;
/// After that a process is looked at again: an exec made it something else.
const MAX_AGE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default)]
pub(super) struct CachedProcess {
    attributes: Attributes,
    /// Of the file that it runs; kernel threads have none.
    pub executable: Option<String>,
    /// What its environment calls its service.
    pub service: Option<String>,
    /// Files that could not be read for lack of rights.
    pub refused: u32,
    start: u64,
    created: Option<i64>,
}

pub(super) struct Library {
    host: OnceLock<Host>,
    wanted: Wanted,
    variables: Vec<String>,
    processes: Mutex<Generations<u32, (Instant, Arc<CachedProcess>)>>,
    executables: Mutex<Generations<FileId, Arc<BuildInfo>>>,
}

// === impl CachedProcess ===

impl CachedProcess {
    /// Adds what is missing; says whether there was something to add.
    pub fn fill(&self, attributes: &mut Attributes) -> bool {
        let own = self.attributes.iter();
        add_missing(attributes, own.map(|it| (&*it.key, Some(it.value.clone()))))
    }
}

// === impl Library ===

impl Library {
    pub fn new(config: &ProcessConfig) -> Self {
        let mut environment = config.environment_variables.clone();
        if config.service_name {
            environment.extend(VARIABLES.map(str::to_owned));
        }
        Self {
            host: OnceLock::new(),
            wanted: Wanted {
                arguments: config.command_args,
                environment,
            },
            variables: config.environment_variables.clone(),
            processes: Mutex::new(Generations::new(BYTES)),
            executables: Mutex::new(Generations::new(EXECUTABLES)),
        }
    }

    pub fn learn_host(&self, host: Host) {
        self.host.get_or_init(|| host);
    }

    pub fn host(&self) -> Option<&Host> {
        self.host.get()
    }

    /// What is known, and need not be read again.
    pub fn find(&self, asked: &LocalProcess) -> Option<Arc<CachedProcess>> {
        let (read, known) = lock(&self.processes).get(&asked.pid)?;
        if !asked.may_be_from(known.created) {
            return None;
        }
        if read.elapsed() < MAX_AGE && asked.created.is_some() {
            return Some(known);
        }
        // Without a time in the profile only the number says who is meant.
        let start = Described::start_of(asked.pid);
        let is_same = start.is_none_or(|start| start == known.start);
        let has_ended = start.is_none();
        (is_same && (has_ended || read.elapsed() < MAX_AGE)).then_some(known)
    }

    /// `None` where it has ended, or its number is another process's now.
    pub fn read(&self, asked: &LocalProcess) -> Option<Arc<CachedProcess>> {
        let described = Described::read(asked.pid, &self.wanted)?;
        let known = Arc::new(self.known(&described));
        if !asked.may_be_from(known.created) {
            return None;
        }
        let service = known.service.as_ref().map_or(0, String::len);
        let weight = size_of::<CachedProcess>() + attributes_size(&known.attributes) + service;
        let entry = (Instant::now(), Arc::clone(&known));
        lock(&self.processes).insert(asked.pid, entry, weight);
        Some(known)
    }

    fn known(&self, described: &Described) -> CachedProcess {
        // Kernel threads have none.
        let file = described
            .path
            .as_ref()
            .and_then(|_| open_executable(described.pid));
        let executable = file.and_then(|(id, file)| self.build_info(id, file));
        CachedProcess {
            attributes: self.attributes(described, executable.as_deref()),
            executable: described.path.as_ref().map(|_| described.name().to_owned()),
            service: service::from_environment(|name| described.variable(name)),
            refused: described.refused,
            start: described.start,
            created: self.created(described),
        }
    }

    fn created(&self, described: &Described) -> Option<i64> {
        described.created(self.host()?)
    }

    fn build_info(&self, id: FileId, file: File) -> Option<Arc<BuildInfo>> {
        if let Some(known) = lock(&self.executables).get(&id) {
            return Some(known);
        }
        let executable = Arc::new(BuildInfo::read(&file)?);
        lock(&self.executables).insert(id, Arc::clone(&executable), 1);
        Some(executable)
    }

    fn attributes(&self, described: &Described, executable: Option<&BuildInfo>) -> Attributes {
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
        let found = [
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
        let found = found
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
        found.chain(variables).collect()
    }
}
