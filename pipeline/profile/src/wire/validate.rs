//! Validation: one walk over the received bytes that checks everything which anybody will rely on.
//!
//! Tables come first, each after those that it refers to, then resources down to samples. Nothing
//! is allocated per row or sample. Beyond the format itself the rules are those of the profiling
//! SIG's conformance checker:
//!
//! * every index is in range, also those in attribute values; a table that is left out has its
//!   row 0 all the same, and row 0 is the zero value (of a link also 16 and 8 zero bytes);
//! * no two attributes of one list have the same key;
//! * link ids are 16 and 8 bytes or empty, profile ids 16 or empty;
//! * a sample has values or timestamps; of both as many; without timestamps exactly one value;
//! * timestamps lie within their profile. Its end is allowed: senders close a profile with the
//!   last sample, and instant profiles have no duration. A profile without a time has no bounds;
//! * a mapping starts below its limit or has neither; lines are not negative; a function has a
//!   name, a system name or a file name; an original payload has a format and the other way round.
//!
//! A request without samples is valid. In repair the same walk notes what is bad instead of
//! giving up, and a row that refers to a bad row is bad itself, down to the samples.

use std::collections::BTreeMap;

use super::decode::Skip;
use super::invalid::{At, Fault, Invalid, Reason};
use super::known::Known;
use super::rows::{self, RowLists};
use super::tables::{Request, Tables, fields};
use super::tags::{
    dictionary, entity_ref, profile, resource, resource_profiles, scope, scope_profiles,
};
use super::text::is_text;
use super::value::{AnyValue, MAX_DEPTH, any_value, items, key_value};
use crate::dictionary::{Attribute, Function, Link, Location, Mapping, Stack};
use crate::proto::{Reader, WireError};
use crate::{AttributeIdx, Line, StringIdx};

/// What a request holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub resources: usize,
    pub profiles: usize,
    pub samples: usize,
}

/// What repair found.
pub(crate) struct Verdict {
    pub skip: Skip,
    /// Bad samples by what is wrong with them.
    pub bad: BTreeMap<Reason, usize>,
    pub counts: Counts,
}

/// Checks everything, down to the first fault.
pub(crate) fn validate(wire: &[u8]) -> Result<Counts, Invalid> {
    Ok(walk(wire, false)?.counts)
}

/// Checks everything and notes what is bad; fails only if the bytes cannot be read.
pub(crate) fn repair(wire: &[u8]) -> Result<Verdict, Invalid> {
    walk(wire, true)
}

fn walk(wire: &[u8], repair: bool) -> Result<Verdict, Invalid> {
    let request = Request::read(wire)?;
    let tables = Tables::read(&request.dictionary).field("dictionary")?;
    let mut walk = Walk::new(&tables, repair);
    walk.dictionary(&tables).field("dictionary")?;
    for (position, resource) in request.resources.into_iter().enumerate() {
        walk.resource_profiles(resource)
            .item("resource_profiles", position)?;
    }
    Ok(Verdict {
        skip: walk.skip,
        bad: walk.bad,
        counts: walk.counts,
    })
}

struct Walk {
    repair: bool,
    strings: Known<str>,
    attributes: Known<Attribute>,
    functions: Known<Function>,
    links: Known<Link>,
    mappings: Known<Mapping>,
    locations: Known<Location>,
    stacks: Known<Stack>,
    /// The key of each row of the attribute table.
    keys: Vec<StringIdx>,
    /// Keys of a long list and where they stand, to find equal ones.
    key_order: Vec<(StringIdx, usize)>,
    lists: RowLists,
    counts: Counts,
    skip: Skip,
    bad: BTreeMap<Reason, usize>,
}

impl Walk {
    fn new(tables: &Tables<'_>, repair: bool) -> Self {
        Self {
            repair,
            strings: Known::new("strings", tables.len(dictionary::STRINGS)),
            attributes: Known::new("attributes", tables.len(dictionary::ATTRIBUTES)),
            functions: Known::new("functions", tables.len(dictionary::FUNCTIONS)),
            links: Known::new("links", tables.len(dictionary::LINKS)),
            mappings: Known::new("mappings", tables.len(dictionary::MAPPINGS)),
            locations: Known::new("locations", tables.len(dictionary::LOCATIONS)),
            stacks: Known::new("stacks", tables.len(dictionary::STACKS)),
            keys: Vec::with_capacity(tables.len(dictionary::ATTRIBUTES) as usize),
            key_order: Vec::new(),
            lists: RowLists::default(),
            counts: Counts::default(),
            skip: Skip::default(),
            bad: BTreeMap::new(),
        }
    }

