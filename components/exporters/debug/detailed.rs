//! The long form: the tables of the dictionary, then every sample with all that it refers to.
//!
//! Row 0 of each table means "not set" and is left out.

use std::fmt::{self, Write};

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
            writeln!(page.out, "ResourceProfiles #{number}")?;
            writeln!(page.out, "Resource SchemaURL: {}", resource.schema_url)?;
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
            writeln!(self.out, "Mapping #{row}")?;
            writeln!(
                self.out,
                "    Memory start: {:#x}",
                mapping.mapping.memory_start
            )?;
            writeln!(
                self.out,
                "    Memory limit: {:#x}",
                mapping.mapping.memory_limit
            )?;
            writeln!(
                self.out,
                "    File offset: {:#x}",
                mapping.mapping.file_offset
            )?;
            writeln!(
                self.out,
                "    File name: {}",
                self.string(mapping.mapping.filename)
            )?;
            self.write_named("    ", mapping.attributes)?;
        }
        for (row, location) in tables.locations.iter().enumerate().skip(1) {
            writeln!(self.out, "Location #{row}")?;
            writeln!(
                self.out,
                "    Mapping index: {}",
                location.location.mapping.get()
            )?;
            writeln!(self.out, "    Address: {:#x}", location.location.address)?;
            for (number, line) in location.lines.iter().enumerate() {
                writeln!(self.out, "    Line #{number}")?;
                writeln!(self.out, "        Function index: {}", line.function.get())?;
                writeln!(self.out, "        Line: {}", line.line)?;
                writeln!(self.out, "        Column: {}", line.column)?;
            }
            self.write_named("    ", location.attributes)?;
        }
        for (row, function) in tables.functions.rows().iter().enumerate().skip(1) {
            writeln!(self.out, "Function #{row}")?;
            writeln!(self.out, "    Name: {}", self.string(function.name))?;
            writeln!(
                self.out,
                "    System name: {}",
                self.string(function.system_name)
            )?;
            writeln!(self.out, "    Filename: {}", self.string(function.filename))?;
            writeln!(self.out, "    Start line: {}", function.start_line)?;
        }
        for (row, stack) in tables.stacks.iter().enumerate().skip(1) {
            let locations: Vec<u32> = stack.iter().map(|location| location.get()).collect();
            writeln!(self.out, "Stack #{row}")?;
            writeln!(self.out, "    Location indices: {locations:?}")?;
        }
        self.write_attribute_table()?;
        self.write_link_table()?;
        writeln!(self.out, "String table:")?;
        tables
            .strings
            .iter()
            .skip(1)
            .try_for_each(|text| writeln!(self.out, "    {text}"))
    }

    fn write_attribute_table(&mut self) -> fmt::Result {
        writeln!(self.out, "Attribute table:")?;
        for attribute in self.tables.attributes.rows().iter().skip(1) {
            let (key, unit) = (self.string(attribute.key), self.string(attribute.unit));
            writeln!(
                self.out,
                "     -> {key}: {} {unit}",
                Typed(&attribute.value)
            )?;
        }
        Ok(())
    }

    fn write_link_table(&mut self) -> fmt::Result {
        writeln!(self.out, "Link table:")?;
        let links = self.tables.links.rows().iter().skip(1);
        links.into_iter().try_for_each(|link| {
            writeln!(self.out, "     -> Trace ID: {}", Hex(&link.trace_id))?;
            writeln!(self.out, "     -> Span ID: {}", Hex(&link.span_id))
        })
    }

    fn string(&self, index: StringIdx) -> &'a str {
        self.tables.strings.get(index)
    }

    fn write_named(&mut self, indent: &str, indices: &[AttributeIdx]) -> fmt::Result {
        if indices.is_empty() {
            return Ok(());
        }
        writeln!(self.out, "{indent}Attributes:")?;
        named(self.tables, indices).try_for_each(|(key, value)| {
            writeln!(self.out, "{indent}     -> {key}: {}", Typed(value))
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
            writeln!(self.out, "Entity Refs:")?;
        }
        resource
            .entity_refs
            .iter()
            .enumerate()
            .try_for_each(|(number, entity)| self.write_entity(number, entity))
    }

    fn write_entity(&mut self, number: usize, entity: &EntityRef) -> fmt::Result {
        writeln!(self.out, "Entity Ref #{number}")?;
        writeln!(self.out, "     -> Entity Type: {}", entity.kind)?;
        writeln!(self.out, "     -> SchemaURL: {}", entity.schema_url)?;
        writeln!(
            self.out,
            "     -> Identifying Attributes: {}",
            entity.id_keys.join(", ")
        )?;
        let description = entity.description_keys.join(", ");
        writeln!(self.out, "     -> Descriptive Attributes: {description}")
    }

    fn write_scope(&mut self, number: usize, scope: &ScopeProfiles) -> fmt::Result {
        writeln!(self.out, "ScopeProfiles #{number}")?;
        writeln!(self.out, "ScopeProfiles SchemaURL: {}", scope.schema_url)?;
        if let Some(scope) = &scope.scope {
            writeln!(
                self.out,
                "InstrumentationScope {} {}",
                scope.name, scope.version
            )?;
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
        writeln!(self.out, "{title}")?;
        attributes.iter().try_for_each(|KeyValue { key, value }| {
            writeln!(self.out, "     -> {key}: {}", Typed(value))
        })
    }

    fn write_profile(&mut self, number: usize, profile: &Profile) -> fmt::Result {
        writeln!(self.out, "Profile #{number}")?;
        if let Some(id) = &profile.profile_id {
            writeln!(self.out, "    Profile ID     : {}", Hex(id))?;
        }
        writeln!(
            self.out,
            "    Start time     : {}",
            Time(profile.time_unix_nano)
        )?;
        writeln!(self.out, "    DurationNano   : {}", profile.duration_nano)?;
        self.write_type("Sample type    ", profile.sample_type)?;
        self.write_type("Period type    ", profile.period_type)?;
        writeln!(self.out, "    Period         : {}", profile.period)?;
        let dropped = profile.dropped_attributes_count;
        writeln!(self.out, "    Dropped attributes count: {dropped}")?;
        if let Some(original) = &profile.original_payload {
            let (format, length) = (&original.format, original.payload.len());
            writeln!(self.out, "    Original payload: {format}, {length} bytes")?;
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
        writeln!(self.out, "    {title}: {kind}/{unit}")
    }

    fn write_sample(&mut self, number: usize, sample: SampleRef<'_>) -> fmt::Result {
        writeln!(self.out, "    Sample #{number}")?;
        writeln!(self.out, "        Values: {:?}", sample.values)?;
        if !sample.timestamps.is_empty() {
            writeln!(self.out, "        Timestamps: {:?}", sample.timestamps)?;
        }
        if let Some(Link { trace_id, span_id }) = self.tables.links.get(sample.link)
            && sample.link.is_set()
        {
            writeln!(self.out, "        Trace ID: {}", Hex(trace_id))?;
            writeln!(self.out, "        Span ID: {}", Hex(span_id))?;
        }
        self.write_named("        ", sample.attributes)?;
        let stack = self.tables.stacks.get(sample.stack);
        if !stack.is_empty() {
            writeln!(self.out, "        Stack:")?;
        }
        stack.iter().try_for_each(|&index| self.write_frame(index))
    }

    /// One line per function, the innermost of an inlined chain first.
    fn write_frame(&mut self, index: LocationIdx) -> fmt::Result {
        let LocationRef {
            location, lines, ..
        } = self.tables.locations.get(index);
        let mapping = self.tables.mappings.get(location.mapping).mapping;
        let file = self.string(mapping.filename);
        if lines.is_empty() {
            return writeln!(self.out, "             -> {:#x} {file}", location.address);
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
            writeln!(self.out, "             -> {name} {source}:{number} {file}")?;
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
