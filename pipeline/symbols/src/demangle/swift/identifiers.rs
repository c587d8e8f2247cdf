//! Identifiers: words that came before are letters, and what is not ASCII is written as in domain names.

use std::ops::Range;

use super::parser::Parser;
use super::tree::{Id, Node};

/// As many as there are letters.
const MAX_WORDS: usize = 26;

impl Parser<'_> {
    pub fn identifier(&mut self) -> Option<Id> {
        let mut has_words = false;
        let mut is_encoded = false;
        if self.take(b'0') {
            is_encoded = self.take(b'0');
            has_words = !is_encoded;
        }
        let mut text = String::new();
        loop {
            while has_words && let Some(letter) = self.take_if(|it| it.is_ascii_alphabetic()) {
                let number = letter.to_ascii_lowercase() - b'a';
                let word = self.words.get(usize::from(number))?.clone();
                text.push_str(self.name.get(word)?);
                has_words = letter.is_ascii_lowercase();
            }
            if self.take(b'0') {
                break;
            }
            let length = self.natural().filter(|&it| it > 0)? as usize;
            if is_encoded {
                self.take(b'_');
            }
            let start = self.at;
            let part = self.name.get(start..start.checked_add(length)?)?;
            if is_encoded {
                text.push_str(&decoded(part)?);
            } else {
                text.push_str(part);
                self.note_words(start..start + length);
            }
            self.at = start + length;
            if !has_words {
                break;
            }
        }
        if text.is_empty() {
            return None;
        }
        let identifier = self.tree.add(Node::Identifier(text))?;
        self.substitute_node(identifier);
        Some(identifier)
    }

    /// A word ends in front of a capital letter or an underscore.
    fn note_words(&mut self, part: Range<usize>) {
        let bytes = self.name.as_bytes();
        let mut start = None;
        let mut before = 0u8;
        for at in part.clone().chain([part.end]) {
            let byte = match at < part.end {
                true => bytes.get(at).copied().unwrap_or_default(),
                false => 0,
            };
            let is_end = byte == b'_' || byte == 0;
            if let Some(begun) = start
                && (is_end || !before.is_ascii_uppercase() && byte.is_ascii_uppercase())
            {
                if at - begun >= 2 && self.words.len() < MAX_WORDS {
                    self.words.push(begun..at);
                }
                start = None;
            }
            if start.is_none() && !is_end && !byte.is_ascii_digit() {
                start = Some(at);
            }
            before = byte;
        }
    }

    pub fn operator_name(&mut self) -> Option<Id> {
        let identifier = self.pop_identifier()?;
        let text: Option<String> = identifier.chars().map(operator_character).collect();
        let place = match self.next()? {
            b'i' => " infix",
            b'p' => " prefix",
            b'P' => " postfix",
            _ => return None,
        };
        self.tree.add(Node::Operator(text?, place))
    }
}

fn operator_character(letter: char) -> Option<char> {
    Some(match letter {
        'a' => '&',
        'c' => '@',
        'd' => '/',
        'e' => '=',
        'g' => '>',
        'l' => '<',
        'm' => '*',
        'n' => '!',
        'o' => '|',
        'p' => '+',
        'q' => '?',
        'r' => '%',
        's' => '-',
        't' => '~',
        'x' => '^',
        'z' => '.',
        _ if !letter.is_ascii() => letter,
        _ => return None,
    })
}

/// Punycode (RFC 3492), with `_` for `-` and capital letters for the digits above `z`.
fn decoded(text: &str) -> Option<String> {
    const BASE: u32 = 36;
    const MIN: u32 = 1;
    const MAX: u32 = 26;
    let (basic, encoded) = text.rsplit_once('_').unwrap_or(("", text));
    if !basic.is_ascii() {
        return None;
    }
    let mut points: Vec<u32> = basic.bytes().map(u32::from).collect();
    let (mut point, mut place, mut bias) = (128u32, 0u32, 72u32);
    let mut digits = encoded.bytes().peekable();
    while digits.peek().is_some() {
        let before = place;
        let mut weight = 1u32;
        for position in (1u32..).map(|it| it * BASE) {
            let digit = match digits.next()? {
                letter @ b'a'..=b'z' => letter - b'a',
                letter @ b'A'..=b'J' => letter - b'A' + 26,
                _ => return None,
            };
            let digit = u32::from(digit);
            place = digit.checked_mul(weight)?.checked_add(place)?;
            let threshold = position.saturating_sub(bias).clamp(MIN, MAX);
            if digit < threshold {
                break;
            }
            weight = weight.checked_mul(BASE - threshold)?;
        }
        let count = points.len() as u32 + 1;
        let mut delta = (place - before) / if before == 0 { 700 } else { 2 };
        delta += delta / count;
        bias = 0;
        while delta > (BASE - MIN) * MAX / 2 {
            delta /= BASE - MIN;
            bias += BASE;
        }
        bias += (BASE - MIN + 1) * delta / (delta + 38);
        point = point.checked_add(place / count)?;
        place %= count;
        points.insert(place as usize, point);
        place += 1;
    }
    // What is ASCII and no part of a symbol is moved to where there are no characters.
    const MOVED: Range<u32> = 0xd800..0xd880;
    points
        .into_iter()
        .map(|it| {
            char::from_u32(if MOVED.contains(&it) {
                it - MOVED.start
            } else {
                it
            })
        })
        .collect()
}
