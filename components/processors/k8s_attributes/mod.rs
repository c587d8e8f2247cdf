//! Adds the Kubernetes pod, container and workload of a process.
//!
//! ```text
//! API server ──list, watch──► Follower, one of each kind ──Change──► Directory ◄──fill── batches
//! ```
//!
//! Without `wait_for` a batch does not wait for the API server: resources whose pod is not known yet pass
//! and are counted.

mod association;
mod config;
mod directory;
mod field;
mod keys;
mod objects;
mod pod_filter;
mod pod_index;
mod records;
mod rules;
mod selection;
mod service;
#[cfg(test)]
mod tests;
mod texts;

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::{join_all, try_join_all};
use parking_lot::Mutex;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Check, Consumer, Factory, IntCounter, Processor,
    RunError, Stability, StartError, Stop,
};
use profcol_config::Duration;
use profcol_kubernetes::{CheckImpact, Counters, Follower, Health, Query, Server, check_rights};
use profcol_profile::Resource;
use regex::Regex;
use tokio::sync::Notify;

use self::association::Associations;
pub use self::config::K8sAttributesConfig;
use self::config::Origin;
use self::directory::{Directory, Parts, PodLookup};
use self::records::Kind;
use self::rules::Rules;
use crate::shared::lookup_waiter::LookupWaiter;

const IMPACT: CheckImpact = CheckImpact {
    lost: "profiles have no names of pods, containers and workloads",
    late: "names are added later",
};

pub struct K8sAttributes {
    config: K8sAttributesConfig,
    context: BuildContext,
    server: Arc<Server>,
    health: Arc<Health>,
    directory: Directory,
    /// Present if batches wait for pods that are not known yet.
    waiter: Option<LookupWaiter>,
    /// Notifies the follower that a pod was not found.
    questions: Notify,
    /// Set between construction and `run`.
    followers: Mutex<Vec<(Kind, Follower)>>,
    found: IntCounter,
    unknown: IntCounter,
}

impl Factory for K8sAttributes {
    const NAME: &'static str = "k8s_attributes";
    const ALIASES: &'static [&'static str] = &["k8sattributes"];
    const STABILITY: Stability = Stability::Alpha;
    type Config = K8sAttributesConfig;
    type Component = dyn Processor;

    fn build(
        config: &K8sAttributesConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Processor>, BuildError> {
        let built = K8sAttributes::new(config, context);
        Ok(Box::new(built?))
    }
}

/// The variable with the name of the node is not set.
#[derive(Debug, thiserror::Error)]
#[error("{}: {}", self.problem(), Self::FIX)]
struct NoNode {
    variable: String,
}

impl NoNode {
    const FIX: &str = "give it fieldRef spec.nodeName in the pod's env";

    fn problem(&self) -> String {
        let variable = &self.variable;
        format!("`node_from_env_var` is configured but envvar {variable:?} is not set")
    }

    fn check(&self) -> Check {
        Check::new("node", self.problem()).fail("profcol does not start", Self::FIX)
    }
}

impl K8sAttributes {
    fn new(config: &K8sAttributesConfig, context: &BuildContext) -> Result<Self, BuildError> {
        let id = context.id.to_string();
        let labels: &[(&str, &str)] = &[("processor", &id)];
        let counter = |name, help| context.meter.counter(name, help, labels);
        let rules = config.pod_association.iter().map(|it| it.rule());
        let excluded = config.exclude.pods.iter().map(|pod| Regex::new(&pod.name));
        let excluded: Result<_, regex::Error> = excluded.collect();
        let directory = Directory::new(Parts {
            rules: Rules::new(&config.extract, config.source)?,
            associations: Associations::new(
                rules.collect::<Result<_, _>>().map_err(BuildError::new)?,
            ),
            excluded: excluded.map_err(BuildError::new)?,
            max_pods: config.max_pods as usize,
            keep_deleted_for: config.keep_deleted_for.into(),
            pods: context
                .meter
                .gauge("profcol_k8s_attributes_pods", "Pods in the cache.", labels),
            over_limit: counter(
                "profcol_k8s_attributes_over_limit",
                "Objects not cached because of max_pods.",
            ),
        });
        let waits = config.wait_for > Duration::ZERO;
        Ok(Self {
            waiter: waits.then(|| LookupWaiter::new(config.wait_for.into(), &context.meter, &id)),
            config: config.clone(),
            context: context.clone(),
            server: Arc::new(Server::new(config.access())),
            health: Arc::new(Health::new(context.status.clone())),
            directory,
            questions: Notify::new(),
            followers: Mutex::default(),
            found: counter(
                "profcol_k8s_attributes_found",
                "Resources matched to a pod.",
            ),
            unknown: counter(
                "profcol_k8s_attributes_unknown",
                "Resources whose pod was not found.",
            ),
        })
    }

    /// The pods and containers of a batch that are not known yet. A lookup without a result requests them.
    fn unknown(&self, batch: &Batch) -> Vec<String> {
        let mut unknown: Vec<String> = Vec::new();
        batch.profiles.for_each_resource(|resource| {
            let key = self.directory.unknown(&resource.attributes, batch.peer);
            if let Some(key) = key
                && !unknown.iter().any(|known| **known == *key)
            {
                unknown.push(key.to_string());
            }
        });
        if !unknown.is_empty() {
            self.questions.notify_one();
        }
        unknown
    }

