//! The options of `routing`.

use profcol_config::{Config, PipelineId, Problem, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::Condition;
use super::error::ConditionError;

/// Routes the profiles of each resource to pipelines by its attributes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "match_once": "the first condition that holds decides, as in the Collector since 0.120; remove it",
}))]
pub struct RoutingConfig {
    /// Pipelines for resources that no condition matches; if empty, those are dropped and counted.
    pub default_pipelines: Vec<PipelineId>,
    /// What happens if a condition fails for a resource: the batch is refused, or the resource goes to the default
    /// pipelines, with or without a log line.
    pub error_mode: ErrorMode,
    /// The routes. A resource takes the first one whose condition holds.
    pub table: Vec<RouteConfig>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ErrorMode {
    #[default]
    Propagate,
    Ignore,
    Silent,
}

/// A route.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct RouteConfig {
    /// What the condition applies to.
    pub context: Context,
    /// The condition in OTTL, such as `attributes["service.name"] == "checkout"`. Either this or `statement` is required.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub condition: String,
    /// The condition as a statement: `route() where attributes["service.name"] == "checkout"`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub statement: String,
    /// Where matching resources go.
    pub pipelines: Vec<PipelineId>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-unknown" = "unsupported context"))]
pub enum Context {
    #[default]
    Resource,
}

impl RoutingConfig {
    /// The pipelines that it names, each with the path of the option.
    pub fn named_pipelines(&self) -> Vec<(String, PipelineId)> {
        let default = self.default_pipelines.iter().enumerate();
        let mut named: Vec<_> = default
            .map(|(at, id)| (format!("default_pipelines::{at}"), id.clone()))
            .collect();
        for (route, RouteConfig { pipelines, .. }) in self.table.iter().enumerate() {
            let pipelines = pipelines.iter().enumerate();
            named.extend(pipelines.map(|(at, id)| {
                let path = format!("table::{route}::pipelines::{at}");
                (path, id.clone())
            }));
        }
        named
    }
}

impl RouteConfig {
    /// Validation guarantees that it has one of the two.
    pub fn parsed(&self) -> Result<Condition, ConditionError> {
        match self.statement.is_empty() {
            true => Condition::parse(&self.condition),
            false => Condition::parse_statement(&self.statement),
        }
    }

    fn validate(&self, problems: &mut Problems) {
        match (self.condition.is_empty(), self.statement.is_empty()) {
            (true, true) => problems.add("", "invalid route: no condition or statement provided"),
            (false, false) => {
                problems.add("", "invalid route: both condition and statement provided")
            }
            (_, no_statement) => {
                if let Err(error) = self.parsed() {
                    let option = match no_statement {
                        true => "condition",
                        false => "statement",
                    };
                    problems.nested(option, |problems| {
                        problems.push(Problem::new(error.to_string()).help(error.help()));
                    });
                }
            }
        }
        if self.pipelines.is_empty() {
            problems.add("pipelines", "invalid route: no pipelines defined");
        }
    }
}

impl Config for RoutingConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.table.is_empty() {
            problems.add("table", "invalid routing table: the routing table is empty");
        }
        for (position, route) in self.table.iter().enumerate() {
            problems.nested(&format!("table::{position}"), |problems| {
                route.validate(problems)
            });
        }
    }
}
