//! Adds attributes of the profiled processes, read from this host.
//!
//! Only for processes that certainly run on this host: see [`LocalProcess`]. Files are read on blocking threads.

mod config;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Capabilities, Consumer, Factory, IntCounter,
    Processor, Stability, StartError,
};
use profcol_metadata::process::{CachedProcess, ProcessCache, ProcessOptions};
use profcol_metadata::{LocalProcess, run_blocking};
use profcol_processes::Host;
use profcol_profile::Attributes;

pub use self::config::ProcessConfig;
use crate::shared::resource_cache::{Edited, ResourceCache};

pub struct ProcessProcessor {
    config: ProcessConfig,
    processes: Arc<ProcessCache>,
    resource_cache: ResourceCache,
    read: IntCounter,
    refused: IntCounter,
    gone: IntCounter,
    invalid_contexts: IntCounter,
}

/// The process of a resource, and the cache entry for it.
struct ResourceProcess {
    process: LocalProcess,
    cached: Option<Arc<CachedProcess>>,
}

impl ResourceProcess {
    fn unknown(&self) -> Option<LocalProcess> {
        self.cached.is_none().then(|| self.process.clone())
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
            processes: Arc::new(ProcessCache::new(&ProcessOptions {
                command_args: config.command_args,
                environment_variables: config.environment_variables.clone(),
                service_name: config.service_name,
                process_context: config.process_context,
            })),
            resource_cache: ResourceCache::new(),
            read: counter("profcol_process_read", "Processes read from procfs."),
            refused: counter(
                "profcol_process_refused_files",
                "Process files that could not be read: permission denied.",
            ),
            invalid_contexts: counter(
                "profcol_process_invalid_contexts",
                "Reads of process contexts that failed: damaged, too large or of an unsupported version.",
            ),
            gone: counter(
                "profcol_process_gone",
                "Processes that exited, or whose PID was reused, before they were read.",
            ),
        }
    }

    /// `None` if the resource is not a process of this host.
    fn resource_process(&self, attributes: &Attributes) -> Option<ResourceProcess> {
        let host = self.processes.host()?;
        let process = LocalProcess::of(attributes, host, self.config.assume_local)?;
        Some(ResourceProcess {
            cached: self.processes.find(&process),
            process,
        })
    }

    async fn read(&self, unknown: HashSet<LocalProcess>) {
        let processes = Arc::clone(&self.processes);
        let read = run_blocking(move || {
            let read = unknown.iter().map(|process| processes.read(process));
            read.collect::<Vec<_>>()
        })
        .await;
        for cached in read {
            match cached {
                Some(cached) => {
                    self.read.inc();
                    self.refused.inc_by(cached.refused.into());
                    self.invalid_contexts
                        .inc_by(cached.has_invalid_context.into());
                }
                None => self.gone.inc(),
            }
        }
    }

    fn fill(
        &self,
        attributes: &mut Attributes,
        resource_process: Option<ResourceProcess>,
    ) -> Edited {
        let Some(ResourceProcess { process, cached }) = resource_process else {
            return Edited::cacheable(false);
        };
        let Some(cached) = cached.or_else(|| self.processes.find(&process)) else {
            return Edited {
                is_changed: false,
                is_cacheable: false,
            };
        };
        let added = cached.fill(attributes);
        let service = match self.config.service_name {
            true => cached.fill_service_name(attributes),
            false => false,
        };
        Edited::cacheable(added || service)
    }
}

#[async_trait]
impl Processor for ProcessProcessor {
    async fn start(&self) -> Result<(), StartError> {
        self.processes.set_host(Host::read());
        Ok(())
    }

    async fn process(&self, mut batch: Batch, next: &dyn Consumer) -> Answer {
        let lookup = self.resource_cache.lookup(&batch.profiles, 0);
        let resource_processes = lookup
            .misses()
            .map(|it| self.resource_process(&it.attributes));
        let resource_processes: Vec<Option<ResourceProcess>> = resource_processes.collect();
        let unknown: HashSet<LocalProcess> = resource_processes
            .iter()
            .flatten()
            .filter_map(ResourceProcess::unknown)
            .collect();
        if !unknown.is_empty() {
            self.read(unknown).await;
        }
        let mut resource_processes = resource_processes.into_iter();
        lookup.apply(&mut batch.profiles, |resource| {
            self.fill(
                &mut resource.attributes,
                resource_processes.next().flatten(),
            )
        });
        next.consume(batch).await
    }
}
