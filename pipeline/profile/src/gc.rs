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
        select(selection, &part);
        only_selected(&part, selection)
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
    match selection.is_everything() {
        true => model,
        false => only_selected(&model, &mut selection),
    }
}

fn selection_of(model: &Model) -> Selection {
    let mut selection = Selection::of(&model.dictionary);
    select(&mut selection, model);
    selection
}

/// Selects the rows that a model uses.
fn select(selection: &mut Selection, model: &Model) {
    for profile in model.profiles() {
        selection.profile(&model.dictionary, profile);
    }
}

/// The model with the selected rows alone.
fn only_selected(model: &Model, selection: &mut Selection) -> Model {
    let mut used = Dictionary::default();
    selection.reserve_in(&mut used, &model.dictionary);
    selection.copy(&model.dictionary, &mut used);
    moved(model, selection, used)
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
