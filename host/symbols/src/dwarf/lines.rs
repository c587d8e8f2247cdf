//! Maps addresses to source files and lines.

use std::sync::Arc;

use gimli::{
    AttributeValue, ColumnType, DebugLine, DebugLineOffset, Dwarf, EndianSlice, Format,
    LineProgramHeader, LittleEndian, Unit,
};

use crate::search_hint::SearchHint;
use crate::view::View;

/// Rows per unit; the most are in programs with link-time optimization.
const MAX_ROWS: usize = 4 << 20;
/// Bytes of a unit's program: at less than eight per row, the row limit is reached first.
const MAX_PROGRAM: usize = 32 << 20;
/// Files per unit.
const MAX_FILES: u64 = 1 << 16;

#[derive(Default)]
pub struct Lines {
    /// Each row extends to the next.
    rows: Vec<Row>,
    hint: SearchHint,
    files: Vec<Arc<str>>,
}

#[derive(Clone, Copy)]
struct Row {
    address: u64,
    /// [`NOTHING`] at the end of a sequence.
    file: u32,
    line: u32,
    column: u32,
}

const NOTHING: u32 = u32::MAX;

#[derive(Clone, Debug, Default)]
pub struct SourcePosition {
    pub file: Arc<str>,
    pub line: u32,
    pub column: u32,
}

impl Lines {
    /// Reads as much of the unit's program as possible.
    pub fn read(dwarf: &Dwarf<View>, unit: &Unit<View>) -> Self {
        let mut lines = Self::default();
        if let Some(program) = &unit.line_program {
            let header = program.header();
            lines.files = files(dwarf, unit, header);
            // The program is read sequentially: as one piece this is much faster than in blocks.
            if let Some(bytes) = whole(dwarf, header) {
                let _damage = lines.gather(&bytes, header.address_size());
            }
        }
        lines.rows.shrink_to_fit();
        lines
    }

    fn gather(&mut self, program: &[u8], address_size: u8) -> gimli::Result<()> {
        let program = DebugLine::from(EndianSlice::new(program, LittleEndian));
        let program = program.program(DebugLineOffset(0), address_size, None, None)?;
        let mut rows = program.rows();
        // Sequences are unordered and include those of functions dropped by the linker.
        let mut sequences: Vec<(u64, u64, std::ops::Range<usize>)> = Vec::new();
        let mut all: Vec<Row> = Vec::new();
        let mut start = 0;
        while let Some((_, row)) = rows.next_row()? {
            let address = row.address();
            if row.end_sequence() {
                if let Some(first) = all.get(start)
                    && first.address > 0
                    && first.address < address
                {
                    sequences.push((first.address, address, start..all.len()));
                } else {
                    all.truncate(start);
                }
                start = all.len();
                continue;
            }
            let new = Row {
                address,
                file: clamp(row.file_index()).min(NOTHING - 1),
                line: row.line().map_or(0, |line| clamp(line.get())),
                column: match row.column() {
                    ColumnType::LeftEdge => 0,
                    ColumnType::Column(column) => clamp(column.get()),
                },
            };
            match all.get_mut(start..).and_then(<[Row]>::last_mut) {
                // The last row at an address wins.
                Some(last) if last.address == address => *last = new,
                _ => all.push(new),
            }
            if all.len() > MAX_ROWS {
                return Ok(());
            }
        }
        sequences.sort_unstable_by_key(|(begin, end, _)| (*begin, *end));
        self.rows.reserve(all.len() + sequences.len());
        let mut covered = 0;
        for (begin, end, rows) in sequences {
            if begin < covered {
                continue;
            }
            covered = end;
            self.rows.extend(all.get(rows).unwrap_or_default());
            self.rows.push(Row {
                address: end,
                file: NOTHING,
                line: 0,
                column: 0,
            });
        }
        Ok(())
    }

    pub fn find(&self, address: u64) -> Option<SourcePosition> {
        // Another sequence may start where one ends.
        let after = self
            .hint
            .partition_point(&self.rows, |row| row.address <= address);
        let row = self.rows.get(after.checked_sub(1)?)?;
        (row.file != NOTHING).then(|| SourcePosition {
            file: self
                .files
                .get(row.file as usize)
                .cloned()
                .unwrap_or_default(),
            line: row.line,
            column: row.column,
        })
    }

    /// The path of a file by its number in the entries.
    pub fn file(&self, number: u64) -> Arc<str> {
        let index = usize::try_from(number).ok();
        index
            .and_then(|it| self.files.get(it))
            .cloned()
            .unwrap_or_default()
    }

    pub fn weight(&self) -> usize {
        let files: usize = self.files.iter().map(|file| file.len() + 32).sum();
        self.rows.capacity() * size_of::<Row>() + files
    }
}

/// The program with its header, as stored in the file.
fn whole(dwarf: &Dwarf<View>, header: &LineProgramHeader<View>) -> Option<Vec<u8>> {
    let length = match header.format() {
        Format::Dwarf32 => 4,
        Format::Dwarf64 => 12,
    };
    let length = header.unit_length().checked_add(length)?;
    let section = gimli::Section::reader(&dwarf.debug_line);
    section.bytes(header.offset().0, length.min(MAX_PROGRAM))
}

fn clamp(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Indexed by file number: up to version 4 they start at 1, and 0 is the unit's own file.
fn files(
    dwarf: &Dwarf<View>,
    unit: &Unit<View>,
    header: &LineProgramHeader<View>,
) -> Vec<Arc<str>> {
    let text = |value: AttributeValue<View>| dwarf.attr_string(unit, value).ok()?.text();
    let base = unit
        .comp_dir
        .as_ref()
        .and_then(View::text)
        .unwrap_or_default();
    let directories: Vec<Option<String>> = (0..=MAX_FILES)
        .map_while(|number| {
            let directory = header.directory(number);
            // Up to version 4 directory 0 is the compilation directory, which is not in the table.
            if directory.is_none() && number > 0 {
                return None;
            }
            Some(directory.and_then(text))
        })
        .collect();
    let mut files = Vec::new();
    for number in 0..=MAX_FILES {
        let Some(file) = header.file(number) else {
            if number > 0 {
                break;
            }
            let own = unit.name.as_ref().and_then(View::text).unwrap_or_default();
            files.push(join(&base, "", &own).into());
            continue;
        };
        let directory = usize::try_from(file.directory_index()).ok();
        let directory = directory.and_then(|it| directories.get(it)?.as_deref());
        // The first entry repeats the compilation directory.
        let directory = directory.filter(|directory| *directory != base);
        let name = text(file.path_name()).unwrap_or_default();
        files.push(join(&base, directory.unwrap_or_default(), &name).into());
    }
    files
}

fn join(base: &str, directory: &str, name: &str) -> String {
    let mut path = String::new();
    for part in [base, directory, name] {
        if part.starts_with('/') {
            path.clear();
        }
        if !path.is_empty() && !path.ends_with('/') && !part.is_empty() {
            path.push('/');
        }
        path.push_str(part);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_are_joined() {
        assert_eq!(join("/src", "lib", "a.c"), "/src/lib/a.c");
        assert_eq!(join("/src/", "", "a.c"), "/src/a.c");
        assert_eq!(join("/src", "/usr/include", "a.h"), "/usr/include/a.h");
        assert_eq!(join("/src", "lib", "/a.c"), "/a.c");
        assert_eq!(join("", "", "a.c"), "a.c");
    }
}
