//! The detailed form: the tables of the dictionary, then every sample with everything it refers to.
//!
//! Row 0 of each table means "not set" and is skipped.

use std::fmt;

use profcol_profile::{
    AttributeIdx, Attributes, Dictionary, EntityRef, KeyValue, Link, LocationIdx, LocationRef,
    Model, Profile, Resource, SampleRef, ScopeProfiles, StringIdx, ValueType,
};

use super::text::{Hex, MAX_TEXT, Text, Typed, named};

pub(super) fn detailed(model: &Model) -> String {
    let tables = &*model.dictionary;
    Text::filled_by(MAX_TEXT, |out| {
        let mut page = Page { out, tables };
        page.write_tables()?;
        for (number, resource) in model.resources.iter().enumerate() {
            page.out.line(format_args!("ResourceProfiles #{number}"))?;
            page.out
                .line(format_args!("Resource SchemaURL: {}", resource.schema_url))?;
            page.write_resource(resource.resource.as_deref())?;
            for (number, scope) in resource.scopes.iter().enumerate() {
                page.write_scope(number, scope)?;
            }
        }
        Ok(())
    })
}

struct Page<'a> {
    out: &'a mut Text,
    tables: &'a Dictionary,
}

// === impl Page: tables ===

impl<'a> Page<'a> {
    fn write_tables(&mut self) -> fmt::Result {
        let tables = self.tables;
        for (row, mapping) in tables.mappings.iter().enumerate().skip(1) {
            self.out.line(format_args!("Mapping #{row}"))?;
            self.out.line(format_args!(
                "    Memory start: {:#x}",
                mapping.mapping.memory_start
            ))?;
            self.out.line(format_args!(
                "    Memory limit: {:#x}",
                mapping.mapping.memory_limit
            ))?;
            self.out.line(format_args!(
                "    File offset: {:#x}",
                mapping.mapping.file_offset
            ))?;
            self.out.line(format_args!(
                "    File name: {}",
                self.string(mapping.mapping.filename)
            ))?;
            self.write_named("    ", mapping.attributes)?;
        }
        for (row, location) in tables.locations.iter().enumerate().skip(1) {
            self.out.line(format_args!("Location #{row}"))?;
            self.out.line(format_args!(
                "    Mapping index: {}",
                location.location.mapping.get()
            ))?;
            self.out.line(format_args!(
                "    Address: {:#x}",
                location.location.address
            ))?;
            for (number, line) in location.lines.iter().enumerate() {
                self.out.line(format_args!("    Line #{number}"))?;
                self.out.line(format_args!(
                    "        Function index: {}",
                    line.function.get()
                ))?;
                self.out.line(format_args!("        Line: {}", line.line))?;
                self.out
                    .line(format_args!("        Column: {}", line.column))?;
            }
            self.write_named("    ", location.attributes)?;
        }
        for (row, function) in tables.functions.rows().iter().enumerate().skip(1) {
            self.out.line(format_args!("Function #{row}"))?;
            self.out
                .line(format_args!("    Name: {}", self.string(function.name)))?;
            self.out.line(format_args!(
                "    System name: {}",
                self.string(function.system_name)
            ))?;
            self.out.line(format_args!(
                "    Filename: {}",
                self.string(function.filename)
            ))?;
            self.out
                .line(format_args!("    Start line: {}", function.start_line))?;
        }
        for (row, stack) in tables.stacks.iter().enumerate().skip(1) {
            let locations: Vec<u32> = stack.iter().map(|location| location.get()).collect();
            self.out.line(format_args!("Stack #{row}"))?;
            self.out
                .line(format_args!("    Location indices: {locations:?}"))?;
        }
        self.write_attribute_table()?;
        self.write_link_table()?;
        self.out.line(format_args!("String table:"))?;
        tables
            .strings
            .iter()
            .skip(1)
            .try_for_each(|text| self.out.line(format_args!("    {text}")))
    }

    fn write_attribute_table(&mut self) -> fmt::Result {
        self.out.line(format_args!("Attribute table:"))?;
        for attribute in self.tables.attributes.rows().iter().skip(1) {
            let (key, unit) = (self.string(attribute.key), self.string(attribute.unit));
            self.out.line(format_args!(
                "     -> {key}: {} {unit}",
                Typed(&attribute.value)
            ))?;
        }
        Ok(())
    }

    fn write_link_table(&mut self) -> fmt::Result {
        self.out.line(format_args!("Link table:"))?;
        let links = self.tables.links.rows().iter().skip(1);
        links.into_iter().try_for_each(|link| {
            self.out
                .line(format_args!("     -> Trace ID: {}", Hex(&link.trace_id)))?;
            self.out
                .line(format_args!("     -> Span ID: {}", Hex(&link.span_id)))
        })
    }

    fn string(&self, index: StringIdx) -> &'a str {
        self.tables.strings.get(index)
    }

    fn write_named(&mut self, indent: &str, indices: &[AttributeIdx]) -> fmt::Result {
        if indices.is_empty() {
            return Ok(());
        }
        self.out.line(format_args!("{indent}Attributes:"))?;
        named(self.tables, indices).try_for_each(|(key, value)| {
            self.out
                .line(format_args!("{indent}     -> {key}: {}", Typed(value)))
        })
    }
}

// === impl Page: resources ===

