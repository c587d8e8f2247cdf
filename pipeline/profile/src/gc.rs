//! Garbage collection: removes unreferenced and duplicate rows; the others keep their order.

use std::sync::Arc;

use crate::select::Selection;
use crate::{Dictionary, Interner, Model};

/// Takes parts of a batch, each with only the rows that it uses. Rows that the batch has twice stay.
pub(crate) struct Parts<'a> {
    model: &'a Model,
    selection: Selection,
}

impl<'a> Parts<'a> {
    pub fn of(model: &'a Model) -> Self {
        Self {
            selection: Selection::of(&model.dictionary),
            model,
        }
    }

    /// The resources at these positions; cost is proportional to the part.
    pub fn part(&mut self, positions: &[usize]) -> Model {
        let Self { model, selection } = self;
        let resources = positions.iter().filter_map(|at| model.resources.get(*at));
        let part = model.with_resources(resources.cloned().collect());
        selection.clear();
        for profile in part.profiles() {
            selection.profile(&part.dictionary, profile);
        }
        let mut used = Dictionary::default();
        selection.reserve_in(&mut used, &part.dictionary);
        selection.copy(&part.dictionary, &mut used);
        moved(&part, selection, used)
    }
}

/// The same content with only referenced rows, each once. A clean model is shared with the result.
pub fn gc(model: &Model) -> Model {
    let dictionary = &*model.dictionary;
    let mut selection = selection_of(model);
    let mut interner = Interner::new();
    interner.reserve_for_selection(dictionary, &selection);
    selection.copy(dictionary, &mut interner);
    if interner.dictionary() == dictionary {
        return model.clone();
    }
    moved(model, &selection, interner.finish())
}

/// The same content with only referenced rows; assumes there are no duplicates.
pub(crate) fn without_unused(model: Model) -> Model {
    let mut selection = selection_of(&model);
    if selection.is_everything() {
        return model;
    }
    let mut used = Dictionary::default();
    selection.copy(&model.dictionary, &mut used);
    moved(&model, &selection, used)
}

fn selection_of(model: &Model) -> Selection {
    let mut selection = Selection::of(&model.dictionary);
    for profile in model.profiles() {
        selection.profile(&model.dictionary, profile);
    }
    selection
}

/// The model translated to the dictionary its rows were copied to.
fn moved(model: &Model, selection: &Selection, dictionary: Dictionary) -> Model {
    let mut resources = model.resources.clone();
    let scopes = resources.iter_mut().flat_map(|row| &mut row.scopes);
    for profile in scopes.flat_map(|scope| &mut scope.profiles) {
        *profile = selection.translated(profile, 0..profile.samples.len());
    }
    Model {
        dictionary: Arc::new(dictionary),
        resources,
    }
}
