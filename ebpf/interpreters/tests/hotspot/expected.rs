//! The call chains that the test program records.

use std::collections::HashSet;

use profcol_ebpf_interpreters::hotspot::{FrameKind, JavaFrame};

/// All stacks of the program, without the line of the innermost frame.
pub struct Expected {
    stacks: HashSet<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Right,
    /// Its callers are right, but not the functions inlined into the innermost code: between safepoints, the
    /// compiler does not record the function of an instruction.
    Vague,
    Wrong,
    /// It has none of the program's functions.
    Other,
}

impl Expected {
    pub fn parse(lines: &[String]) -> Self {
        let mut stacks = HashSet::new();
        for line in lines {
            let Some(frames) = line.strip_prefix("chain ") else {
                continue;
            };
            let frames: Vec<String> = frames.split(' ').map(frame).collect();
            for first in 0..frames.len() {
                // This stack existed before its innermost functions were called.
                stacks.insert(without_first_line(&frames[first..]));
            }
        }
        Self { stacks }
    }

    /// `is_part` means that the other frames are on the heap.
    pub fn judge(&self, frames: &[JavaFrame], is_part: bool) -> Verdict {
        let named: Vec<String> = frames
            .iter()
            .map(|frame| format!("{}:{}", frame.name, frame.line))
            .collect();
        // Each function calls the recorder, which is not part of the recorded stacks.
        let mark = named
            .iter()
            .rposition(|name| name.starts_with("Chains.mark:"));
        let named = &named[mark.map_or(0, |mark| mark + 1)..];
        // Lambda classes have unknown callers.
        let is_own = |name: &String| name.starts_with("Chains") && !name.contains("$$Lambda");
        let Some(first) = named.iter().position(is_own) else {
            return Verdict::Other;
        };
        let stack = without_first_line(&named[first..]);
        let is_right = if is_part {
            self.stacks.iter().any(|known| known.starts_with(&stack))
        } else {
            self.stacks.contains(&stack)
        };
        let inlined = frames
            .iter()
            .take_while(|frame| frame.kind == FrameKind::Inlined)
            .count();
        match is_right {
            true => Verdict::Right,
            false if inlined == 0 => Verdict::Wrong,
            false => match self.judge(&frames[inlined + 1..], is_part) {
                Verdict::Right => Verdict::Vague,
                _ => Verdict::Wrong,
            },
        }
    }
}

/// Removes the address from the name of a hidden class.
fn frame(text: &str) -> String {
    let Some((class, rest)) = text.split_once('/') else {
        return text.into();
    };
    let method = rest.split_once('.').map_or("", |(_, method)| method);
    format!("{class}.{method}")
}

fn without_first_line(frames: &[String]) -> Vec<String> {
    let mut frames = frames.to_vec();
    if let Some(first) = frames.first_mut() {
        let end = first.rfind(':').unwrap_or(first.len());
        first.truncate(end);
    }
    frames
}
