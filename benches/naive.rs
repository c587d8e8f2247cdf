//! The naive merge: decode into the generated types, look up every row of every dictionary in a `HashMap`, renumber
//! every reference, encode. It is only used as the baseline for `profcol-profile`.

use std::collections::HashMap;
use std::hash::Hash;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile, ProfilesDictionary, Sample,
    Stack, ValueType,
};
use prost::Message;

/// Merges the requests in order. References out of range map to row 0, the "not set" of every table, because validation
/// is not the purpose here.
#[must_use]
pub fn merge(requests: Vec<ExportProfilesServiceRequest>) -> ExportProfilesServiceRequest {
    let mut tables = Tables::default();
    let mut resource_profiles = Vec::new();
    for request in requests {
        let dictionary = request.dictionary.unwrap_or_default();
        let rows = tables.add(dictionary);
        for mut resource in request.resource_profiles {
            if let Some(resource) = &mut resource.resource {
                rows.renumber_attributes(&mut resource.attributes);
            }
            for scope in &mut resource.scope_profiles {
                if let Some(scope) = &mut scope.scope {
                    rows.renumber_attributes(&mut scope.attributes);
                }
                for profile in &mut scope.profiles {
                    rows.renumber_profile(profile);
                }
            }
            resource_profiles.push(resource);
        }
    }
    ExportProfilesServiceRequest {
        resource_profiles,
        dictionary: Some(tables.into_dictionary()),
    }
}

/// The merged dictionary, each table with a map from row to number.
#[derive(Default)]
struct Tables {
    strings: Table<String, String>,
    mappings: Table<Mapping, Mapping>,
    functions: Table<Function, Function>,
    links: Table<Link, Link>,
    stacks: Table<Stack, Stack>,
    // The generated types of these two are not `Eq`.
    locations: Table<(i32, u64, Vec<Line>, Vec<i32>), Location>,
    attributes: Table<(i32, Vec<u8>, i32), KeyValueAndUnit>,
}

struct Table<Key, Row> {
    rows: Vec<Row>,
    numbers: HashMap<Key, i32>,
}

impl<Key, Row> Default for Table<Key, Row> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            numbers: HashMap::new(),
        }
    }
}

impl<Key: Eq + Hash, Row> Table<Key, Row> {
    fn number(&mut self, key: Key, row: Row) -> i32 {
        *self.numbers.entry(key).or_insert_with(|| {
            self.rows.push(row);
            i32::try_from(self.rows.len() - 1).unwrap_or(0)
        })
    }
}

impl<Row: Clone + Eq + Hash> Table<Row, Row> {
    fn numbers(&mut self, rows: impl IntoIterator<Item = Row>) -> Vec<i32> {
        rows.into_iter()
            .map(|row| self.number(row.clone(), row))
            .collect()
    }
}

/// For a source dictionary: old row number to new one, per table.
#[derive(Default)]
struct Rows {
    strings: Vec<i32>,
    mappings: Vec<i32>,
    functions: Vec<i32>,
    links: Vec<i32>,
    stacks: Vec<i32>,
    locations: Vec<i32>,
    attributes: Vec<i32>,
}

impl Tables {
    /// Tables come before those that refer to them.
    fn add(&mut self, source: ProfilesDictionary) -> Rows {
        let mut rows = Rows {
            strings: self.strings.numbers(source.string_table),
            links: self.links.numbers(source.link_table),
            ..Rows::default()
        };
        for mut row in source.attribute_table {
            renumber(&mut row.key_strindex, &rows.strings);
            renumber(&mut row.unit_strindex, &rows.strings);
            if let Some(value) = &mut row.value {
                rows.renumber_value(value);
            }
            let value = row
                .value
                .as_ref()
                .map(Message::encode_to_vec)
                .unwrap_or_default();
            let key = (row.key_strindex, value, row.unit_strindex);
            rows.attributes.push(self.attributes.number(key, row));
        }
        rows.functions = self
            .functions
            .numbers(source.function_table.into_iter().map(|mut row| {
                renumber(&mut row.name_strindex, &rows.strings);
                renumber(&mut row.system_name_strindex, &rows.strings);
                renumber(&mut row.filename_strindex, &rows.strings);
                row
            }));
        rows.mappings = self
            .mappings
            .numbers(source.mapping_table.into_iter().map(|mut row| {
                renumber(&mut row.filename_strindex, &rows.strings);
                renumber_all(&mut row.attribute_indices, &rows.attributes);
                row
            }));
        for mut row in source.location_table {
            renumber(&mut row.mapping_index, &rows.mappings);
            renumber_all(&mut row.attribute_indices, &rows.attributes);
            for line in &mut row.lines {
                renumber(&mut line.function_index, &rows.functions);
            }
            let key = (
                row.mapping_index,
                row.address,
                row.lines.clone(),
                row.attribute_indices.clone(),
            );
            rows.locations.push(self.locations.number(key, row));
        }
        rows.stacks = self
            .stacks
            .numbers(source.stack_table.into_iter().map(|mut row| {
                renumber_all(&mut row.location_indices, &rows.locations);
                row
            }));
        rows
    }

