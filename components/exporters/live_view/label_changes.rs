//! What the processors of each pipeline do to the labels of processes, and which of them drops a process.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, UNIX_EPOCH};

use profcol_component::{Kind, Passed, PipelineInfo, ProcessDropReason, Side};
use profcol_profile::{Attributes, KeyValue, SharedResource};
use serde::Serialize;
use serde_json::{Map, Value as Json};
use tokio::time::{Instant, timeout_at};

use super::excerpt::Excerpt;
use super::parameters::{BadRequest, Parameters};
use super::passing::pid;
use super::reply::Reply;
use super::service::Service;

pub(super) const PATH: &str = "/api/v1/process_labels";

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a processor may hold a process back before it counts as not passed on.
const SETTLING_TIME: Duration = Duration::from_secs(2);
/// Memory for the resources seen; others are not followed.
const MAX_BYTES: usize = 16 << 20;
const MAX_PROCESSES: usize = 10_000;
const MAX_TEXT: usize = 4 << 20;

#[derive(Debug, Default, Serialize)]
struct Answer {
    processes: Vec<ProcessLabels>,
    /// Dropped processes, also those that the receiver does not sample any more.
    dropped: Vec<Dropped>,
    /// Batches that passed unseen.
    missed: u64,
    /// Processes beyond the limits.
    omitted: usize,
    /// PIDs that several hosts or containers use at the same time: their labels cannot be followed.
    ambiguous: usize,
}

/// A process on its way through a pipeline.
#[derive(Debug, Serialize)]
struct ProcessLabels {
    pid: i64,
    pipeline: String,
    receiver: String,
    received: Map<String, Json>,
    /// The changes by the processors that changed something, in order.
    changes: Vec<Change>,
    /// The processor that got the process and did not pass it on.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_passed_on_by: Option<String>,
}

#[derive(Debug, Serialize)]
struct Change {
    processor: String,
    set: Map<String, Json>,
    removed: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Dropped {
    pid: i64,
    pipeline: String,
    processor: String,
    reason: String,
    /// Unix time in milliseconds.
    time: u64,
    attributes: Map<String, Json>,
}

/// The output of a receiver, or of a processor in a pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct StageOutput {
    pipeline: Option<String>,
    id: String,
}

/// The processes that were seen, by output and PID.
#[derive(Default)]
struct SeenProcesses {
    seen: HashMap<StageOutput, BTreeMap<i64, SeenProcess>>,
    ambiguous: HashSet<i64>,
    bytes: usize,
    omitted: HashSet<i64>,
}

struct SeenProcess {
    resource: SharedResource,
    first: Instant,
}

/// Looks at the outputs of all receivers and processors for a while.
pub(super) async fn answer(
    service: &Service,
    parameters: &Parameters,
) -> Result<Reply, BadRequest> {
    let wait = parameters.duration("timeout", DEFAULT_TIMEOUT, MAX_TIMEOUT)?;
    let subscription = service.taps.subscribe(|point| point.side == Side::Output)?;
    let deadline = Instant::now() + wait;
    let mut seen_processes = SeenProcesses::default();
    while let Ok(passed) = timeout_at(deadline, subscription.next()).await {
        seen_processes.add(&passed, Instant::now());
    }
    let missed = subscription.missed();
    drop(subscription);
    let mut text = Excerpt::new(MAX_TEXT);
    let mut answer = Answer {
        missed,
        ambiguous: seen_processes.ambiguous.len(),
        dropped: (service.drops.reasons().iter())
            .map(|reason| dropped(reason, &mut text))
            .collect(),
        ..Answer::default()
    };
    // After a missed batch, what a processor did not pass on is unknown.
    let settled = Instant::now().checked_sub(SETTLING_TIME);
    let settled = settled.filter(|_| missed == 0);
    for pipeline in &service.info.get().pipelines {
        seen_processes.follow(pipeline, settled, &mut text, &mut answer);
    }
    answer.omitted += seen_processes.omitted.len();
    Ok(Reply::json(&answer))
}

