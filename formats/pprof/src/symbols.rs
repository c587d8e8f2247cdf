//! Reads what samples refer to: strings, mappings, functions and locations.

use std::borrow::Cow;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::attributes::{IS_FOLDED, MAPPING_FLAGS, build_id_key};
use super::budget::Budget;
use super::error::{PprofError, Problem};
use super::fields::each;
use super::format::{function, line, location, mapping, profile};
use super::ids::Ids;
use profcol_profile::proto::Reader;
use profcol_profile::{
    AttributeIdx, AttributeRef, Function, Idx, Interner, Line, Location, LocationRef, Mapping,
    MappingRef, StringIdx, Value,
};

/// A table row with its attributes, its id, and its hash table entry.
const BYTES_PER_ROW: usize = 100;

/// The tables under construction. They never contain what OTLP forbids: functions without any name, empty memory
/// ranges, negative lines.
pub(super) struct Symbols<'a> {
    pub tables: Interner,
    pub locations: Ids<Location>,
    mappings: Ids<Mapping>,
    functions: Ids<Function>,
    /// The file's string table, and our row of each string once used.
    texts: Vec<&'a [u8]>,
    rows: Vec<StringIdx>,
    build_ids: HashMap<u64, AttributeIdx, RandomState>,
    pub budget: Budget,
}

impl<'a> Symbols<'a> {
    pub fn new(texts: Vec<&'a [u8]>, budget: Budget) -> Self {
        Self {
            tables: Interner::new(),
            locations: Ids::default(),
            mappings: Ids::default(),
            functions: Ids::default(),
            rows: vec![Idx::UNSET; texts.len()],
            texts,
            build_ids: HashMap::default(),
            budget,
        }
    }

    pub fn read(&mut self, file: &'a [u8]) -> Result<(), PprofError> {
        each(file, profile::MAPPING, "mapping", |message| {
            self.mapping(message)
        })?;
        each(file, profile::FUNCTION, "function", |message| {
            self.function(message)
        })?;
        let mut lines = Vec::new();
        each(file, profile::LOCATION, "location", |message| {
            self.location(message, &mut lines)
        })
    }

    // === text and attributes ===