    /// Turns a fault into a note where repair can go on without what is at fault.
    #[inline(always)]
    fn note(&self, result: Result<(), Invalid>) -> Result<Option<Reason>, Invalid> {
        match result {
            Ok(()) => Ok(None),
            Err(invalid) => self.note_fault(invalid).map(Some),
        }
    }

    #[cold]
    fn note_fault(&self, invalid: Invalid) -> Result<Reason, Invalid> {
        if self.repair && !invalid.is_unreadable() {
            Ok(invalid.reason())
        } else {
            Err(invalid)
        }
    }

    // === tables ===

    fn dictionary(&mut self, tables: &Tables<'_>) -> Result<(), Invalid> {
        let rows = tables.rows(dictionary::STRINGS);
        if tables.strings_are_text {
            // Counting has looked at the text of all, which leaves row 0.
            self.rows(rows.take(1), "string_table", Self::string_row)?;
        } else {
            self.rows(rows, "string_table", Self::string_row)?;
        }
        let rows = tables.rows(dictionary::ATTRIBUTES);
        self.rows(rows, "attribute_table", Self::attribute_row)?;
        let rows = tables.rows(dictionary::FUNCTIONS);
        self.rows(rows, "function_table", Self::function_row)?;
        let rows = tables.rows(dictionary::LINKS);
        self.rows(rows, "link_table", Self::link_row)?;
        let rows = tables.rows(dictionary::MAPPINGS);
        self.rows(rows, "mapping_table", Self::mapping_row)?;
        let rows = tables.rows(dictionary::LOCATIONS);
        self.rows(rows, "location_table", Self::location_row)?;
        let rows = tables.rows(dictionary::STACKS);
        self.rows(rows, "stack_table", Self::stack_row)
    }

    /// Checks all rows of a table. Not inlined: each table gets a loop of its own.
    #[inline(never)]
    fn rows<'a>(
        &mut self,
        rows: impl Iterator<Item = Result<&'a [u8], WireError>>,
        table: &'static str,
        check: impl Fn(&mut Self, &'a [u8], usize) -> Result<(), Invalid>,
    ) -> Result<(), Invalid> {
        for (row, message) in rows.enumerate() {
            if let Err(invalid) = check(self, message?, row).item(table, row) {
                let why = self.note_fault(invalid)?;
                self.mark_bad(table, row, why);
            }
        }
        Ok(())
    }

    #[cold]
    fn mark_bad(&mut self, table: &'static str, row: usize, why: Reason) {
        match table {
            "string_table" => self.strings.mark_bad(row, why),
            "attribute_table" => self.attributes.mark_bad(row, why),
            "function_table" => self.functions.mark_bad(row, why),
            "link_table" => self.links.mark_bad(row, why),
            "mapping_table" => self.mappings.mark_bad(row, why),
            "location_table" => self.locations.mark_bad(row, why),
            _ => self.stacks.mark_bad(row, why),
        }
    }

    fn string_row(&mut self, text: &[u8], row: usize) -> Result<(), Invalid> {
        if row == 0 && !text.is_empty() {
            return Err(Fault::NotZero.into());
        }
        Ok(utf8(text)?)
    }

    fn link_row(&mut self, message: &[u8], row: usize) -> Result<(), Invalid> {
        let link = rows::link(message)?;
        id_length(link.trace_id, 16).field("trace_id")?;
        id_length(link.span_id, 8).field("span_id")?;
        let mut ids = link.trace_id.iter().chain(link.span_id);
        if row == 0 && ids.any(|&byte| byte != 0) {
            return Err(Fault::NotZero.into());
        }
        Ok(())
    }

    fn attribute_row(&mut self, message: &[u8], row: usize) -> Result<(), Invalid> {
        let attribute = rows::attribute(message)?;
        self.keys.push(attribute.key);
        let mut empty = true;
        if let Some(value) = attribute.value {
            empty = matches!(any_value(value).field("value")?, AnyValue::Empty);
            self.value(value, 0).field("value")?;
        }
        if row == 0 && !(empty && !attribute.key.is_set() && !attribute.unit.is_set()) {
            return Err(Fault::NotZero.into());
        }
        self.strings.check(attribute.key).field("key_strindex")?;
        self.strings.check(attribute.unit).field("unit_strindex")?;
        Ok(())
    }