fn dropped(reason: &ProcessDropReason, text: &mut Excerpt) -> Dropped {
    let time = reason.time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Dropped {
        pid: reason.pid,
        pipeline: reason.pipeline.to_string(),
        processor: reason.processor.to_string(),
        reason: text.text(&reason.reason),
        time: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        attributes: text.attributes(&reason.resource.attributes),
    }
}

impl StageOutput {
    fn of_receiver(id: &str) -> Self {
        Self {
            pipeline: None,
            id: id.to_owned(),
        }
    }

    fn of_processor(pipeline: &str, id: &str) -> Self {
        Self {
            pipeline: Some(pipeline.to_owned()),
            id: id.to_owned(),
        }
    }
}

impl SeenProcesses {
    fn add(&mut self, passed: &Passed, now: Instant) {
        let point = &passed.point;
        let output = StageOutput {
            pipeline: point.pipeline.clone(),
            id: point.id.clone(),
        };
        let seen = self.seen.entry(output).or_default();
        let mut in_batch: HashMap<i64, SharedResource> = HashMap::new();
        for resource in passed.batch.profiles.resources() {
            let Some(pid) = pid(&resource.attributes) else {
                continue;
            };
            let is_ambiguous = match in_batch.get(&pid) {
                Some(other) => *other != resource,
                None => {
                    point.kind == Kind::Receiver
                        && (seen.get(&pid)).is_some_and(|it| {
                            host(&it.resource.attributes) != host(&resource.attributes)
                        })
                }
            };
            if is_ambiguous {
                self.ambiguous.insert(pid);
                continue;
            }
            in_batch.insert(pid, resource.clone());
            if let Some(known) = seen.get_mut(&pid) {
                if known.resource != resource {
                    self.bytes -= known.resource.heap_size();
                    known.resource = resource.unshared();
                    self.bytes += known.resource.heap_size();
                }
                continue;
            }
            let resource = resource.unshared();
            let bytes = resource.heap_size();
            if seen.len() == MAX_PROCESSES || self.bytes + bytes > MAX_BYTES {
                self.omitted.insert(pid);
                continue;
            }
            self.bytes += bytes;
            let first = now;
            seen.insert(pid, SeenProcess { resource, first });
        }
    }

    /// Adds the processes that a pipeline received. One that was seen before `settled` and not behind a processor was
    /// not passed on by it.
    fn follow(
        &self,
        pipeline: &PipelineInfo,
        settled: Option<Instant>,
        text: &mut Excerpt,
        answer: &mut Answer,
    ) {
        for receiver in &pipeline.receivers {
            let Some(received) = self.seen.get(&StageOutput::of_receiver(receiver)) else {
                continue;
            };
            for (&pid, process) in received {
                if self.ambiguous.contains(&pid) || self.omitted.contains(&pid) {
                    continue;
                }
                if text.is_full() {
                    answer.omitted += 1;
                    continue;
                }
                let (changes, not_passed_on_by) =
                    self.changes(pipeline, pid, process, settled, text);
                answer.processes.push(ProcessLabels {
                    pid,
                    pipeline: pipeline.id.clone(),
                    receiver: receiver.clone(),
                    received: text.attributes(&process.resource.attributes),
                    changes,
                    not_passed_on_by,
                });
            }
        }
    }

    fn changes(
        &self,
        pipeline: &PipelineInfo,
        pid: i64,
        received: &SeenProcess,
        settled: Option<Instant>,
        text: &mut Excerpt,
    ) -> (Vec<Change>, Option<String>) {
        let (mut changes, mut last) = (Vec::new(), received);
        // `None` where the process was not seen.
        let behind = pipeline.processors.iter().map(|id| {
            let output = StageOutput::of_processor(&pipeline.id, id);
            (id, self.seen.get(&output).and_then(|seen| seen.get(&pid)))
        });
        let behind: Vec<_> = behind.collect();
        for (position, (id, process)) in behind.iter().enumerate() {
            if let Some(process) = process {
                let attributes = |it: &SeenProcess| it.resource.attributes.clone();
                changes.extend(change(id, &attributes(last), &attributes(process), text));
                last = process;
            } else if behind[position..].iter().all(|(_, it)| it.is_none()) {
                let is_settled = settled.is_some_and(|settled| last.first <= settled);
                return (changes, is_settled.then(|| (*id).clone()));
            }
        }
        (changes, None)
    }
}

