//! A flame graph as a static SVG: no script, the value of each frame in its title.

use std::fmt::Write;

use crate::document::Source;
use crate::frames::{Frame, FrameKind};
use crate::layout::Layout;
use crate::tree::CallTree;

const WIDTH: f64 = 1200.0;
const ROW: u32 = 17;
const HEADER: u32 = 34;
/// The width of a monospaced character at this size.
const CHARACTER: f64 = 6.6;
/// Narrower frames would be invisible and are omitted.
const MIN_WIDTH: f64 = 0.3;
/// Deeper frames are omitted: the image would be too tall to open.
const MAX_DEPTH: u32 = 2000;
const MAX_NODES: usize = 20_000;

pub fn svg(tree: &CallTree, source: &Source, title: &str) -> String {
    let layout = Layout::new(tree, MAX_NODES);
    let total = tree.total().value.max(1) as f64;
    let rows = rectangles(&layout, total);
    let depth = rows.iter().map(|it| it.depth).max().map_or(0, |it| it + 1);
    let height = HEADER + depth * ROW + 8;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"ui-monospace,monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"6\" y=\"20\" font-size=\"14\">{}</text>\n",
        escaped(title),
    );
    for it in rows {
        let Some(frame) = tree.frames.get(layout.frame[it.row]) else {
            continue;
        };
        let label = tree.frames.label(layout.frame[it.row]);
        let value = layout.total[it.row].value;
        let (x, y) = (it.x, HEADER + (depth - 1 - it.depth) * ROW);
        let _ = write!(
            out,
            "<g><title>{}\n{} ({:.2}%)</title><rect x=\"{x:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{}\" fill=\"{}\"/>",
            escaped(&description(&label, frame, tree)),
            amount(value, &source.sample_type.unit),
            value as f64 / total * 100.0,
            (it.width - 0.4).max(MIN_WIDTH),
            ROW - 1,
            color(frame, tree),
        );
        let room = ((it.width - 6.0) / CHARACTER) as usize;
        if room >= 3 {
            let text = escaped(&shortened(&label, room));
            let _ = write!(
                out,
                "<text x=\"{:.1}\" y=\"{}\">{text}</text>",
                x + 3.0,
                y + 12
            );
        }
        out.push_str("</g>\n");
    }
    out.push_str("</svg>\n");
    out
}

struct Rectangle {
    row: usize,
    depth: u32,
    x: f64,
    width: f64,
}

fn rectangles(layout: &Layout, total: f64) -> Vec<Rectangle> {
    // The start of the next frame at each depth.
    let mut next: Vec<f64> = vec![0.0];
    let mut rectangles = Vec::new();
    for row in 0..layout.len() {
        let depth = layout.depth[row] as usize;
        let (x, width) = (next[depth], layout.total[row].value as f64 / total * WIDTH);
        next[depth] += width;
        next.truncate(depth + 1);
        next.push(x);
        if width >= MIN_WIDTH && layout.depth[row] < MAX_DEPTH {
            rectangles.push(Rectangle {
                row,
                depth: layout.depth[row],
                x,
                width,
            });
        }
    }
    rectangles
}

fn description(label: &str, frame: &Frame, tree: &CallTree) -> String {
    let binary = tree.frames.text(frame.binary);
    let mut text = label.to_owned();
    if !binary.is_empty() && frame.name != 0 {
        let _ = write!(text, " [{binary}]");
    }
    match (tree.frames.text(frame.file), frame.line) {
        ("", _) => {}
        (file, 0) => text += &format!(" {file}"),
        (file, line) => text += &format!(" {file}:{line}"),
    }
    text
}

fn amount(value: u64, unit: &str) -> String {
    match unit {
        "nanoseconds" => format!("{:.3} s", value as f64 / 1e9),
        "" => value.to_string(),
        unit => format!("{value} {unit}"),
    }
}

/// One hue per binary, all light enough for dark text; kernel code and code without symbols get their own colors.
fn color(frame: &Frame, tree: &CallTree) -> String {
    match frame.kind {
        FrameKind::Kernel => return "#f4b183".to_owned(),
        FrameKind::Marker => return "#c8c8c8".to_owned(),
        _ => {}
    }
    let binary = tree.frames.text(frame.binary);
    let hash = binary.bytes().fold(2_166_136_261_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
    });
    format!("hsl({} 62% {}%)", hash % 360, 72 + hash / 360 % 8)
}

fn shortened(text: &str, room: usize) -> String {
    match text.chars().count() > room {
        true => text.chars().take(room - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for it in text.chars() {
        match it {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Characters that XML forbids, and line breaks, which would split a title.
            it if it.is_control() || matches!(it, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            it => out.push(it),
        }
    }
    out
}
