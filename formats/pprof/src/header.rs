//! The fields of a file apart from its tables and samples, and its profiles: one per sample type.

use std::sync::Arc;

use super::attributes::{
    COMMENT, DEFAULT_SAMPLE_TYPE, DOC_URL, DROP_FRAMES, KEEP_FRAMES, SAMPLE_TYPE_ORDER,
};
use super::budget::Budget;
use super::error::Problem;
use super::format::{profile, value_type as value_type_fields};
use super::symbols::Symbols;
use profcol_profile::proto::{Reader, WireError};
use profcol_profile::{
    AttributeIdx, KeyValue, Model, Profile, ResourceProfiles, Samples, Scope, ScopeProfiles,
    StringIdx, Value, ValueType,
};

/// The fields apart from the tables and samples; strings are rows of the file's string table.
#[derive(Default)]
pub(super) struct Header<'a> {
    pub sample_types: Vec<TypeRows>,
    pub default_sample_type: u64,
    pub time: i64,
    pub duration: i64,
    pub period_type: Option<TypeRows>,
    pub period: i64,
    pub comments: Vec<u64>,
    pub drop_frames: u64,
    pub keep_frames: u64,
    pub doc_url: u64,
    pub texts: Vec<&'a [u8]>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct TypeRows {
    pub kind: u64,
    pub unit: u64,
}

impl<'a> Header<'a> {
    pub fn read(file: &'a [u8], budget: &mut Budget) -> Result<Self, Problem> {
        /// A row here and its index in our string table.
        const STRING: usize = size_of::<&[u8]>() + size_of::<StringIdx>();
        const COMMENT: usize = size_of::<u64>() + size_of::<Value>();
        let mut header = Self::default();
        let mut reader = Reader::new(file);
        while let Some(tag) = reader.tag()? {
            match tag {
                profile::SAMPLE | profile::MAPPING | profile::LOCATION | profile::FUNCTION => {
                    reader.bytes()?;
                }
                profile::STRING => {
                    budget.reserve(STRING)?;
                    header.texts.push(reader.bytes()?);
                }
                profile::SAMPLE_TYPE => {
                    budget.reserve(size_of::<TypeRows>() + 2 * size_of::<Profile>())?;
                    header.sample_types.push(TypeRows::read(reader.message()?)?);
                }
                profile::DROP_FRAMES => header.drop_frames = reader.varint()?,
                profile::KEEP_FRAMES => header.keep_frames = reader.varint()?,
                profile::TIME if header.time != 0 => return Err(Problem::Joined),
                profile::TIME => header.time = reader.int64()?,
                profile::DURATION => header.duration = reader.int64()?,
                profile::PERIOD_TYPE => {
                    header.period_type = Some(TypeRows::read(reader.message()?)?);
                }
                profile::PERIOD => header.period = reader.int64()?,
                profile::COMMENT => {
                    budget.reserve(COMMENT)?;
                    header.comments.push(reader.varint()?);
                }
                profile::COMMENTS => {
                    let mut list = reader.message()?;
                    while !list.rest().is_empty() {
                        budget.reserve(COMMENT)?;
                        header.comments.push(list.varint()?);
                    }
                }
                profile::DEFAULT_SAMPLE_TYPE => header.default_sample_type = reader.varint()?,
                profile::DOC_URL => header.doc_url = reader.varint()?,
                unknown => reader.skip(unknown, profile::KNOWN)?,
            }
        }
        match header.texts.first() {
            Some(first) if !first.is_empty() => Err(Problem::FirstString),
            _ => Ok(header),
        }
    }
}

impl TypeRows {
    fn read(mut message: Reader<'_>) -> Result<Self, WireError> {
        let mut row = Self::default();
        while let Some(tag) = message.tag()? {
            match tag {
                value_type_fields::KIND => row.kind = message.varint()?,
                value_type_fields::UNIT => row.unit = message.varint()?,
                unknown => message.skip(unknown, value_type_fields::KNOWN)?,
            }
        }
        Ok(row)
    }
}

