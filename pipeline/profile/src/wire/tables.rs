//! First pass over a request: locates its resources and table rows.

use std::borrow::Cow;

use super::fields::{Rows, fields};
use super::rows;
use super::tags::{dictionary, list, request, resource, resource_profiles, scope, scope_profiles};
use super::text::is_text;
use super::texts::{Mark, ROWS_PER_MARK, Texts};
use super::value::{AnyValue, any_value, items, key_value};
use crate::StringIdx;
use crate::proto::{Reader, WireError, tag};

/// The two parts of a request.
pub struct Request<'a> {
    pub resources: Resources<'a>,
    /// Repeated occurrences are concatenated, which is how protobuf merges messages.
    pub dictionary: Cow<'a, [u8]>,
}

/// The resources of a request, located on each iteration: a list of them may be eight times as large as the request.
pub struct Resources<'a> {
    wire: &'a [u8],
    rows: usize,
}

impl<'a> Resources<'a> {
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Cannot fail: the request was fully parsed before.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        fields(self.wire, request::RESOURCE_PROFILES).map_while(Result::ok)
    }
}

impl<'a> Request<'a> {
    pub fn read(wire: &'a [u8]) -> Result<Self, WireError> {
        if u32::try_from(wire.len()).is_err() {
            return Err(WireError::TooLong);
        }
        let mut resources = Resources { wire, rows: 0 };
        let mut dictionary: Cow<'a, [u8]> = Cow::default();
        let mut reader = Reader::new(wire);
        while let Some(tag) = reader.tag()? {
            match tag {
                request::RESOURCE_PROFILES => {
                    reader.bytes()?;
                    resources.rows += 1;
                }
                request::DICTIONARY => {
                    let part = reader.bytes()?;
                    if dictionary.is_empty() {
                        dictionary = Cow::Borrowed(part);
                    } else {
                        dictionary.to_mut().extend_from_slice(part);
                    }
                }
                unknown => reader.skip(unknown, request::KNOWN)?,
            }
        }
        Ok(Self {
            resources,
            dictionary,
        })
    }
}

/// The tables of a dictionary, by the tags of [`dictionary`].
pub struct Tables<'a> {
    message: &'a [u8],
    spans: [Span; dictionary::KNOWN as usize + 1],
    /// Whether all strings are UTF-8.
    pub strings_are_text: bool,
}

/// The span of a table's rows; senders write tables consecutively, so it usually contains only them.
#[derive(Clone, Copy, Default)]
struct Span {
    start: usize,
    end: usize,
    rows: u32,
}

impl Span {
    fn extend(spans: &mut [Self], table: u32, start: usize, end: usize, rows: u32) {
        let span = &mut spans[tag::field(table) as usize];
        if span.rows == 0 {
            span.start = start;
        }
        span.end = end;
        span.rows += rows;
    }
}

impl<'a> Tables<'a> {
    /// Scans all rows once, checking strings for UTF-8.
    pub fn read(message: &'a [u8]) -> Result<Self, WireError> {
        let mut strings_are_text = true;
        let tables = Self::find(message, |reader| {
            reader.run(dictionary::STRINGS, |text| {
                strings_are_text &= is_text(text);
            })
        })?;
        Ok(Self {
            strings_are_text,
            ..tables
        })
    }

    /// Like [`read`](Self::read), for already validated strings.
    pub fn of_valid(message: &'a [u8]) -> Result<Self, WireError> {
        Self::find(message, |reader| reader.skip_run(dictionary::STRINGS))
    }

