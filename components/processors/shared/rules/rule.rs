//! Compiled rules, and their verdicts.
//!
//! Rules are evaluated from the outside in: if the resource decides, profiles are not decoded;
//! if the profile decides, samples are not.

use profcol_component::BuildError;
use profcol_profile::{AttributeIdx, Attributes, Dictionary, Profiles, Value};
use regex::Regex;

use super::config::{ConditionConfig, RuleConfig};
use crate::values::{text, value_of};

pub(crate) struct Rules {
    include: Vec<Rule>,
    exclude: Vec<Rule>,
}

struct Rule {
    resource: Vec<Condition>,
    profile: Vec<Condition>,
    /// Each with its index among all sample conditions.
    sample: Vec<(usize, Condition)>,
}

struct Condition {
    key: String,
    test: Test,
}

enum Test {
    IsThere,
    Is(Value),
    Contains(Regex),
}

/// The verdict on a resource or profile, if it does not depend on its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Keep,
    Drop,
    /// It depends on the content.
    ByContent,
}

/// The rules that may match the content of a resource or profile.
pub(crate) struct Open<'a> {
    include: Vec<&'a Rule>,
    exclude: Vec<&'a Rule>,
    includes_all: bool,
}

/// For each sample condition, which attributes of the dictionary meet it: each attribute is
/// evaluated once.
pub(crate) struct PartialMatch(Vec<Vec<bool>>);

impl Rules {
    /// `Err` for rules that validation refuses.
    pub fn new(include: &[RuleConfig], exclude: &[RuleConfig]) -> Result<Self, BuildError> {
        Self::compiled(include, exclude).map_err(BuildError::new)
    }

    fn compiled(include: &[RuleConfig], exclude: &[RuleConfig]) -> Result<Self, regex::Error> {
        let mut number = 0;
        let mut rules = |rules: &[RuleConfig]| -> Result<Vec<Rule>, regex::Error> {
            let rules = rules.iter().map(|rule| Rule::new(rule, &mut number));
            rules.collect()
        };
        Ok(Self {
            include: rules(include)?,
            exclude: rules(exclude)?,
        })
    }

    pub fn of_resource(&self, attributes: &Attributes) -> Open<'_> {
        let holds = |rule: &&Rule| rule.resource.iter().all(|it| it.holds_in(attributes));
        Open {
            include: self.include.iter().filter(holds).collect(),
            exclude: self.exclude.iter().filter(holds).collect(),
            includes_all: self.include.is_empty(),
        }
    }

    /// Whether the resources alone decide, with this verdict for each.
    pub fn decide_all(&self, profiles: &Profiles, verdict: Decision) -> bool {
        let mut decide_all = true;
        profiles.for_each_resource(|resource| {
            decide_all &= self.of_resource(&resource.attributes).resource_verdict() == verdict;
        });
        decide_all
    }

    /// Whether a dropped resource stays dropped if missing attributes are added
    /// later.
    pub fn drop_is_final(&self, attributes: &Attributes) -> bool {
        let open = self.of_resource(attributes);
        let is_excluded = open.exclude.iter().any(|rule| rule.is_about_resource());
        let is_ruled_out =
            |rule: &Rule| rule.resource.iter().any(|it| it.fails_for_good(attributes));
        is_excluded || self.include.iter().all(is_ruled_out) && !self.include.is_empty()
    }

    pub fn met_in(&self, dictionary: &Dictionary) -> PartialMatch {
        let rules = self.include.iter().chain(&self.exclude);
        let conditions = rules.flat_map(|rule| &rule.sample);
        PartialMatch(
            conditions
                .map(|(_, condition)| condition.rows(dictionary))
                .collect(),
        )
    }
}

impl Rule {
    fn new(config: &RuleConfig, number: &mut usize) -> Result<Self, regex::Error> {
        let conditions = |conditions: &[ConditionConfig]| -> Result<Vec<_>, regex::Error> {
            conditions.iter().map(Condition::new).collect()
        };
        let sample = conditions(&config.sample_attributes)?;
        let first = *number;
        *number += sample.len();
        Ok(Self {
            resource: conditions(&config.resource_attributes)?,
            profile: conditions(&config.profile_attributes)?,
            sample: (first..).zip(sample).collect(),
        })
    }

