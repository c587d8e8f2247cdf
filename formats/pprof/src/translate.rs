//! Translates the rows of a batch to those of a file.
//!
//! Each row that a sample uses is translated once and then looked up by index; the cost of adding depends on what the
//! samples use, not on the size of the batch's tables.

use super::attributes::{
    BUILD_IDS, COMMENT, DOC_URL, DROP_FRAMES, IS_FOLDED, KEEP_FRAMES, MAPPING_FLAGS,
};
use super::build::{
    AddProfilesError, Builder, Id, LineRow, LocationRow, MappingRow, SampleRow, UnnamedLocation,
};
use super::labels::{Label, is_unknown_service, push_labels, push_link};
use super::rows::ListRows;
use super::sets::ProfileSet;
use super::translated_ids::TranslatedIds;
use profcol_profile::{
    Attribute, AttributeIdx, Dictionary, Function, FunctionIdx, Line, LinkIdx, LocationIdx,
    MappingIdx, Profile, SampleRef, StackIdx, Value,
};

impl Builder {
    /// Adds profiles, which must have the same sample types as earlier ones.
    pub fn add(&mut self, set: &ProfileSet<'_>) -> Result<(), AddProfilesError> {
        self.add_with_unnamed(set, &mut |_, _| {})
    }

    /// Like `add`, and reports locations without lines, which can be [set](Self::set_lines) later.
    pub fn add_with_unnamed(
        &mut self,
        set: &ProfileSet<'_>,
        on_unnamed: &mut dyn FnMut(LocationIdx, UnnamedLocation),
    ) -> Result<(), AddProfilesError> {
        self.prepare(set)?;
        Translation::new(self, set, on_unnamed).run();
        Ok(())
    }
}

/// One call of [`Builder::add`].
struct Translation<'b, 'a> {
    builder: &'b mut Builder,
    dictionary: &'a Dictionary,
    set: &'b ProfileSet<'a>,
    on_unnamed: &'b mut dyn FnMut(LocationIdx, UnnamedLocation),
    translated: TranslatedIds,
    /// Labels common to all samples, from the resource and the profile.
    shared: Vec<Label>,
    /// The sample's own data as a list, the link followed by the attributes, and the label set row of each such list.
    own: ListRows<u32>,
    label_sets: Vec<u32>,
    // Buffers reused for each row.
    ids: Vec<Id>,
    lines: Vec<LineRow>,
    labels: Vec<Label>,
    list: Vec<u32>,
}

impl<'b, 'a> Translation<'b, 'a> {
    fn new(
        builder: &'b mut Builder,
        set: &'b ProfileSet<'a>,
        on_unnamed: &'b mut dyn FnMut(LocationIdx, UnnamedLocation),
    ) -> Self {
        Self {
            translated: std::mem::take(&mut builder.translated).of(&set.model.dictionary),
            builder,
            dictionary: &set.model.dictionary,
            set,
            on_unnamed,
            shared: Vec::new(),
            own: ListRows::default(),
            label_sets: Vec::new(),
            ids: Vec::new(),
            lines: Vec::new(),
            labels: Vec::new(),
            list: Vec::new(),
        }
    }

    fn run(mut self) {
        self.header();
        self.shared_labels();
        let profiles = &self.set.profiles;
        let first = &profiles[0].samples;
        if !first.is_empty() {
            let resource = self.set.resource.resource.as_deref();
            self.builder.executables.add(resource);
        }
        if self.builder.mappings.len() == 0 && self.dictionary.mappings.rows().len() > 1 {
            // In files read from pprof the first mapping is the program, even if no sample is in it.
            self.mapping(1.into());
        }
        let types = self.builder.header.sample_types.len();
        let period = self.set.period();
        for (row, sample) in first.iter().enumerate() {
            let key = SampleRow {
                stack: self.stack(sample.stack),
                labels: self.sample_labels(sample),
            };
            let values = (0..types).map(|column| match profiles.get(column) {
                Some(profile) => profile.samples.get(row).unwrap_or_default().observed(),
                // The period weight comes last and has no profile of its own.
                None => sample.observed().saturating_mul(period),
            });
            self.builder.add_values(key, values);
        }
        self.builder.translated = self.translated;
    }

    // === header ===