    fn find(
        message: &'a [u8],
        mut strings: impl FnMut(&mut Reader<'a>) -> Result<u32, WireError>,
    ) -> Result<Self, WireError> {
        let mut spans = [Span::default(); _];
        let mut reader = Reader::new(message);
        let mut start = 0;
        while let Some(tag) = reader.tag()? {
            let rows = match tag {
                dictionary::STRINGS => strings(&mut reader)?,
                dictionary::MAPPINGS
                | dictionary::LOCATIONS
                | dictionary::FUNCTIONS
                | dictionary::LINKS
                | dictionary::ATTRIBUTES
                | dictionary::STACKS => reader.skip_run(tag)?,
                unknown => {
                    reader.skip(unknown, dictionary::KNOWN)?;
                    0
                }
            };
            let end = message.len() - reader.rest().len();
            if rows > 0 {
                Span::extend(&mut spans, tag, start, end, rows);
            }
            start = end;
        }
        Ok(Self {
            message,
            spans,
            strings_are_text: true,
        })
    }

    /// Access to string table rows.
    pub fn texts(&self) -> Texts<'a> {
        let span = self.span(dictionary::STRINGS);
        let mut rows = self.rows(dictionary::STRINGS);
        let mut marks = Vec::new();
        for row in (0..span.rows).step_by(ROWS_PER_MARK as usize) {
            let at = (span.end - rows.bytes_left()) as u32;
            marks.push(Mark { row, at });
            rows.by_ref().take(ROWS_PER_MARK as usize).for_each(drop);
        }
        Texts::new(self.message, marks, span.rows)
    }

    /// Number of rows on the wire; senders should write row 0 but need not.
    pub fn len(&self, table: u32) -> u32 {
        self.span(table).rows
    }

    pub fn rows(&self, table: u32) -> Rows<'a> {
        let span = self.span(table);
        fields(&self.message[span.start..span.end], table)
    }

    /// Encoded size of the rows.
    pub fn bytes(&self, table: u32) -> usize {
        let span = self.span(table);
        span.end - span.start
    }

    fn span(&self, table: u32) -> Span {
        self.spans[tag::field(table) as usize]
    }
}

/// Number of rows of each table on the wire, by tag.
pub(crate) fn table_lengths(wire: &[u8]) -> Result<impl Fn(u32) -> u32, WireError> {
    let request = Request::read(wire)?;
    let spans = Tables::of_valid(&request.dictionary)?.spans;
    Ok(move |table| spans[tag::field(table) as usize].rows)
}

/// String table rows referenced by resources, scopes and attribute values; a [`Model`](crate::Model) holds their text
/// instead.
pub(crate) fn referenced_strings(wire: &[u8]) -> Result<Vec<StringIdx>, WireError> {
    let mut found = Vec::new();
    let request = Request::read(wire)?;
    let tables = Tables::of_valid(&request.dictionary)?;
    for row in tables.rows(dictionary::ATTRIBUTES) {
        if let Some(value) = rows::attribute(row?)?.value {
            collect(value, &mut found)?;
        }
    }
    for resource in request.resources.iter() {
        for head in fields(resource, resource_profiles::RESOURCE) {
            collect_strings(head?, resource::ATTRIBUTES, &mut found)?;
        }
        for scope in fields(resource, resource_profiles::SCOPES) {
            for head in fields(scope?, scope_profiles::SCOPE) {
                collect_strings(head?, scope::ATTRIBUTES, &mut found)?;
            }
        }
    }
    Ok(found)
}

fn collect(value: &[u8], found: &mut Vec<StringIdx>) -> Result<(), WireError> {
    match any_value(value)? {
        AnyValue::StringIndex(index) => found.push(index),
        AnyValue::Array(array) => {
            for item in items(array) {
                collect(item?, found)?;
            }
        }
        AnyValue::Map(map) => collect_strings(map, list::ITEMS, found)?,
        _ => {}
    }
    Ok(())
}

/// Collects the strings referenced by the attributes in fields `tag` of a message.
pub fn collect_strings(
    message: &[u8],
    tag: u32,
    found: &mut Vec<StringIdx>,
) -> Result<(), WireError> {
    for attribute in fields(message, tag) {
        let attribute = key_value(attribute?)?;
        found.push(attribute.key_index);
        if let Some(value) = attribute.value {
            collect(value, found)?;
        }
    }
    Ok(())
}
