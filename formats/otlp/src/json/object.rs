//! Streams JSON objects into messages with `serde` visitors.
//!
//! A [`Message`] receives one [`Field`] at a time and reads the type it expects. On failure, each level adds its step
//! to the path in the error.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::list::{Items, List, Rows};
use super::scalar::{Double, Integer, IntegerVisitor, Row, Text};
use profcol_profile::{Idx, StringTable};

/// The target of a JSON object.
pub(super) trait Message {
    /// Reads the field `name`, which is in `lowerCamelCase`, or skips it.
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error>;
}

/// The value of a field, to be read once. `null` changes nothing.
pub(super) struct Field<'a, M> {
    map: &'a mut M,
    context: &'a Context<'a>,
}

/// State shared by all levels of a body.
pub(super) struct Context<'a> {
    memory: Memory<'a>,
    /// The string table for attribute references.
    strings: &'a StringTable,
    /// Path of the error, innermost first.
    steps: RefCell<Vec<String>>,
}

/// Memory used for reading, requested incrementally.
struct Memory<'a> {
    ask: &'a dyn Fn(usize) -> bool,
    left: Cell<usize>,
}

impl Memory<'_> {
    fn take(&self, bytes: usize) -> bool {
        /// Requests are batched to this size.
        const STEP: usize = 1 << 20;
        let mut left = self.left.get();
        if bytes > left {
            let more = bytes.max(STEP);
            if !(self.ask)(more) {
                return false;
            }
            left += more;
        }
        self.left.set(left - bytes);
        true
    }
}

/// Reads a body into `message`; errors have a path and a reason. `ask` must grant each piece of memory.
pub(super) fn read_body(
    body: &[u8],
    strings: &StringTable,
    message: &mut impl Message,
    ask: &dyn Fn(usize) -> bool,
) -> Result<(), (String, serde_json::Error)> {
    let context = Context {
        memory: Memory {
            ask,
            left: Cell::new(0),
        },
        strings,
        steps: RefCell::default(),
    };
    let mut input = serde_json::Deserializer::from_slice(body);
    let object = Object {
        message,
        context: &context,
    };
    object
        .deserialize(&mut input)
        .and_then(|()| input.end())
        .map_err(|error| (context.path(), error))
}

// === impl Context ===

impl Context<'_> {
    /// Requests the memory of a list item.
    pub fn take_memory(&self, bytes: usize) -> Result<(), &'static str> {
        match self.memory.take(bytes) {
            true => Ok(()),
            false => Err("out of memory"),
        }
    }

    /// Prepends `step` to the path of an error.
    pub fn step<T, E>(&self, result: Result<T, E>, step: impl FnOnce() -> String) -> Result<T, E> {
        if result.is_err() {
            self.steps.borrow_mut().push(step());
        }
        result
    }

    fn path(&self) -> String {
        let steps = self.steps.borrow();
        let path: String = steps.iter().rev().map(String::as_str).collect();
        path.trim_start_matches('.').to_owned()
    }
}

fn field_step(name: &str) -> String {
    /// No field has a longer name.
    const MAX_LEN: usize = 64;
    let name: String = name.chars().take(MAX_LEN).collect();
    format!(".{name}")
}

// === impl Field ===