    fn header(&mut self) {
        let profile = self.set.profiles[0];
        let by_period = self.builder.period_value(self.set);
        let default = by_period.map_or_else(|| self.set.default_sample_type(), |(kind, _)| kind);
        let header = &mut self.builder.header;
        header.period = header.period.max(profile.period);
        if profile.time_unix_nano == 0 {
            header.duration = header.duration.max(profile.duration_nano);
        } else {
            let start = profile.time_unix_nano;
            header.start = Some(header.start.map_or(start, |current| current.min(start)));
            header.end = header.end.max(start.saturating_add(profile.duration_nano));
        }
        let strings = &mut self.builder.strings;
        if !header.default_sample_type.is_set() {
            header.default_sample_type = strings.string(default);
        }
        for attribute in attributes(self.dictionary, &profile.attributes) {
            match (self.dictionary.strings.get(attribute.key), &attribute.value) {
                (COMMENT, Value::Array(comments)) => {
                    for comment in comments.iter().filter_map(Value::as_str) {
                        header.comments.intern(strings.string(comment));
                    }
                }
                (COMMENT, Value::Str(comment)) => {
                    header.comments.intern(strings.string(comment));
                }
                (DROP_FRAMES, Value::Str(text)) if !header.drop_frames.is_set() => {
                    header.drop_frames = strings.string(text);
                }
                (KEEP_FRAMES, Value::Str(text)) if !header.keep_frames.is_set() => {
                    header.keep_frames = strings.string(text);
                }
                (DOC_URL, Value::Str(text)) if !header.doc_url.is_set() => {
                    header.doc_url = strings.string(text);
                }
                _ => {}
            }
        }
    }

    // === labels ===

    fn shared_labels(&mut self) {
        let Builder {
            options, strings, ..
        } = &mut *self.builder;
        let selection = &options.labels;
        let labels = &mut self.shared;
        let profile: &Profile = self.set.profiles[0];
        for attribute in attributes(self.dictionary, &profile.attributes) {
            let key = self.dictionary.strings.get(attribute.key);
            let in_header = [COMMENT, DROP_FRAMES, KEEP_FRAMES, DOC_URL].contains(&key);
            if !in_header && selection.profile.contains(key) {
                let unit = self.dictionary.strings.get(attribute.unit);
                push_labels(labels, strings, key, &attribute.value, unit);
            }
        }
        let of_profile = labels.clone();
        let resource = self.set.resource.resource.as_deref();
        for attribute in resource.map_or(&[][..], |resource| &resource.attributes) {
            if selection.resource.contains(&attribute.key)
                && !is_unknown_service(&attribute.key, &attribute.value)
            {
                push_labels(labels, strings, &attribute.key, &attribute.value, "");
            }
        }
        override_keys(labels, of_profile.len());
    }

    fn sample_labels(&mut self, sample: SampleRef<'_>) -> u32 {
        self.list.clear();
        self.list.push(sample.link.get());
        self.list
            .extend(sample.attributes.iter().map(|attribute| attribute.get()));
        let own = self.own.intern(&self.list) as usize;
        if let Some(row) = self.label_sets.get(own) {
            return *row;
        }
        let label_set = self.new_label_set(sample.link, sample.attributes);
        self.label_sets.push(label_set);
        label_set
    }

    fn new_label_set(&mut self, link: LinkIdx, of_sample: &[AttributeIdx]) -> u32 {
        let Builder {
            options, strings, ..
        } = &mut *self.builder;
        let selection = &options.labels;
        let labels = &mut self.labels;
        labels.clear();
        for attribute in attributes(self.dictionary, of_sample) {
            let key = self.dictionary.strings.get(attribute.key);
            if selection.sample.contains(key) {
                let unit = self.dictionary.strings.get(attribute.unit);
                push_labels(labels, strings, key, &attribute.value, unit);
            }
        }
        let link = self.dictionary.links.get(link).copied().unwrap_or_default();
        if selection.links {
            push_link(labels, strings, &link);
        }
        let own = labels.len();
        labels.extend_from_slice(&self.shared);
        override_keys(labels, own);
        labels.sort_unstable();
        self.builder.label_sets.intern(labels)
    }

    // === stacks ===

