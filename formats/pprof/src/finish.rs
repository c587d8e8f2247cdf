//! Writes a finished [`Builder`].

use super::attributes::MAPPING_FLAGS;
use super::build::{AddProfilesError, Builder, Id, LineRow, LocationRow, MappingRow, Options};
use super::executables::{Executables, SEVERAL, position};
use super::format::{function, label, line, location, mapping, profile, sample, value_type};
use super::sets::ProfileSet;
use profcol_profile::proto::Writer;
use profcol_profile::{StringIdx, ValueType};

/// Which mapping to write first.
enum First {
    /// In order of appearance.
    Any,
    /// The given row.
    Row(u32),
    /// An extra one without locations, which names the executable of the samples.
    Named(StringIdx),
}

impl First {
    /// The id of a builder row in the file.
    fn id(&self, id: Id) -> Id {
        match self {
            Self::Row(row) if id == row + 1 => 1,
            Self::Row(row) if (1..=*row).contains(&id) => id + 1,
            Self::Named(_) if id > 0 => id + 1,
            _ => id,
        }
    }
}

/// Writes a single file with all `sets`.
pub fn write<'a>(
    sets: impl IntoIterator<Item = ProfileSet<'a>>,
    options: impl Into<Options>,
) -> Result<Vec<u8>, AddProfilesError> {
    let mut builder = Builder::new(options);
    for set in sets {
        builder.add(&set)?;
    }
    Ok(builder.finish())
}

impl Builder {
    /// The uncompressed file.
    pub fn finish(mut self) -> Vec<u8> {
        let first = self.first_mapping();
        let mut out = Writer::with_capacity(self.heap_size() / 2);
        for sample_type in &self.header.sample_types {
            write_type(&mut out, profile::SAMPLE_TYPE, *sample_type);
        }
        self.write_samples(&mut out);
        self.write_mappings(&mut out, &first);
        self.write_locations(&mut out, &first);
        self.write_functions(&mut out);
        for text in self.string_table().iter() {
            out.bytes_always(profile::STRING, text.as_bytes());
        }
        self.write_header(&mut out);
        out.into_vec()
    }

    fn write_samples(&self, out: &mut Writer) {
        let types = self.header.sample_types.len().max(1);
        let rows = self.samples.rows().iter();
        for (row, values) in rows.zip(self.values.chunks_exact(types)) {
            let stack = self.stacks.get(row.stack);
            let labels = self.label_sets.get(row.labels);
            let expected = 2 * (stack.len() + values.len()) + 8 * labels.len();
            out.nested(profile::SAMPLE, expected, |out| {
                out.packed(sample::LOCATIONS, stack.iter().map(|id| u64::from(*id)));
                let values = values.iter().map(|value| value.cast_unsigned());
                out.packed(sample::VALUES, values);
                for row in labels {
                    out.nested(sample::LABEL, 8, |out| {
                        write_string(out, label::KEY, row.key);
                        write_string(out, label::TEXT, row.text);
                        out.int(label::NUMBER, row.number);
                        write_string(out, label::UNIT, row.unit);
                    });
                }
            });
        }
    }

    fn first_mapping(&mut self) -> First {
        let strings = self.string_table();
        let rows = self.mappings.rows().iter();
        let filenames = rows.map(|row| strings.get(row.filename));
        let named = match &self.executables {
            Executables::None | Executables::One(None) => return First::Any,
            Executables::One(Some(executable)) => match position(executable, filenames) {
                Some(row) => return First::Row(row as u32),
                None => executable,
            },
            Executables::Several => SEVERAL,
        };
        First::Named(self.strings.string(named))
    }

    fn write_mappings(&self, out: &mut Writer, first: &First) {
        if let First::Named(filename) = *first {
            out.nested(profile::MAPPING, 4, |out| {
                out.uint(mapping::ID, 1);
                write_string(out, mapping::FILENAME, filename);
            });
        }
        let seen = self.flags_of_locations();
        let mut rows: Vec<(u32, (&MappingRow, _))> = (1..)
            .zip(self.mappings.rows().iter().zip(seen))
            .map(|(id, row)| (first.id(id), row))
            .collect();
        rows.sort_unstable_by_key(|(id, _)| *id);
        for (id, (row, seen)) in rows {
            out.nested(profile::MAPPING, 40, |out| {
                out.uint(mapping::ID, id.into());
                out.uint(mapping::MEMORY_START, row.memory_start);
                out.uint(mapping::MEMORY_LIMIT, row.memory_limit);
                out.uint(mapping::FILE_OFFSET, row.file_offset);
                write_string(out, mapping::FILENAME, row.filename);
                write_string(out, mapping::BUILD_ID, row.build_id);
                let tags = [
                    mapping::HAS_FUNCTIONS,
                    mapping::HAS_FILENAMES,
                    mapping::HAS_LINE_NUMBERS,
                    mapping::HAS_INLINE_FRAMES,
                ];
                for ((tag, flag), seen) in tags.into_iter().zip(row.flags).zip(seen) {
                    out.uint(tag, u64::from(flag.unwrap_or(seen)));
                }
            });
        }
    }

