//! Writes OTLP JSON.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::text::Json;
use profcol_profile::{
    Attribute, Dictionary, EntityRef, Function, KeyValue, Line, Link, LocationRef, MappingRef,
    Model, Profile, Resource, ResourceProfiles, SampleRef, Scope, ScopeProfiles, StringTable,
    Value, ValueType,
};

/// How to write keys and strings in attributes of resources and scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResourceAttrEncoding {
    /// Inline, which every reader supports.
    #[default]
    Plain,
    /// As string table references, which is smaller; missing strings are added.
    Dictionary,
}

/// Writes an export request.
pub fn encode(model: &Model, attributes: ResourceAttrEncoding) -> Vec<u8> {
    let dictionary = &*model.dictionary;
    let mut references = match attributes {
        ResourceAttrEncoding::Plain => References::Plain,
        ResourceAttrEncoding::Dictionary => References::rows_of(&dictionary.strings),
    };
    let mut json = Json::default();
    json.object(|json| {
        json.objects("resourceProfiles", &model.resources, |json, resource| {
            write_resource_profiles(json, resource, &mut references);
        });
        json.message("dictionary", |json| {
            write_dictionary(json, dictionary, references.added());
        });
    });
    json.into_vec()
}

/// A single value as JSON.
pub fn value_text(value: &Value) -> String {
    let mut json = Json::default();
    json.object(|json| write_value(json, value, &mut References::Plain));
    String::from_utf8(json.into_vec()).expect("the JSON is UTF-8")
}

/// Destination of attribute strings.
enum References<'a> {
    Plain,
    Rows {
        rows: HashMap<&'a str, u32, RandomState>,
        added: Vec<&'a str>,
        next_row: u32,
    },
}

impl<'a> References<'a> {
    fn rows_of(strings: &'a StringTable) -> Self {
        let mut rows = HashMap::with_capacity_and_hasher(strings.len(), RandomState::default());
        for (row, text) in (0..).zip(strings.iter()) {
            rows.entry(text).or_insert(row);
        }
        Self::Rows {
            rows,
            added: Vec::new(),
            next_row: strings.len() as u32,
        }
    }

    /// The row of `text`, or `None` to write it inline. Some readers treat row 0 as "not set", so empty text is always
    /// inline.
    fn row(&mut self, text: &'a str) -> Option<u32> {
        let Self::Rows {
            rows,
            added,
            next_row,
        } = self
        else {
            return None;
        };
        if text.is_empty() {
            return None;
        }
        let row = *rows.entry(text).or_insert_with(|| {
            added.push(text);
            let row = *next_row;
            *next_row += 1;
            row
        });
        Some(row)
    }

    fn added(&self) -> &[&'a str] {
        match self {
            Self::Plain => &[],
            Self::Rows { added, .. } => added,
        }
    }
}

fn write_resource_profiles<'a>(
    json: &mut Json,
    resource_profiles: &'a ResourceProfiles,
    references: &mut References<'a>,
) {
    if let Some(resource) = &resource_profiles.resource {
        json.message("resource", |json| {
            write_resource(json, resource, references);
        });
    }
    json.objects("scopeProfiles", &resource_profiles.scopes, |json, scope| {
        write_scope_profiles(json, scope, references);
    });
    json.text("schemaUrl", &resource_profiles.schema_url);
}

fn write_resource<'a>(json: &mut Json, resource: &'a Resource, references: &mut References<'a>) {
    write_attributes(json, "attributes", &resource.attributes, references);
    json.small_number("droppedAttributesCount", resource.dropped_attributes_count);
    json.objects("entityRefs", &resource.entity_refs, write_entity_ref);
}

fn write_entity_ref(json: &mut Json, entity: &EntityRef) {
    json.text("schemaUrl", &entity.schema_url);
    json.text("type", &entity.kind);
    json.texts("idKeys", &entity.id_keys);
    json.texts("descriptionKeys", &entity.description_keys);
}

fn write_scope_profiles<'a>(
    json: &mut Json,
    scope_profiles: &'a ScopeProfiles,
    references: &mut References<'a>,
) {
    if let Some(scope) = &scope_profiles.scope {
        json.message("scope", |json| write_scope(json, scope, references));
    }
    json.objects("profiles", &scope_profiles.profiles, |json, profile| {
        write_profile(json, profile);
    });
    json.text("schemaUrl", &scope_profiles.schema_url);
}

fn write_scope<'a>(json: &mut Json, scope: &'a Scope, references: &mut References<'a>) {
    json.text("name", &scope.name);
    json.text("version", &scope.version);
    write_attributes(json, "attributes", &scope.attributes, references);
    json.small_number("droppedAttributesCount", scope.dropped_attributes_count);
}

