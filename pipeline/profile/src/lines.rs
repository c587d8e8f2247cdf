//! Adds lines to locations that have none.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::{
    Dictionary, Function, FunctionIdx, Idx, Line, LocationIdx, LocationRef, Locations, Model,
    StringIdx,
};

/// A line of a location, with its function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamedLine<'a> {
    pub name: &'a str,
    /// The linkage name.
    pub system_name: &'a str,
    pub filename: &'a str,
    pub start_line: i64,
    pub line: i64,
    pub column: i64,
}

impl Model {
    /// Sets the lines of some locations, innermost first. Row numbers do not change, so stacks and samples stay valid.
    pub fn set_lines<'a, L>(&mut self, mut lines_of: impl FnMut(LocationIdx) -> Option<L>)
    where
        L: IntoIterator<Item = NamedLine<'a>>,
    {
        let mut rows = Rows::of(&self.dictionary);
        let dictionary = Arc::make_mut(&mut self.dictionary);
        let old = std::mem::take(&mut dictionary.locations);
        let mut locations = Locations::default();
        locations.reserve(old.rows().len());
        let mut lines: Vec<Line> = Vec::new();
        for (number, row) in old.iter().enumerate().skip(1) {
            let named = lines_of(Idx::new(number as u32));
            let named = named.map(|named| {
                lines.clear();
                lines.extend(named.into_iter().map(|line| rows.line(dictionary, line)));
                &lines[..]
            });
            locations.push(LocationRef {
                lines: named.unwrap_or(row.lines),
                ..row
            });
        }
        dictionary.locations = locations;
        self.forget_originals();
    }

    /// Drops original payloads, which no longer match.
    fn forget_originals(&mut self) {
        let scopes = self.resources.iter_mut().flat_map(|it| &mut it.scopes);
        for profile in scopes.flat_map(|scope| &mut scope.profiles) {
            if profile.original_payload.is_some() {
                Arc::make_mut(profile).original_payload = None;
            }
        }
    }
}

/// Existing rows.
struct Rows<'a> {
    strings: HashMap<Box<str>, StringIdx, RandomState>,
    functions: HashMap<Function, FunctionIdx, RandomState>,
    /// Strings by pointer: the same few are passed repeatedly.
    by_pointer: HashMap<*const str, StringIdx, RandomState>,
    _texts: PhantomData<&'a str>,
}

impl<'a> Rows<'a> {
    fn of(dictionary: &Dictionary) -> Self {
        let strings = dictionary.strings.iter().enumerate();
        let functions = dictionary.functions.rows().iter().enumerate();
        Self {
            strings: strings
                .map(|(row, text)| (text.into(), Idx::new(row as u32)))
                .collect(),
            functions: functions
                .map(|(row, function)| (*function, Idx::new(row as u32)))
                .collect(),
            by_pointer: HashMap::default(),
            _texts: PhantomData,
        }
    }

    fn string(&mut self, dictionary: &mut Dictionary, text: &'a str) -> StringIdx {
        if let Some(&known) = self.by_pointer.get(&ptr::from_ref(text)) {
            return known;
        }
        let known = self.strings.get(text).copied();
        let row = known.unwrap_or_else(|| {
            let row = dictionary.strings.push(text);
            self.strings.insert(text.into(), row);
            row
        });
        self.by_pointer.insert(text, row);
        row
    }

    fn line(&mut self, dictionary: &mut Dictionary, named: NamedLine<'a>) -> Line {
        let function = Function {
            name: self.string(dictionary, named.name),
            system_name: self.string(dictionary, named.system_name),
            filename: self.string(dictionary, named.filename),
            start_line: named.start_line,
        };
        let known = self.functions.entry(function);
        Line {
            function: *known.or_insert_with(|| dictionary.functions.push(function)),
            line: named.line,
            column: named.column,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interner, Location};

    #[test]
    fn rows_keep_their_numbers_without_duplicates() {
        let mut rows = Interner::new();
        let main = rows.string("main");
        let function = rows.function(Function {
            name: main,
            ..Function::default()
        });
        let named = [Line {
            function,
            line: 3,
            column: 0,
        }];
        let location = |address, lines| LocationRef {
            location: Location {
                address,
                ..Location::default()
            },
            lines,
            attributes: &[],
        };
        let first = rows.location(location(1, &[]));
        let second = rows.location(location(2, &named));
        let mut model = Model {
            dictionary: Arc::new(rows.finish()),
            ..Model::default()
        };
        let before = Arc::clone(&model.dictionary);
        let inner = NamedLine {
            name: "inner",
            line: 9,
            ..NamedLine::default()
        };
        let outer = NamedLine {
            name: "main",
            ..NamedLine::default()
        };
        model.set_lines(|location| (location == first).then_some([inner, outer]));

        let after = &model.dictionary;
        assert_eq!(after.locations.rows(), before.locations.rows());
        assert_eq!(after.locations.get(second).lines, named);
        let [inner, outer] = after.locations.get(first).lines else {
            panic!("two lines");
        };
        assert_eq!((inner.line, outer.function), (9, function));
        let inner = after.functions.get(inner.function).unwrap();
        assert_eq!(after.strings.get(inner.name), "inner");
        assert_eq!((after.functions.rows().len(), after.strings.len()), (3, 3));
    }
}
