//! Reads samples into one set of columns per sample type.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::error::{PprofError, Problem};
use super::fields::each;
use super::format::{label, profile, sample};
use super::symbols::Symbols;
use profcol_profile::proto::Reader;
use profcol_profile::{
    AttributeIdx, AttributeRef, Idx, LinkIdx, LocationIdx, SampleRef, Samples, StackIdx, StringIdx,
    Value,
};

/// The samples of a file that is being read.
pub(super) struct Reading<'s, 'a> {
    symbols: &'s mut Symbols<'a>,
    by_type: Vec<Samples>,
    known_labels: HashMap<Label, AttributeIdx, RandomState>,
    // Of the current sample.
    locations: Vec<LocationIdx>,
    /// At most one per sample type, even if the sample has more.
    values: Vec<i64>,
    value_count: usize,
    labels: Vec<Label>,
    attributes: Vec<AttributeIdx>,
}

/// A new label, its attribute, and the hash table entries of both.
const BYTES_PER_LABEL: usize = 100;

/// A label; its text is a row of the file's string table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Label {
    key: StringIdx,
    text: u64,
    number: i64,
    unit: StringIdx,
}

impl<'s, 'a> Reading<'s, 'a> {
    pub fn new(symbols: &'s mut Symbols<'a>, types: usize) -> Self {
        let mut reading = Self {
            symbols,
            by_type: Vec::new(),
            known_labels: HashMap::default(),
            locations: Vec::new(),
            values: Vec::new(),
            value_count: 0,
            labels: Vec::new(),
            attributes: Vec::new(),
        };
        reading.by_type.resize(types, Samples::default());
        reading
    }

    /// Reads the samples for each sample type in file order.
    pub fn read(mut self, file: &'a [u8]) -> Result<Vec<Samples>, PprofError> {
        each(file, profile::SAMPLE, "sample", |message| {
            self.sample(message)
        })?;
        Ok(self.by_type)
    }

    fn sample(&mut self, message: Reader<'_>) -> Result<(), Problem> {
        self.fields(message)?;
        let (values, types) = (self.value_count, self.by_type.len());
        if values != types {
            return Err(Problem::ValueCount { values, types });
        }
        self.reserve_columns()?;
        let stack = self.stack()?;
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
        self.value_count = 0;
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
                sample::VALUE => self.value(&mut message)?,
                sample::VALUES => {
                    let mut list = message.message()?;
                    while !list.rest().is_empty() {
                        self.value(&mut list)?;
                    }
                }
                sample::LABEL => {
                    let labels = size_of_val(self.labels.as_slice());
                    self.symbols.budget.check(labels)?;
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

    fn value(&mut self, message: &mut Reader<'_>) -> Result<(), Problem> {
        let value = message.int64()?;
        self.value_count += 1;
        if self.value_count <= self.by_type.len() {
            self.values.push(value);
        }
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

    /// Reserves column memory for the current sample, the same amount for each type.
    fn reserve_columns(&mut self) -> Result<(), Problem> {
        const COLUMNS: usize = size_of::<StackIdx>() + size_of::<LinkIdx>() + 3 * size_of::<u32>();
        let labels = self.labels.len() * size_of::<AttributeIdx>();
        let per_type = COLUMNS + size_of::<i64>() + labels;
        let all = per_type.saturating_mul(self.by_type.len());
        self.symbols.budget.reserve(all)
    }

    fn stack(&mut self) -> Result<StackIdx, Problem> {
        let Symbols { tables, budget, .. } = &mut *self.symbols;
        let locations = size_of_val(self.locations.as_slice());
        budget.check(locations)?;
        let before = tables.dictionary().stacks.len();
        let stack = tables.stack(&self.locations);
        if tables.dictionary().stacks.len() > before {
            budget.reserve(locations)?;
        }
        Ok(stack)
    }

    /// Converts the labels of the current sample to attributes, one per key.
    fn attributes(&mut self) -> Result<(), Problem> {
        self.attributes.clear();
        self.labels.sort_by_key(|label| label.key);
        for labels in self.labels.chunk_by(|a, b| a.key == b.key) {
            let attribute = match labels {
                [label] => match self.known_labels.get(label) {
                    Some(attribute) => *attribute,
                    None => {
                        let value = value(self.symbols, label)?;
                        let attribute = attribute(self.symbols, label, &value);
                        self.symbols.budget.reserve(BYTES_PER_LABEL)?;
                        self.known_labels.insert(*label, attribute);
                        attribute
                    }
                },
                _ => {
                    let bytes = BYTES_PER_LABEL + size_of::<Value>() * labels.len();
                    self.symbols.budget.reserve(bytes)?;
                    let values: Result<Vec<Value>, Problem> = labels
                        .iter()
                        .map(|label| value(self.symbols, label))
                        .collect();
                    attribute(self.symbols, &labels[0], &Value::Array(values?.into()))
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

fn attribute(symbols: &mut Symbols<'_>, label: &Label, value: &Value) -> AttributeIdx {
    symbols.tables.attribute(AttributeRef {
        key: label.key,
        value,
        unit: label.unit,
    })
}