/// Builds the model of a file; `samples` holds those of each sample type.
pub(super) fn profiles(
    header: &Header<'_>,
    mut symbols: Symbols<'_>,
    samples: Vec<Samples>,
) -> Result<Model, Problem> {
    let attributes = profile_attributes(header, &mut symbols)?;
    let period_type = header
        .period_type
        .map(|rows| value_type(&mut symbols, rows))
        .transpose()?;
    let mut profiles = Vec::with_capacity(samples.len());
    for (position, samples) in samples.into_iter().enumerate() {
        let sample_type = value_type(&mut symbols, header.sample_types[position])?;
        profiles.push(Arc::new(Profile {
            sample_type: Some(sample_type),
            samples,
            time_unix_nano: header.time.try_into().unwrap_or_default(),
            duration_nano: header.duration.try_into().unwrap_or_default(),
            period_type,
            period: header.period,
            attributes: attributes.clone(),
            ..Profile::default()
        }));
    }
    let default_kind = symbols.string(header.default_sample_type)?;
    let is_default = |profile: &Arc<Profile>| {
        let kind = profile.sample_type.map(|sample_type| sample_type.kind);
        default_kind.is_set() && kind == Some(default_kind)
    };
    let last = profiles.len().saturating_sub(1);
    let default = profiles.iter().position(is_default).unwrap_or(last);
    // OTLP viewers show the first profile by default, pprof tools the default type or else the last one.
    let mut order: Vec<usize> = (0..profiles.len()).collect();
    if default < order.len() {
        order[..=default].rotate_right(1);
        profiles[..=default].rotate_right(1);
    }
    let scope = ScopeProfiles {
        scope: scope(header, &symbols, &order)?.map(Arc::new),
        profiles,
        ..ScopeProfiles::default()
    };
    Ok(Model {
        dictionary: Arc::new(symbols.tables.finish()),
        resources: vec![ResourceProfiles {
            scopes: vec![scope],
            ..ResourceProfiles::default()
        }],
    })
}

fn value_type(symbols: &mut Symbols<'_>, rows: TypeRows) -> Result<ValueType, Problem> {
    Ok(ValueType {
        kind: symbols.string(rows.kind)?,
        unit: symbols.string(rows.unit)?,
    })
}

fn profile_attributes(
    header: &Header<'_>,
    symbols: &mut Symbols<'_>,
) -> Result<Vec<AttributeIdx>, Problem> {
    let mut attributes = Vec::new();
    if !header.comments.is_empty() {
        let mut comments = Vec::with_capacity(header.comments.len());
        for row in &header.comments {
            comments.push(symbols.text_value(*row)?);
        }
        attributes.push(symbols.attribute(COMMENT, Value::Array(comments.into())));
    }
    for (key, row) in [
        (DROP_FRAMES, header.drop_frames),
        (KEEP_FRAMES, header.keep_frames),
        (DOC_URL, header.doc_url),
    ] {
        let text = symbols.text(row)?;
        if !text.is_empty() {
            attributes.push(symbols.attribute(key, &*text));
        }
    }
    Ok(attributes)
}

fn scope(
    header: &Header<'_>,
    symbols: &Symbols<'_>,
    order: &[usize],
) -> Result<Option<Scope>, Problem> {
    let mut attributes = Vec::new();
    if !order.is_sorted() {
        let order = order.iter().map(|&position| Value::Int(position as i64));
        attributes.push(KeyValue::new(
            SAMPLE_TYPE_ORDER,
            Value::Array(order.collect()),
        ));
    }
    let default = symbols.text(header.default_sample_type)?;
    if !default.is_empty() {
        attributes.push(KeyValue::new(DEFAULT_SAMPLE_TYPE, &*default));
    }
    let scope = Scope {
        attributes,
        ..Scope::default()
    };
    Ok((!scope.attributes.is_empty()).then_some(scope))
}
