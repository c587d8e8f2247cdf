//! Rules about attributes of resources, profiles and samples: what `filter` drops by, and what
//! `attributes` changes.

mod config;
mod rule;

pub use self::config::RuleConfig;
pub(crate) use self::config::check;
pub(crate) use self::rule::{Met, Open, Rules, Verdict};
