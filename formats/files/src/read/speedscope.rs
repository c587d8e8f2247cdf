//! The speedscope file format: sampled profiles, and evented ones, whose functions open and close.

use profcol_flamegraph::{Frame, FrameId};
use profcol_profile::{KeyValue, Model, Profiles, Resource};
use serde::Deserialize;

use super::ReadError;
use super::stacks::{StackNode, Stacks, source};

const SCHEMA: &str = "speedscope.app/file-format-schema";
/// profcol names each profile in its own files after the sample type.
const OWN: &str = "profcol";

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    exporter: Option<String>,
    shared: Shared,
    profiles: Vec<Profile>,
}

#[derive(Deserialize)]
struct Shared {
    frames: Vec<SharedFrame>,
}

#[derive(Deserialize)]
struct SharedFrame {
    name: String,
    #[serde(default)]
    file: Option<String>,
    #[serde(default)]
    line: Option<u32>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Profile {
    Sampled(Sampled),
    Evented(Evented),
}

#[derive(Deserialize)]
struct Sampled {
    #[serde(default)]
    name: String,
    unit: String,
    /// Outermost first.
    samples: Vec<Vec<usize>>,
    weights: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Evented {
    #[serde(default)]
    name: String,
    unit: String,
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: EventKind,
    frame: usize,
    at: f64,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
enum EventKind {
    #[serde(rename = "O")]
    Open,
    #[serde(rename = "C")]
    Close,
}

pub(super) fn is_speedscope(content: &[u8]) -> bool {
    let schema = SCHEMA.as_bytes();
    content.windows(schema.len()).any(|it| it == schema)
}

pub(super) fn read(content: &[u8], max_bytes: usize) -> Result<Model, ReadError> {
    let wrong = |reason: String| ReadError::Speedscope(reason);
    let file: File = serde_json::from_slice(content).map_err(|error| wrong(error.to_string()))?;
    let is_own = file.exporter.as_deref() == Some(OWN);
    let several = file.profiles.len() > 1;
    let mut free_bytes = max_bytes;
    let mut models = Vec::new();
    for (number, profile) in file.profiles.iter().enumerate() {
        // Each has the frames of all.
        let frames = file.shared.frames.len() * size_of::<Frame>();
        free_bytes = free_bytes.checked_sub(frames).ok_or(ReadError::TooLarge)?;
        let mut reading = Reading::new(&file.shared.frames, free_bytes);
        let (name, unit) = match profile {
            Profile::Sampled(it) => (&it.name, &it.unit),
            Profile::Evented(it) => (&it.name, &it.unit),
        };
        let in_profile = |reason| wrong(format!("profiles[{number}].{reason}"));
        let measure = Measure::of(unit).ok_or_else(|| in_profile(format!("unit: {unit:?}")))?;
        match profile {
            Profile::Sampled(it) => reading.add_samples(it, measure),
            Profile::Evented(it) => reading.add_events(it, measure),
        }
        .map_err(|error| match error {
            Problem::At(reason) => in_profile(reason),
            Problem::Read(error) => error,
        })?;
        let source = match is_own {
            true => source(name, measure.unit),
            false => source(measure.name, measure.unit),
        };
        let model = reading.stacks.finish(&source);
        models.push(Profiles::from_model(match several {
            true => of_thread(model, name),
            false => model,
        }));
    }
    Ok(Profiles::merge(models).into_model())
}

fn of_thread(mut model: Model, name: &str) -> Model {
    let resource = Resource {
        attributes: vec![KeyValue::new("thread.name", name)],
        ..Resource::default()
    };
    for it in &mut model.resources {
        it.resource = Some(resource.clone().into());
    }
    model
}

/// What a unit measures, and how.
#[derive(Clone, Copy)]
struct Measure {
    name: &'static str,
    unit: &'static str,
    factor: f64,
}

impl Measure {
    fn of(unit: &str) -> Option<Self> {
        let time = |factor| Self {
            name: "time",
            unit: "nanoseconds",
            factor,
        };
        Some(match unit {
            "nanoseconds" => time(1.0),
            "microseconds" => time(1e3),
            "milliseconds" => time(1e6),
            "seconds" => time(1e9),
            "bytes" => Self {
                name: "space",
                unit: "bytes",
                factor: 1.0,
            },
            "none" => Self {
                name: "samples",
                unit: "count",
                factor: 1.0,
            },
            _ => return None,
        })
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "negative values are refused, larger ones become the largest"
    )]
    fn value(self, number: f64) -> Option<u64> {
        (number >= 0.0).then_some((number * self.factor).round() as u64)
    }
}

enum Problem {
    /// A place in the profile and what is wrong there.
    At(String),
    Read(ReadError),
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

struct Reading {
    stacks: Stacks,
    frames: Vec<FrameId>,
}

impl Reading {
    fn new(shared: &[SharedFrame], max_bytes: usize) -> Self {
        let mut stacks = Stacks::new(max_bytes);
        let frames = shared.iter().map(|it| {
            let name = stacks.string(&it.name);
            let file = stacks.string(it.file.as_deref().unwrap_or(""));
            stacks.frame(Frame {
                name,
                file,
                line: it.line.unwrap_or(0),
                ..Frame::default()
            })
        });
        let frames = frames.collect();
        Self { stacks, frames }
    }

    fn frame(&self, number: usize) -> Result<FrameId, String> {
        let frame = self.frames.get(number).copied();
        frame.ok_or_else(|| format!("there is no frame {number}"))
    }

    fn add_samples(&mut self, profile: &Sampled, measure: Measure) -> Result<(), Problem> {
        let (samples, weights) = (profile.samples.len(), profile.weights.len());
        if samples != weights {
            let reason = format!("weights: {weights} for {samples} samples");
            return Err(Problem::At(reason));
        }
        for (row, (stack, weight)) in profile.samples.iter().zip(&profile.weights).enumerate() {
            let value = measure.value(*weight);
            let value = value.ok_or_else(|| Problem::At(format!("weights[{row}]: {weight}")))?;
            let mut node = StackNode::ROOT;
            for number in stack {
                let frame = self.frame(*number);
                let frame =
                    frame.map_err(|reason| Problem::At(format!("samples[{row}]: {reason}")))?;
                node = self.stacks.child(node, frame);
            }
            self.stacks.add(node, value)?;
        }
        Ok(())
    }

    /// The time between two events is that of the functions that are open.
    fn add_events(&mut self, profile: &Evented, measure: Measure) -> Result<(), Problem> {
        let mut open: Vec<(FrameId, StackNode)> = Vec::new();
        let mut last = None;
        for (row, event) in profile.events.iter().enumerate() {
            let wrong = |reason: String| Problem::At(format!("events[{row}]: {reason}"));
            let frame = self.frame(event.frame).map_err(wrong)?;
            let node = open.last().map_or(StackNode::ROOT, |(_, node)| *node);
            let elapsed = measure.value(event.at - last.unwrap_or(event.at));
            let elapsed = elapsed.ok_or_else(|| wrong("earlier than the event before".into()))?;
            last = Some(event.at);
            if !open.is_empty() {
                self.stacks.add(node, elapsed)?;
            }
            match event.kind {
                EventKind::Open => open.push((frame, self.stacks.child(node, frame))),
                EventKind::Close if open.last().is_some_and(|(it, _)| *it == frame) => {
                    open.pop();
                }
                EventKind::Close => {
                    return Err(wrong("closes a frame that is not the innermost one".into()));
                }
            }
        }
        match open.is_empty() {
            true => Ok(()),
            false => Err(Problem::At(format!(
                "events: {} frames stay open",
                open.len()
            ))),
        }
    }
}
