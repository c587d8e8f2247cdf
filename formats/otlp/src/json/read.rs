//! Reads the body and all messages except the dictionary.

use std::mem;
use std::sync::Arc;

use serde::de::MapAccess;

use super::attributes::read_attributes;
use super::bytes::{from_base64, id_from_hex};
use super::list::{Indices, Integers, Texts};
use super::object::{Field, Message, read_body};
use super::tables::Strings;
use profcol_profile::{
    AttributeIdx, Dictionary, EntityRef, Invalid, LinkIdx, Model, Profile, Profiles, Received,
    Resource, ResourceProfiles, SampleRef, Samples, Scope, ScopeProfiles, StackIdx, StringTable,
    Validation, ValueType,
};

/// Why a body is not valid OTLP JSON.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    #[error("body of {bytes} bytes exceeds the maximum batch size of {limit}")]
    TooLarge { bytes: usize, limit: usize },
    #[error("{path}: {problem}")]
    Malformed { path: String, problem: String },
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// Receives an export request in JSON, with the same validation as protobuf.
pub fn receive(body: &[u8], validation: Validation) -> Result<Received, JsonError> {
    receive_within(body, validation, &|_| true)
}

/// [`receive`] that requests memory incrementally: a few bytes of JSON can expand a hundredfold. If `ask` returns
/// false, fails with [`JsonError::Malformed`].
pub fn receive_within(
    body: &[u8],
    validation: Validation,
    ask: &dyn Fn(usize) -> bool,
) -> Result<Received, JsonError> {
    let wire = Profiles::from_model(decode_within(body, ask)?).to_wire();
    Ok(Profiles::from_wire(wire, validation)?)
}

/// Decodes an export request, or a profiles file, which has the same format.
///
/// Field values are not validated: [`receive`] checks indices.
pub fn decode(body: &[u8]) -> Result<Model, JsonError> {
    decode_within(body, &|_| true)
}

fn decode_within(body: &[u8], ask: &dyn Fn(usize) -> bool) -> Result<Model, JsonError> {
    /// A row takes more than one byte of JSON, so no table exceeds 32-bit indices.
    const LIMIT: usize = i32::MAX as usize;
    if body.len() > LIMIT {
        return Err(JsonError::TooLarge {
            bytes: body.len(),
            limit: LIMIT,
        });
    }
    let mut strings = StringTable::default();
    let mut first_pass = StringsOfBody(&mut strings);
    read_body(body, &StringTable::default(), &mut first_pass, ask).map_err(malformed)?;

    let mut request = Request::default();
    read_body(body, &strings, &mut request, ask).map_err(malformed)?;
    request.dictionary.strings = strings;
    Ok(Model {
        dictionary: Arc::new(request.dictionary),
        resources: request.resources,
    })
}

fn malformed((path, error): (String, serde_json::Error)) -> JsonError {
    /// The message may quote the input, up to the whole body.
    const MAX_LEN: usize = 300;
    let mut problem = error.to_string();
    if problem.len() > MAX_LEN {
        let position = format!(" at line {} column {}", error.line(), error.column());
        problem = problem.chars().take(MAX_LEN).collect::<String>() + "…" + &position;
    }
    JsonError::Malformed {
        path: if path.is_empty() {
            "body".to_owned()
        } else {
            path
        },
        problem,
    }
}

struct StringsOfBody<'a>(&'a mut StringTable);

impl Message for StringsOfBody<'_> {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        match name {
            "dictionary" => field.message(&mut Strings(self.0)).map(drop),
            _ => field.skip(),
        }
    }
}

#[derive(Default)]
struct Request {
    dictionary: Dictionary,
    resources: Vec<ResourceProfiles>,
}

impl Message for Request {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        match name {
            "dictionary" => field.message(&mut self.dictionary).map(drop),
            "resourceProfiles" => field.rows(&mut ResourceProfiles::default(), |resource| {
                self.resources.push(mem::take(resource));
            }),
            _ => field.skip(),
        }
    }
}

impl Message for ResourceProfiles {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        match name {
            "resource" => {
                let mut resource = Resource::default();
                if field.message(&mut resource)? {
                    self.resource = Some(Arc::new(resource));
                }
            }
            "scopeProfiles" => field.rows(&mut ScopeProfiles::default(), |scope| {
                self.scopes.push(mem::take(scope));
            })?,
            "schemaUrl" => set(&mut self.schema_url, field.text()?),
            _ => field.skip()?,
        }
        Ok(())
    }
}

