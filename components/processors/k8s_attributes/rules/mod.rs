//! Maps API objects to attributes.

mod extract;
mod fill;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use profcol_component::BuildError;

use super::config::{ExtractConfig, Origin};
use super::field::Field;
use super::keys::{KeyRule, KeySource, MetadataKind};
use super::records::Kind;

/// The namespace whose UID serves as the cluster's.
pub(super) const OF_THE_CLUSTER: &str = "kube-system";

#[derive(Debug)]
pub(super) struct Rules {
    /// The fields to add, with the names of their attributes.
    fields: BTreeMap<Field, Arc<str>>,
    keys: Vec<KeyRule>,
    otel_annotations: bool,
    derives_deployment: bool,
    /// Whether only pods are available.
    has_only_pods: bool,
}

impl Rules {
    pub fn new(config: &ExtractConfig, origin: Origin) -> Result<Self, BuildError> {
        let fields: BTreeSet<Field> = config.metadata.iter().copied().collect();
        let named = fields.into_iter().map(|field| {
            let name = serde_json::to_value(field).map_err(BuildError::new)?;
            Ok((field, name.as_str().unwrap_or_default().into()))
        });
        let labels = config.labels.iter().map(|key| (key, MetadataKind::Label));
        let annotations = config
            .annotations
            .iter()
            .map(|key| (key, MetadataKind::Annotation));
        let keys = labels
            .chain(annotations)
            .map(|(key, of)| KeyRule::new(key, of));
        Ok(Self {
            fields: named.collect::<Result<_, BuildError>>()?,
            keys: keys.collect::<Result<_, _>>().map_err(BuildError::new)?,
            otel_annotations: config.otel_annotations,
            derives_deployment: config.deployment_name_from_replicaset || origin == Origin::Kubelet,
            has_only_pods: origin == Origin::Kubelet,
        })
    }

    fn wants(&self, field: Field) -> bool {
        self.fields.contains_key(&field)
    }

    fn takes_from(&self, from: KeySource) -> bool {
        self.keys.iter().any(|key| key.from() == from)
    }

    /// Whether objects of this kind must be watched.
    pub fn needs(&self, kind: Kind) -> bool {
        match kind {
            Kind::Pod => true,
            _ if self.has_only_pods => false,
            Kind::Namespace => {
                self.takes_from(KeySource::Namespace) || self.wants(Field::ClusterUid)
            }
            Kind::Node => self.takes_from(KeySource::Node) || self.wants(Field::NodeUid),
            Kind::ReplicaSet => {
                let by_name = self.wants(Field::DeploymentName) || self.wants(Field::ServiceName);
                (by_name && !self.derives_deployment)
                    || self.wants(Field::DeploymentUid)
                    || self.takes_from(KeySource::Deployment)
            }
            Kind::Deployment => self.takes_from(KeySource::Deployment),
            Kind::StatefulSet => self.takes_from(KeySource::StatefulSet),
            Kind::DaemonSet => self.takes_from(KeySource::DaemonSet),
            Kind::Job => self.takes_from(KeySource::Job) || self.wants(Field::CronJobUid),
        }
    }

    /// Whether the only namespace needed is the one with the cluster's UID.
    pub fn needs_only_the_cluster(&self) -> bool {
        !self.takes_from(KeySource::Namespace)
    }
}
