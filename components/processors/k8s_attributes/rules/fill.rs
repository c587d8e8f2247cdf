//! Adds the attributes of a pod to a resource.

use std::sync::Arc;

use profcol_profile::{Attributes, KeyValue, Value};

use super::{OF_THE_CLUSTER, Rules};
use crate::k8s_attributes::field::Field;
use crate::k8s_attributes::pod_index::PodIndex;
use crate::k8s_attributes::records::{ContainerRecord, Kind, PodRecord, Run};
use profcol_metadata::attributes::{add_missing, text_of};

impl Rules {
    /// Adds the missing attributes of this pod to a resource; returns whether any was added.
    pub fn fill(
        &self,
        known: &PodIndex,
        pod: &PodRecord,
        container: Option<&Arc<str>>,
        attributes: &mut Attributes,
    ) -> bool {
        let before = attributes.len();
        add_all(&pod.attributes, attributes);
        self.fill_from_controllers(known, pod, attributes);
        if let Some(service) = &pod.service {
            self.add_one(Field::ServiceName, service, attributes);
        }
        self.fill_from_container(pod, container, attributes);
        if let Some(namespace) = known.other(Kind::Namespace, &pod.namespace) {
            add_all(&namespace.attributes, attributes);
        }
        let node = pod.node.as_ref().and_then(|it| known.other(Kind::Node, it));
        if let Some(node) = node {
            self.add_one(Field::NodeUid, &node.uid, attributes);
            add_all(&node.attributes, attributes);
        }
        if let Some(system) = known.other(Kind::Namespace, OF_THE_CLUSTER) {
            self.add_one(Field::ClusterUid, &system.uid, attributes);
        }
        attributes.len() > before
    }

    fn add_one(&self, field: Field, text: &Arc<str>, attributes: &mut Attributes) {
        if let Some(name) = self.fields.get(&field) {
            add_missing(attributes, [(&**name, Some(Value::Str(Arc::clone(text))))]);
        }
    }

    /// Adds attributes of the pod's controller, and of that controller's controller.
    fn fill_from_controllers(
        &self,
        known: &PodIndex,
        pod: &PodRecord,
        attributes: &mut Attributes,
    ) {
        let Some(controller) = &pod.controller else {
            return;
        };
        let Some(kind) = controller.kind else {
            return;
        };
        let record = known.other(kind, &controller.uid);
        if let Some(record) = record {
            add_all(&record.attributes, attributes);
        }
        let above = record.and_then(|record| record.controller.as_ref());
        match kind {
            Kind::ReplicaSet => {
                if self.derives_deployment
                    && let Some((name, _)) = controller.name.rsplit_once('-')
                {
                    let name = name.into();
                    self.add_one(Field::DeploymentName, &name, attributes);
                    self.add_one(Field::ServiceName, &name, attributes);
                }
                if let Some(deployment) = above {
                    self.add_one(Field::DeploymentName, &deployment.name, attributes);
                    self.add_one(Field::ServiceName, &deployment.name, attributes);
                    self.add_one(Field::DeploymentUid, &deployment.uid, attributes);
                    if let Some(record) = known.other(Kind::Deployment, &deployment.uid) {
                        add_all(&record.attributes, attributes);
                    }
                }
            }
            Kind::Job => {
                if let Some(cron) = above {
                    self.add_one(Field::CronJobUid, &cron.uid, attributes);
                    self.add_one(Field::CronJobName, &cron.name, attributes);
                    self.add_one(Field::ServiceName, &cron.name, attributes);
                } else if record.is_none()
                    && let Some(name) = cron_job_of(&controller.name)
                {
                    let name = name.into();
                    self.add_one(Field::CronJobName, &name, attributes);
                    self.add_one(Field::ServiceName, &name, attributes);
                }
            }
            _ => {}
        }
    }

    fn fill_from_container(
        &self,
        pod: &PodRecord,
        id: Option<&Arc<str>>,
        attributes: &mut Attributes,
    ) {
        let Some((container, run)) = choose(pod, id, attributes) else {
            return;
        };
        self.add_one(Field::ContainerName, &container.name, attributes);
        for (field, text) in [
            (Field::ContainerImage, &container.image),
            (Field::ContainerImageName, &container.image_name),
            (Field::ContainerImageTag, &container.image_tag),
            (Field::ServiceVersion, &container.service_version),
            (Field::ServiceInstanceId, &container.service_instance),
        ] {
            if let Some(text) = text {
                self.add_one(field, text, attributes);
            }
        }
        let mut found = vec![
            (
                Field::ContainerImageRepoDigests,
                container.repo_digests.clone(),
            ),
            (Field::ContainerInit, Some(container.is_init.into())),
        ];
        if let Some(run) = run {
            found.push((Field::ContainerId, Some(Value::Str(Arc::clone(&run.id)))));
            found.push((Field::ContainerRestartCount, Some(run.restarts.into())));
        }
        for (field, value) in found {
            if let Some(name) = self.fields.get(&field) {
                add_missing(attributes, [(&**name, value)]);
            }
        }
    }
}

/// Finds a container by its ID or its name, else the only one. An unreported ID may also be
/// that of the pod's sandbox.
fn choose<'a>(
    pod: &'a PodRecord,
    id: Option<&Arc<str>>,
    attributes: &Attributes,
) -> Option<(&'a ContainerRecord, Option<&'a Run>)> {
    if let Some(id) = id {
        let found = pod.containers.iter().find_map(|container| {
            let run = container.runs.iter().find(|run| run.id == *id)?;
            Some((container, Some(run)))
        });
        if found.is_some() {
            return found;
        }
    }
    let container = match text_of(attributes, "k8s.container.name") {
        Some(name) => pod.containers.iter().find(|it| it.name == name)?,
        None => match (id, &*pod.containers) {
            (None, [only]) => only,
            _ => return None,
        },
    };
    // An unknown ID is that of a newer run.
    let run = match id {
        Some(_) => None,
        None => container.runs.first(),
    };
    Some((container, run))
}

fn add_all(from: &[KeyValue], attributes: &mut Attributes) {
    add_missing(
        attributes,
        from.iter().map(|it| (&*it.key, Some(it.value.clone()))),
    );
}

/// The name of a cron job's job is the cron job's name and its scheduled minute.
fn cron_job_of(job: &str) -> Option<&str> {
    let (name, minute) = job.rsplit_once('-')?;
    let is_minute = minute.len() >= 8 && minute.bytes().all(|it| it.is_ascii_digit());
    (is_minute && !name.is_empty()).then_some(name)
}
