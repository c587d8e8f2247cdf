//! Processed profiles of the Firefox Profiler: of the present layout, in which all threads share their tables.

use std::collections::HashMap;

use profcol_flamegraph::{Frame, FrameId, FrameKind, Language};
use profcol_profile::{KeyValue, Model, Profiles, Resource};
use serde::Deserialize;

use super::ReadError;
use super::stacks::{StackNode, Stacks, source};

const VERSION_KEY: &str = "\"preprocessedProfileVersion\"";
/// The first version with shared stacks.
const OLDEST: u32 = 60;

#[derive(Deserialize)]
struct Versioned {
    meta: Version,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    preprocessed_profile_version: u32,
}

#[derive(Deserialize)]
struct File {
    meta: Meta,
    shared: Shared,
    threads: Vec<Thread>,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    categories: Vec<Category>,
}

#[derive(Deserialize)]
struct Category {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shared {
    string_array: Vec<String>,
    stack_table: StackTable,
    frame_table: FrameTable,
    func_table: Functions,
    #[serde(default)]
    resource_table: Names,
    #[serde(default)]
    sources: Sources,
}

#[derive(Deserialize)]
struct StackTable {
    frame: Vec<usize>,
    prefix: Vec<Option<usize>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FrameTable {
    func: Vec<usize>,
    #[serde(default)]
    category: Vec<Option<usize>>,
    #[serde(default)]
    inline_depth: Vec<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Functions {
    name: Vec<usize>,
    /// Negative without one.
    #[serde(default)]
    resource: Vec<i64>,
    #[serde(default)]
    source: Vec<Option<usize>>,
    #[serde(default)]
    line_number: Vec<Option<u32>>,
}

#[derive(Default, Deserialize)]
struct Names {
    name: Vec<usize>,
}

#[derive(Default, Deserialize)]
struct Sources {
    filename: Vec<usize>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Thread {
    #[serde(default)]
    name: String,
    #[serde(default)]
    process_name: Option<String>,
    #[serde(default)]
    pid: Option<String>,
    samples: Samples,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Samples {
    stack: Vec<Option<usize>>,
    /// Without it each sample counts once.
    #[serde(default)]
    weight: Option<Vec<f64>>,
    #[serde(default)]
    weight_type: Option<String>,
}

pub(super) fn is_firefox(content: &[u8]) -> bool {
    let key = VERSION_KEY.as_bytes();
    content.windows(key.len()).any(|it| it == key)
}

pub(super) fn read(content: &[u8], max_bytes: usize) -> Result<Model, ReadError> {
    let json = |error: serde_json::Error| ReadError::Firefox(error.to_string());
    let Versioned { meta } = serde_json::from_slice(content).map_err(json)?;
    if meta.preprocessed_profile_version < OLDEST {
        return Err(ReadError::OldFirefox {
            version: meta.preprocessed_profile_version,
        });
    }
    let file: File = serde_json::from_slice(content).map_err(json)?;
    let frames = file.shared.frame_table.func.len() * size_of::<Frame>();
    let mut free_bytes = max_bytes;
    let mut models = Vec::new();
    for (number, thread) in file.threads.iter().enumerate() {
        // Each has the frames of all.
        free_bytes = free_bytes.checked_sub(frames).ok_or(ReadError::TooLarge)?;
        let model = Reading::new(&file, free_bytes).and_then(|it| it.of_thread(number, thread))?;
        models.push(Profiles::from_model(model));
    }
    Ok(Profiles::merge(models).into_model())
}

struct Reading<'a> {
    table: &'a StackTable,
    stacks: Stacks,
    frames: Vec<FrameId>,
    /// By row of the table.
    nodes: HashMap<usize, StackNode>,
}

impl<'a> Reading<'a> {
    fn new(file: &'a File, max_bytes: usize) -> Result<Self, ReadError> {
        let mut stacks = Stacks::new(max_bytes);
        let rows = 0..file.shared.frame_table.func.len();
        let frames: Option<Vec<FrameId>> = rows.map(|row| file.frame(row, &mut stacks)).collect();
        let wrong = || ReadError::Firefox("frameTable: a row refers to what is not there".into());
        Ok(Self {
            table: &file.shared.stack_table,
            stacks,
            frames: frames.ok_or_else(wrong)?,
            nodes: HashMap::new(),
        })
    }

    fn of_thread(mut self, number: usize, thread: &Thread) -> Result<Model, ReadError> {
        let wrong = |reason: String| ReadError::Firefox(format!("threads[{number}].{reason}"));
        let samples = &thread.samples;
        let (name, unit, factor) = match samples.weight_type.as_deref() {
            Some("tracing-ms") => ("cpu", "nanoseconds", 1e6),
            Some("bytes") => ("space", "bytes", 1.0),
            _ => ("samples", "count", 1.0),
        };
        let lengths = (samples.stack.len(), samples.weight.as_ref().map(Vec::len));
        if lengths.1.is_some_and(|weights| weights != lengths.0) {
            return Err(wrong("samples: the columns have different lengths".into()));
        }
        for (row, stack) in samples.stack.iter().enumerate() {
            let weight = samples.weight.as_ref().and_then(|it| it.get(row));
            let value = match (weight, stack) {
                (Some(weight), _) => value(weight * factor),
                // No sample: the thread was idle.
                (None, None) => Some(0),
                (None, Some(_)) => Some(1),
            };
            let value = value.ok_or_else(|| wrong(format!("samples.weight[{row}] is negative")))?;
            let node = match stack {
                None => Some(StackNode::ROOT),
                Some(stack) => self.node(*stack),
            };
            let node =
                node.ok_or_else(|| wrong(format!("samples.stack[{row}]: the stack is damaged")))?;
            self.stacks.add(node, value)?;
        }
        let mut model = self.stacks.finish(&source(name, unit));
        let resource = thread.resource();
        for it in &mut model.resources {
            it.resource = Some(resource.clone().into());
        }
        Ok(model)
    }

    /// `None` if a row refers to what is not there, or to itself.
    fn node(&mut self, stack: usize) -> Option<StackNode> {
        let mut inner = Vec::new();
        let mut row = Some(stack);
        let mut node = StackNode::ROOT;
        while let Some(at) = row {
            if let Some(known) = self.nodes.get(&at) {
                node = *known;
                break;
            }
            inner.push(at);
            let prefix = *self.table.prefix.get(at)?;
            // Callers come first, so this ends.
            if prefix.is_some_and(|prefix| prefix >= at) {
                return None;
            }
            row = prefix;
        }
        for at in inner.into_iter().rev() {
            let frame = self.frames.get(*self.table.frame.get(at)?)?;
            node = self.stacks.child(node, *frame);
            self.nodes.insert(at, node);
        }
        Some(node)
    }
}

impl File {
    /// `None` if it refers to what is not there.
    fn frame(&self, row: usize, stacks: &mut Stacks) -> Option<FrameId> {
        let Shared {
            string_array,
            frame_table,
            func_table,
            resource_table,
            sources,
            ..
        } = &self.shared;
        let mut string = |index: usize| Some(stacks.string(string_array.get(index)?));
        let function = *frame_table.func.get(row)?;
        let source = func_table.source.get(function).copied().flatten();
        let resource = func_table.resource.get(function).copied();
        let resource = resource.and_then(|it| usize::try_from(it).ok());
        let line = func_table.line_number.get(function).copied().flatten();
        let category = frame_table.category.get(row).copied().flatten();
        let category = category.and_then(|it| self.meta.categories.get(it));
        let is_inlined = frame_table.inline_depth.get(row).is_some_and(|it| *it > 0);
        let kind = match category.map(|it| it.name.as_str()) {
            _ if is_inlined => FrameKind::Inlined,
            Some("Kernel") => FrameKind::Kernel,
            _ => FrameKind::Native,
        };
        let frame = Frame {
            name: string(*func_table.name.get(function)?)?,
            file: match source {
                Some(source) => string(*sources.filename.get(source)?)?,
                None => 0,
            },
            line: line.unwrap_or(0),
            binary: match resource {
                Some(resource) => string(*resource_table.name.get(resource)?)?,
                None => 0,
            },
            kind,
            language: match kind {
                FrameKind::Kernel => Language::Kernel,
                _ => Language::Unknown,
            },
        };
        Some(stacks.frame(frame))
    }
}

impl Thread {
    fn resource(&self) -> Resource {
        let mut attributes = Vec::new();
        let pid = self.pid.as_deref().and_then(|it| it.parse::<i64>().ok());
        attributes.extend(pid.map(|pid| KeyValue::new("process.pid", pid)));
        let process = self.process_name.as_deref();
        attributes.extend(process.map(|it| KeyValue::new("process.executable.name", it)));
        attributes.push(KeyValue::new("thread.name", self.name.as_str()));
        Resource {
            attributes,
            ..Resource::default()
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "negative values are refused, larger ones become the largest"
)]
fn value(number: f64) -> Option<u64> {
    (number >= 0.0).then_some(number.round() as u64)
}