fn write_attributes<'a>(
    json: &mut Json,
    name: &str,
    attributes: &'a [KeyValue],
    references: &mut References<'a>,
) {
    json.objects(name, attributes, |json, KeyValue { key, value }| {
        match references.row(key) {
            Some(row) => json.small_number_always("keyStrindex", row),
            None => json.text("key", key),
        }
        json.message("value", |json| write_value(json, value, references));
    });
}

fn write_value<'a>(json: &mut Json, value: &'a Value, references: &mut References<'a>) {
    match value {
        Value::Empty => {}
        Value::Str(text) => match references.row(text) {
            Some(row) => json.small_number_always("stringValueStrindex", row),
            None => json.text_always("stringValue", text),
        },
        Value::Bool(flag) => json.boolean_always("boolValue", *flag),
        Value::Int(number) => json.number_always("intValue", *number),
        Value::Double(number) => json.double_always("doubleValue", *number),
        Value::Bytes(bytes) => json.base64_always("bytesValue", bytes),
        Value::Array(values) => json.message("arrayValue", |json| {
            json.objects("values", values.iter(), |json, value| {
                write_value(json, value, references);
            });
        }),
        Value::Map(entries) => json.message("kvlistValue", |json| {
            write_attributes(json, "values", entries, references);
        }),
    }
}

fn write_profile(json: &mut Json, profile: &Profile) {
    write_value_type(json, "sampleType", profile.sample_type);
    json.objects("samples", profile.samples.iter(), write_sample);
    json.number("timeUnixNano", profile.time_unix_nano);
    json.number("durationNano", profile.duration_nano);
    write_value_type(json, "periodType", profile.period_type);
    json.number("period", profile.period);
    if let Some(id) = &profile.profile_id {
        json.hex_always("profileId", id);
    }
    json.small_number("droppedAttributesCount", profile.dropped_attributes_count);
    if let Some(original) = &profile.original_payload {
        json.text("originalPayloadFormat", &original.format);
        json.base64_always("originalPayload", &original.payload);
    }
    json.indices("attributeIndices", &profile.attributes);
}

fn write_value_type(json: &mut Json, name: &str, value_type: Option<ValueType>) {
    if let Some(ValueType { kind, unit }) = value_type {
        json.message(name, |json| {
            json.index("typeStrindex", kind);
            json.index("unitStrindex", unit);
        });
    }
}

fn write_sample(json: &mut Json, sample: SampleRef<'_>) {
    json.index("stackIndex", sample.stack);
    json.indices("attributeIndices", sample.attributes);
    json.index("linkIndex", sample.link);
    json.quoted_numbers("values", sample.values);
    json.quoted_numbers("timestampsUnixNano", sample.timestamps);
}

fn write_dictionary(json: &mut Json, dictionary: &Dictionary, added_strings: &[&str]) {
    json.objects("mappingTable", dictionary.mappings.iter(), write_mapping);
    json.objects("locationTable", dictionary.locations.iter(), write_location);
    json.objects("functionTable", dictionary.functions.rows(), write_function);
    json.objects("linkTable", dictionary.links.rows(), write_link);
    let strings = dictionary.strings.iter();
    json.texts("stringTable", strings.chain(added_strings.iter().copied()));
    json.objects(
        "attributeTable",
        dictionary.attributes.rows(),
        write_attribute,
    );
    json.objects("stackTable", dictionary.stacks.iter(), |json, locations| {
        json.indices("locationIndices", locations);
    });
}

fn write_mapping(json: &mut Json, row: MappingRef<'_>) {
    json.number("memoryStart", row.mapping.memory_start);
    json.number("memoryLimit", row.mapping.memory_limit);
    json.number("fileOffset", row.mapping.file_offset);
    json.index("filenameStrindex", row.mapping.filename);
    json.indices("attributeIndices", row.attributes);
}

fn write_location(json: &mut Json, row: LocationRef<'_>) {
    json.index("mappingIndex", row.location.mapping);
    json.number("address", row.location.address);
    json.objects("lines", row.lines, |json, line: &Line| {
        json.index("functionIndex", line.function);
        json.number("line", line.line);
        json.number("column", line.column);
    });
    json.indices("attributeIndices", row.attributes);
}

fn write_function(json: &mut Json, function: &Function) {
    json.index("nameStrindex", function.name);
    json.index("systemNameStrindex", function.system_name);
    json.index("filenameStrindex", function.filename);
    json.number("startLine", function.start_line);
}

fn write_link(json: &mut Json, link: &Link) {
    json.hex("traceId", &link.trace_id);
    json.hex("spanId", &link.span_id);
}

fn write_attribute(json: &mut Json, attribute: &Attribute) {
    json.index("keyStrindex", attribute.key);
    json.message("value", |json| {
        write_value(json, &attribute.value, &mut References::Plain);
    });
    json.index("unitStrindex", attribute.unit);
}