impl Message for Resource {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        match name {
            "attributes" => read_attributes(field, &mut self.attributes),
            "droppedAttributesCount" => field.whole(&mut self.dropped_attributes_count),
            "entityRefs" => field.rows(&mut EntityRef::default(), |entity| {
                self.entity_refs.push(mem::take(entity));
            }),
            _ => field.skip(),
        }
    }
}

impl Message for EntityRef {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        fn push_to(keys: &mut Vec<Arc<str>>) -> impl FnMut(usize, &str) -> Result<(), String> {
            |_, key| {
                keys.push(key.into());
                Ok(())
            }
        }
        match name {
            "schemaUrl" => set(&mut self.schema_url, field.text()?),
            "type" => set(&mut self.kind, field.text()?),
            "idKeys" => field.list(Texts(push_to(&mut self.id_keys)))?,
            "descriptionKeys" => field.list(Texts(push_to(&mut self.description_keys)))?,
            _ => field.skip()?,
        }
        Ok(())
    }
}

impl Message for ScopeProfiles {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        match name {
            "scope" => {
                let mut scope = Scope::default();
                if field.message(&mut scope)? {
                    self.scope = Some(Arc::new(scope));
                }
            }
            "profiles" => field.rows(&mut Profile::default(), |profile| {
                self.profiles.push(Arc::new(mem::take(profile)));
            })?,
            "schemaUrl" => set(&mut self.schema_url, field.text()?),
            _ => field.skip()?,
        }
        Ok(())
    }
}

impl Message for Scope {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        match name {
            "name" => set(&mut self.name, field.text()?),
            "version" => set(&mut self.version, field.text()?),
            "attributes" => read_attributes(field, &mut self.attributes)?,
            "droppedAttributesCount" => field.whole(&mut self.dropped_attributes_count)?,
            _ => field.skip()?,
        }
        Ok(())
    }
}

impl Message for Profile {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        match name {
            "sampleType" => self.sample_type = value_type(field)?,
            "samples" => read_samples(field, &mut self.samples)?,
            "timeUnixNano" => field.whole(&mut self.time_unix_nano)?,
            "durationNano" => field.whole(&mut self.duration_nano)?,
            "periodType" => self.period_type = value_type(field)?,
            "period" => field.whole(&mut self.period)?,
            "profileId" => self.profile_id = field.parsed(id_from_hex)?.flatten(),
            "droppedAttributesCount" => field.whole(&mut self.dropped_attributes_count)?,
            "originalPayloadFormat" => {
                if let Some(format) = field.text()?.filter(|format| !format.is_empty()) {
                    self.original_payload.get_or_insert_default().format = format;
                }
            }
            "originalPayload" => {
                if let Some(payload) = field.parsed(from_base64)?.filter(|bytes| !bytes.is_empty())
                {
                    self.original_payload.get_or_insert_default().payload = payload.into();
                }
            }
            "attributeIndices" => field.list(Indices(&mut self.attributes))?,
            _ => field.skip()?,
        }
        Ok(())
    }
}

fn value_type<'de, M: MapAccess<'de>>(field: Field<'_, M>) -> Result<Option<ValueType>, M::Error> {
    let mut value_type = ValueType::default();
    let is_set = field.message(&mut value_type)?;
    Ok(is_set.then_some(value_type))
}

fn read_samples<'de, M: MapAccess<'de>>(
    field: Field<'_, M>,
    samples: &mut Samples,
) -> Result<(), M::Error> {
    field.rows(&mut SampleRow::default(), |row| {
        samples.push(SampleRef {
            stack: mem::take(&mut row.stack),
            link: mem::take(&mut row.link),
            attributes: &row.attributes,
            values: &row.values,
            timestamps: &row.timestamps,
        });
        row.attributes.clear();
        row.values.clear();
        row.timestamps.clear();
    })
}

#[derive(Default)]
struct SampleRow {
    stack: StackIdx,
    link: LinkIdx,
    attributes: Vec<AttributeIdx>,
    values: Vec<i64>,
    timestamps: Vec<u64>,
}

impl Message for SampleRow {
    fn read<'de, M: MapAccess<'de>>(
        &mut self,
        name: &str,
        field: Field<'_, M>,
    ) -> Result<(), M::Error> {
        match name {
            "stackIndex" => field.index(&mut self.stack),
            "attributeIndices" => field.list(Indices(&mut self.attributes)),
            "linkIndex" => field.index(&mut self.link),
            "values" => field.list(Integers(&mut self.values)),
            "timestampsUnixNano" => field.list(Integers(&mut self.timestamps)),
            _ => field.skip(),
        }
    }
}

fn set(text: &mut Arc<str>, read: Option<Arc<str>>) {
    if let Some(read) = read {
        *text = read;
    }
}
