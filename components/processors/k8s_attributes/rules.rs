//! Which attributes are made of what the API tells.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use profcol_profile::{Attributes, KeyValue, Value};
use regex::Regex;

use super::association::container_of;
use super::config::{ExtractConfig, Field, From, KeyConfig, Origin};
use super::directory::Known;
use super::objects::{self, Meta};
use super::records::{Container, Controller, Kind, Other, Pod, Run};
use super::service;
use super::texts::Texts;
use crate::shared::lookup::{add_missing, text_of};

const OTEL_ANNOTATION: &str = "resource.opentelemetry.io/";
/// Its uid stands for the cluster's.
pub(super) const OF_THE_CLUSTER: &str = "kube-system";

#[derive(Debug)]
pub(super) struct Rules {
    /// With their names.
    fields: BTreeMap<Field, Arc<str>>,
    keys: Vec<KeyRule>,
    otel_annotations: bool,
    derives_deployment: bool,
    /// Whether there is nothing but pods.
    has_only_pods: bool,
}

#[derive(Debug)]
struct KeyRule {
    from: From,
    of: Of,
    keys: Keys,
}

#[derive(Clone, Copy, Debug)]
enum Of {
    Label,
    Annotation,
}

#[derive(Debug)]
enum Keys {
    One {
        key: String,
        name: String,
    },
    /// Named by the template, or as usual where that is empty.
    Matching {
        regex: Regex,
        template: String,
    },
}

/// The parts of an image's name.
pub(super) struct Image<'a> {
    pub name: &'a str,
    pub tag: Option<&'a str>,
    pub digest: Option<&'a str>,
}

