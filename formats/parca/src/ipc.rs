//! Records as bytes: an Arrow IPC stream with a schema, its dictionaries and one batch.

use std::cell::Cell;
use std::collections::HashMap;
use std::panic::catch_unwind;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::{read_dictionary, read_record_batch};
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_ipc::{self as format, MessageHeader, MetadataVersion};
use arrow_schema::{ArrowError, Schema, SchemaRef};

use crate::fatal::find_fatal;
use crate::schema::relaxed;

/// Why bytes are not a valid record.
#[derive(Debug, thiserror::Error)]
pub enum BadRecord {
    #[error("the record ends at byte {at}, within a message")]
    Truncated { at: usize },
    #[error("at byte {at}: {reason}")]
    Message { at: usize, reason: String },
    #[error("at byte {at}: expected {expected}, found {found}")]
    Unexpected {
        at: usize,
        found: &'static str,
        expected: &'static str,
    },
    #[error("the record takes more than {limit} bytes of memory")]
    TooLarge { limit: usize },
}

/// Why encoding a record failed; always a bug.
#[derive(Debug, thiserror::Error)]
#[error("failed to encode a record: {0}")]
pub struct NotEncoded(#[from] ArrowError);

/// Encodes a record; `schema` describes its columns.
/// The bodies are not compressed: most of a small record is metadata, and compressing the message as a whole makes it a
/// third of the size of a message with compressed bodies.
pub fn write(schema: &SchemaRef, columns: Vec<ArrayRef>) -> Result<Vec<u8>, NotEncoded> {
    let batch = RecordBatch::try_new(relaxed(schema), columns)?;
    debug_assert_eq!(
        find_fatal(&batch),
        None,
        "the record would crash Parca's server"
    );
    // The smallest alignment that readers accept; the default makes a small record half as large again.
    const ALIGNMENT: usize = 8;
    let options = IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5)?;
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), schema, options)?;
    writer.write(&batch)?;
    writer.finish()?;
    Ok(writer.into_inner()?)
}

/// Reads the first batch of a record, which may take `limit` bytes of memory; `None` if no batch follows the schema.
/// All columns become nullable, whatever the schema says; see [`stated_schema`] for the original schema.
pub fn read(bytes: &[u8], limit: usize) -> Result<Option<RecordBatch>, BadRecord> {
    // The library panics on some malformed records that the checks here do not cover.
    IS_READING.set(true);
    let reading = catch_unwind(|| Reading::begin(bytes, limit)?.batch());
    IS_READING.set(false);
    reading.unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(BadRecord::Message {
            at: 0,
            reason: format!("inconsistent record: {}", message.unwrap_or("a panic")),
        })
    })
}

thread_local! {
    static IS_READING: Cell<bool> = const { Cell::new(false) };
}

/// Whether [`read`] catches a panic of this thread and returns it as an error. For panic hooks that report panics.
pub fn catches_panics() -> bool {
    IS_READING.get()
}

/// Estimated memory to [read](read) a record and convert it to samples and stacks: the decompressed size stated by its
/// buffers, and its values.
pub fn memory_needed(bytes: &[u8]) -> Result<usize, BadRecord> {
    /// A sample row takes about fifty bytes in the model, and a value in each of its columns here.
    const BYTES_OF_VALUE_READ: usize = 16;
    let mut messages = Messages { bytes, at: 0 };
    // Skip the schema.
    messages.next()?;
    let mut needed = Needed::default();
    while let Some(Message { at, header, body }) = messages.next()? {
        let message = parse(at, header)?;
        let dictionary = message.header_as_dictionary_batch();
        let rows = match dictionary {
            Some(dictionary) => dictionary.data(),
            None => message.header_as_record_batch(),
        };
        if let Some(rows) = rows {
            needed.add(&Needed::of(at, rows, body)?);
        }
        // Only the first batch is read.
        if dictionary.is_none() {
            break;
        }
    }
    let values = needed.values.saturating_mul(BYTES_OF_VALUE_READ);
    Ok(needed.bytes.saturating_add(values))
}