impl Page<'_> {
    fn write_resource(&mut self, resource: Option<&Resource>) -> fmt::Result {
        let Some(resource) = resource else {
            return Ok(());
        };
        self.write_attributes("Resource attributes:", &resource.attributes)?;
        if !resource.entity_refs.is_empty() {
            self.out.line(format_args!("Entity Refs:"))?;
        }
        resource
            .entity_refs
            .iter()
            .enumerate()
            .try_for_each(|(number, entity)| self.write_entity(number, entity))
    }

    fn write_entity(&mut self, number: usize, entity: &EntityRef) -> fmt::Result {
        self.out.line(format_args!("Entity Ref #{number}"))?;
        self.out
            .line(format_args!("     -> Entity Type: {}", entity.kind))?;
        self.out
            .line(format_args!("     -> SchemaURL: {}", entity.schema_url))?;
        self.out.line(format_args!(
            "     -> Identifying Attributes: {}",
            entity.id_keys.join(", ")
        ))?;
        let description = entity.description_keys.join(", ");
        self.out.line(format_args!(
            "     -> Descriptive Attributes: {description}"
        ))
    }

    fn write_scope(&mut self, number: usize, scope: &ScopeProfiles) -> fmt::Result {
        self.out.line(format_args!("ScopeProfiles #{number}"))?;
        self.out.line(format_args!(
            "ScopeProfiles SchemaURL: {}",
            scope.schema_url
        ))?;
        if let Some(scope) = &scope.scope {
            self.out.line(format_args!(
                "InstrumentationScope {} {}",
                scope.name, scope.version
            ))?;
            self.write_attributes("InstrumentationScope attributes:", &scope.attributes)?;
        }
        scope
            .profiles
            .iter()
            .enumerate()
            .try_for_each(|(number, profile)| self.write_profile(number, profile))
    }

    fn write_attributes(&mut self, title: &str, attributes: &Attributes) -> fmt::Result {
        if attributes.is_empty() {
            return Ok(());
        }
        self.out.line(format_args!("{title}"))?;
        attributes.iter().try_for_each(|KeyValue { key, value }| {
            self.out
                .line(format_args!("     -> {key}: {}", Typed(value)))
        })
    }

    fn write_profile(&mut self, number: usize, profile: &Profile) -> fmt::Result {
        self.out.line(format_args!("Profile #{number}"))?;
        if let Some(id) = &profile.profile_id {
            self.out
                .line(format_args!("    Profile ID     : {}", Hex(id)))?;
        }
        self.out.line(format_args!(
            "    Start time     : {}",
            Time(profile.time_unix_nano)
        ))?;
        self.out.line(format_args!(
            "    DurationNano   : {}",
            profile.duration_nano
        ))?;
        self.write_type("Sample type    ", profile.sample_type)?;
        self.write_type("Period type    ", profile.period_type)?;
        self.out
            .line(format_args!("    Period         : {}", profile.period))?;
        let dropped = profile.dropped_attributes_count;
        self.out
            .line(format_args!("    Dropped attributes count: {dropped}"))?;
        if let Some(original) = &profile.original_payload {
            let (format, length) = (&original.format, original.payload.len());
            self.out.line(format_args!(
                "    Original payload: {format}, {length} bytes"
            ))?;
        }
        self.write_named("    ", &profile.attributes)?;
        profile
            .samples
            .iter()
            .enumerate()
            .try_for_each(|(number, sample)| self.write_sample(number, sample))
    }

    fn write_type(&mut self, title: &str, of: Option<ValueType>) -> fmt::Result {
        let Some(of) = of else { return Ok(()) };
        let (kind, unit) = (self.string(of.kind), self.string(of.unit));
        self.out.line(format_args!("    {title}: {kind}/{unit}"))
    }

    fn write_sample(&mut self, number: usize, sample: SampleRef<'_>) -> fmt::Result {
        self.out.line(format_args!("    Sample #{number}"))?;
        self.out
            .line(format_args!("        Values: {:?}", sample.values))?;
        if !sample.timestamps.is_empty() {
            self.out
                .line(format_args!("        Timestamps: {:?}", sample.timestamps))?;
        }
        if let Some(Link { trace_id, span_id }) = self.tables.links.get(sample.link)
            && sample.link.is_set()
        {
            self.out
                .line(format_args!("        Trace ID: {}", Hex(trace_id)))?;
            self.out
                .line(format_args!("        Span ID: {}", Hex(span_id)))?;
        }
        self.write_named("        ", sample.attributes)?;
        let stack = self.tables.stacks.get(sample.stack);
        if !stack.is_empty() {
            self.out.line(format_args!("        Stack:"))?;
        }
        stack.iter().try_for_each(|&index| self.write_frame(index))
    }

    /// One line per function, the innermost function of an inlined chain first.
    fn write_frame(&mut self, index: LocationIdx) -> fmt::Result {
        let LocationRef {
            location, lines, ..
        } = self.tables.locations.get(index);
        let mapping = self.tables.mappings.get(location.mapping).mapping;
        let file = self.string(mapping.filename);
        if lines.is_empty() {
            return self.out.line(format_args!(
                "             -> {:#x} {file}",
                location.address
            ));
        }
        for line in lines {
            let function = self
                .tables
                .functions
                .get(line.function)
                .copied()
                .unwrap_or_default();
            let (name, source) = (self.string(function.name), self.string(function.filename));
            let number = line.line;
            self.out.line(format_args!(
                "             -> {name} {source}:{number} {file}"
            ))?;
        }
        Ok(())
    }
}

/// Nanoseconds since 1970, as a date.
struct Time(u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_nanosecond(i128::from(self.0)) {
            Ok(time) => time.fmt(f),
            Err(_) => write!(f, "{} ns", self.0),
        }
    }
}