    /// The flags that each mapping's locations imply. One named location is enough: for a mapping without functions,
    /// `pprof` symbolizes it again from the file at its path, overwrites the existing names and omits generic and
    /// template arguments.
    fn flags_of_locations(&self) -> Vec<[bool; MAPPING_FLAGS.len()]> {
        let mut flags = vec![[false; MAPPING_FLAGS.len()]; self.mappings.len()];
        for row in self.locations.rows() {
            let Some(mapping) = row.mapping.checked_sub(1) else {
                continue;
            };
            let lines = self.lines.get(row.lines);
            let first = lines.first();
            let function =
                first.and_then(|line| self.functions.rows().get(line.function as usize - 1));
            let [functions, filenames, line_numbers, inline_frames] = &mut flags[mapping as usize];
            *functions |= function.is_some_and(|function| function.name.is_set());
            *filenames |= function.is_some_and(|function| function.filename.is_set());
            *line_numbers |= first.is_some_and(|line| line.line != 0);
            *inline_frames |= lines.len() > 1;
        }
        flags
    }

    fn write_locations(&self, out: &mut Writer, first: &First) {
        for (id, row) in (1..).zip(self.locations.rows()) {
            let LocationRow {
                mapping,
                address,
                lines,
                is_folded,
            } = *row;
            let lines = self.lines.get(lines);
            out.nested(profile::LOCATION, 12 + 12 * lines.len(), |out| {
                out.uint(location::ID, id);
                out.uint(location::MAPPING, u64::from(first.id(mapping)));
                out.uint(location::ADDRESS, address);
                for LineRow {
                    function,
                    line: number,
                    column,
                } in lines
                {
                    out.nested(location::LINE, 8, |out| {
                        out.uint(line::FUNCTION, u64::from(*function));
                        out.int(line::LINE, *number);
                        out.int(line::COLUMN, *column);
                    });
                }
                out.uint(location::IS_FOLDED, u64::from(is_folded));
            });
        }
    }

    fn write_functions(&self, out: &mut Writer) {
        for (id, row) in (1..).zip(self.functions.rows()) {
            out.nested(profile::FUNCTION, 16, |out| {
                out.uint(function::ID, id);
                write_string(out, function::NAME, row.name);
                write_string(out, function::SYSTEM_NAME, row.system_name);
                write_string(out, function::FILENAME, row.filename);
                out.int(function::START_LINE, row.start_line);
            });
        }
    }

    fn write_header(&self, out: &mut Writer) {
        let header = &self.header;
        let (time, duration) = match header.start {
            Some(start) => (start, header.end.saturating_sub(start)),
            None => (0, header.duration),
        };
        write_string(out, profile::DROP_FRAMES, header.drop_frames);
        write_string(out, profile::KEEP_FRAMES, header.keep_frames);
        out.uint(profile::TIME, time.min(i64::MAX as u64));
        out.uint(profile::DURATION, duration.min(i64::MAX as u64));
        if let Some(period_type) = header.period_type {
            write_type(out, profile::PERIOD_TYPE, period_type);
        }
        out.int(profile::PERIOD, header.period);
        let comments = header.comments.rows().iter();
        out.packed(profile::COMMENTS, comments.map(|row| u64::from(row.get())));
        write_string(
            out,
            profile::DEFAULT_SAMPLE_TYPE,
            header.default_sample_type,
        );
        write_string(out, profile::DOC_URL, header.doc_url);
    }
}

fn write_type(out: &mut Writer, tag: u32, row: ValueType) {
    out.nested(tag, 4, |out| {
        write_string(out, value_type::KIND, row.kind);
        write_string(out, value_type::UNIT, row.unit);
    });
}

fn write_string(out: &mut Writer, tag: u32, row: StringIdx) {
    out.uint(tag, u64::from(row.get()));
}
