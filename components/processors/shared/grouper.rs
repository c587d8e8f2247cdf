//! Groups profiles by equal resource and scope.

use std::collections::HashMap;
use std::sync::Arc;

use profcol_profile::{Profile, Resource, ResourceProfiles, Scope, ScopeProfiles};

type ResourceKey = (Option<Arc<Resource>>, Arc<str>);
type ScopeKey = (usize, Option<Arc<Scope>>, Arc<str>);

/// Resources in order of first use, each with its scopes in order of first use.
#[derive(Default)]
pub(crate) struct Grouper {
    pub resources: Vec<ResourceProfiles>,
    indices: HashMap<ResourceKey, usize>,
    scopes: HashMap<ScopeKey, usize>,
}

impl Grouper {
    pub fn add(
        &mut self,
        row: &ResourceProfiles,
        resource: Option<Arc<Resource>>,
        scope: Option<&ScopeProfiles>,
        profile: Option<Arc<Profile>>,
    ) {
        let next = self.resources.len();
        let key = (resource.clone(), Arc::clone(&row.schema_url));
        let index = *self.indices.entry(key).or_insert(next);
        if index == next {
            self.resources.push(ResourceProfiles {
                resource,
                scopes: Vec::new(),
                schema_url: Arc::clone(&row.schema_url),
            });
        }
        let (Some(scope), Some(group)) = (scope, self.resources.get_mut(index)) else {
            return;
        };
        let next = group.scopes.len();
        let key = (index, scope.scope.clone(), Arc::clone(&scope.schema_url));
        let index = *self.scopes.entry(key).or_insert(next);
        if index == next {
            group.scopes.push(ScopeProfiles {
                scope: scope.scope.clone(),
                profiles: Vec::new(),
                schema_url: Arc::clone(&scope.schema_url),
            });
        }
        if let Some(group) = group.scopes.get_mut(index) {
            group.profiles.extend(profile);
        }
    }
}
