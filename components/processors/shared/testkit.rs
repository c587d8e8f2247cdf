//! Profiles for tests of processors, described by their attributes.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use profcol_component::testkit::batch;
use profcol_component::{Answer, Batch, Consumer, Outcome, Processor, RunError, Stop};
use profcol_profile::{
    AttributeIdx, AttributeRef, Attributes, Dictionary, Interner, KeyValue, Model, Profile,
    Profiles, Resource, ResourceProfiles, SampleRef, Samples, ScopeProfiles, Validation, Value,
};
use tokio::task::JoinSet;

/// Keeps the profiles it receives.
#[derive(Default)]
pub(crate) struct Keep(Mutex<Vec<Profiles>>);

/// Attributes of a resource, of its profile, and of each sample, as `key=value` separated by
/// spaces; a value of digits is a number.
pub(crate) type ResourceSpec<'a> = (&'a str, &'a str, &'a [&'a str]);

impl Keep {
    pub fn into_inner(self) -> Vec<Profiles> {
        self.0.into_inner()
    }
}

#[async_trait]
impl Consumer for Keep {
    async fn consume(&self, batch: Batch) -> Answer {
        self.0.lock().push(batch.profiles);
        batch.finalizers.settle(Outcome::Delivered);
        Ok(())
    }
}

/// A processor that runs concurrently with the test, as in the engine, until it is stopped or dropped.
pub(crate) struct Running<P: ?Sized> {
    pub processor: Arc<P>,
    stop: Stop,
    tasks: JoinSet<Result<(), RunError>>,
}

impl<P: Processor + ?Sized> Running<P> {
    pub fn start(processor: Arc<P>, next: Arc<dyn Consumer>) -> Self {
        let (stop, mut tasks) = (Stop::new(), JoinSet::new());
        tasks.spawn(Arc::clone(&processor).run(next, stop.clone()));
        Self {
            processor,
            stop,
            tasks,
        }
    }

    pub async fn stop(mut self) {
        self.stop.cancel();
        self.tasks.join_next().await.unwrap().unwrap().unwrap();
    }
}

/// Profiles as received over the network: bytes, not decoded. Each sample has the value 1, its profile
/// starts at `time`.
pub(crate) fn received(resources: &[ResourceSpec<'_>], time: u64) -> Profiles {
    let mut rows = Interner::new();
    let resources = resources.iter().map(|(resource, profile, samples)| {
        let mut columns = Samples::default();
        for sample in *samples {
            columns.push(SampleRef {
                attributes: &indices(&mut rows, sample),
                values: &[1],
                ..SampleRef::default()
            });
        }
        let profile = Profile {
            samples: columns,
            time_unix_nano: time,
            attributes: indices(&mut rows, profile),
            profile_id: Some([1; 16]),
            ..Profile::default()
        };
        ResourceProfiles {
            resource: Some(Arc::new(Resource {
                attributes: pairs(resource),
                ..Resource::default()
            })),
            scopes: vec![ScopeProfiles {
                profiles: vec![Arc::new(profile)],
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        }
    });
    let resources = resources.collect();
    let model = Model {
        dictionary: Arc::new(rows.finish()),
        resources,
    };
    let wire = Profiles::from_model(model).to_wire();
    let received = Profiles::from_wire(wire, Validation::Reject).unwrap();
    received.profiles
}

/// The output of a processor.
pub(crate) async fn processed(processor: &dyn Processor, profiles: Profiles) -> Vec<Profiles> {
    let keep = Keep::default();
    processor
        .process(Batch::new(profiles), &keep)
        .await
        .unwrap();
    keep.into_inner()
}

/// A batch with one resource that has these attributes.
pub(crate) fn batch_of(attributes: Attributes) -> Batch {
    let mut batch = batch(1);
    batch.profiles.update_resources(|resource| {
        resource.attributes.clone_from(&attributes);
        true
    });
    batch
}

/// The resource of such a batch after processing.
pub(crate) async fn resource_after(processor: &dyn Processor, batch: Batch) -> Attributes {
    let keep = Keep::default();
    processor.process(batch, &keep).await.unwrap();
    let output = keep.into_inner().remove(0);
    let resource = output.model().resources[0].resource.clone();
    resource.unwrap().attributes.clone()
}

/// A line for each resource, profile and sample, by its attributes.
pub(crate) fn shown(profiles: &Profiles) -> Vec<String> {
    let model = profiles.model();
    let mut lines = Vec::new();
    for row in &model.resources {
        let resource = row.resource.as_deref().cloned().unwrap_or_default();
        lines.push(text(resource.attributes.iter()));
        for profile in row.scopes.iter().flat_map(|scope| &scope.profiles) {
            lines.push(format!(
                "  {}",
                list(&model.dictionary, &profile.attributes)
            ));
            for sample in profile.samples.iter() {
                lines.push(format!(
                    "    {}",
                    list(&model.dictionary, sample.attributes)
                ));
            }
        }
    }
    lines
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

fn pairs(spec: &str) -> Attributes {
    let pairs = spec.split_whitespace().map(|pair| {
        let (key, value) = pair.split_once('=').unwrap();
        let number = value.parse::<i64>().map(Value::from);
        KeyValue::new(key, number.unwrap_or_else(|_| value.into()))
    });
    pairs.collect()
}

fn indices(rows: &mut Interner, spec: &str) -> Vec<AttributeIdx> {
    let indices = pairs(spec).into_iter().map(|KeyValue { key, value }| {
        let key = rows.string(&key);
        let unit = rows.string("");
        let value = &value;
        rows.attribute(AttributeRef { key, value, unit })
    });
    indices.collect()
}

fn list(dictionary: &Dictionary, list: &[AttributeIdx]) -> String {
    let attributes: Attributes = list
        .iter()
        .map(|&index| {
            let row = dictionary.attributes.get(index).unwrap();
            KeyValue::new(dictionary.strings.get(row.key), row.value.clone())
        })
        .collect();
    text(attributes.iter())
}

fn text<'a>(attributes: impl Iterator<Item = &'a KeyValue>) -> String {
    let pairs =
        attributes.map(|KeyValue { key, value }| format!("{key}={}", crate::values::text(value)));
    pairs.collect::<Vec<_>>().join(" ")
}
