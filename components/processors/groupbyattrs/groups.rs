//! Splits profiles by the values of the keys in their samples.

use std::collections::HashMap;
use std::sync::Arc;

use profcol_profile::{
    AttributeIdx, Dictionary, Profile, Resource, ResourceProfiles, Samples, ScopeProfiles,
};

use profcol_metadata::attributes::set;

/// Attributes that move, each with the index of its key.
type Moves = Vec<(usize, AttributeIdx)>;

/// A list of attributes, split into those that move and those that stay.
#[derive(Clone, Default)]
struct SplitAttributes {
    moves: Moves,
    stays: Vec<AttributeIdx>,
}

pub(super) struct Groups<'a> {
    keys: &'a [String],
    dictionary: &'a Dictionary,
    lists: HashMap<Vec<AttributeIdx>, SplitAttributes>,
    pub moved_any: bool,
}

impl<'a> Groups<'a> {
    pub fn new(keys: &'a [String], dictionary: &'a Dictionary) -> Self {
        Self {
            keys,
            dictionary,
            lists: HashMap::new(),
            moved_any: false,
        }
    }

    /// Calls `add` for each profile or part of one, with its new resource.
    pub fn of_resource(
        &mut self,
        row: &ResourceProfiles,
        mut add: impl FnMut(Option<Arc<Resource>>, Option<&ScopeProfiles>, Option<Arc<Profile>>),
    ) {
        if row.scopes.is_empty() {
            add(row.resource.clone(), None, None);
        }
        for scope in &row.scopes {
            if scope.profiles.is_empty() {
                add(row.resource.clone(), Some(scope), None);
            }
            for profile in &scope.profiles {
                for (moves, part) in self.parts(profile) {
                    let resource = self.with(row.resource.as_ref(), &moves);
                    add(resource, Some(scope), Some(part));
                }
            }
        }
    }

    /// Splits a profile by its samples' values of the keys. If profile and sample have the same key,
    /// the sample's value wins.
    fn parts(&mut self, profile: &Arc<Profile>) -> Vec<(Moves, Arc<Profile>)> {
        let of_profile = self.split(&profile.attributes).clone();
        let mut groups: Vec<(Moves, Samples)> = Vec::new();
        let mut indices: HashMap<Moves, usize> = HashMap::new();
        for mut sample in profile.samples.iter() {
            let split = self.split(sample.attributes);
            sample.attributes = &split.stays;
            let index = match indices.get(&split.moves) {
                Some(&index) => index,
                None => {
                    indices.insert(split.moves.clone(), groups.len());
                    groups.push((split.moves.clone(), Samples::default()));
                    groups.len() - 1
                }
            };
            if let Some((_, samples)) = groups.get_mut(index) {
                samples.push(sample);
            }
        }
        if groups.is_empty() {
            groups.push(Default::default());
        }
        let moves_none = of_profile.moves.is_empty() && groups.iter().all(|it| it.0.is_empty());
        if moves_none {
            return vec![(Vec::new(), Arc::clone(profile))];
        }
        self.moved_any = true;
        let is_whole = groups.len() == 1;
        let parts = groups.into_iter().map(|(mut moves, samples)| {
            for &(key, attribute) in &of_profile.moves {
                if moves.iter().all(|&(other, _)| other != key) {
                    moves.push((key, attribute));
                }
            }
            moves.sort_by_key(|&(key, _)| key);
            let part = Profile {
                samples,
                attributes: of_profile.stays.clone(),
                profile_id: profile.profile_id.filter(|_| is_whole),
                original_payload: None,
                ..**profile
            };
            (moves, Arc::new(part))
        });
        parts.collect()
    }

    fn split(&mut self, list: &[AttributeIdx]) -> &SplitAttributes {
        if !self.lists.contains_key(list) {
            let mut split = SplitAttributes::default();
            for &index in list {
                match self.key_of(index) {
                    Some(key) => split.moves.push((key, index)),
                    None => split.stays.push(index),
                }
            }
            split.moves.sort_by_key(|&(key, _)| key);
            self.lists.insert(list.to_vec(), split);
        }
        &self.lists[list]
    }

    fn key_of(&self, index: AttributeIdx) -> Option<usize> {
        let row = self.dictionary.attributes.get(index)?;
        let key = self.dictionary.strings.get(row.key);
        self.keys.iter().position(|it| it == key)
    }

    fn with(
        &self,
        resource: Option<&Arc<Resource>>,
        moves: &[(usize, AttributeIdx)],
    ) -> Option<Arc<Resource>> {
        if moves.is_empty() {
            return resource.cloned();
        }
        let mut resource = resource.map_or_else(Resource::default, |it| Resource::clone(it));
        for &(key, index) in moves {
            let (Some(key), Some(row)) =
                (self.keys.get(key), self.dictionary.attributes.get(index))
            else {
                continue;
            };
            set(&mut resource.attributes, key.as_str(), row.value.clone());
        }
        Some(Arc::new(resource))
    }
}
