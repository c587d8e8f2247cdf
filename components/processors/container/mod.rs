//! Says in which container a process runs, and what its runtime tells of that.
//!
//! The path of the cgroup has the id. Names, images and labels are asked of the runtimes, beside the
//! batches: no batch waits for them unless it is to.

mod check;
mod config;
mod containerd;
mod cri;
mod described;
mod directory;
mod docker;
mod messages;
mod runtime;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Capabilities, Check, Consumer, Factory, IntCounter,
    Meter, Processor, RunError, Stability, Stop,
};
use profcol_processes::{Container, parents_and_names};
use profcol_profile::{Attributes, Value};
use tokio::time::timeout;

pub use self::config::ContainerConfig;
use self::described::Wanted;
use self::directory::Directory;
use self::runtime::Socket;
use self::watch::Watch;
use crate::shared::lookup::{CGROUP, add_missing, text_of};
use crate::shared::lookup_waiter::LookupWaiter;
use crate::shared::resource_cache::{Edited, ResourceCache};

/// How long a command waits for a runtime.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

pub struct ContainerProcessor {
    sockets: Vec<Socket>,
    wanted: Wanted,
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
        // Those of root are open to root.
        match config.sockets == config::SocketsConfig::default() {
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
        let sockets = Socket::all(&config.sockets);
        let dropped = counter(
            "profcol_container_dropped",
            "Containers not tracked: cache full.",
        );
        Self {
            wanted: Wanted::new(&config.labels),
            directory: Directory::new(sockets.len(), dropped),
            waiter: LookupWaiter::new(config.wait_for.into(), &context.meter, &id),
            resource_cache: ResourceCache::new(),
            failed: counter(
                "profcol_container_failed",
                "Failed queries and lost connections to container runtimes.",
            ),
            sockets,
        }
    }

    /// Those of which no runtime told.
    fn unknown(&self, cgroups: &[Arc<str>]) -> Vec<String> {
        let mut unknown = Vec::new();
        if self.sockets.is_empty() {
            return unknown;
        }
        for cgroup in cgroups {
            let container = profcol_processes::container(cgroup);
            if container.is_some_and(|it| !is_told_of(it)) {
                continue;
            }
            let id = container.map(|it| it.id);
            let name = id.or_else(|| parents_and_names(cgroup).next());
            if let Some(name) = name
                && !unknown.iter().any(|known| known == name)
                && self.directory.find(id, cgroup).is_none()
            {
                unknown.push(name.to_owned());
            }
        }
        unknown
    }
}

#[async_trait]
impl Processor for ContainerProcessor {
    async fn check(&self) -> Vec<Check> {
        check::of_sockets(&self.sockets, &self.wanted).await
    }

    async fn process(&self, mut batch: Batch, next: &dyn Consumer) -> Answer {
        let lookup = (self.resource_cache).lookup(&batch.profiles, self.directory.version());
        let unknown = lookup.misses();
        let cgroups = unknown.filter_map(|it| text_of(&it.attributes, CGROUP));
        let cgroups: Vec<Arc<str>> = cgroups.collect();
        let unknown = || self.unknown(&cgroups);
        self.waiter.wait(self.directory.news(), unknown).await;
        lookup.apply(&mut batch.profiles, |resource| {
            Edited::cacheable(add(&mut resource.attributes, &self.directory))
        });
        next.consume(batch).await
    }

    async fn run(self: Arc<Self>, _: Arc<dyn Consumer>, stop: Stop) -> Result<(), RunError> {
        let watched = self.sockets.iter().enumerate().map(|(source, socket)| {
            let watch = Watch {
                socket,
                source,
                directory: &self.directory,
                wanted: &self.wanted,
                failed: &self.failed,
            };
            let (questions, stop) = (self.waiter.requests(), &stop);
            async move { watch.run(questions, stop).await }
        });
        join_all(watched).await;
        stop.cancelled().await;
        Ok(())
    }
}

/// Whether there is somebody to ask for more than the path says.
fn is_told_of(container: Container<'_>) -> bool {
    !matches!(container.runtime, Some("lxc" | "buildkit"))
}

/// Adds what is missing; says whether there was something to add.
fn add(attributes: &mut Attributes, directory: &Directory) -> bool {
    let Some(cgroup) = text_of(attributes, CGROUP) else {
        return false;
    };
    let container = profcol_processes::container(&cgroup);
    let id = container.map(|container| container.id);
    let runtime = container.and_then(|container| container.runtime);
    // People choose it, and nobody is there to ask.
    let name = id.filter(|_| runtime == Some("lxc"));
    let found = [
        ("container.id", id.map(Value::from)),
        ("container.runtime.name", runtime.map(Value::from)),
        ("container.name", name.map(Value::from)),
    ];
    let is_changed = add_missing(attributes, found);
    let Some(told) = directory.find(id, &cgroup) else {
        return is_changed;
    };
    let told = told.iter().map(|it| (&*it.key, Some(it.value.clone())));
    add_missing(attributes, told) | is_changed
}

/// Adds to processes of this host what is missing, for those who ask once: a runtime that does not answer soon is left out.
pub async fn describe(config: &ContainerConfig, processes: &mut [Attributes]) {
    let sockets = Socket::all(&config.sockets);
    let wanted = Wanted::new(&config.labels);
    let answers = sockets.iter().map(async |socket| {
        let answer = async { socket.open()?.list(&wanted).await };
        timeout(DESCRIBE_TIMEOUT, answer).await.ok()?.ok()
    });
    let dropped = Meter::default().counter("dropped", "Nobody sees it.", &[]);
    let directory = Directory::new(sockets.len(), dropped);
    for (source, answer) in join_all(answers).await.into_iter().enumerate() {
        directory.replace(source, answer.unwrap_or_default());
    }
    for attributes in processes {
        add(attributes, &directory);
    }
}
