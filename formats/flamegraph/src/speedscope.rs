//! The speedscope file format: a sampled profile with a stack and a weight for each node that has a value.

use serde::Serialize;

use crate::document::Source;
use crate::tree::{CallTree, NodeId};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: &'a str,
    shared: Shared<'a>,
    profiles: [Profile<'a>; 1],
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<Frame<'a>>,
}

#[derive(Serialize)]
struct Frame<'a> {
    name: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    file: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    line: u32,
}

#[derive(Serialize)]
struct Profile<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    unit: &'static str,
    #[serde(rename = "startValue")]
    start: u64,
    #[serde(rename = "endValue")]
    end: u64,
    samples: Vec<Vec<u32>>,
    weights: Vec<u64>,
}

pub fn speedscope(tree: &CallTree, source: &Source, name: &str) -> String {
    let (mut samples, mut weights) = (Vec::new(), Vec::new());
    for (row, node) in tree.nodes().iter().enumerate() {
        if node.own.value == 0 {
            continue;
        }
        let mut stack: Vec<u32> = tree.ancestors(NodeId::at(row)).map(|it| it.0).collect();
        stack.reverse();
        samples.push(stack);
        weights.push(node.own.value);
    }
    let frames = tree.frames.iter().enumerate().map(|(row, frame)| Frame {
        name: tree.frames.label(crate::FrameId(row as u32)),
        file: tree.frames.text(frame.file),
        line: frame.line,
    });
    let file = File {
        schema: SCHEMA,
        exporter: "profcol",
        name,
        shared: Shared {
            frames: frames.collect(),
        },
        profiles: [Profile {
            kind: "sampled",
            name: &source.sample_type.name,
            unit: match source.sample_type.unit.as_str() {
                "nanoseconds" => "nanoseconds",
                "bytes" => "bytes",
                _ => "none",
            },
            start: 0,
            end: tree.total().value,
            samples,
            weights,
        }],
    };
    serde_json::to_string(&file).unwrap_or_default()
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(value: &u32) -> bool {
    *value == 0
}
