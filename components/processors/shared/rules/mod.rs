//! Rules on the attributes of resources, profiles and samples: `filter` drops by them, `attributes`
//! limits its changes.

mod config;
mod rule;

pub use self::config::RuleConfig;
pub(crate) use self::config::check;
pub(crate) use self::rule::{Decision, Open, PartialMatch, Rules};
