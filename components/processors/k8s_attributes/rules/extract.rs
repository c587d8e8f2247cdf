//! Extracts the cached part of API objects.

use std::sync::Arc;

use profcol_kubernetes::Meta;
use profcol_profile::{KeyValue, Value};

use super::Rules;
use crate::k8s_attributes::field::Field;
use crate::k8s_attributes::keys::KeySource;
use crate::k8s_attributes::objects;
use crate::k8s_attributes::records::{ContainerRecord, Controller, Kind, Other, PodRecord, Run};
use crate::k8s_attributes::service;
use crate::k8s_attributes::texts::Texts;
use profcol_metadata::Image;

const OTEL_ANNOTATION: &str = "resource.opentelemetry.io/";

/// Controllers that pods refer to directly.
const CONTROLLERS: [(Kind, Field, Field); 4] = [
    (
        Kind::ReplicaSet,
        Field::ReplicaSetName,
        Field::ReplicaSetUid,
    ),
    (
        Kind::StatefulSet,
        Field::StatefulSetName,
        Field::StatefulSetUid,
    ),
    (Kind::DaemonSet, Field::DaemonSetName, Field::DaemonSetUid),
    (Kind::Job, Field::JobName, Field::JobUid),
];

impl Rules {
    pub fn pod(&self, pod: &objects::Pod, texts: &mut Texts) -> PodRecord {
        let (meta, spec) = (&pod.metadata, &pod.spec);
        let controller = controller(meta, texts);
        PodRecord {
            uid: meta.uid.as_str().into(),
            namespace: texts.share(&meta.namespace),
            node: (!spec.node_name.is_empty()).then(|| texts.share(&spec.node_name)),
            attributes: self.pod_attributes(pod, controller.as_ref(), texts),
            service: self
                .wants(Field::ServiceName)
                .then(|| service::name_at_last(pod, controller.as_ref())),
            controller,
            containers: pod
                .containers()
                .map(|(container, status, is_init)| {
                    let record = self.container(container, status, is_init, texts);
                    self.with_service(record, container, meta, texts)
                })
                .collect(),
        }
    }

    pub fn other(&self, kind: Kind, meta: &Meta, texts: &mut Texts) -> Other {
        let mut attributes = Vec::new();
        if let Some(from) = kind.source() {
            self.add_keys(from, meta, &mut attributes, texts);
        }
        Other {
            uid: meta.uid.as_str().into(),
            controller: controller(meta, texts),
            attributes: attributes.into(),
        }
    }

    fn pod_attributes(
        &self,
        pod: &objects::Pod,
        controller: Option<&Controller>,
        texts: &mut Texts,
    ) -> Box<[KeyValue]> {
        let (meta, spec, status) = (&pod.metadata, &pod.spec, &pod.status);
        let ready = status.conditions.iter().find(|it| it.kind == "Ready");
        // With Prometheus's values.
        let ready = ready.map_or("unknown", |it| match &*it.status {
            "True" => "true",
            "False" => "false",
            _ => "unknown",
        });
        let ip = pod.ips().next().unwrap_or_default();
        let hostname = match &*spec.hostname {
            "" => &meta.name,
            hostname => hostname,
        };
        // The first value for a name wins, and annotations are the most specific.
        let mut attributes = Vec::new();
        if self.otel_annotations {
            for (key, value) in &meta.annotations {
                if let Some(key) = key
                    .strip_prefix(OTEL_ANNOTATION)
                    .filter(|it| !it.is_empty())
                {
                    attributes.push(KeyValue {
                        key: texts.share(key),
                        value: Value::Str(texts.share(value)),
                    });
                }
            }
        }
        // Values that differ per pod are not shared.
        let own = [
            (Field::PodName, &*meta.name),
            (Field::PodUid, &meta.uid),
            (Field::PodIp, ip),
            (Field::PodHostname, hostname),
            (Field::PodStartTime, &status.start_time),
        ];
        let shared = [
            (Field::NamespaceName, &*meta.namespace),
            (Field::ServiceNamespace, &meta.namespace),
            (Field::NodeName, &spec.node_name),
            (Field::PodHostIp, &status.host_ip),
            (Field::PodPhase, &status.phase),
            (Field::PodReady, ready),
        ];
        for (field, text) in own {
            self.add(
                field,
                (!text.is_empty()).then(|| text.into()),
                &mut attributes,
            );
        }
        for (field, text) in shared {
            self.add(
                field,
                (!text.is_empty()).then(|| texts.share(text)),
                &mut attributes,
            );
        }
        if let (Some(owner), Some(controller)) = (meta.controller(), controller) {
            let kind = Some(texts.share(&owner.kind));
            self.add(Field::ControllerKind, kind, &mut attributes);
            let name = Some(Arc::clone(&controller.name));
            self.add(Field::ControllerName, name, &mut attributes);
            let known = CONTROLLERS
                .iter()
                .find(|(kind, ..)| controller.kind == Some(*kind));
            if let Some(&(_, name, uid)) = known {
                self.add(name, Some(Arc::clone(&controller.name)), &mut attributes);
                self.add(uid, Some(Arc::clone(&controller.uid)), &mut attributes);
            }
        }
        self.add_keys(KeySource::Pod, meta, &mut attributes, texts);
        for (field, label) in [
            (Field::ServiceName, service::name_by_labels(meta)),
            (Field::ServiceVersion, service::version_by_labels(meta)),
        ] {
            let text = label.filter(|_| self.wants(field));
            self.add(field, text.map(|it| texts.share(it)), &mut attributes);
        }
        attributes.into()
    }

