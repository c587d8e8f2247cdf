//! What profiles measure.
//!
//! Clock samples are counted and weighted by the time that each stands for: `samples/count` with a period of 10 ms
//! becomes `cpu/nanoseconds`. pprof files hold both values per sample, so there the count stays a count.

use profcol_profile::{Dictionary, Model, Profile, SampleRef, ScopeProfiles, ValueType};

/// The measured quantity, such as `cpu`, and its unit, such as `nanoseconds`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SampleType {
    pub name: String,
    pub unit: String,
}

/// A profile and the measure of its samples.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    pub profile: &'a Profile,
    pub name: &'a str,
    pub unit: &'a str,
    is_count: bool,
    /// The weight of one counted sample, in the unit.
    period: u64,
}

/// The weight of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    pub samples: u64,
    /// In the unit of its [`SampleType`].
    pub value: u64,
}

/// The non-empty profiles of a scope.
pub fn measured<'a>(
    scope: &'a ScopeProfiles,
    dictionary: &'a Dictionary,
) -> impl Iterator<Item = Measured<'a>> {
    let profiles = scope.profiles.iter().map(|it| &**it);
    let profiles = profiles.filter(|it| !it.samples.is_empty());
    profiles.map(move |profile| Measured::new(profile, scope, dictionary))
}

/// The types of a model, in order of appearance.
pub fn sample_types(model: &Model) -> Vec<SampleType> {
    let mut types: Vec<SampleType> = Vec::new();
    let scopes = model.resources.iter().flat_map(|it| &it.scopes);
    for measured in scopes.flat_map(|scope| measured(scope, &model.dictionary)) {
        if !types.iter().any(|kind| kind.is_of(&measured)) {
            types.push(measured.sample_type());
        }
    }
    types
}

impl SampleType {
    pub fn is_of(&self, measured: &Measured<'_>) -> bool {
        (measured.name, measured.unit) == (self.name.as_str(), self.unit.as_str())
    }
}

impl<'a> Measured<'a> {
    fn new(profile: &'a Profile, scope: &ScopeProfiles, dictionary: &'a Dictionary) -> Self {
        let text = |index| dictionary.strings.get(index);
        let own = profile.sample_type.unwrap_or_default();
        let is_count = text(own.unit) == "count";
        let has = |kind: ValueType| scope.profiles.iter().any(|it| it.sample_type == Some(kind));
        let period = match (u64::try_from(profile.period), profile.period_type) {
            (Ok(period), Some(kind)) if is_count && period > 0 && !has(kind) => {
                Some((period, kind))
            }
            _ => None,
        };
        let (period, kind) = period.unwrap_or((1, own));
        Self {
            profile,
            name: text(kind.kind),
            unit: text(kind.unit),
            is_count,
            period,
        }
    }

    pub fn sample_type(&self) -> SampleType {
        SampleType {
            name: self.name.to_owned(),
            unit: self.unit.to_owned(),
        }
    }

    /// Whether samples are counted, and each stands for the same value.
    pub fn is_count(&self) -> bool {
        self.is_count
    }

    pub fn weigh(&self, sample: &SampleRef<'_>) -> Weight {
        let observed = u64::try_from(sample.observed()).unwrap_or(0);
        let times = sample.timestamps.len() as u64;
        Weight {
            samples: match self.is_count {
                true => observed,
                false => times.max(u64::from(!sample.values.is_empty())),
            },
            value: observed.saturating_mul(self.period),
        }
    }

    /// The number of samples.
    pub fn samples(&self) -> u64 {
        self.profile
            .samples
            .iter()
            .map(|it| self.weigh(&it).samples)
            .sum()
    }

    /// Whether this profile counts samples that other profiles of the scope measure.
    pub fn counts_samples(&self) -> bool {
        (self.name, self.unit) == ("samples", "count")
    }
}
