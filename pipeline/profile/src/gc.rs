//! Garbage collection: rows that nothing refers to and rows that stand twice go; the others keep
//! their order.

use std::sync::Arc;

use crate::select::Selection;
use crate::{Interner, Model};

/// The same content with only the rows that it uses, each once. A model that is clean already
/// shares everything with the result.
pub fn gc(model: &Model) -> Model {
    let dictionary = &*model.dictionary;
    let mut selection = Selection::of(dictionary);
    for profile in model.profiles() {
        selection.profile(dictionary, profile);
    }
    let mut interner = Interner::new();
    interner.reserve_for(dictionary);
    selection.copy(dictionary, &mut interner);
    if interner.dictionary() == dictionary {
        return model.clone();
    }
    let mut resources = model.resources.clone();
    let scopes = resources.iter_mut().flat_map(|row| &mut row.scopes);
    for profile in scopes.flat_map(|scope| &mut scope.profiles) {
        *profile = selection.translated(profile, 0..profile.samples.len());
    }
    Model {
        dictionary: Arc::new(interner.finish()),
        resources,
    }
}
