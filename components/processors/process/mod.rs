//! Adds attributes of the profiled processes, read from this host.
//!
//! Only of processes that are surely this host's: see [`LocalProcess`]. What is read of a process serves all of
//! its batches; the files are read beside the threads that move batches.

mod config;
mod library;
mod service;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Capabilities, Consumer, Factory, IntCounter,
    Processor, Stability, StartError,
};
use profcol_processes::{Described, Host};
use profcol_profile::Attributes;

pub use self::config::ProcessConfig;
use self::library::{CachedProcess, Library};
use crate::shared::local::LocalProcess;
use crate::shared::lookup::PID;
use crate::shared::resource_cache::{Edited, ResourceCache};
use crate::shared::run_blocking::run_blocking;

pub struct ProcessProcessor {
    config: ProcessConfig,
    library: Arc<Library>,
    resource_cache: ResourceCache,
    read: IntCounter,
    refused: IntCounter,
    gone: IntCounter,
}

/// A process that a resource speaks of, with what was known of it when its batch came.
struct Subject {
    asked: LocalProcess,
    known: Option<Arc<CachedProcess>>,
}

impl Subject {
    fn unknown(&self) -> Option<LocalProcess> {
        self.known.is_none().then(|| self.asked.clone())
    }
}

impl Factory for ProcessProcessor {
    const NAME: &'static str = "process";
    const STABILITY: Stability = Stability::Alpha;
    type Config = ProcessConfig;
    type Component = dyn Processor;

    fn capabilities(_: &ProcessConfig) -> Capabilities {
        Capabilities::SYS_PTRACE
    }

    fn build(
        config: &ProcessConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Processor>, BuildError> {
        Ok(Box::new(ProcessProcessor::new(config, context)))
    }
}

impl ProcessProcessor {
    fn new(config: &ProcessConfig, context: &BuildContext) -> Self {
        let id = context.id.to_string();
        let counter = |name, help| context.meter.counter(name, help, &[("processor", &id)]);
        Self {
            config: config.clone(),
            library: Arc::new(Library::new(config)),
            resource_cache: ResourceCache::new(),
            read: counter("profcol_process_read", "Processes read from procfs."),
            refused: counter(
                "profcol_process_refused_files",
                "Process files that could not be read: permission denied.",
            ),
            gone: counter(
                "profcol_process_gone",
                "Processes that exited, or whose PID was reused, before they were read.",
            ),
        }
    }

    /// `None` where the resource is no process of this host.
    fn subject(&self, attributes: &Attributes) -> Option<Subject> {
        let host = self.library.host()?;
        let asked = LocalProcess::of(attributes, host, self.config.assume_local)?;
        Some(Subject {
            known: self.library.find(&asked),
            asked,
        })
    }

    async fn read(&self, unknown: HashSet<LocalProcess>) {
        let library = Arc::clone(&self.library);
        let read = run_blocking(move || {
            let read = unknown.iter().map(|asked| library.read(asked));
            read.collect::<Vec<_>>()
        })
        .await;
        for known in read {
            match known {
                Some(known) => {
                    self.read.inc();
                    self.refused.inc_by(known.refused.into());
                }
                None => self.gone.inc(),
            }
        }
    }

    fn fill(&self, attributes: &mut Attributes, subject: Option<Subject>) -> Edited {
        let Some(Subject { asked, known }) = subject else {
            return Edited::cacheable(false);
        };
        let Some(known) = known.or_else(|| self.library.find(&asked)) else {
            return Edited {
                is_changed: false,
                is_cacheable: false,
            };
        };
        let added = known.fill(attributes);
        let service = match self.config.service_name {
            true => service::add_name(attributes, &known),
            false => false,
        };
        Edited::cacheable(added || service)
    }
}

#[async_trait]
impl Processor for ProcessProcessor {
    async fn start(&self) -> Result<(), StartError> {
        self.library.learn_host(Host::read());
        Ok(())
    }

    async fn process(&self, mut batch: Batch, next: &dyn Consumer) -> Answer {
        let lookup = self.resource_cache.lookup(&batch.profiles, 0);
        let subjects = lookup.misses().map(|it| self.subject(&it.attributes));
        let subjects: Vec<Option<Subject>> = subjects.collect();
        let unknown: HashSet<LocalProcess> = subjects
            .iter()
            .flatten()
            .filter_map(Subject::unknown)
            .collect();
        if !unknown.is_empty() {
            self.read(unknown).await;
        }
        let mut subjects = subjects.into_iter();
        lookup.apply(&mut batch.profiles, |resource| {
            self.fill(&mut resource.attributes, subjects.next().flatten())
        });
        next.consume(batch).await
    }
}

/// What this processor would say of a process of this host.
pub fn describe(config: &ProcessConfig, pid: u32) -> Option<Attributes> {
    let library = Library::new(config);
    library.learn_host(Host::read());
    let known = library.read(&LocalProcess::running(pid))?;
    let mut attributes = Attributes::new();
    crate::shared::lookup::add_missing(&mut attributes, [(PID, Some(i64::from(pid).into()))]);
    known.fill(&mut attributes);
    if config.service_name {
        service::add_name(&mut attributes, &known);
    }
    Some(attributes)
}
