//! Adds the container that a process runs in.
//!
//! Runtimes are queried in the background. A batch waits for them only with `wait_for`.

mod check;
mod config;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Capabilities, Check, Consumer, Factory, IntCounter,
    Processor, RunError, Stability, Stop,
};
use profcol_metadata::attributes::{CGROUP, text_of};
use profcol_metadata::container::{
    Directory, LabelFilter, Socket, SocketsConfig, Watch, add_container, unknown_container,
};

pub use self::config::ContainerConfig;
use crate::shared::lookup_waiter::LookupWaiter;
use crate::shared::resource_cache::{Edited, ResourceCache};

pub struct ContainerProcessor {
    sockets: Vec<Socket>,
    labels: LabelFilter,
    directory: Directory,
    waiter: LookupWaiter,
    resource_cache: ResourceCache,
    failed: IntCounter,
}

impl Factory for ContainerProcessor {
    const NAME: &'static str = "container";
    type Config = ContainerConfig;
    type Component = dyn Processor;
    const STABILITY: Stability = Stability::Alpha;

    fn capabilities(config: &ContainerConfig) -> Capabilities {
        // Root can open sockets of root without the capability.
        match config.container.sockets == SocketsConfig::default() {
            true => Capabilities::NONE,
            false => Capabilities::DAC_OVERRIDE,
        }
    }

    fn build(
        config: &ContainerConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Processor>, BuildError> {
        Ok(Box::new(ContainerProcessor::new(config, context)))
    }
}

impl ContainerProcessor {
    fn new(config: &ContainerConfig, context: &BuildContext) -> Self {
        let id = context.id.to_string();
        let counter = |name, help| context.meter.counter(name, help, &[("processor", &id)]);
        let sockets = Socket::all(&config.container.sockets);
        let dropped = counter(
            "profcol_container_dropped",
            "Containers not tracked: cache full.",
        );
        Self {
            labels: LabelFilter::new(&config.container.labels),
            directory: Directory::new(&sockets, dropped),
            waiter: LookupWaiter::new(config.wait_for.into(), &context.meter, &id),
            resource_cache: ResourceCache::new(),
            failed: counter(
                "profcol_container_failed",
                "Failed queries and lost connections to container runtimes.",
            ),
            sockets,
        }
    }

    /// The containers that the runtimes have not reported yet, or not completely.
    fn unknown(&self, cgroups: &[Arc<str>]) -> Vec<String> {
        let mut unknown = Vec::new();
        if self.sockets.is_empty() {
            return unknown;
        }
        for cgroup in cgroups {
            if let Some(name) = unknown_container(cgroup, &self.directory)
                && !unknown.contains(&name)
            {
                unknown.push(name);
            }
        }
        unknown
    }
}

#[async_trait]
impl Processor for ContainerProcessor {
    async fn check(&self) -> Vec<Check> {
        check::socket_checks(&self.sockets, &self.labels).await
    }

    async fn process(&self, mut batch: Batch, next: &dyn Consumer) -> Answer {
        let lookup = (self.resource_cache).lookup(&batch.profiles, self.directory.version());
        let unknown = lookup.misses();
        let cgroups = unknown.filter_map(|it| text_of(&it.attributes, CGROUP));
        let cgroups: Vec<Arc<str>> = cgroups.collect();
        let unknown = || self.unknown(&cgroups);
        self.waiter.wait(self.directory.news(), unknown).await;
        lookup.apply(&mut batch.profiles, |resource| {
            Edited::cacheable(add_container(&mut resource.attributes, &self.directory))
        });
        next.consume(batch).await
    }

    async fn run(self: Arc<Self>, _: Arc<dyn Consumer>, stop: Stop) -> Result<(), RunError> {
        let watched = self.sockets.iter().enumerate().map(|(source, socket)| {
            let watch = Watch {
                socket,
                source,
                directory: &self.directory,
                labels: &self.labels,
                failed: &self.failed,
            };
            let (requests, stop) = (self.waiter.requests(), &stop);
            async move { watch.run(requests, stop).await }
        });
        join_all(watched).await;
        stop.cancelled().await;
        Ok(())
    }
}
