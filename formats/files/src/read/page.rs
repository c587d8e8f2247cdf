//! The one-file page: the profile is a columnar document in a `<script>`.

use profcol_flamegraph::{Frame, FrameId, FrameKind, Language, Source};
use profcol_profile::Model;
use serde::Deserialize;

use super::ReadError;
use super::stacks::{StackNode, Stacks, source};

const START: &str = "<script type=\"application/json\" id=\"profile\">";
const END: &str = "</script>";

/// The data of a page; of a comparison, the profile after.
#[derive(Deserialize)]
struct Document {
    #[serde(rename = "type")]
    kind: String,
    unit: String,
    from: u64,
    until: u64,
    strings: Vec<String>,
    kinds: Vec<FrameKind>,
    languages: Vec<String>,
    frames: Frames,
    nodes: Nodes,
}

#[derive(Deserialize)]
struct Frames {
    name: Vec<usize>,
    file: Vec<usize>,
    line: Vec<u32>,
    binary: Vec<usize>,
    kind: Vec<usize>,
    language: Vec<usize>,
}

/// In depth-first order.
#[derive(Deserialize)]
struct Nodes {
    depth: Vec<usize>,
    frame: Vec<usize>,
    #[serde(rename = "self")]
    own: Vec<u64>,
}

/// `None` if another program wrote the page.
pub(super) fn document(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once(START)?;
    rest.split_once(END).map(|(document, _)| document)
}

pub(super) fn read(document: &str, max_bytes: usize) -> Result<Model, ReadError> {
    let document = serde_json::from_str(document);
    let document: Document =
        document.map_err(|error: serde_json::Error| ReadError::Page(error.to_string()))?;
    let mut stacks = Stacks::new(max_bytes);
    let frames = document.frames(&mut stacks)?;
    // The innermost place of each depth.
    let mut path: Vec<StackNode> = Vec::new();
    let Nodes { depth, frame, own } = &document.nodes;
    same_length("nodes", [depth.len(), frame.len(), own.len()])?;
    for (row, ((depth, frame), own)) in depth.iter().zip(frame).zip(own).enumerate() {
        let wrong = |reason: &str| ReadError::Page(format!("nodes[{row}]: {reason}"));
        let caller = match depth.checked_sub(1) {
            None => Some(&StackNode::ROOT),
            Some(above) => path.get(above),
        };
        let caller = *caller.ok_or_else(|| wrong("it has no caller"))?;
        let frame = frames.get(*frame);
        let node = stacks.child(
            caller,
            *frame.ok_or_else(|| wrong("there is no such frame"))?,
        );
        path.truncate(*depth);
        path.push(node);
        stacks.add(node, *own)?;
    }
    Ok(stacks.finish(&Source {
        from: document.from,
        until: document.until,
        ..source(&document.kind, &document.unit)
    }))
}

impl Document {
    fn frames(&self, stacks: &mut Stacks) -> Result<Vec<FrameId>, ReadError> {
        let Frames {
            name,
            file,
            line,
            binary,
            kind,
            language,
        } = &self.frames;
        let lengths = [name, file, binary, kind, language].map(Vec::len);
        same_length("frames", lengths)?;
        same_length("frames", [name.len(), line.len()])?;
        let languages: Vec<Language> = self.languages.iter().map(|it| language_of(it)).collect();
        let columns = name.iter().zip(file).zip(line).zip(binary);
        let columns = columns.zip(kind).zip(language).enumerate();
        let mut found = Vec::with_capacity(name.len());
        for (row, (((((name, file), line), binary), kind), language)) in columns {
            let wrong =
                || ReadError::Page(format!("frames[{row}]: it refers to what is not there"));
            let mut string = |index: &usize| {
                let text = self.strings.get(*index).ok_or_else(wrong)?;
                Ok::<_, ReadError>(stacks.string(text))
            };
            let frame = Frame {
                name: string(name)?,
                file: string(file)?,
                line: *line,
                binary: string(binary)?,
                kind: *self.kinds.get(*kind).ok_or_else(wrong)?,
                language: *languages.get(*language).ok_or_else(wrong)?,
            };
            found.push(stacks.frame(frame));
        }
        Ok(found)
    }
}

fn language_of(name: &str) -> Language {
    let found = Language::ALL.into_iter().find(|it| it.name() == name);
    found.unwrap_or_default()
}

fn same_length<const N: usize>(table: &str, lengths: [usize; N]) -> Result<(), ReadError> {
    match lengths.windows(2).all(|it| it.first() == it.last()) {
        true => Ok(()),
        false => Err(ReadError::Page(format!(
            "{table}: the columns have different lengths"
        ))),
    }
}
