//! Moves attributes of samples and profiles to their resource, and merges equal resources.

mod config;
mod groups;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Consumer, Factory, Processor, Stability,
};
use profcol_profile::{Model, Profiles, gc};

pub use self::config::GroupByAttrsConfig;
use self::groups::Groups;
use crate::shared::grouper::Grouper;

pub struct GroupByAttrs {
    /// Unique, in the order in which they are added to resources.
    keys: Vec<String>,
}

impl Factory for GroupByAttrs {
    const NAME: &'static str = "groupbyattrs";
    const STABILITY: Stability = Stability::Alpha;
    type Config = GroupByAttrsConfig;
    type Component = dyn Processor;

    fn build(
        config: &GroupByAttrsConfig,
        _: &BuildContext,
    ) -> Result<Box<dyn Processor>, BuildError> {
        Ok(Box::new(GroupByAttrs::new(config)))
    }
}

impl GroupByAttrs {
    fn new(config: &GroupByAttrsConfig) -> Self {
        let mut keys: Vec<String> = Vec::new();
        for key in &config.keys {
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
        Self { keys }
    }

    /// `None` if already grouped.
    fn grouped(&self, profiles: &Profiles) -> Option<Model> {
        let model = profiles.model();
        let mut groups = Groups::new(&self.keys, &model.dictionary);
        let mut grouper = Grouper::default();
        for row in &model.resources {
            groups.of_resource(row, |resource, scope, profile| {
                grouper.add(row, resource, scope, profile);
            });
        }
        let is_smaller = grouper.resources.len() < model.resources.len();
        if !groups.moved_any && !is_smaller {
            return None;
        }
        Some(gc(&model.with_resources(grouper.resources)))
    }
}

#[async_trait]
impl Processor for GroupByAttrs {
    async fn process(&self, mut batch: Batch, next: &dyn Consumer) -> Answer {
        if let Some(grouped) = self.grouped(&batch.profiles) {
            batch = batch.with_profiles(Profiles::from_model(grouped));
        }
        next.consume(batch).await
    }
}