    #[inline(always)]
    fn function_row(&mut self, message: &[u8], row: usize) -> Result<(), Invalid> {
        let function = rows::function(message)?;
        if row == 0 && function != Function::default() {
            return Err(Fault::NotZero.into());
        }
        let named = function.name.get() | function.system_name.get() | function.filename.get();
        if row != 0 && named == 0 {
            return Err(Fault::Nameless.into());
        }
        self.strings.check(function.name).field("name_strindex")?;
        self.strings
            .check(function.system_name)
            .field("system_name_strindex")?;
        self.strings
            .check(function.filename)
            .field("filename_strindex")
    }

    fn mapping_row(&mut self, message: &[u8], row: usize) -> Result<(), Invalid> {
        let mapping = rows::mapping(message, &mut self.lists)?;
        if row == 0 && (mapping != Mapping::default() || !self.lists.attributes.is_empty()) {
            return Err(Fault::NotZero.into());
        }
        let (start, limit) = (mapping.memory_start, mapping.memory_limit);
        if start >= limit && (start, limit) != (0, 0) {
            return Err(Fault::EmptyMapping { start, limit }.into());
        }
        self.strings
            .check(mapping.filename)
            .field("filename_strindex")?;
        self.attribute_list()
    }

    #[inline(always)]
    fn location_row(&mut self, message: &[u8], row: usize) -> Result<(), Invalid> {
        let location = rows::location(message, &mut self.lists)?;
        if row == 0 {
            let empty = self.lists.lines.is_empty() && self.lists.attributes.is_empty();
            if location != Location::default() || !empty {
                return Err(Fault::NotZero.into());
            }
        }
        self.mappings
            .check(location.mapping)
            .field("mapping_index")?;
        for (position, line) in self.lists.lines.iter().enumerate() {
            self.line(line).item("lines", position)?;
        }
        self.attribute_list()
    }

    #[inline(always)]
    fn line(&self, line: &Line) -> Result<(), Invalid> {
        self.functions
            .check(line.function)
            .field("function_index")?;
        if line.line < 0 {
            return Err(Fault::NegativeLine { line: line.line }).field("line");
        }
        Ok(())
    }

    #[inline(always)]
    fn stack_row(&mut self, message: &[u8], row: usize) -> Result<(), Invalid> {
        rows::stack(message, &mut self.lists)?;
        if row == 0 && !self.lists.locations.is_empty() {
            return Err(Fault::NotZero.into());
        }
        self.locations
            .check_list(&self.lists.locations, "location_indices")
    }

    /// The attributes of the row that was read last.
    #[inline(always)]
    fn attribute_list(&mut self) -> Result<(), Invalid> {
        let list = &self.lists.attributes;
        self.attributes.check_list(list, "attribute_indices")?;
        let repeated = match list.as_slice() {
            [] | [_] => None,
            short if short.len() <= 8 => self.repeated_key(short),
            _ => self.repeated_key_of_many(),
        };
        match repeated {
            None => Ok(()),
            Some((first, again)) => {
                Err(Fault::DuplicateKey { first }).item("attribute_indices", again)
            }
        }
    }

    #[inline(always)]
    fn key(&self, attribute: AttributeIdx) -> StringIdx {
        self.keys.get(attribute.row()).copied().unwrap_or_default()
    }

    #[inline(always)]
    fn repeated_key(&self, list: &[AttributeIdx]) -> Option<(usize, usize)> {
        for (again, &attribute) in list.iter().enumerate() {
            for (first, &before) in list[..again].iter().enumerate() {
                if self.key(attribute) == self.key(before) {
                    return Some((first, again));
                }
            }
        }
        None
    }

    fn repeated_key_of_many(&mut self) -> Option<(usize, usize)> {
        let mut order = std::mem::take(&mut self.key_order);
        order.clear();
        let list = self.lists.attributes.iter().enumerate();
        order.extend(list.map(|(position, &attribute)| (self.key(attribute), position)));
        order.sort_unstable();
        let repeated = order
            .windows(2)
            .find_map(|pair| (pair[0].0 == pair[1].0).then_some((pair[0].1, pair[1].1)));
        self.key_order = order;
        repeated
    }

    // === resources and scopes ===

    fn resource_profiles(&mut self, message: &[u8]) -> Result<(), Invalid> {
        self.counts.resources += 1;
        let head = self.resource_profiles_head(message);
        let bad = self.note(head)?;
        for (position, scope) in fields(message, resource_profiles::SCOPES).enumerate() {
            self.scope_profiles(scope?, bad)
                .item("scope_profiles", position)?;
        }
        Ok(())
    }

