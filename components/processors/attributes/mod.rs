//! Changes attributes of samples, profiles or resources: adds, renames, hashes, removes.
//!
//! Many samples share a list of attributes: each list is changed once per batch.

mod config;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Consumer, Factory, Metadata, Processor, Stability,
};
use profcol_profile::{Model, Profile, Profiles, ResourceProfiles, Samples, gc};

pub use self::config::{AttributesConfig, Context};
use crate::shared::actions::Changes;
use crate::shared::lists::Lists;
use crate::shared::rules::{Decision, Open, PartialMatch, Rules};

pub struct AttributesProcessor {
    changes: Changes,
    context: Context,
    rules: Rules,
}

impl Factory for AttributesProcessor {
    const NAME: &'static str = "attributes";
    const STABILITY: Stability = Stability::Alpha;
    type Config = AttributesConfig;
    type Component = dyn Processor;

    fn build(
        config: &AttributesConfig,
        _: &BuildContext,
    ) -> Result<Box<dyn Processor>, BuildError> {
        Ok(Box::new(AttributesProcessor::new(config)?))
    }
}

impl AttributesProcessor {
    fn new(config: &AttributesConfig) -> Result<Self, BuildError> {
        Ok(Self {
            changes: Changes::new(&config.actions)?,
            context: config.context,
            rules: Rules::new(&config.include, &config.exclude)?,
        })
    }

    fn change_resources(&self, profiles: &mut Profiles, metadata: &Metadata) {
        profiles.update_resources(|resource| {
            let attributes = &mut resource.attributes;
            let is_meant = self.rules.of_resource(attributes).resource_verdict() == Decision::Keep;
            is_meant && self.changes.apply(attributes, metadata)
        });
    }

    /// The profiles with changed attribute lists; `None` if nothing changes.
    fn changed(&self, profiles: &Profiles, metadata: &Metadata) -> Option<Model> {
        let model = profiles.model();
        let mut edit = Edit {
            context: self.context,
            met: self.rules.met_in(&model.dictionary),
            lists: Lists::new(&model.dictionary, |attributes| {
                self.changes.apply(attributes, metadata)
            }),
        };
        let resources = model.resources.iter();
        let resources = resources
            .map(|row| edit.resource(row, &self.rules))
            .collect();
        let dictionary = edit.lists.finish()?;
        let dictionary = Arc::new(dictionary);
        Some(gc(&Model {
            dictionary,
            resources,
        }))
    }
}

#[async_trait]
impl Processor for AttributesProcessor {
    async fn process(&self, mut batch: Batch, next: &dyn Consumer) -> Answer {
        if self.context == Context::Resource {
            self.change_resources(&mut batch.profiles, &batch.metadata);
        } else if !self.rules.decide_all(&batch.profiles, Decision::Drop)
            && let Some(changed) = self.changed(&batch.profiles, &batch.metadata)
        {
            batch = batch.with_profiles(Profiles::from_model(changed));
        }
        next.consume(batch).await
    }
}

/// The state of changing one batch.
struct Edit<'a, F> {
    context: Context,
    met: PartialMatch,
    lists: Lists<'a, F>,
}

impl<F: FnMut(&mut profcol_profile::Attributes) -> bool> Edit<'_, F> {
    fn resource(&mut self, row: &ResourceProfiles, rules: &Rules) -> ResourceProfiles {
        let none = Vec::new();
        let attributes = row.resource.as_ref().map_or(&none, |it| &it.attributes);
        let open = rules.of_resource(attributes);
        let mut row = row.clone();
        if open.resource_verdict() != Decision::Drop {
            let profiles = row.scopes.iter_mut().flat_map(|scope| &mut scope.profiles);
            for profile in profiles {
                self.profile(profile, &open);
            }
        }
        row
    }

    fn profile(&mut self, profile: &mut Arc<Profile>, open: &Open<'_>) {
        let open = open.of_profile(&profile.attributes, self.lists.rows.before);
        let verdict = open.profile_verdict();
        if verdict == Decision::Drop {
            return;
        }
        if self.context == Context::Profile {
            if let Some(changed) = self.lists.changed(&profile.attributes) {
                let profile = Arc::make_mut(profile);
                profile.attributes = changed.to_vec();
                profile.original_payload = None;
            }
            return;
        }
        let mut samples = Samples::default();
        let mut any = false;
        for mut sample in profile.samples.iter() {
            let is_meant = verdict == Decision::Keep || open.keeps(sample.attributes, &self.met);
            if is_meant && let Some(changed) = self.lists.changed(sample.attributes) {
                any = true;
                sample.attributes = changed;
            }
            samples.push(sample);
        }
        if any {
            let profile = Arc::make_mut(profile);
            profile.samples = samples;
            profile.original_payload = None;
        }
    }
}
