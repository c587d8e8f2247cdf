//! Setting lines later yields the same file as adding them at once.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::oracle::{Meaning, meaning};
use crate::{Builder, LabelSelection, UnnamedLocation, sets};
use profcol_profile::{Line, LocationIdx, LocationRef, Locations, Model, NamedLine};

/// The model with a distinct address for each location, and a copy without lines.
fn with_and_without_lines(model: &Model) -> [Model; 2] {
    [true, false].map(|has_lines| {
        let mut dictionary = (*model.dictionary).clone();
        let mut locations = Locations::default();
        for (number, mut row) in model.dictionary.locations.iter().enumerate().skip(1) {
            row.location.address = number as u64;
            let lines = if has_lines { row.lines } else { &[] };
            locations.push(LocationRef { lines, ..row });
        }
        dictionary.locations = locations;
        Model {
            dictionary: Arc::new(dictionary),
            resources: model.resources.clone(),
        }
    })
}

fn lines_of(model: &Model, location: LocationIdx) -> Vec<NamedLine<'_>> {
    let tables = &model.dictionary;
    let lines = tables.locations.get(location).lines;
    let lines = lines.iter().filter(|line| **line != Line::default());
    let named = lines.map(|line| {
        let function = tables.functions.get(line.function);
        let function = function.copied().unwrap_or_default();
        NamedLine {
            name: tables.strings.get(function.name),
            system_name: tables.strings.get(function.system_name),
            filename: tables.strings.get(function.filename),
            start_line: function.start_line,
            line: line.line,
            column: line.column,
        }
    });
    named.collect()
}

/// The file of the sets at `number` of these models, with the lines of `named` set at the end.
fn added(named: &Model, parts: &[&Model], number: usize) -> Meaning {
    let mut builder = Builder::new(LabelSelection::default());
    let mut unnamed: HashMap<UnnamedLocation, LocationIdx> = HashMap::new();
    for part in parts {
        let set = sets(part).nth(number).expect("all have the same sets");
        let mut note = |location, id| {
            unnamed.insert(id, location);
        };
        builder
            .add_with_unnamed(&set, &mut note)
            .expect("a single set");
    }
    builder.set_lines(|id| {
        let lines = lines_of(named, *unnamed.get(&id)?);
        (!lines.is_empty()).then_some(lines)
    });
    meaning(&builder.finish())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn setting_lines_later_yields_the_same_file(model in profcol_profile::testkit::models()) {
        let [named, bare] = with_and_without_lines(&model);
        for number in 0..sets(&named).count() {
            let once = added(&named, &[&named], number);
            prop_assert_eq!(&added(&named, &[&bare], number), &once);
            let twice = added(&named, &[&named, &named], number);
            prop_assert_eq!(&added(&named, &[&bare, &named], number), &twice);
            prop_assert_eq!(&added(&named, &[&named, &bare], number), &twice);
        }
    }
}