    fn resource_profiles_head(&self, message: &[u8]) -> Result<(), Invalid> {
        let mut resources = 0;
        let mut reader = Reader::new(message);
        while let Some(tag) = reader.tag()? {
            match tag {
                resource_profiles::RESOURCE => {
                    resources += 1;
                    self.resource(reader.message()?).field("resource")?;
                }
                resource_profiles::SCOPES => drop(reader.bytes()?),
                resource_profiles::SCHEMA_URL => utf8(reader.bytes()?).field("schema_url")?,
                unknown => reader.skip(unknown, resource_profiles::KNOWN)?,
            }
        }
        once(resources, resource_profiles::RESOURCE)
    }

    fn resource(&self, mut reader: Reader<'_>) -> Result<(), Invalid> {
        let mut attributes = 0..;
        let mut entities = 0..;
        while let Some(tag) = reader.tag()? {
            match tag {
                resource::ATTRIBUTES => self
                    .key_value(reader.bytes()?, 0)
                    .item("attributes", attributes.next().unwrap_or(0))?,
                resource::DROPPED_ATTRIBUTES => drop(reader.varint()?),
                resource::ENTITY_REFS => {
                    entity(reader.message()?).item("entity_refs", entities.next().unwrap_or(0))?
                }
                unknown => reader.skip(unknown, resource::KNOWN)?,
            }
        }
        Ok(())
    }

    fn scope_profiles(&mut self, message: &[u8], bad: Option<Reason>) -> Result<(), Invalid> {
        let head = self.scope_profiles_head(message);
        let bad = self.note(head)?.or(bad);
        for (position, profile) in fields(message, scope_profiles::PROFILES).enumerate() {
            self.profile(profile?, bad).item("profiles", position)?;
        }
        Ok(())
    }

    fn scope_profiles_head(&self, message: &[u8]) -> Result<(), Invalid> {
        let mut scopes = 0;
        let mut reader = Reader::new(message);
        while let Some(tag) = reader.tag()? {
            match tag {
                scope_profiles::SCOPE => {
                    scopes += 1;
                    self.scope(reader.message()?).field("scope")?;
                }
                scope_profiles::PROFILES => drop(reader.bytes()?),
                scope_profiles::SCHEMA_URL => utf8(reader.bytes()?).field("schema_url")?,
                unknown => reader.skip(unknown, scope_profiles::KNOWN)?,
            }
        }
        once(scopes, scope_profiles::SCOPE)
    }

    fn scope(&self, mut reader: Reader<'_>) -> Result<(), Invalid> {
        let mut attributes = 0..;
        while let Some(tag) = reader.tag()? {
            match tag {
                scope::NAME => utf8(reader.bytes()?).field("name")?,
                scope::VERSION => utf8(reader.bytes()?).field("version")?,
                scope::ATTRIBUTES => self
                    .key_value(reader.bytes()?, 0)
                    .item("attributes", attributes.next().unwrap_or(0))?,
                scope::DROPPED_ATTRIBUTES => drop(reader.varint()?),
                unknown => reader.skip(unknown, scope::KNOWN)?,
            }
        }
        Ok(())
    }

    fn key_value(&self, message: &[u8], depth: usize) -> Result<(), Invalid> {
        let pair = key_value(message)?;
        utf8(pair.key).field("key")?;
        self.strings.check(pair.key_index).field("key_strindex")?;
        match pair.value {
            Some(value) => self.value(value, depth).field("value"),
            None => Ok(()),
        }
    }

    fn value(&self, message: &[u8], depth: usize) -> Result<(), Invalid> {
        if depth > MAX_DEPTH {
            return Err(WireError::TooDeep { limit: MAX_DEPTH }.into());
        }
        match any_value(message)? {
            AnyValue::String(text) => utf8(text).field("string_value"),
            AnyValue::StringIndex(index) => {
                self.strings.check(index).field("string_value_strindex")
            }
            AnyValue::Array(array) => {
                for (position, item) in items(array).enumerate() {
                    self.value(item?, depth + 1).item("array_value", position)?;
                }
                Ok(())
            }
            AnyValue::Map(map) => {
                for (position, item) in items(map).enumerate() {
                    self.key_value(item?, depth + 1)
                        .item("kvlist_value", position)?;
                }
                Ok(())
            }
            AnyValue::Empty
            | AnyValue::Bool(_)
            | AnyValue::Int(_)
            | AnyValue::Double(_)
            | AnyValue::Bytes(_) => Ok(()),
        }
    }