/// Controllers that stand in the pod itself.
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
    pub fn new(config: &ExtractConfig, origin: Origin) -> Result<Self, String> {
        let fields: BTreeSet<Field> = config.metadata.iter().copied().collect();
        let named = fields.into_iter().map(|field| {
            let name = serde_json::to_value(field).map_err(|error| error.to_string())?;
            Ok((field, name.as_str().unwrap_or_default().into()))
        });
        let labels = config.labels.iter().map(|key| (key, Of::Label));
        let annotations = config.annotations.iter().map(|key| (key, Of::Annotation));
        let keys = labels
            .chain(annotations)
            .map(|(key, of)| KeyRule::new(key, of));
        Ok(Self {
            fields: named.collect::<Result<_, String>>()?,
            keys: keys.collect::<Result<_, _>>()?,
            otel_annotations: config.otel_annotations,
            derives_deployment: config.deployment_name_from_replicaset || origin == Origin::Kubelet,
            has_only_pods: origin == Origin::Kubelet,
        })
    }

    fn wants(&self, field: Field) -> bool {
        self.fields.contains_key(&field)
    }

    fn takes_from(&self, from: From) -> bool {
        self.keys.iter().any(|key| key.from == from)
    }

    /// Whether objects of this kind have to be watched.
    pub fn needs(&self, kind: Kind) -> bool {
        match kind {
            Kind::Pod => true,
            _ if self.has_only_pods => false,
            Kind::Namespace => self.takes_from(From::Namespace) || self.wants(Field::ClusterUid),
            Kind::Node => self.takes_from(From::Node) || self.wants(Field::NodeUid),
            Kind::ReplicaSet => {
                let by_name = self.wants(Field::DeploymentName) || self.wants(Field::ServiceName);
                (by_name && !self.derives_deployment)
                    || self.wants(Field::DeploymentUid)
                    || self.takes_from(From::Deployment)
            }
            Kind::Deployment => self.takes_from(From::Deployment),
            Kind::StatefulSet => self.takes_from(From::StatefulSet),
            Kind::DaemonSet => self.takes_from(From::DaemonSet),
            Kind::Job => self.takes_from(From::Job) || self.wants(Field::CronJobUid),
        }
    }

    /// Whether of all namespaces only the one is needed that stands for the cluster.
    pub fn needs_only_the_cluster(&self) -> bool {
        !self.takes_from(From::Namespace)
    }

    pub fn pod(&self, pod: &objects::Pod, texts: &mut Texts) -> Pod {
        let (meta, spec) = (&pod.metadata, &pod.spec);
        let controller = controller(meta, texts);
        Pod {
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
        // As Prometheus says it.
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
        // The first of a name counts, and whoever wrote an annotation knows best.
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
        // What differs from pod to pod is not shared.
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
        self.add_keys(From::Pod, meta, &mut attributes, texts);
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

    fn add_keys(&self, from: From, meta: &Meta, attributes: &mut Vec<KeyValue>, texts: &mut Texts) {
        for rule in self.keys.iter().filter(|rule| rule.from == from) {
            rule.add(meta, attributes, texts);
        }
    }

    fn container(
        &self,
        container: &objects::Container,
        status: Option<&objects::ContainerStatus>,
        is_init: bool,
        texts: &mut Texts,
    ) -> Container {
        let image = Image::of(&container.image);
        let digest = status
            .filter(|_| self.wants(Field::ContainerImageRepoDigests))
            .and_then(|status| repo_digest(&status.image_id));
        Container {
            name: texts.share(&container.name),
            is_init,
            image: self
                .wants(Field::ContainerImage)
                .then(|| texts.share(&container.image)),
            image_name: self
                .wants(Field::ContainerImageName)
                .then(|| texts.share(image.name)),
            image_tag: image
                .tag_or_latest()
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
        mut record: Container,
        container: &objects::Container,
        pod: &Meta,
        texts: &mut Texts,
    ) -> Container {
        if self.wants(Field::ServiceVersion) {
            let version = service::version_by_image(&Image::of(&container.image));
            record.service_version = version.map(|it| texts.share(&it));
        }
        if self.wants(Field::ServiceInstanceId) {
            record.service_instance = Some(service::instance(pod, &container.name).into());
        }
        record
    }

    /// Adds to a resource of this pod what is missing; says whether there was something to add.
    pub fn fill(&self, known: &Known, pod: &Pod, attributes: &mut Attributes) -> bool {
        let container = container_of(attributes);
        let before = attributes.len();
        add_all(&pod.attributes, attributes);
        self.fill_from_controllers(known, pod, attributes);
        if let Some(service) = &pod.service {
            self.add_one(Field::ServiceName, service, attributes);
        }
        self.fill_from_container(pod, container.as_ref(), attributes);
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

    /// From the pod's controller, and from that one's.
    fn fill_from_controllers(&self, known: &Known, pod: &Pod, attributes: &mut Attributes) {
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

    fn fill_from_container(&self, pod: &Pod, id: Option<&Arc<str>>, attributes: &mut Attributes) {
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

/// By its id, by its name, or the only one.
fn choose<'a>(
    pod: &'a Pod,
    id: Option<&Arc<str>>,
    attributes: &Attributes,
) -> Option<(&'a Container, Option<&'a Run>)> {
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
        None => match &*pod.containers {
            [only] => only,
            _ => return None,
        },
    };
    // An id that is not known yet is that of a newer run.
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

fn controller(meta: &Meta, texts: &mut Texts) -> Option<Controller> {
    meta.controller().map(|owner| Controller {
        kind: Kind::of_owner(&owner.kind),
        name: texts.share(&owner.name),
        uid: texts.share(&owner.uid),
    })
}

/// Its present run and the one before.
fn runs(status: &objects::ContainerStatus) -> Box<[Run]> {
    let present = (&status.container_id, status.restart_count);
    let former = (
        &status.last_state.terminated.container_id,
        status.restart_count - 1,
    );
    let runs = [present, former].into_iter().filter_map(|(id, restarts)| {
        // After the name of the runtime.
        let (_, id) = id.split_once("://")?;
        (!id.is_empty()).then(|| Run {
            id: id.into(),
            restarts,
        })
    });
    runs.collect()
}

/// `name@algorithm:digest`, where the runtime tells it.
fn repo_digest(image_id: &str) -> Option<&str> {
    let (_, digest) = image_id.split_once("://").unwrap_or(("", image_id));
    digest.contains('@').then_some(digest)
}

/// A cron job's jobs are called as it is, and by the minute in which they were due.
fn cron_job_of(job: &str) -> Option<&str> {
    let (name, minute) = job.rsplit_once('-')?;
    let is_minute = minute.len() >= 8 && minute.bytes().all(|it| it.is_ascii_digit());
    (is_minute && !name.is_empty()).then_some(name)
}

impl<'a> Image<'a> {
    fn of(image: &'a str) -> Self {
        let (name, digest) = match image.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (image, None),
        };
        let last = name.rfind('/').map_or(0, |slash| slash + 1);
        let (name, tag) = match name.get(last..).and_then(|it| it.find(':')) {
            Some(colon) => {
                let (name, tag) = name.split_at(last + colon);
                (name, Some(tag.trim_start_matches(':')))
            }
            None => (name, None),
        };
        Self { name, tag, digest }
    }

    /// Without a tag and a digest the newest is meant.
    fn tag_or_latest(&self) -> Option<&'a str> {
        let latest = self.digest.is_none().then_some("latest");
        self.tag.or(latest)
    }
}

impl KeyRule {
    fn new(config: &KeyConfig, of: Of) -> Result<Self, String> {
        let keys = match config.key_regex.is_empty() {
            true => Keys::One {
                key: config.key.clone(),
                name: match &*config.tag_name {
                    "" => usual_name(config.from, of, &config.key),
                    name => name.to_owned(),
                },
            },
            false => Keys::Matching {
                regex: config.regex()?,
                template: config.tag_name.clone(),
            },
        };
        Ok(Self {
            from: config.from,
            of,
            keys,
        })
    }

    fn add(&self, meta: &Meta, attributes: &mut Vec<KeyValue>, texts: &mut Texts) {
        let all = match self.of {
            Of::Label => &meta.labels,
            Of::Annotation => &meta.annotations,
        };
        let mut add = |name: &str, value: &str| {
            attributes.push(KeyValue {
                key: texts.share(name),
                value: Value::Str(texts.share(value)),
            });
        };
        match &self.keys {
            Keys::One { key, name } => {
                if let Some(value) = all.get(key) {
                    add(name, value);
                }
            }
            Keys::Matching { regex, template } => {
                for (key, value) in all {
                    let Some(groups) = regex.captures(key) else {
                        continue;
                    };
                    if template.is_empty() {
                        add(&usual_name(self.from, self.of, key), value);
                        continue;
                    }
                    let mut name = String::new();
                    groups.expand(template, &mut name);
                    if !name.is_empty() {
                        add(&name, value);
                    }
                }
            }
        }
    }
}

fn usual_name(from: From, of: Of, key: &str) -> String {
    let of = match of {
        Of::Label => "label",
        Of::Annotation => "annotation",
    };
    format!("k8s.{}.{of}.{key}", from.name())
}

impl From {
    fn name(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Namespace => "namespace",
            Self::Node => "node",
            Self::Deployment => "deployment",
            Self::StatefulSet => "statefulset",
            Self::DaemonSet => "daemonset",
            Self::Job => "job",
        }
    }
}

impl Kind {
    /// What of it labels and annotations are asked as.
    fn source(self) -> Option<From> {
        match self {
            Self::Pod => Some(From::Pod),
            Self::Namespace => Some(From::Namespace),
            Self::Node => Some(From::Node),
            Self::Deployment => Some(From::Deployment),
            Self::StatefulSet => Some(From::StatefulSet),
            Self::DaemonSet => Some(From::DaemonSet),
            Self::Job => Some(From::Job),
            Self::ReplicaSet => None,
        }
    }
}