/// The schema as stated by the record.
pub fn stated_schema(bytes: &[u8]) -> Result<Schema, BadRecord> {
    let (schema, _) = begin(&mut Messages { bytes, at: 0 })?;
    Ok(schema)
}

/// The row count stated by the first batch, without reading any row. A record limited to `limit` bytes of memory cannot
/// have more rows than fit into it.
pub fn stated_rows(bytes: &[u8], limit: usize) -> Result<u64, BadRecord> {
    let mut messages = Messages { bytes, at: 0 };
    while let Some(Message { at, header, .. }) = messages.next()? {
        let Some(rows) = parse(at, header)?.header_as_record_batch() else {
            continue;
        };
        let length = usize::try_from(rows.length()).map_err(|_| BadRecord::Message {
            at,
            reason: format!("a batch of {} rows", rows.length()),
        })?;
        if length > limit / BYTES_OF_VALUE {
            return Err(BadRecord::TooLarge { limit });
        }
        return Ok(length as u64);
    }
    Ok(0)
}

struct Reading<'a> {
    messages: Messages<'a>,
    schema: SchemaRef,
    version: MetadataVersion,
    dictionaries: HashMap<i64, ArrayRef>,
    left: usize,
    /// The number of values left for the columns: a few bytes of runs or lists can claim billions of values.
    values_left: usize,
    limit: usize,
}

/// One value per two bytes of the limit.
const BYTES_OF_VALUE: usize = 2;

impl<'a> Reading<'a> {
    fn begin(bytes: &'a [u8], limit: usize) -> Result<Self, BadRecord> {
        let mut messages = Messages { bytes, at: 0 };
        let (schema, version) = begin(&mut messages)?;
        Ok(Self {
            messages,
            schema: relaxed(&schema),
            version,
            dictionaries: HashMap::new(),
            left: limit,
            values_left: limit / BYTES_OF_VALUE,
            limit,
        })
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>, BadRecord> {
        while let Some(Message { at, header, body }) = self.messages.next()? {
            let message = parse(at, header)?;
            let bad = |error: ArrowError| BadRecord::Message {
                at,
                reason: error.to_string(),
            };
            if let Some(dictionary) = message.header_as_dictionary_batch() {
                let rows = dictionary.data();
                self.take_memory(at, rows, body)?;
                let body = Buffer::from(body);
                let dictionaries = &mut self.dictionaries;
                read_dictionary(&body, dictionary, &self.schema, dictionaries, &self.version)
                    .map_err(bad)?;
            } else if let Some(rows) = message.header_as_record_batch() {
                self.take_memory(at, Some(rows), body)?;
                let schema = Arc::clone(&self.schema);
                let body = Buffer::from(body);
                let dictionaries = &self.dictionaries;
                let batch =
                    read_record_batch(&body, rows, schema, dictionaries, None, &self.version);
                return batch.map(Some).map_err(bad);
            } else {
                return Err(BadRecord::Unexpected {
                    at,
                    found: name(message.header_type()),
                    expected: "a dictionary or a batch of rows",
                });
            }
        }
        Ok(None)
    }

    /// Deducts the memory of the buffers from the budget.
    fn take_memory(
        &mut self,
        at: usize,
        rows: Option<format::RecordBatch<'_>>,
        body: &[u8],
    ) -> Result<(), BadRecord> {
        let Some(rows) = rows else {
            return Err(BadRecord::Message {
                at,
                reason: "a dictionary without rows".into(),
            });
        };
        let needed = Needed::of(at, rows, body)?;
        let too_large = || BadRecord::TooLarge { limit: self.limit };
        self.left = self.left.checked_sub(needed.bytes).ok_or_else(too_large)?;
        let values_left = self.values_left.checked_sub(needed.values);
        self.values_left = values_left.ok_or_else(too_large)?;
        Ok(())
    }
}

/// The memory that the rows of a message need.
#[derive(Default)]
struct Needed {
    /// The message and its decompressed buffers.
    bytes: usize,
    values: usize,
}

impl Needed {
    /// A compressed buffer states its decompressed length in the first eight bytes.
    fn of(at: usize, rows: format::RecordBatch<'_>, body: &[u8]) -> Result<Self, BadRecord> {
        let mut bytes_needed = body.len();
        for buffer in rows.buffers().into_iter().flatten() {
            // Arrow does not check this.
            let start = usize::try_from(buffer.offset()).ok();
            let length = usize::try_from(buffer.length()).ok();
            let end = start.and_then(|start| start.checked_add(length?));
            let bytes = start.and_then(|start| body.get(start..end?));
            let Some(bytes) = bytes else {
                return Err(BadRecord::Message {
                    at,
                    reason: "a buffer beyond the end of the message".into(),
                });
            };
            if rows.compression().is_some() {
                let length = bytes.first_chunk::<8>();
                let length = length.map_or(0, |length| i64::from_le_bytes(*length));
                // A length of -1 marks an uncompressed buffer.
                let length = usize::try_from(length).unwrap_or(0);
                bytes_needed = bytes_needed.saturating_add(length);
            }
        }
        let mut values = 0_usize;
        for node in rows.nodes().into_iter().flatten() {
            let length = usize::try_from(node.length());
            let Ok(length) = length else {
                return Err(BadRecord::Message {
                    at,
                    reason: format!("a column of {} values", node.length()),
                });
            };
            values = values.saturating_add(length);
        }
        Ok(Self {
            bytes: bytes_needed,
            values,
        })
    }

