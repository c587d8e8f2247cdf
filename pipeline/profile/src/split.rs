//! Splits a batch into pieces of bounded size, within profiles if needed.
//!
//! The batch is garbage-collected first, so that distinct rows stay distinct in every piece. Then samples are added in
//! order, each selecting the rows it uses; a sample that would exceed the bound starts the next piece. Work is
//! proportional to the size of the pieces, not to pieces times tables.
//!
//! For a bound in bytes each row counts with its length in the batch. It is not longer in the piece: rows keep their
//! order, so indices can only become smaller.
//!
//! A profile is split only if it does not fit into one piece. It then loses its id and its original payload, which
//! describe the whole.

use std::ops::Range;
use std::sync::Arc;

use crate::gc::gc;
use crate::select::Selection;
use crate::wire::{RowLengths, encode};
use crate::{Dictionary, Model, Profile, ResourceProfiles, SampleRef, ScopeProfiles};

/// Maximum size of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    Samples(usize),
    /// Encoded size in OTLP protobuf.
    Bytes(usize),
}

#[derive(Debug, Default)]
pub struct Pieces<Piece = Model> {
    /// In sample order.
    pub pieces: Vec<Piece>,
    /// Samples that exceed the bound on their own.
    pub oversize: Option<Piece>,
}

/// Splits `model` into pieces of at most `bound`. A bound of 0 samples means 1. Resources and scopes without profiles
/// are dropped.
pub fn split(model: &Model, bound: Bound) -> Pieces {
    let model = gc(model);
    let mut splitter = Splitter::new(&model, bound);
    for (resource, row) in model.resources.iter().enumerate() {
        for (scope, row) in row.scopes.iter().enumerate() {
            for (profile, row) in row.profiles.iter().enumerate() {
                splitter.profile([resource, scope, profile], row);
            }
        }
    }
    splitter.finish()
}

/// Resource, scope and profile, by position.
type Position = [usize; 3];

struct Splitter<'a> {
    model: &'a Model,
    bound: Bound,
    selection: Selection,
    costs: Costs,
    /// Size of the open piece.
    size: usize,
    parts: Vec<Part>,
    oversize: Vec<Part>,
    pieces: Vec<Model>,
}

/// A profile or some of its samples.
#[derive(Clone)]
struct Part {
    position: Position,
    rows: Range<usize>,
    /// Not split, so that it keeps id and original payload.
    whole: bool,
}

/// Number of selected rows per table, for undo.
struct Mark([usize; 7]);

impl<'a> Splitter<'a> {
    fn new(model: &'a Model, bound: Bound) -> Self {
        let costs = match bound {
            Bound::Samples(_) => Costs::Samples,
            Bound::Bytes(_) => Costs::Bytes(Box::new(RowLengths::of(&model.dictionary))),
        };
        Self {
            model,
            bound,
            selection: Selection::of(&model.dictionary),
            size: costs.of_nothing(),
            costs,
            parts: Vec::new(),
            oversize: Vec::new(),
            pieces: Vec::new(),
        }
    }

    fn limit(&self) -> usize {
        match self.bound {
            Bound::Samples(samples) => samples.max(1),
            Bound::Bytes(bytes) => bytes,
        }
    }

    fn profile(&mut self, position: Position, profile: &Profile) {
        let part = |rows, whole| Part {
            position,
            rows,
            whole,
        };
        let samples = profile.samples.len();
        if self.take(&part(0..samples, true)) {
            return;
        }
        if samples == 0 {
            append(&mut self.oversize, part(0..0, true));
        }
        for row in 0..samples {
            let sample = part(row..row + 1, false);
            if !self.take(&sample) {
                self.take_alone(sample);
            }
        }
    }

    /// Adds the part to the open piece or, if that is full, to a new one.
    fn take(&mut self, part: &Part) -> bool {
        if self.try_take(part) {
            return true;
        }
        if self.parts.is_empty() {
            return false;
        }
        self.close();
        self.try_take(part)
    }

