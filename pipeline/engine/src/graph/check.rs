//! Runs the checks of all components, before any of them starts.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use profcol_component::Check;

use super::Graph;

/// The checks of one component.
#[derive(Clone, Debug)]
pub struct ComponentChecks {
    /// `exporter otlp_grpc/backend`
    pub component: String,
    pub checks: Vec<Check>,
}

impl Graph {
    /// Runs all components' checks concurrently, each for at most `limit`. Results are in pipeline order.
    pub async fn check(self, limit: Duration) -> Vec<ComponentChecks> {
        let mut checking = Vec::new();
        let mut add = |component: String, checks: BoxFuture<'static, Vec<Check>>| {
            checking.push(async move {
                let checks = tokio::time::timeout(limit, checks).await;
                let checks = checks.unwrap_or_else(|_| vec![too_slow(limit)]);
                ComponentChecks { component, checks }
            });
        };
        for named in self.extensions {
            let extension = named.component;
            let checks = async move { extension.check().await };
            add(named.label, checks.boxed());
        }
        for feed in self.receivers {
            let Some(mut receiver) = feed.component else {
                continue;
            };
            let checks = async move { receiver.check().await };
            add(feed.receiver.label, checks.boxed());
        }
        // Each pipeline has its own instance, with the same options.
        let mut known = HashSet::new();
        for named in self.pipelines.into_iter().flat_map(|route| route.stages) {
            if known.insert(named.id.clone()) {
                let processor = named.component.processor();
                let checks = async move { processor.check().await };
                add(format!("processor {}", named.id), checks.boxed());
            }
        }
        for named in self.exporters {
            let exporter = named.component.exporter();
            let checks = async move { exporter.check().await };
            add(named.label, checks.boxed());
        }
        join_all(checking).await
    }
}

fn too_slow(limit: Duration) -> Check {
    let seconds = limit.as_secs();
    Check::new("answer", format!("no response within {seconds} s")).fail(
        "a dependency does not respond, or this host is overloaded",
        "check the endpoint's server and firewalls that drop packets, then run `profcol doctor` again",
    )
}