    fn add(&mut self, other: &Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.values = self.values.saturating_add(other.values);
    }
}

fn begin(messages: &mut Messages<'_>) -> Result<(Schema, MetadataVersion), BadRecord> {
    let Some(Message { at, header, .. }) = messages.next()? else {
        return Err(BadRecord::Truncated { at: messages.at });
    };
    let message = parse(at, header)?;
    let Some(schema) = message.header_as_schema() else {
        return Err(BadRecord::Unexpected {
            at,
            found: name(message.header_type()),
            expected: "a schema",
        });
    };
    let schema = try_fb_to_schema(schema).map_err(|error| BadRecord::Message {
        at,
        reason: error.to_string(),
    })?;
    Ok((schema, message.version()))
}

fn parse(at: usize, header: &[u8]) -> Result<format::Message<'_>, BadRecord> {
    format::root_as_message(header).map_err(|error| BadRecord::Message {
        at,
        reason: format!("invalid Arrow message: {error}"),
    })
}

fn name(header: MessageHeader) -> &'static str {
    header.variant_name().unwrap_or("message of unknown kind")
}

/// Splits a stream into messages.
struct Messages<'a> {
    bytes: &'a [u8],
    at: usize,
}

struct Message<'a> {
    at: usize,
    header: &'a [u8],
    body: &'a [u8],
}

/// Precedes the header length, except in very old streams.
const CONTINUES: u32 = u32::MAX;

impl<'a> Messages<'a> {
    /// `None` at the end of the stream: a header of length zero, or the end of the bytes.
    fn next(&mut self) -> Result<Option<Message<'a>>, BadRecord> {
        if self.at == self.bytes.len() {
            return Ok(None);
        }
        let at = self.at;
        let mut length = self.length()?;
        if length == CONTINUES {
            length = self.length()?;
        }
        if length == 0 {
            return Ok(None);
        }
        let header = self.take(length as usize)?;
        let body = parse(at, header)?.bodyLength();
        let body = usize::try_from(body).map_err(|_| BadRecord::Message {
            at,
            reason: format!("a body of {body} bytes"),
        })?;
        let body = self.take(body)?;
        Ok(Some(Message { at, header, body }))
    }

    fn length(&mut self) -> Result<u32, BadRecord> {
        let bytes = self.take(4)?;
        let bytes = bytes.try_into().expect("four bytes were taken");
        Ok(u32::from_le_bytes(bytes))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], BadRecord> {
        let truncated = BadRecord::Truncated {
            at: self.bytes.len(),
        };
        let end = self.at.checked_add(count);
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or(truncated)?;
        self.at += count;
        Ok(taken)
    }
}
