//! A flame graph as a static SVG: no script, the value of each frame in its title.

use std::fmt::Write;

use profcol_printable::markup;

use crate::code::FrameKind;
use crate::document::{Relation, Source};
use crate::frames::Frame;
use crate::layout::Layout;
use crate::tree::{CallTree, Values};

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

/// Hues of functions that take less and more than before: told apart with any color vision.
const LESS: u32 = 213;
const MORE: u32 = 28;

pub fn svg(tree: &CallTree, source: &Source, title: &str) -> String {
    let total = tree.total().value.max(1) as f64;
    let scale = Scale {
        now: 1.0 / total,
        base: 0.0,
    };
    draw(tree, title, "", &scale, |frame, values| RectangleStyle {
        values: format!(
            "{} ({:.2}%)",
            amount(values.value, &source.sample_type.unit),
            values.value as f64 / total * 100.0
        ),
        color: color(frame, tree),
    })
}

/// The difference of two profiles: a frame is as wide as both values together, and its color shows which is larger.
pub fn difference_svg(tree: &CallTree, source: &Source, title: &str, relation: Relation) -> String {
    let total = tree.total();
    let share = |value: u64, of: u64| value as f64 / of.max(1) as f64;
    let scale = match relation {
        Relation::Share => {
            let profiles = f64::from(u8::from(total.value > 0) + u8::from(total.base > 0)).max(1.0);
            Scale {
                now: share(1, total.value) / profiles,
                base: share(1, total.base) / profiles,
            }
        }
        Relation::Value => {
            let both = share(1, total.value.saturating_add(total.base));
            Scale {
                now: both,
                base: both,
            }
        }
    };
    let unit = &source.sample_type.unit;
    let legend = "<text x=\"6\" y=\"30\">Blue takes less than before, orange more.</text>\n";
    draw(tree, title, legend, &scale, |_, values| {
        let (before, after) = (
            share(values.base, total.base),
            share(values.value, total.value),
        );
        let (now, base) = (
            values.value as f64 * scale.now,
            values.base as f64 * scale.base,
        );
        RectangleStyle {
            values: format!(
                "{} before ({:.2}%), {} after ({:.2}%)",
                amount(values.base, unit),
                before * 100.0,
                amount(values.value, unit),
                after * 100.0
            ),
            color: difference_color(now, base),
        }
    })
}

/// Factors from values to shares of the width.
struct Scale {
    now: f64,
    base: f64,
}

impl Scale {
    fn width(&self, values: Values) -> f64 {
        (values.value as f64 * self.now + values.base as f64 * self.base) * WIDTH
    }
}

struct RectangleStyle {
    values: String,
    color: String,
}

fn draw(
    tree: &CallTree,
    title: &str,
    legend: &str,
    scale: &Scale,
    style: impl Fn(&Frame, Values) -> RectangleStyle,
) -> String {
    let layout = Layout::new(tree, MAX_NODES);
    let rows = rectangles(&layout, scale);
    let depth = rows.iter().map(|it| it.depth).max().map_or(0, |it| it + 1);
    let height = HEADER + depth * ROW + 8;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"ui-monospace,monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"6\" y=\"16\" font-size=\"14\">{}</text>\n\
         {legend}",
        escaped(title),
    );
    for it in rows {
        let Some(frame) = tree.frames.get(layout.frame[it.row]) else {
            continue;
        };
        let label = tree.frames.label(layout.frame[it.row]);
        let RectangleStyle { values, color } = style(frame, layout.total[it.row]);
        let (x, y) = (it.x, HEADER + (depth - 1 - it.depth) * ROW);
        let _ = write!(
            out,
            "<g><title>{}\n{}</title><rect x=\"{x:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{}\" fill=\"{color}\"/>",
            escaped(&description(&label, frame, tree)),
            escaped(&values),
            (it.width - 0.4).max(MIN_WIDTH),
            ROW - 1,
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

fn rectangles(layout: &Layout, scale: &Scale) -> Vec<Rectangle> {
    // The start of the next frame at each depth.
    let mut next: Vec<f64> = vec![0.0];
    let mut rectangles = Vec::new();
    for row in 0..layout.len() {
        let depth = layout.depth[row] as usize;
        let (x, width) = (next[depth], scale.width(layout.total[row]));
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

/// Grey if nothing changed.
fn difference_color(now: f64, base: f64) -> String {
    let both = now + base;
    let relative = if both > 0.0 { (now - base) / both } else { 0.0 };
    let strength = relative.abs().sqrt();
    let hue = if relative < 0.0 { LESS } else { MORE };
    format!(
        "hsl({hue} {:.0}% {:.0}%)",
        85.0 * strength,
        92.0 - 24.0 * strength
    )
}

fn shortened(text: &str, room: usize) -> String {
    match text.chars().count() > room {
        true => text.chars().take(room - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

fn escaped(text: &str) -> String {
    // What XML forbids, and line breaks, which would split a title.
    let is_forbidden = |it: char| it.is_control() || matches!(it, '\u{fffe}' | '\u{ffff}');
    markup(&text.replace(is_forbidden, " ")).into_owned()
}
