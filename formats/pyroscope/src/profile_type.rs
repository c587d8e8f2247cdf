//! Pyroscope's names for profile types: `process_cpu:cpu:nanoseconds:cpu:nanoseconds`.

use profcol_flamegraph::SampleType;

use crate::messages::ProfileType;

/// Name, type and unit of the samples, type and unit of the period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileTypeId {
    pub name: String,
    pub sample_type: String,
    pub sample_unit: String,
    pub period_type: String,
    pub period_unit: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid profile type {0:?}, expected the form process_cpu:cpu:nanoseconds:cpu:nanoseconds; ProfileTypes lists the available ones"
)]
pub struct MalformedProfileType(pub String);

/// A validated profile type id, without an optional `:delta` suffix.
pub fn parse(id: &str) -> Result<&str, MalformedProfileType> {
    let plain = id.strip_suffix(":delta").unwrap_or(id);
    let mut parts = plain.split(':');
    let is_whole = parts.clone().count() == 5 && parts.all(|part| !part.is_empty());
    match is_whole {
        true => Ok(plain),
        false => Err(MalformedProfileType(id.to_owned())),
    }
}

impl ProfileTypeId {
    /// The name that Go programs and Pyroscope's own agents use for this type.
    pub fn of(kind: &SampleType) -> Self {
        let (name, period_type, period_unit) = match (kind.name.as_str(), kind.unit.as_str()) {
            ("cpu" | "samples", _) => ("process_cpu", "cpu", "nanoseconds"),
            ("alloc_space" | "alloc_objects" | "inuse_space" | "inuse_objects", _) => {
                ("memory", "space", "bytes")
            }
            ("contentions" | "delay", _) => ("mutex", "contentions", "count"),
            ("goroutine" | "goroutines", _) => ("goroutines", "goroutine", "count"),
            (name, unit) => (name, name, unit),
        };
        Self {
            name: part(name),
            sample_type: part(&kind.name),
            sample_unit: part(&kind.unit),
            period_type: part(period_type),
            period_unit: part(period_unit),
        }
    }

    /// The id used in queries.
    pub fn id(&self) -> String {
        let Self {
            name,
            sample_type,
            sample_unit,
            period_type,
            period_unit,
        } = self;
        format!("{name}:{sample_type}:{sample_unit}:{period_type}:{period_unit}")
    }

    pub fn message(&self) -> ProfileType {
        ProfileType {
            id: self.id(),
            name: self.name.clone(),
            sample_type: self.sample_type.clone(),
            sample_unit: self.sample_unit.clone(),
            period_type: self.period_type.clone(),
            period_unit: self.period_unit.clone(),
        }
    }

    /// The labels that describe the type.
    pub fn labels(&self) -> [(&'static str, String); 6] {
        [
            ("__name__", self.name.clone()),
            ("__period_type__", self.period_type.clone()),
            ("__period_unit__", self.period_unit.clone()),
            ("__profile_type__", self.id()),
            ("__type__", self.sample_type.clone()),
            ("__unit__", self.sample_unit.clone()),
        ]
    }
}

/// A program's own names may contain colons or be empty.
fn part(text: &str) -> String {
    match text {
        "" => "unknown".to_owned(),
        text => text.replace(':', "_"),
    }
}
