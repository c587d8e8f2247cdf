//! Reads samples into one column set per sample type.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::format::{label, profile, sample};
use super::intern::Index;
use super::read::{PprofError, Problem, each};
use super::symbols::Symbols;
use crate::proto::Reader;
use crate::{
    Attribute, AttributeIdx, Idx, LinkIdx, LocationIdx, Profile, SampleRef, Samples, StackIdx,
    StringIdx, Value,
};

/// The samples of a file being read.
pub(super) struct Reading<'s, 'a> {
    symbols: &'s mut Symbols<'a>,
    by_type: Vec<Samples>,
    stack_index: Index,
    known_labels: HashMap<Label, AttributeIdx, RandomState>,
    // Of the current sample.
    locations: Vec<LocationIdx>,
    values: Vec<i64>,
    labels: Vec<Label>,
    attributes: Vec<AttributeIdx>,
}

/// A label; its text is by row of the file's string table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Label {
    key: StringIdx,
    text: u64,
    number: i64,
    unit: StringIdx,
}

impl<'s, 'a> Reading<'s, 'a> {
    pub fn new(symbols: &'s mut Symbols<'a>, types: usize) -> Result<Self, Problem> {
        symbols.reserve(types.saturating_mul(2 * size_of::<Profile>()))?;
        let mut reading = Self {
            symbols,
            by_type: Vec::new(),
            stack_index: Index::default(),
            known_labels: HashMap::default(),
            locations: Vec::new(),
            values: Vec::new(),
            labels: Vec::new(),
            attributes: Vec::new(),
        };
        reading.by_type.resize(types, Samples::default());
        reading.stack();
        Ok(reading)
    }

    /// The samples, for each sample type in the order of the file.
    pub fn read(mut self, file: &'a [u8]) -> Result<Vec<Samples>, PprofError> {
        each(file, profile::SAMPLE, "sample", |message| {
            self.sample(message)
        })?;
        Ok(self.by_type)
    }

    fn sample(&mut self, message: Reader<'_>) -> Result<(), Problem> {
        self.fields(message)?;
        let (values, types) = (self.values.len(), self.by_type.len());
        if values != types {
            return Err(Problem::ValueCount { values, types });
        }
        self.reserve()?;
        let stack = self.stack();
        self.attributes()?;
        for (samples, value) in self.by_type.iter_mut().zip(&self.values) {
            samples.push(SampleRef {
                stack,
                link: LinkIdx::UNSET,
                attributes: &self.attributes,
                values: std::slice::from_ref(value),
                timestamps: &[],
            });
        }
        Ok(())
    }

    fn fields(&mut self, mut message: Reader<'_>) -> Result<(), Problem> {
        self.locations.clear();
        self.values.clear();
        self.labels.clear();
        while let Some(tag) = message.tag()? {
            match tag {
                sample::LOCATION => self.location(message.varint()?)?,
                sample::LOCATIONS => {
                    let mut list = message.message()?;
                    while !list.rest().is_empty() {
                        self.location(list.varint()?)?;
                    }
                }
                sample::VALUE => self.values.push(message.int64()?),
                sample::VALUES => message.packed_int64(&mut self.values)?,
                sample::LABEL => {
                    let label = self.label(message.message()?)?;
                    self.labels.push(label);
                }
                unknown => message.skip(unknown, sample::KNOWN)?,
            }
        }
        Ok(())
    }

    fn location(&mut self, id: u64) -> Result<(), Problem> {
        let location = self.symbols.locations.get(id);
        self.locations
            .push(location.ok_or(Problem::NoSuchLocation { id })?);
        Ok(())
    }

    fn label(&mut self, mut message: Reader<'_>) -> Result<Label, Problem> {
        let mut row = Label::default();
        while let Some(tag) = message.tag()? {
            match tag {
                label::KEY => row.key = self.symbols.string(message.varint()?)?,
                label::TEXT => row.text = message.varint()?,
                label::NUMBER => row.number = message.int64()?,
                label::UNIT => row.unit = self.symbols.string(message.varint()?)?,
                unknown => message.skip(unknown, label::KNOWN)?,
            }
        }
        if row.text != 0 {
            // A label has either text or a number, and text has no unit.
            row.number = 0;
            row.unit = Idx::UNSET;
        }
        Ok(row)
    }

    /// Sets aside what the current sample will take. Its labels stand in the columns of each type,
    /// so that a small file could ask for much.
    fn reserve(&mut self) -> Result<(), Problem> {
        const COLUMNS: usize = size_of::<StackIdx>() + size_of::<LinkIdx>() + 3 * size_of::<u32>();
        let labels = self.labels.len() * size_of::<AttributeIdx>();
        let per_type = COLUMNS + size_of::<i64>() + labels;
        self.symbols
            .reserve(per_type.saturating_mul(self.by_type.len()))
    }

    fn stack(&mut self) -> StackIdx {
        let stacks = &mut self.symbols.dictionary.stacks;
        let next = if self.locations.is_empty() {
            0
        } else {
            stacks.len()
        };
        let row_at = |row: usize| stacks.get(Idx::new(row as u32));
        let found = self
            .stack_index
            .find_or_add(self.locations.as_slice(), next, row_at);
        match found {
            Ok(row) => Idx::new(row),
            Err(0) => Idx::UNSET,
            Err(_) => stacks.push(&self.locations),
        }
    }

    /// Turns the labels of the current sample into attributes, one for each key.
    fn attributes(&mut self) -> Result<(), Problem> {
        self.attributes.clear();
        self.labels.sort_by_key(|label| label.key);
        for labels in self.labels.chunk_by(|a, b| a.key == b.key) {
            let attribute = match labels {
                [label] => match self.known_labels.get(label) {
                    Some(attribute) => *attribute,
                    None => {
                        let value = value(self.symbols, label)?;
                        let attribute = attribute(self.symbols, label, value);
                        self.known_labels.insert(*label, attribute);
                        attribute
                    }
                },
                _ => {
                    let values: Result<Vec<Value>, Problem> = labels
                        .iter()
                        .map(|label| value(self.symbols, label))
                        .collect();
                    attribute(self.symbols, &labels[0], Value::Array(values?.into()))
                }
            };
            self.attributes.push(attribute);
        }
        Ok(())
    }
}

fn value(symbols: &mut Symbols<'_>, label: &Label) -> Result<Value, Problem> {
    if label.text == 0 {
        Ok(Value::Int(label.number))
    } else {
        symbols.text_value(label.text)
    }
}

fn attribute(symbols: &mut Symbols<'_>, label: &Label, value: Value) -> AttributeIdx {
    symbols.attribute(Attribute {
        key: label.key,
        value,
        unit: label.unit,
    })
}