    /// The string at `row` of the file's string table.
    pub fn text(&self, row: u64) -> Result<Cow<'a, str>, Problem> {
        let rows = self.texts.len();
        match usize::try_from(row)
            .ok()
            .and_then(|row| self.texts.get(row))
        {
            Some(text) => Ok(String::from_utf8_lossy(text)),
            // The empty string is valid in every file.
            None if row == 0 => Ok(Cow::Borrowed("")),
            None => Err(Problem::NoSuchString { row, rows }),
        }
    }

    /// Like `text`, as an owned value.
    pub fn text_value(&mut self, row: u64) -> Result<Value, Problem> {
        let text = self.text(row)?;
        self.budget.reserve(text.len())?;
        Ok(Value::from(&*text))
    }

    /// Like `text`, as a row of our string table.
    pub fn string(&mut self, row: u64) -> Result<StringIdx, Problem> {
        if row == 0 {
            return Ok(Idx::UNSET);
        }
        let text = self.text(row)?;
        let string = self.rows[row as usize];
        if string.is_set() {
            return Ok(string);
        }
        let string = self.tables.string(&text);
        self.rows[row as usize] = string;
        Ok(string)
    }

    pub fn attribute(&mut self, key: &str, value: impl Into<Value>) -> AttributeIdx {
        let key = self.tables.string(key);
        self.tables.attribute(AttributeRef {
            key,
            value: &value.into(),
            unit: Idx::UNSET,
        })
    }

    // === rows ===

    fn mapping(&mut self, mut message: Reader<'_>) -> Result<(), Problem> {
        self.budget.reserve(BYTES_PER_ROW)?;
        let mut row = Mapping::default();
        let mut id = 0;
        let mut build_id = 0;
        let mut flags = [false; MAPPING_FLAGS.len()];
        while let Some(tag) = message.tag()? {
            match tag {
                mapping::ID => id = message.varint()?,
                mapping::MEMORY_START => row.memory_start = message.varint()?,
                mapping::MEMORY_LIMIT => row.memory_limit = message.varint()?,
                mapping::FILE_OFFSET => row.file_offset = message.varint()?,
                mapping::FILENAME => row.filename = self.string(message.varint()?)?,
                mapping::BUILD_ID => build_id = message.varint()?,
                mapping::HAS_FUNCTIONS => flags[0] = message.varint()? != 0,
                mapping::HAS_FILENAMES => flags[1] = message.varint()? != 0,
                mapping::HAS_LINE_NUMBERS => flags[2] = message.varint()? != 0,
                mapping::HAS_INLINE_FRAMES => flags[3] = message.varint()? != 0,
                unknown => message.skip(unknown, mapping::KNOWN)?,
            }
        }
        let mut attributes = Vec::with_capacity(1 + flags.len());
        attributes.extend(self.build_id(build_id)?);
        // Stores unset flags, too: otherwise writing would derive them from the locations.
        for (key, flag) in MAPPING_FLAGS.into_iter().zip(flags) {
            attributes.push(self.attribute(key, flag));
        }
        if row.memory_start >= row.memory_limit {
            (row.memory_start, row.memory_limit) = (0, 0);
        }
        let row = self.tables.mapping(MappingRef {
            mapping: row,
            attributes: &attributes,
        });
        fresh(self.mappings.insert(id, row), id)
    }

    fn build_id(&mut self, row: u64) -> Result<Option<AttributeIdx>, Problem> {
        if let Some(build_id) = self.build_ids.get(&row) {
            return Ok(Some(*build_id));
        }
        let text = self.text(row)?;
        if text.is_empty() {
            return Ok(None);
        }
        let attribute = self.attribute(build_id_key(&text), &*text);
        self.build_ids.insert(row, attribute);
        Ok(Some(attribute))
    }

    fn function(&mut self, mut message: Reader<'_>) -> Result<(), Problem> {
        self.budget.reserve(BYTES_PER_ROW)?;
        let mut row = Function::default();
        let mut id = 0;
        while let Some(tag) = message.tag()? {
            match tag {
                function::ID => id = message.varint()?,
                function::NAME => row.name = self.string(message.varint()?)?,
                function::SYSTEM_NAME => row.system_name = self.string(message.varint()?)?,
                function::FILENAME => row.filename = self.string(message.varint()?)?,
                function::START_LINE => row.start_line = message.int64()?,
                unknown => message.skip(unknown, function::KNOWN)?,
            }
        }
        let is_named = row.name.is_set() || row.system_name.is_set() || row.filename.is_set();
        let row = if is_named {
            self.tables.function(row)
        } else {
            Idx::UNSET
        };
        fresh(self.functions.insert(id, row), id)
    }

    fn location(&mut self, mut message: Reader<'_>, lines: &mut Vec<Line>) -> Result<(), Problem> {
        let mut row = Location::default();
        let mut id = 0;
        let mut is_folded = false;
        self.budget.reserve(BYTES_PER_ROW)?;
        lines.clear();
        while let Some(tag) = message.tag()? {
            match tag {
                location::ID => id = message.varint()?,
                location::MAPPING => {
                    // Like pprof's own tools: an unknown mapping id counts as none.
                    row.mapping = self.mappings.get(message.varint()?).unwrap_or_default();
                }
                location::ADDRESS => row.address = message.varint()?,
                location::LINE => {
                    self.budget.reserve(size_of::<Line>())?;
                    lines.push(self.line(message.message()?)?);
                }
                location::IS_FOLDED => is_folded = message.varint()? != 0,
                unknown => message.skip(unknown, location::KNOWN)?,
            }
        }
        let folded = is_folded.then(|| self.attribute(IS_FOLDED, true));
        let row = self.tables.location(LocationRef {
            location: row,
            lines,
            attributes: folded.as_slice(),
        });
        fresh(self.locations.insert(id, row), id)
    }

    fn line(&self, mut message: Reader<'_>) -> Result<Line, Problem> {
        let mut row = Line::default();
        while let Some(tag) = message.tag()? {
            match tag {
                line::FUNCTION => {
                    let id = message.varint()?;
                    row.function = match self.functions.get(id) {
                        Some(function) => function,
                        None if id == 0 => Idx::UNSET,
                        None => return Err(Problem::NoSuchFunction { id }),
                    };
                }
                line::LINE => row.line = message.int64()?.max(0),
                line::COLUMN => row.column = message.int64()?,
                unknown => message.skip(unknown, line::KNOWN)?,
            }
        }
        Ok(row)
    }
}

fn fresh(is_fresh: bool, id: u64) -> Result<(), Problem> {
    match id {
        _ if is_fresh => Ok(()),
        0 => Err(Problem::NoId),
        id => Err(Problem::IdTaken { id }),
    }
}