    fn into_dictionary(self) -> ProfilesDictionary {
        ProfilesDictionary {
            mapping_table: self.mappings.rows,
            location_table: self.locations.rows,
            function_table: self.functions.rows,
            link_table: self.links.rows,
            string_table: self.strings.rows,
            attribute_table: self.attributes.rows,
            stack_table: self.stacks.rows,
        }
    }
}

impl Rows {
    fn renumber_profile(&self, profile: &mut Profile) {
        for value_type in profile
            .sample_type
            .iter_mut()
            .chain(&mut profile.period_type)
        {
            self.renumber_type(value_type);
        }
        renumber_all(&mut profile.attribute_indices, &self.attributes);
        for sample in &mut profile.samples {
            self.renumber_sample(sample);
        }
    }

    fn renumber_type(&self, value_type: &mut ValueType) {
        renumber(&mut value_type.type_strindex, &self.strings);
        renumber(&mut value_type.unit_strindex, &self.strings);
    }

    fn renumber_sample(&self, sample: &mut Sample) {
        renumber(&mut sample.stack_index, &self.stacks);
        renumber(&mut sample.link_index, &self.links);
        renumber_all(&mut sample.attribute_indices, &self.attributes);
    }

    fn renumber_attributes(&self, attributes: &mut [KeyValue]) {
        for attribute in attributes {
            renumber(&mut attribute.key_strindex, &self.strings);
            if let Some(value) = &mut attribute.value {
                self.renumber_value(value);
            }
        }
    }

    fn renumber_value(&self, value: &mut AnyValue) {
        match &mut value.value {
            Some(Value::StringValueStrindex(index)) => renumber(index, &self.strings),
            Some(Value::ArrayValue(array)) => array
                .values
                .iter_mut()
                .for_each(|value| self.renumber_value(value)),
            Some(Value::KvlistValue(list)) => self.renumber_attributes(&mut list.values),
            _ => {}
        }
    }
}

fn renumber(index: &mut i32, rows: &[i32]) {
    *index = usize::try_from(*index)
        .ok()
        .and_then(|row| rows.get(row))
        .copied()
        .unwrap_or(0);
}

fn renumber_all(indices: &mut [i32], rows: &[i32]) {
    for index in indices {
        renumber(index, rows);
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::profiles::v1development::{ResourceProfiles, ScopeProfiles};

    use super::*;

    /// A sample with a single frame in the function `name`.
    fn request(name: &str) -> ExportProfilesServiceRequest {
        let profile = Profile {
            samples: vec![Sample {
                stack_index: 1,
                values: vec![1],
                ..Sample::default()
            }],
            ..Profile::default()
        };
        let scope = ScopeProfiles {
            profiles: vec![profile],
            ..ScopeProfiles::default()
        };
        let resource = ResourceProfiles {
            scope_profiles: vec![scope],
            ..ResourceProfiles::default()
        };
        let line = Line {
            function_index: 1,
            ..Line::default()
        };
        let dictionary = ProfilesDictionary {
            mapping_table: vec![Mapping::default()],
            location_table: vec![
                Location::default(),
                Location {
                    lines: vec![line],
                    ..Location::default()
                },
            ],
            function_table: vec![
                Function::default(),
                Function {
                    name_strindex: 1,
                    ..Function::default()
                },
            ],
            link_table: vec![Link::default()],
            string_table: vec![String::new(), name.to_owned()],
            attribute_table: vec![KeyValueAndUnit::default()],
            stack_table: vec![
                Stack::default(),
                Stack {
                    location_indices: vec![1],
                },
            ],
        };
        ExportProfilesServiceRequest {
            resource_profiles: vec![resource],
            dictionary: Some(dictionary),
        }
    }

    /// The function of each sample's only frame.
    fn functions(request: &ExportProfilesServiceRequest) -> Vec<&str> {
        let dictionary = request.dictionary.as_ref().unwrap();
        let samples = request
            .resource_profiles
            .iter()
            .flat_map(|r| &r.scope_profiles[0].profiles[0].samples);
        samples
            .map(|sample| {
                let location =
                    dictionary.stack_table[sample.stack_index as usize].location_indices[0];
                let function = dictionary.location_table[location as usize].lines[0].function_index;
                let name = dictionary.function_table[function as usize].name_strindex;
                dictionary.string_table[name as usize].as_str()
            })
            .collect()
    }

    #[test]
    fn merging_keeps_every_stack_and_deduplicates_rows() {
        let merged = merge(vec![request("a"), request("b"), request("a")]);
        assert_eq!(functions(&merged), ["a", "b", "a"]);
        let dictionary = merged.dictionary.unwrap();
        assert_eq!(dictionary.string_table, ["", "a", "b"]);
        assert_eq!(dictionary.stack_table.len(), 3);
    }
}