    fn add(&self, field: Field, text: Option<Arc<str>>, attributes: &mut Vec<KeyValue>) {
        if let (Some(name), Some(text)) = (self.fields.get(&field), text) {
            attributes.push(KeyValue {
                key: Arc::clone(name),
                value: Value::Str(text),
            });
        }
    }

    fn add_keys(
        &self,
        from: KeySource,
        meta: &Meta,
        attributes: &mut Vec<KeyValue>,
        texts: &mut Texts,
    ) {
        for rule in self.keys.iter().filter(|rule| rule.from() == from) {
            rule.add(meta, attributes, texts);
        }
    }

    fn container(
        &self,
        container: &objects::Container,
        status: Option<&objects::ContainerStatus>,
        is_init: bool,
        texts: &mut Texts,
    ) -> ContainerRecord {
        let image = Image::parse(&container.image);
        let digest = status
            .filter(|_| self.wants(Field::ContainerImageRepoDigests))
            .and_then(|status| repo_digest(&status.image_id));
        ContainerRecord {
            name: texts.share(&container.name),
            is_init,
            image: self
                .wants(Field::ContainerImage)
                .then(|| texts.share(&container.image)),
            image_name: self
                .wants(Field::ContainerImageName)
                .then(|| texts.share(image.name)),
            image_tag: tag_or_latest(&image)
                .filter(|_| self.wants(Field::ContainerImageTag))
                .map(|tag| texts.share(tag)),
            repo_digests: digest
                .map(|digest| Value::Array([Value::Str(texts.share(digest))].into())),
            service_version: None,
            service_instance: None,
            runs: status.map(runs).unwrap_or_default(),
        }
    }

    fn with_service(
        &self,
        mut record: ContainerRecord,
        container: &objects::Container,
        pod: &Meta,
        texts: &mut Texts,
    ) -> ContainerRecord {
        if self.wants(Field::ServiceVersion) {
            let version = service::version_by_image(&Image::parse(&container.image));
            record.service_version = version.map(|it| texts.share(&it));
        }
        if self.wants(Field::ServiceInstanceId) {
            record.service_instance = Some(service::instance(pod, &container.name).into());
        }
        record
    }
}

fn controller(meta: &Meta, texts: &mut Texts) -> Option<Controller> {
    meta.controller().map(|owner| Controller {
        kind: Kind::of_owner(&owner.kind),
        name: texts.share(&owner.name),
        uid: texts.share(&owner.uid),
    })
}

/// The current run of the container and the previous one.
fn runs(status: &objects::ContainerStatus) -> Box<[Run]> {
    let present = (&status.container_id, status.restart_count);
    let former = (
        &status.last_state.terminated.container_id,
        status.restart_count - 1,
    );
    let runs = [present, former].into_iter().filter_map(|(id, restarts)| {
        // Behind the runtime's name.
        let (_, id) = id.split_once("://")?;
        (!id.is_empty()).then(|| Run {
            id: id.into(),
            restarts,
        })
    });
    runs.collect()
}

/// `name@algorithm:digest`, if the runtime reports it.
fn repo_digest(image_id: &str) -> Option<&str> {
    let (_, digest) = image_id.split_once("://").unwrap_or(("", image_id));
    digest.contains('@').then_some(digest)
}

/// The tag of an image; `latest` if it has neither tag nor digest.
fn tag_or_latest<'a>(image: &Image<'a>) -> Option<&'a str> {
    let latest = image.digest.is_none().then_some("latest");
    image.tag.or(latest)
}

impl Kind {
    /// The source that label and annotation rules have for this kind.
    fn source(self) -> Option<KeySource> {
        match self {
            Self::Pod => Some(KeySource::Pod),
            Self::Namespace => Some(KeySource::Namespace),
            Self::Node => Some(KeySource::Node),
            Self::Deployment => Some(KeySource::Deployment),
            Self::StatefulSet => Some(KeySource::StatefulSet),
            Self::DaemonSet => Some(KeySource::DaemonSet),
            Self::Job => Some(KeySource::Job),
            Self::ReplicaSet => None,
        }
    }
}