    // === profiles and samples ===

    fn profile(&mut self, message: &[u8], bad: Option<Reason>) -> Result<(), Invalid> {
        let first_sample = self.counts.samples;
        let head = self.profile_head(message)?;
        let bad = head.bad.or(bad);
        if !head.window.contains(&head.seen) {
            self.timestamps(message, &head.window, first_sample)?;
        }
        if self.repair {
            self.count_bad(first_sample, bad);
        }
        self.counts.profiles += 1;
        Ok(())
    }

    /// All of a profile, but timestamps are only collected: its time and duration stand behind
    /// its samples.
    fn profile_head(&mut self, message: &[u8]) -> Result<Head, Invalid> {
        let mut head = Head::default();
        let (mut time, mut duration) = (0, 0);
        let (mut format, mut payload) = (false, false);
        let (mut sample_types, mut period_types) = (0, 0);
        let mut samples = 0;
        self.lists.attributes.clear();
        let mut attributes = Vec::new();
        let mut reader = Reader::new(message);
        while let Some(tag) = reader.tag()? {
            match tag {
                profile::SAMPLES => {
                    let result = self.sample(reader.bytes()?, &mut head.seen);
                    let result = result.item("samples", samples);
                    if let Some(why) = self.note(result)? {
                        self.skip.samples.insert(self.counts.samples, why);
                    }
                    samples += 1;
                    self.counts.samples += 1;
                }
                profile::TIME => time = reader.fixed64()?,
                profile::DURATION => duration = reader.varint()?,
                profile::PERIOD | profile::DROPPED_ATTRIBUTES => drop(reader.varint()?),
                profile::PAYLOAD => payload = !reader.bytes()?.is_empty(),
                profile::ATTRIBUTES => reader.packed_uint32(&mut attributes)?,
                profile::ATTRIBUTE => attributes.push(reader.uint32()?.into()),
                profile::SAMPLE_TYPE => {
                    sample_types += 1;
                    let result = self.value_type(reader.bytes()?).field("sample_type");
                    head.bad = head.bad.or(self.note(result)?);
                }
                profile::PERIOD_TYPE => {
                    period_types += 1;
                    let result = self.value_type(reader.bytes()?).field("period_type");
                    head.bad = head.bad.or(self.note(result)?);
                }
                profile::PROFILE_ID => {
                    let result = id_length(reader.bytes()?, 16).field("profile_id");
                    head.bad = head.bad.or(self.note(result)?);
                }
                profile::PAYLOAD_FORMAT => {
                    let text = reader.bytes()?;
                    format = !text.is_empty();
                    let result = utf8(text).field("original_payload_format");
                    head.bad = head.bad.or(self.note(result)?);
                }
                unknown => reader.skip(unknown, profile::KNOWN)?,
            }
        }
        once(sample_types, profile::SAMPLE_TYPE)?;
        once(period_types, profile::PERIOD_TYPE)?;
        self.lists.attributes = attributes;
        let attributes = self.attribute_list();
        head.bad = head.bad.or(self.note(attributes)?);
        if format != payload {
            let result = Err(Fault::HalfPayload.into());
            head.bad = head.bad.or(self.note(result)?);
        }
        head.window = Window::of_profile(time, duration);
        Ok(head)
    }

    fn value_type(&self, message: &[u8]) -> Result<(), Invalid> {
        let value_type = rows::value_type(message)?;
        self.strings.check(value_type.kind).field("type_strindex")?;
        self.strings.check(value_type.unit).field("unit_strindex")
    }

    #[inline(always)]
    fn sample(&mut self, message: &[u8], seen: &mut Window) -> Result<(), Invalid> {
        let sample = rows::sample(message, &mut self.lists)?;
        for &timestamp in &self.lists.timestamps {
            seen.extend(timestamp);
        }
        if sample.has_old_attributes {
            return Err(Fault::OldLayout.into());
        }
        self.sample_row(&sample)
            .map_err(|invalid| self.suspect_old_layout(invalid))
    }

    #[inline(always)]
    fn sample_row(&mut self, sample: &rows::SampleHead) -> Result<(), Invalid> {
        self.stacks.check(sample.stack).field("stack_index")?;
        self.links.check(sample.link).field("link_index")?;
        self.attribute_list()?;
        let values = self.lists.values.len();
        let timestamps = self.lists.timestamps.len();
        match (values, timestamps) {
            (0, 0) => Err(Fault::NoObservation.into()),
            (0, _) | (1, 0) => Ok(()),
            (values, 0) => Err(Fault::ManyValues { values }.into()),
            _ if values == timestamps => Ok(()),
            _ => Err(Fault::Mismatch { values, timestamps }.into()),
        }
    }