    /// The node whose pods are watched; empty means all.
    fn node(&self) -> Result<String, NoNode> {
        let filter = &self.config.filter;
        match &*filter.node_from_env_var {
            "" => Ok(filter.node.clone()),
            name => match std::env::var(name) {
                Ok(node) if !node.is_empty() => Ok(node),
                _ => Err(NoNode {
                    variable: name.to_owned(),
                }),
            },
        }
    }

    fn query(&self, kind: Kind, node: &str) -> Query {
        let rules = self.directory.rules();
        match self.config.source {
            Origin::Api => Query::new(
                kind.resource(),
                self.config.filter.selection(kind, node, rules),
            ),
            Origin::Kubelet => Query::of_kubelet(kind.resource()),
        }
    }

    fn follower(&self, kind: Kind, node: &str) -> Follower {
        let id = self.context.id.to_string();
        let labels: &[(&str, &str)] = &[("processor", &id), ("resource", kind.resource().plural)];
        let counter = |name, help| self.context.meter.counter(name, help, labels);
        let counters = Counters {
            failures: counter(
                "profcol_k8s_attributes_api_failures",
                "Failed requests to the API server.",
            ),
            unreadable: counter(
                "profcol_k8s_attributes_unreadable",
                "Objects skipped because they could not be decoded.",
            ),
        };
        let query = self.query(kind, node);
        let health = Arc::clone(&self.health);
        Follower::new(Arc::clone(&self.server), query, counters, health)
    }

    async fn list(&self, kind: Kind, follower: &mut Follower) -> Result<(), StartError> {
        let listed = match kind {
            Kind::Pod => {
                let mut on = |change| self.directory.change_pods(change);
                follower.list(&mut on).await
            }
            kind => {
                let mut on = |change| self.directory.change_others(kind, change);
                follower.list(&mut on).await
            }
        };
        listed.map_err(|error| StartError::new(follower.explain(&error)))
    }

    async fn follow(&self, kind: Kind, follower: Follower) {
        match kind {
            Kind::Pod if self.config.source == Origin::Kubelet => {
                let on = |change| self.directory.change_pods(change);
                let interval = self.config.kubelet.poll_interval.into();
                follower.poll(on, &self.questions, interval).await;
            }
            Kind::Pod => {
                follower
                    .run(|change| self.directory.change_pods(change))
                    .await
            }
            kind => {
                let on = |change| self.directory.change_others(kind, change);
                follower.run(on).await;
            }
        }
    }
}

#[async_trait]
impl Processor for K8sAttributes {
    async fn start(&self) -> Result<(), StartError> {
        if self.config.passthrough {
            return Ok(());
        }
        let node = self.node().map_err(StartError::new)?;
        self.server.client().await.map_err(StartError::new)?;
        let kinds = Kind::ALL.into_iter();
        let needed = kinds.filter(|kind| self.directory.rules().needs(*kind));
        let mut followers: Vec<_> = needed
            .map(|kind| (kind, self.follower(kind, &node)))
            .collect();
        if self.config.wait_for_metadata {
            let lists = followers
                .iter_mut()
                .map(|(kind, follower)| self.list(*kind, follower));
            let limit = self.config.wait_for_metadata_timeout;
            tokio::time::timeout(limit.into(), try_join_all(lists))
                .await
                .map_err(|_| {
                    StartError::new(format!(
                        "the API server did not return everything within wait_for_metadata_timeout ({limit})"
                    ))
                })??;
        }
        *self.followers.lock() = followers;
        Ok(())
    }

    async fn check(&self) -> Vec<Check> {
        if self.config.passthrough {
            return Vec::new();
        }
        let node = match self.node() {
            Ok(node) => node,
            Err(error) => return vec![error.check()],
        };
        let kinds = Kind::ALL.into_iter();
        let needed = kinds.filter(|kind| self.directory.rules().needs(*kind));
        let queries = needed.map(|kind| self.query(kind, &node)).collect();
        check_rights(&self.server, queries, IMPACT).await
    }

    async fn process(&self, mut batch: Batch, next: &dyn Consumer) -> Answer {
        let (mut found, mut unknown, mut is_whole) = (0, 0, true);
        let peer = batch.peer;
        if self.config.passthrough {
            let note = |resource: &mut Resource| {
                self.directory.note_address(&mut resource.attributes, peer)
            };
            batch.profiles.update_resources(note);
            return next.consume(batch).await;
        }
        if let Some(waiter) = &self.waiter {
            let unknown = || self.unknown(&batch);
            waiter.wait(self.directory.news(), unknown).await;
        }
        batch.profiles.update_resources(|resource| {
            match self.directory.fill(&mut resource.attributes, peer) {
                PodLookup::Known {
                    is_changed,
                    is_whole: is_this_whole,
                } => {
                    found += 1;
                    is_whole &= is_this_whole;
                    is_changed
                }
                PodLookup::Unknown => {
                    unknown += 1;
                    is_whole = false;
                    false
                }
                PodLookup::NoKey => false,
            }
        });
        if !is_whole {
            self.questions.notify_one();
        }
        self.found.inc_by(found);
        self.unknown.inc_by(unknown);
        next.consume(batch).await
    }

    async fn run(self: Arc<Self>, _: Arc<dyn Consumer>, stop: Stop) -> Result<(), RunError> {
        let followers = std::mem::take(&mut *self.followers.lock());
        let followers = followers
            .into_iter()
            .map(|(kind, follower)| self.follow(kind, follower));
        tokio::select! {
            () = stop.cancelled() => {}
            _ = join_all(followers), if !self.config.passthrough => {}
        }
        Ok(())
    }
}
