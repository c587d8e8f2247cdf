//! Writes JSON objects, lists and fields in protobuf's mapping.

use super::bytes::{push_hex, to_base64};
use profcol_profile::Idx;

/// A JSON writer. Fields with default values are omitted.
#[derive(Default)]
pub(super) struct Json {
    out: Vec<u8>,
    /// Whether the current object is still empty.
    at_start: bool,
}

impl Json {
    pub fn into_vec(self) -> Vec<u8> {
        self.out
    }

    pub fn object(&mut self, write: impl FnOnce(&mut Self)) {
        self.out.push(b'{');
        self.at_start = true;
        write(self);
        self.at_start = false;
        self.out.push(b'}');
    }

    fn name(&mut self, name: &str) {
        if !self.at_start {
            self.out.push(b',');
        }
        self.at_start = false;
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    /// An object field, written even if empty.
    pub fn message(&mut self, name: &str, write: impl FnOnce(&mut Self)) {
        self.name(name);
        self.object(write);
    }

    pub fn list<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        let mut items = items.into_iter().peekable();
        if items.peek().is_none() {
            return;
        }
        self.name(name);
        self.out.push(b'[');
        for (position, item) in items.enumerate() {
            if position > 0 {
                self.out.push(b',');
            }
            write(self, item);
        }
        self.out.push(b']');
    }

    /// A list of objects.
    pub fn objects<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        self.list(name, items, |json, item| {
            json.object(|json| write(json, item));
        });
    }

    pub fn indices<T: ?Sized>(&mut self, name: &str, indices: &[Idx<T>]) {
        self.list(name, indices, |json, index| json.push_number(index.get()));
    }

    pub fn texts<T: AsRef<str>>(&mut self, name: &str, texts: impl IntoIterator<Item = T>) {
        self.list(name, texts, |json, text| json.push_text(text.as_ref()));
    }

    pub fn quoted_numbers<T: itoa::Integer + Copy>(&mut self, name: &str, numbers: &[T]) {
        self.list(name, numbers, |json, number| json.push_quoted(*number));
    }

    pub fn index<T: ?Sized>(&mut self, name: &str, index: Idx<T>) {
        self.small_number(name, index.get());
    }

    /// A number of up to 32 bits.
    pub fn small_number(&mut self, name: &str, number: u32) {
        if number != 0 {
            self.small_number_always(name, number);
        }
    }

    pub fn small_number_always(&mut self, name: &str, number: u32) {
        self.name(name);
        self.push_number(number);
    }

    /// A 64-bit number, quoted because not all JSON parsers read large bare ones exactly.
    pub fn number<T: itoa::Integer + Copy + Default + PartialEq>(&mut self, name: &str, number: T) {
        if number != T::default() {
            self.number_always(name, number);
        }
    }

    pub fn number_always<T: itoa::Integer>(&mut self, name: &str, number: T) {
        self.name(name);
        self.push_quoted(number);
    }

    pub fn double_always(&mut self, name: &str, number: f64) {
        self.name(name);
        if number.is_finite() {
            serde_json::to_writer(&mut self.out, &number).expect("writing to a vector cannot fail");
        } else if number.is_nan() {
            self.push_text("NaN");
        } else if number > 0.0 {
            self.push_text("Infinity");
        } else {
            self.push_text("-Infinity");
        }
    }

    pub fn boolean_always(&mut self, name: &str, value: bool) {
        self.name(name);
        let value: &[u8] = if value { b"true" } else { b"false" };
        self.out.extend_from_slice(value);
    }

    pub fn text(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            self.text_always(name, text);
        }
    }

    pub fn text_always(&mut self, name: &str, text: &str) {
        self.name(name);
        self.push_text(text);
    }

    /// An id; zero means unset.
    pub fn hex(&mut self, name: &str, id: &[u8]) {
        if id.iter().any(|&byte| byte != 0) {
            self.hex_always(name, id);
        }
    }

    pub fn hex_always(&mut self, name: &str, id: &[u8]) {
        self.name(name);
        self.out.push(b'"');
        push_hex(&mut self.out, id);
        self.out.push(b'"');
    }

    pub fn base64_always(&mut self, name: &str, bytes: &[u8]) {
        self.text_always(name, &to_base64(bytes));
    }

    fn push_number(&mut self, number: impl itoa::Integer) {
        let mut digits = itoa::Buffer::new();
        self.out.extend_from_slice(digits.format(number).as_bytes());
    }

    fn push_quoted(&mut self, number: impl itoa::Integer) {
        self.out.push(b'"');
        self.push_number(number);
        self.out.push(b'"');
    }

    pub fn push_text(&mut self, text: &str) {
        serde_json::to_writer(&mut self.out, text).expect("writing to a vector cannot fail");
    }
}