    /// Up to proto 1.9 field 2 held the values, which are hardly ever indices of attributes.
    #[cold]
    fn suspect_old_layout(&self, invalid: Invalid) -> Invalid {
        let lists = &self.lists;
        let nothing_seen = lists.values.is_empty() && lists.timestamps.is_empty();
        if nothing_seen && !lists.attributes.is_empty() && !self.repair {
            return Fault::OldLayout.into();
        }
        invalid
    }

    /// Finds the samples with timestamps outside of the profile.
    #[cold]
    fn timestamps(
        &mut self,
        message: &[u8],
        window: &Window,
        first_sample: usize,
    ) -> Result<(), Invalid> {
        for (position, sample) in fields(message, profile::SAMPLES).enumerate() {
            rows::sample(sample?, &mut self.lists)?;
            let outside = |timestamp: &&u64| !window.contains(&Window::at(**timestamp));
            let Some(&timestamp) = self.lists.timestamps.iter().find(outside) else {
                continue;
            };
            let (start, end) = (window.start, window.end);
            let fault = Err(Fault::OutsideProfile {
                timestamp,
                start,
                end,
            });
            let result = fault
                .field("timestamps_unix_nano")
                .item("samples", position);
            if let Some(why) = self.note(result)? {
                let ordinal = first_sample + position;
                self.skip.samples.entry(ordinal).or_insert(why);
            }
        }
        Ok(())
    }

    fn count_bad(&mut self, first_sample: usize, profile: Option<Reason>) {
        if let Some(why) = profile {
            self.skip.profiles.insert(self.counts.profiles);
            let samples = self.counts.samples - first_sample;
            *self.bad.entry(why).or_default() += samples;
            return;
        }
        for &why in self.skip.samples.range(first_sample..).map(|(_, why)| why) {
            *self.bad.entry(why).or_default() += 1;
        }
    }
}

#[derive(Default)]
struct Head {
    window: Window,
    seen: Window,
    /// What is wrong with the profile itself, so that none of its samples can stay.
    bad: Option<Reason>,
}

/// A span of time, both ends included; as long as nothing was seen the end lies before the start.
struct Window {
    start: u64,
    end: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            start: u64::MAX,
            end: 0,
        }
    }
}

impl Window {
    fn of_profile(time: u64, duration: u64) -> Self {
        let start = time;
        let end = if time == 0 {
            u64::MAX
        } else {
            time.saturating_add(duration)
        };
        Self { start, end }
    }

    fn at(timestamp: u64) -> Self {
        Self {
            start: timestamp,
            end: timestamp,
        }
    }

    #[inline(always)]
    fn extend(&mut self, timestamp: u64) {
        self.start = self.start.min(timestamp);
        self.end = self.end.max(timestamp);
    }

    fn contains(&self, seen: &Self) -> bool {
        self.start <= seen.start && seen.end <= self.end
    }
}

#[inline(always)]
fn utf8(text: &[u8]) -> Result<(), Fault> {
    if is_text(text) {
        Ok(())
    } else {
        Err(Fault::Utf8)
    }
}

fn id_length(id: &[u8], expected: usize) -> Result<(), Fault> {
    let len = id.len();
    if len != 0 && len != expected {
        return Err(Fault::IdLength { len, expected });
    }
    Ok(())
}

fn entity(mut reader: Reader<'_>) -> Result<(), Invalid> {
    while let Some(tag) = reader.tag()? {
        match tag {
            entity_ref::SCHEMA_URL => utf8(reader.bytes()?).field("schema_url")?,
            entity_ref::KIND => utf8(reader.bytes()?).field("type")?,
            entity_ref::ID_KEYS => utf8(reader.bytes()?).field("id_keys")?,
            entity_ref::DESCRIPTION_KEYS => utf8(reader.bytes()?).field("description_keys")?,
            unknown => reader.skip(unknown, entity_ref::KNOWN)?,
        }
    }
    Ok(())
}

fn once(times: usize, tag: u32) -> Result<(), Invalid> {
    if times > 1 {
        let field = crate::proto::tag::field(tag);
        return Err(WireError::Twice { field }.into());
    }
    Ok(())
}