    /// Adds a sample whose estimate exceeds the bound, if its actual size does not.
    fn take_alone(&mut self, sample: Part) {
        self.close();
        let piece = self.build(std::slice::from_ref(&sample));
        if matches!(self.bound, Bound::Bytes(limit) if encode(&piece).len() > limit) {
            append(&mut self.oversize, sample);
        } else {
            self.pieces.push(piece);
        }
    }

    /// Adds the part if it fits the open piece, else leaves the piece unchanged.
    fn try_take(&mut self, part: &Part) -> bool {
        let before = self.mark();
        let last = self.parts.last().map(|part| part.position);
        let dictionary = &*self.model.dictionary;
        let profile = self.profile_at(part.position);
        let mut size = self.size;
        let mut selected = self.mark();
        if last != Some(part.position) {
            self.selection.profile_head(dictionary, profile);
            size += self.head_cost(last, part);
        }
        for row in part.rows.clone() {
            let Some(sample) = profile.samples.get(row) else {
                break;
            };
            self.selection.sample(dictionary, sample);
            size += self.costs.of_sample(sample);
            size += self.costs.of_rows_since(&self.selection, &selected);
            selected = self.mark();
            if size > self.limit() {
                break;
            }
        }
        size += self.costs.of_rows_since(&self.selection, &selected);
        if size > self.limit() {
            self.undo_to(before);
            return false;
        }
        self.size = size;
        append(&mut self.parts, part.clone());
        true
    }

    /// Cost of a profile without samples, including a new scope and resource.
    fn head_cost(&mut self, last: Option<Position>, part: &Part) -> usize {
        let position = part.position;
        let [resource, scope, profile] = position;
        let row = &self.model.resources[resource];
        let mut cost = 0;
        if last.is_none_or(|last| last[0] != resource) {
            cost += self.costs.of_resource(row);
        }
        if last.is_none_or(|last| last[..2] != position[..2]) {
            cost += self.costs.of_scope(&row.scopes[scope]);
        }
        let profile = &row.scopes[scope].profiles[profile];
        cost + self.costs.of_profile(profile, part.whole)
    }

    fn mark(&self) -> Mark {
        let selection = &self.selection;
        Mark([
            selection.strings.used().len(),
            selection.functions.used().len(),
            selection.mappings.used().len(),
            selection.locations.used().len(),
            selection.stacks.used().len(),
            selection.attributes.used().len(),
            selection.links.used().len(),
        ])
    }

    fn undo_to(&mut self, mark: Mark) {
        let selection = &mut self.selection;
        let Mark(
            [
                strings,
                functions,
                mappings,
                locations,
                stacks,
                attributes,
                links,
            ],
        ) = mark;
        selection.strings.undo_to(strings);
        selection.functions.undo_to(functions);
        selection.mappings.undo_to(mappings);
        selection.locations.undo_to(locations);
        selection.stacks.undo_to(stacks);
        selection.attributes.undo_to(attributes);
        selection.links.undo_to(links);
    }

    fn close(&mut self) {
        let parts = std::mem::take(&mut self.parts);
        if !parts.is_empty() {
            let piece = self.copy_selected(&parts);
            self.pieces.push(piece);
        }
        self.size = self.costs.of_nothing();
    }

    fn finish(mut self) -> Pieces {
        self.close();
        let oversize = std::mem::take(&mut self.oversize);
        Pieces {
            oversize: (!oversize.is_empty()).then(|| self.build(&oversize)),
            pieces: self.pieces,
        }
    }

    /// Builds a piece of the parts, while none is open.
    fn build(&mut self, parts: &[Part]) -> Model {
        for part in parts {
            let profile = self.profile_at(part.position);
            self.selection.profile_head(&self.model.dictionary, profile);
            for row in part.rows.clone() {
                if let Some(sample) = profile.samples.get(row) {
                    self.selection.sample(&self.model.dictionary, sample);
                }
            }
        }
        self.copy_selected(parts)
    }

