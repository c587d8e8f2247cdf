//! Frames and lines as rows of either layout.

use std::borrow::Cow;

use profcol_profile::{
    AttributeIdx, AttributeRef, Function, Idx, Interner, Line, Location, LocationIdx, LocationRef,
    Mapping, MappingRef, Value,
};

use crate::frames::GNU_BUILD_ID;

/// A frame as stored in a record.
pub struct FrameRow<'a> {
    pub kind: Cow<'a, str>,
    pub address: u64,
    pub start: u64,
    pub limit: u64,
    pub offset: u64,
    pub file: Cow<'a, str>,
    pub build_id: Cow<'a, str>,
}

/// A line as stored in a record.
pub struct LineRow<'a> {
    pub name: Cow<'a, str>,
    pub system_name: Cow<'a, str>,
    pub file: Cow<'a, str>,
    pub start_line: i64,
    pub line: i64,
    pub column: i64,
}

impl FrameRow<'_> {
    /// Interns it in a dictionary.
    pub fn intern<'a>(
        &self,
        rows: &mut Interner,
        lines: impl Iterator<Item = LineRow<'a>>,
    ) -> LocationIdx {
        let lines: Vec<Line> = lines.map(|line| line.intern(rows)).collect();
        let id = (!self.build_id.is_empty()).then(|| {
            let key = build_id_key(&self.build_id);
            attribute(rows, key, &Value::from(&*self.build_id))
        });
        // An invalid range carries no information, and OTLP rejects it.
        let is_range = self.start < self.limit;
        let mapping = Mapping {
            memory_start: if is_range { self.start } else { 0 },
            memory_limit: if is_range { self.limit } else { 0 },
            file_offset: self.offset,
            filename: rows.string(&self.file),
        };
        let mapping = rows.mapping(MappingRef {
            mapping,
            attributes: id.as_slice(),
        });
        let kind = (!self.kind.is_empty())
            .then(|| attribute(rows, "profile.frame.type", &Value::from(&*self.kind)));
        rows.location(LocationRef {
            location: Location {
                mapping,
                address: self.address,
            },
            lines: &lines,
            attributes: kind.as_slice(),
        })
    }
}

impl LineRow<'_> {
    fn intern(&self, rows: &mut Interner) -> Line {
        // OTLP rejects a function with nothing but a line.
        let names = [&self.name, &self.system_name, &self.file];
        let has_name = names.iter().any(|name| !name.is_empty());
        let function = Function {
            name: rows.string(&self.name),
            system_name: rows.string(&self.system_name),
            filename: rows.string(&self.file),
            start_line: if has_name { self.start_line } else { 0 },
        };
        Line {
            function: rows.function(function),
            line: self.line,
            column: self.column,
        }
    }
}

/// Parca does not state the kind of a build id. A file hash has 32 digits.
fn build_id_key(id: &str) -> &'static str {
    let is_hex = id.bytes().all(|byte| byte.is_ascii_hexdigit());
    match id.len() {
        32 if is_hex => "process.executable.build_id.htlhash",
        _ if is_hex => GNU_BUILD_ID,
        _ => "process.executable.build_id.go",
    }
}

pub fn attribute(rows: &mut Interner, key: &str, value: &Value) -> AttributeIdx {
    let key = rows.string(key);
    rows.attribute(AttributeRef {
        key,
        value,
        unit: Idx::UNSET,
    })
}