impl<'de, M: MapAccess<'de>> Field<'_, M> {
    fn value<S: DeserializeSeed<'de>>(self, seed: S) -> Result<Option<S::Value>, M::Error> {
        self.map.next_value_seed(Nullable(seed))
    }

    /// Skips an unknown field.
    pub fn skip(self) -> Result<(), M::Error> {
        self.map.next_value::<IgnoredAny>().map(drop)
    }

    /// Reads an object; `false` if `null`.
    pub fn message(self, message: &mut impl Message) -> Result<bool, M::Error> {
        let context = self.context;
        let read = self.value(Object { message, context })?;
        Ok(read.is_some())
    }

    pub fn boolean(self) -> Result<Option<bool>, M::Error> {
        self.map.next_value()
    }

    pub fn whole<T: IntegerVisitor>(self, into: &mut T) -> Result<(), M::Error> {
        if let Some(number) = self.value(Integer::default())? {
            *into = number;
        }
        Ok(())
    }

    pub fn optional_integer<T: IntegerVisitor>(self) -> Result<Option<T>, M::Error> {
        self.value(Integer::default())
    }

    pub fn index<T: ?Sized>(self, into: &mut Idx<T>) -> Result<(), M::Error> {
        if let Some(Row(row)) = self.value(Integer::default())? {
            *into = Idx::new(row);
        }
        Ok(())
    }

    pub fn double(self) -> Result<Option<f64>, M::Error> {
        self.value(Double)
    }

    /// Reads a string and applies `parse`.
    pub fn parsed<T>(
        self,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, M::Error> {
        self.value(Text(parse))
    }

    pub fn text(self) -> Result<Option<Arc<str>>, M::Error> {
        self.parsed(|text| Ok(text.into()))
    }

    /// Reads a string index and looks it up.
    pub fn string_reference(self) -> Result<Option<Arc<str>>, M::Error> {
        let strings = self.context.strings;
        let Some(Row(row)) = self.value(Integer::default())? else {
            return Ok(None);
        };
        if row as usize >= strings.len() {
            return Err(M::Error::custom(format_args!(
                "string {row} is not in the string table, which has {} rows",
                strings.len()
            )));
        }
        Ok(Some(strings.get(Idx::new(row)).into()))
    }

    /// Reads a list.
    pub fn list(self, items: impl Items) -> Result<(), M::Error> {
        let context = self.context;
        self.value(List { items, context }).map(drop)
    }

    /// Reads a list of objects, each into `row`, which `take` clears.
    pub fn rows<T: Message>(
        self,
        row: &mut T,
        mut take: impl FnMut(&mut T),
    ) -> Result<(), M::Error> {
        self.list(Rows(row, |_, row: &mut T| {
            take(row);
            Ok(())
        }))
    }

    /// Reads a dictionary table: like [`rows`](Self::rows), but the first row must be the zero value, which the table
    /// already has.
    pub fn table<T: Message + Default + PartialEq>(
        self,
        row: &mut T,
        mut take: impl FnMut(&mut T),
    ) -> Result<(), M::Error> {
        self.list(Rows(row, |position, row: &mut T| {
            if position > 0 {
                take(row);
            } else if *row != T::default() {
                return Err("the first row of a table must be its zero value");
            }
            Ok(())
        }))
    }
}

// === impl Object ===

/// Reads an object into a message.
pub(super) struct Object<'a, T> {
    pub message: &'a mut T,
    pub context: &'a Context<'a>,
}

impl<'de, T: Message> DeserializeSeed<'de> for Object<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_map(self)
    }
}

impl<'de, T: Message> Visitor<'de> for Object<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let Self { message, context } = self;
        while let Some(name) = map.next_key_seed(Name)? {
            let field = Field {
                map: &mut map,
                context,
            };
            let read = message.read(&name, field);
            context.step(read, || field_step(&name))?;
        }
        Ok(())
    }
}

// === impl Name ===

/// A field name, converted to `lowerCamelCase`.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Self::Value, D::Error> {
        input.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Self::Value, E> {
        if name.contains('_') {
            self.visit_str(name)
        } else {
            Ok(Cow::Borrowed(name))
        }
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        let mut camel = String::with_capacity(name.len());
        let mut upper = false;
        for letter in name.chars() {
            if letter == '_' {
                upper = true;
            } else if std::mem::take(&mut upper) {
                camel.push(letter.to_ascii_uppercase());
            } else {
                camel.push(letter);
            }
        }
        Ok(Cow::Owned(camel))
    }
}

// === impl Nullable ===

/// `null` as `None`.
struct Nullable<S>(S);

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Nullable<S> {
    type Value = Option<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Self::Value, D::Error> {
        input.deserialize_option(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Nullable<S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or null")
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, input: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(input).map(Some)
    }
}