    fn profile_at(&self, [resource, scope, profile]: Position) -> &'a Profile {
        &self.model.resources[resource].scopes[scope].profiles[profile]
    }

    /// Builds a piece of parts whose rows are selected, and clears the selection.
    fn copy_selected(&mut self, parts: &[Part]) -> Model {
        let mut dictionary = Dictionary::default();
        self.selection.copy(&self.model.dictionary, &mut dictionary);
        let mut resources: Vec<ResourceProfiles> = Vec::new();
        let mut last: Option<Position> = None;
        for part in parts {
            let position = &part.position;
            let [resource, scope, _] = *position;
            let row = &self.model.resources[resource];
            if last.is_none_or(|last| last[0] != resource) {
                resources.push(ResourceProfiles {
                    resource: row.resource.clone(),
                    scopes: Vec::new(),
                    schema_url: row.schema_url.clone(),
                });
            }
            let scopes = &mut resources.last_mut().expect("just pushed").scopes;
            if last.is_none_or(|last| last[..2] != position[..2]) {
                let row = &row.scopes[scope];
                scopes.push(ScopeProfiles {
                    scope: row.scope.clone(),
                    profiles: Vec::new(),
                    schema_url: row.schema_url.clone(),
                });
            }
            let profiles = &mut scopes.last_mut().expect("just pushed").profiles;
            profiles.push(self.part_of_profile(part));
            last = Some(*position);
        }
        self.selection.clear();
        Model {
            dictionary: Arc::new(dictionary),
            resources,
        }
    }

    fn part_of_profile(&self, part: &Part) -> Arc<Profile> {
        let profile = self.profile_at(part.position);
        let mut copy = self.selection.translated_head(profile);
        if !part.whole {
            copy.forget_whole();
        }
        copy.samples
            .extend_translated(&profile.samples, part.rows.clone(), &self.selection);
        Arc::new(copy)
    }
}

/// Joins a sample to the last part if it is its continuation.
fn append(parts: &mut Vec<Part>, part: Part) {
    match parts.last_mut() {
        Some(last) if last.position == part.position && last.rows.end == part.rows.start => {
            last.rows.end = part.rows.end;
        }
        _ => parts.push(part),
    }
}

/// Costs against the bound.
enum Costs {
    Samples,
    Bytes(Box<RowLengths>),
}

impl Costs {
    fn of_nothing(&self) -> usize {
        match self {
            Self::Samples => 0,
            Self::Bytes(lengths) => lengths.empty,
        }
    }

    fn of_sample(&mut self, sample: SampleRef<'_>) -> usize {
        match self {
            Self::Samples => 1,
            Self::Bytes(lengths) => lengths.sample(sample),
        }
    }

    fn of_resource(&mut self, row: &ResourceProfiles) -> usize {
        match self {
            Self::Samples => 0,
            Self::Bytes(lengths) => lengths.resource_head(row),
        }
    }

    fn of_scope(&mut self, row: &ScopeProfiles) -> usize {
        match self {
            Self::Samples => 0,
            Self::Bytes(lengths) => lengths.scope_head(row),
        }
    }

    fn of_profile(&mut self, profile: &Profile, whole: bool) -> usize {
        match self {
            Self::Samples => 0,
            Self::Bytes(lengths) => lengths.profile_head(profile, whole),
        }
    }

    fn of_rows_since(&self, selection: &Selection, mark: &Mark) -> usize {
        let Self::Bytes(lengths) = self else {
            return 0;
        };
        let Mark(
            [
                strings,
                functions,
                mappings,
                locations,
                stacks,
                attributes,
                links,
            ],
        ) = *mark;
        fn sum<T: ?Sized>(lengths: &[u32], rows: &[crate::Idx<T>]) -> usize {
            rows.iter().map(|row| lengths[row.row()] as usize).sum()
        }
        sum(&lengths.strings, &selection.strings.used()[strings..])
            + sum(&lengths.functions, &selection.functions.used()[functions..])
            + sum(&lengths.mappings, &selection.mappings.used()[mappings..])
            + sum(&lengths.locations, &selection.locations.used()[locations..])
            + sum(&lengths.stacks, &selection.stacks.used()[stacks..])
            + sum(
                &lengths.attributes,
                &selection.attributes.used()[attributes..],
            )
            + sum(&lengths.links, &selection.links.used()[links..])
    }
}