/// What tells processes with the same PID on different hosts apart.
fn host(attributes: &Attributes) -> Vec<&KeyValue> {
    let is_host = |it: &&KeyValue| matches!(&*it.key, "host.id" | "host.name");
    attributes.iter().filter(is_host).collect()
}

fn change(
    processor: &str,
    before: &Attributes,
    after: &Attributes,
    text: &mut Excerpt,
) -> Option<Change> {
    let set: Vec<KeyValue> = (after.iter())
        .filter(|it| !before.contains(it))
        .cloned()
        .collect();
    let is_kept = |key: &str| after.iter().any(|it| *it.key == *key);
    let removed: Vec<String> = (before.iter())
        .filter(|it| !is_kept(&it.key))
        .map(|it| text.text(&it.key))
        .collect();
    let has_changed = !set.is_empty() || !removed.is_empty();
    has_changed.then(|| Change {
        processor: processor.to_owned(),
        set: text.attributes(&set),
        removed,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use profcol_component::testkit::{batch, context};
    use profcol_component::{
        Batch, BuildContext, CurrentService, DropFeedback, ServiceInfo, Tap, TapPoint, Taps,
    };
    use profcol_profile::{Resource, Value};
    use serde_json::json;

    use super::*;

    /// A pipeline of a receiver and two processors.
    struct Fixture {
        context: BuildContext,
        receiver: Arc<Tap>,
        processors: [Arc<Tap>; 2],
    }

    impl Fixture {
        fn new() -> Self {
            let context = context("live_view");
            let pipeline = PipelineInfo {
                id: "profiles".to_owned(),
                receivers: vec!["otlp".to_owned()],
                processors: vec!["first".to_owned(), "second".to_owned()],
                exporters: vec!["live_view".to_owned()],
            };
            context.shared.get::<CurrentService>().set(ServiceInfo {
                pipelines: vec![pipeline],
                configuration: Json::Null,
            });
            let taps = context.shared.get::<Taps>();
            let tap = |kind, id: &str, pipeline: Option<&str>| {
                taps.tap(TapPoint {
                    kind,
                    id: id.to_owned(),
                    pipeline: pipeline.map(str::to_owned),
                    side: Side::Output,
                })
            };
            let processor = |id| tap(Kind::Processor, id, Some("profiles"));
            Self {
                receiver: tap(Kind::Receiver, "otlp", None),
                processors: [processor("first"), processor("second")],
                context,
            }
        }

        /// The answer, if `pass` happens a second after the request.
        async fn answer(&self, pass: impl FnOnce(&Self)) -> Json {
            let service = Service::new(&self.context);
            let parameters = Parameters::parse(Some("timeout=5s"));
            let later = async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                pass(self);
            };
            let (reply, ()) = tokio::join!(answer(&service, &parameters), later);
            serde_json::from_slice(&reply.unwrap().body).unwrap()
        }
    }

    fn process(attributes: &[(&str, &str)]) -> Batch {
        processes(&[attributes])
    }

    /// A batch of processes, all with PID 7.
    fn processes(all: &[&[(&str, &str)]]) -> Batch {
        let mut batch = batch(1);
        batch.profiles.edit(|model| {
            let row = model.resources[0].clone();
            model.resources = (all.iter())
                .map(|attributes| {
                    let texts = attributes.iter();
                    let texts = texts.map(|(name, value)| KeyValue::new(name, *value));
                    let pid = KeyValue::new("process.pid", 7);
                    let resource = Resource {
                        attributes: std::iter::once(pid).chain(texts).collect(),
                        ..Resource::default()
                    };
                    profcol_profile::ResourceProfiles {
                        resource: Some(resource.into()),
                        ..row.clone()
                    }
                })
                .collect();
        });
        batch
    }

    #[tokio::test(start_paused = true)]
    async fn follows_the_labels_of_a_process() {
        let fixture = Fixture::new();
        let answer = fixture
            .answer(|it| {
                it.receiver.pass(&process(&[("a", "1"), ("b", "<i>")]));
                it.processors[0].pass(&process(&[("a", "1"), ("b", "<i>")]));
                it.processors[1].pass(&process(&[("a", "2"), ("c", "3")]));
            })
            .await;
        assert_eq!(
            answer,
            json!({
                "processes": [{
                    "pid": 7,
                    "pipeline": "profiles",
                    "receiver": "otlp",
                    "received": {"process.pid": 7, "a": "1", "b": "<i>"},
                    "changes": [{"processor": "second", "set": {"a": "2", "c": "3"}, "removed": ["b"]}],
                }],
                "dropped": [],
                "missed": 0,
                "omitted": 0,
                "ambiguous": 0,
            })
        );
    }

    #[tokio::test(start_paused = true)]
    async fn names_the_processor_that_does_not_pass_a_process_on() {
        let fixture = Fixture::new();
        let pass = |it: &Fixture| {
            it.receiver.pass(&process(&[]));
            it.processors[0].pass(&process(&[]));
        };
        let answer = fixture.answer(pass).await;
        assert_eq!(answer["processes"][0]["not_passed_on_by"], "second");
        // Not if the viewer has missed a batch.
        let missing = |it: &Fixture| {
            pass(it);
            (0..100).for_each(|_| it.receiver.pass(&process(&[])));
        };
        let answer = fixture.answer(missing).await;
        assert!(answer["missed"].as_u64() > Some(0));
        assert_eq!(answer["processes"][0]["not_passed_on_by"], Json::Null);
    }

    #[tokio::test(start_paused = true)]
    async fn a_processor_may_take_its_time() {
        let fixture = Fixture::new();
        let service = Service::new(&fixture.context);
        let parameters = Parameters::parse(Some("timeout=2s"));
        let later = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            fixture.receiver.pass(&process(&[]));
        };
        let (reply, ()) = tokio::join!(answer(&service, &parameters), later);
        let answer: Json = serde_json::from_slice(&reply.unwrap().body).unwrap();
        assert_eq!(answer["processes"][0]["not_passed_on_by"], Json::Null);
    }

    #[tokio::test(start_paused = true)]
    async fn equal_pids_of_different_hosts_are_not_mixed_up() {
        let two: [fn(&Fixture); 2] = [
            |it| {
                it.receiver
                    .pass(&processes(&[&[("a", "1")], &[("a", "2")]]))
            },
            |it| {
                it.receiver.pass(&process(&[("host.name", "x")]));
                it.receiver.pass(&process(&[("host.name", "y")]));
            },
        ];
        for pass in two {
            let answer = Fixture::new().answer(pass).await;
            assert_eq!(answer["processes"], json!([]));
            assert_eq!(answer["ambiguous"], 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_processes_have_the_reason() {
        let fixture = Fixture::new();
        let context = BuildContext {
            id: "relabel".parse().unwrap(),
            pipelines: ["profiles".parse().unwrap()].into(),
            ..fixture.context.clone()
        };
        let reporter = DropFeedback::of(&context).reporter();
        let resource = Resource {
            attributes: vec![KeyValue::new("a", Value::Bool(true))],
            ..Resource::default()
        };
        reporter.explain_drop(9, &resource.into(), || "rule 1: drop".to_owned());
        let mut answer = fixture.answer(|_| {}).await;
        answer["dropped"][0]["time"] = json!(0);
        assert_eq!(
            answer["dropped"],
            json!([{"pid": 9, "pipeline": "profiles", "processor": "relabel", "reason": "rule 1: drop", "time": 0, "attributes": {"a": true}}])
        );
    }
}