    fn is_about_resource(&self) -> bool {
        self.profile.is_empty() && self.sample.is_empty()
    }

    fn holds_for(&self, sample: &[AttributeIdx], met: &PartialMatch) -> bool {
        self.sample.iter().all(|(number, _)| {
            let rows = met.0.get(*number).map_or(&[][..], Vec::as_slice);
            let meets = |attribute: &AttributeIdx| rows.get(attribute.row()) == Some(&true);
            sample.iter().any(meets)
        })
    }
}

impl<'a> Open<'a> {
    pub fn resource_verdict(&self) -> Decision {
        self.verdict(Rule::is_about_resource)
    }

    pub fn profile_verdict(&self) -> Decision {
        self.verdict(|rule| rule.sample.is_empty())
    }

    /// The verdict of the rules, some of which match `whole` and others only parts.
    fn verdict(&self, whole: impl Fn(&Rule) -> bool) -> Decision {
        let any = |rules: &[&Rule]| rules.iter().any(|rule| whole(rule));
        let is_left_out = !self.includes_all && self.include.is_empty();
        if is_left_out || any(&self.exclude) {
            Decision::Drop
        } else if self.exclude.is_empty() && (self.includes_all || any(&self.include)) {
            Decision::Keep
        } else {
            Decision::ByContent
        }
    }

    pub fn of_profile(&self, attributes: &[AttributeIdx], dictionary: &Dictionary) -> Self {
        let meets = |condition: &Condition| {
            let mut attributes = attributes.iter();
            attributes.any(|&attribute| condition.is_met_by(attribute, dictionary))
        };
        let holds = |rule: &&'a Rule| rule.profile.iter().all(meets);
        Self {
            include: self.include.iter().copied().filter(holds).collect(),
            exclude: self.exclude.iter().copied().filter(holds).collect(),
            includes_all: self.includes_all,
        }
    }

    pub fn keeps(&self, sample: &[AttributeIdx], met: &PartialMatch) -> bool {
        let any = |rules: &[&Rule]| rules.iter().any(|rule| rule.holds_for(sample, met));
        !any(&self.exclude) && (self.includes_all || any(&self.include))
    }
}

impl Condition {
    fn new(config: &ConditionConfig) -> Result<Self, regex::Error> {
        let test = match (&config.value, &config.regex) {
            (Some(value), _) => Test::Is(value_of(value)),
            (None, Some(regex)) => Test::Contains(Regex::new(regex)?),
            (None, None) => Test::IsThere,
        };
        Ok(Self {
            key: config.key.clone(),
            test,
        })
    }

    fn holds_in(&self, attributes: &Attributes) -> bool {
        let mut named = attributes.iter().filter(|it| *it.key == *self.key);
        named.any(|it| self.test.matches(&it.value))
    }

    /// Whether the attribute exists with a value that fails.
    fn fails_for_good(&self, attributes: &Attributes) -> bool {
        attributes.iter().any(|it| *it.key == *self.key) && !self.holds_in(attributes)
    }

    fn is_met_by(&self, attribute: AttributeIdx, dictionary: &Dictionary) -> bool {
        dictionary.attributes.get(attribute).is_some_and(|found| {
            dictionary.strings.get(found.key) == self.key && self.test.matches(&found.value)
        })
    }

    fn rows(&self, dictionary: &Dictionary) -> Vec<bool> {
        let rows = dictionary.attributes.rows().iter();
        rows.map(|row| dictionary.strings.get(row.key) == self.key && self.test.matches(&row.value))
            .collect()
    }
}

impl Test {
    fn matches(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::IsThere, _) => true,
            (Self::Is(expected), value) => value == expected,
            (Self::Contains(regex), Value::Str(value)) => regex.is_match(value),
            (Self::Contains(regex), value) => regex.is_match(&text(value)),
        }
    }
}