    fn stack(&mut self, index: StackIdx) -> u32 {
        if let Some(row) = self.translated.stacks.get(&index) {
            return *row;
        }
        let mut ids = std::mem::take(&mut self.ids);
        ids.clear();
        for location in self.dictionary.stacks.get(index) {
            ids.push(self.location(*location));
        }
        let stack = self.builder.stacks.intern(&ids);
        self.ids = ids;
        self.translated.stacks.insert(index, stack);
        stack
    }

    fn location(&mut self, index: LocationIdx) -> Id {
        if let Some(id) = self.translated.locations.get(&index) {
            return *id;
        }
        let row = self.dictionary.locations.get(index);
        let mapping = self.mapping(row.location.mapping);
        let mut lines = std::mem::take(&mut self.lines);
        lines.clear();
        for line in row.lines.iter().filter(|line| **line != Line::default()) {
            lines.push(LineRow {
                function: self.function(line.function),
                line: line.line,
                column: line.column,
            });
        }
        let location = LocationRow {
            mapping,
            address: row.location.address,
            lines: self.builder.lines.intern(&lines),
            is_folded: flag(self.dictionary, row.attributes, IS_FOLDED).unwrap_or_default(),
        };
        let is_unnamed = lines.is_empty();
        self.lines = lines;
        let id = self.builder.locations.intern(location) + 1;
        if is_unnamed {
            (self.on_unnamed)(index, UnnamedLocation(id));
        }
        self.translated.locations.insert(index, id);
        id
    }

    /// A line needs a function, even if it has no name.
    fn function(&mut self, index: FunctionIdx) -> Id {
        let row = self.dictionary.functions.get(index);
        let row = row.copied().unwrap_or_default();
        let Self {
            builder,
            dictionary,
            translated,
            ..
        } = self;
        *translated.functions.entry(index).or_insert_with(|| {
            let mut text = |index| builder.strings.string(dictionary.strings.get(index));
            let function = Function {
                name: text(row.name),
                system_name: text(row.system_name),
                filename: text(row.filename),
                start_line: row.start_line,
            };
            builder.functions.intern(function) + 1
        })
    }

    fn mapping(&mut self, index: MappingIdx) -> Id {
        if !index.is_set() {
            return 0;
        }
        let Self {
            builder,
            dictionary,
            translated,
            ..
        } = self;
        *translated.mappings.entry(index).or_insert_with(|| {
            let row = dictionary.mappings.get(index);
            let strings = &mut builder.strings;
            let build_id = BUILD_IDS
                .iter()
                .find_map(|key| find(dictionary, row.attributes, key)?.as_str())
                .unwrap_or_default();
            let mapping = MappingRow {
                memory_start: row.mapping.memory_start,
                memory_limit: row.mapping.memory_limit,
                file_offset: row.mapping.file_offset,
                filename: strings.string(dictionary.strings.get(row.mapping.filename)),
                build_id: strings.string(build_id),
                flags: MAPPING_FLAGS.map(|key| flag(dictionary, row.attributes, key)),
            };
            builder.mappings.intern(mapping) + 1
        })
    }
}

/// Removes the labels after the first `own` whose keys occur among these.
fn override_keys(labels: &mut Vec<Label>, own: usize) {
    if own == 0 || own == labels.len() {
        return;
    }
    let (specific, general) = labels.split_at(own);
    let mut keys: Vec<_> = specific.iter().map(|label| label.key).collect();
    keys.sort_unstable();
    let general: Vec<Label> = general
        .iter()
        .filter(|label| keys.binary_search(&label.key).is_err())
        .copied()
        .collect();
    labels.truncate(own);
    labels.extend(general);
}

fn attributes<'a>(
    dictionary: &'a Dictionary,
    indices: &'a [AttributeIdx],
) -> impl Iterator<Item = &'a Attribute> {
    let set = indices.iter().filter(|index| index.is_set());
    set.filter_map(|index| dictionary.attributes.get(*index))
}

fn find<'a>(
    dictionary: &'a Dictionary,
    indices: &'a [AttributeIdx],
    key: &str,
) -> Option<&'a Value> {
    let attribute = attributes(dictionary, indices)
        .find(|attribute| dictionary.strings.get(attribute.key) == key);
    attribute.map(|attribute| &attribute.value)
}

fn flag(dictionary: &Dictionary, indices: &[AttributeIdx], key: &str) -> Option<bool> {
    match find(dictionary, indices, key)? {
        Value::Bool(flag) => Some(*flag),
        _ => None,
    }
}
