//! Actions on attributes: `resource` applies them to resources, `attributes` also to profiles and samples.

mod change;
mod config;

use profcol_component::{BuildError, Metadata};
use profcol_profile::Attributes;

use self::change::Change;
pub use self::config::Action;
pub(crate) use self::config::check;

/// Compiled actions, in order.
pub(crate) struct Changes(Vec<Change>);

impl Changes {
    pub fn new(actions: &[Action]) -> Result<Self, BuildError> {
        let changes = actions.iter().enumerate().map(|(position, action)| {
            let refused = || BuildError::new(format!("invalid {position}-th action"));
            Change::new(action).ok_or_else(refused)
        });
        Ok(Self(changes.collect::<Result<_, _>>()?))
    }

    /// Returns whether anything changed.
    pub fn apply(&self, attributes: &mut Attributes, metadata: &Metadata) -> bool {
        let mut changed = false;
        for change in &self.0 {
            changed |= change.apply(attributes, metadata);
        }
        changed
    }
}
