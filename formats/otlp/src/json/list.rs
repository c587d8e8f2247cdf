//! Reads JSON lists, item by item.

use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

use super::object::{Context, Message, Object};
use super::scalar::{Integer, IntegerVisitor, Row, Text};
use profcol_profile::Idx;

/// The item type of a list and its destination.
pub(super) trait Items {
    /// Memory per item, counting that lists are reallocated as they grow.
    const BYTES: usize;

    /// Reads the item at `position`; `false` at the end of the list.
    fn next<'de, L: SeqAccess<'de>>(
        &mut self,
        list: &mut L,
        position: usize,
        context: &Context<'_>,
    ) -> Result<bool, L::Error>;
}

/// Strings.
pub(super) struct Texts<F>(pub F);

/// Integers, appended to the list.
pub(super) struct Integers<'a, T>(pub &'a mut Vec<T>);

/// Table indices, appended to the list.
pub(super) struct Indices<'a, T: ?Sized>(pub &'a mut Vec<Idx<T>>);

/// Objects, each read into the same row.
pub(super) struct Rows<'a, T, F>(pub &'a mut T, pub F);

impl<F: FnMut(usize, &str) -> Result<(), String>> Items for Texts<F> {
    const BYTES: usize = size_of::<Arc<str>>();

    fn next<'de, L: SeqAccess<'de>>(
        &mut self,
        list: &mut L,
        position: usize,
        _: &Context<'_>,
    ) -> Result<bool, L::Error> {
        let text = Text(|text: &str| (self.0)(position, text));
        Ok(list.next_element_seed(text)?.is_some())
    }
}

impl<T: IntegerVisitor> Items for Integers<'_, T> {
    const BYTES: usize = 2 * size_of::<T>();

    fn next<'de, L: SeqAccess<'de>>(
        &mut self,
        list: &mut L,
        _: usize,
        _: &Context<'_>,
    ) -> Result<bool, L::Error> {
        let number = list.next_element_seed(Integer::default())?;
        let is_there = number.is_some();
        self.0.extend(number);
        Ok(is_there)
    }
}

impl<T: ?Sized> Items for Indices<'_, T> {
    const BYTES: usize = 2 * size_of::<Idx<T>>();

    fn next<'de, L: SeqAccess<'de>>(
        &mut self,
        list: &mut L,
        _: usize,
        _: &Context<'_>,
    ) -> Result<bool, L::Error> {
        let index = list.next_element_seed(Integer::<Row>::default())?;
        self.0.extend(index.map(|Row(row)| Idx::new(row)));
        Ok(index.is_some())
    }
}

impl<T: Message, F: FnMut(usize, &mut T) -> Result<(), &'static str>> Items for Rows<'_, T, F> {
    const BYTES: usize = 2 * size_of::<T>();

    fn next<'de, L: SeqAccess<'de>>(
        &mut self,
        list: &mut L,
        position: usize,
        context: &Context<'_>,
    ) -> Result<bool, L::Error> {
        let Self(message, take) = self;
        let object = Object {
            message: &mut **message,
            context,
        };
        if list.next_element_seed(object)?.is_none() {
            return Ok(false);
        }
        take(position, message).map_err(L::Error::custom)?;
        Ok(true)
    }
}

// === impl List ===

/// Reads a list.
pub(super) struct List<'a, I> {
    pub items: I,
    pub context: &'a Context<'a>,
}

impl<'de, I: Items> DeserializeSeed<'de> for List<'_, I> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_seq(self)
    }
}

impl<'de, I: Items> Visitor<'de> for List<'_, I> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<L: SeqAccess<'de>>(mut self, mut list: L) -> Result<(), L::Error> {
        let mut position = 0;
        loop {
            let item = self.items.next(&mut list, position, self.context);
            if !self.context.step(item, || format!("[{position}]"))? {
                return Ok(());
            }
            let taken = self.context.take_memory(I::BYTES);
            taken.map_err(L::Error::custom)?;
            position += 1;
        }
    }
}
