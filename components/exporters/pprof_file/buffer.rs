//! Buffered profiles, aggregated per file.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use profcol_component::DeferredSymbols;
use profcol_pprof::{AddProfilesError, LabelSelection, ProfileSet, gzip, sets};
use profcol_profile::{Dictionary, Model, ResourceProfiles, Value};
use tokio::time::Instant;

use super::name::Parts;
use crate::shared::pprof_builder::PprofBuilder;

/// Assigns profiles to files.
#[derive(Clone, Debug)]
pub(super) struct Grouping {
    pub(super) keys: Vec<String>,
    pub(super) max_groups: usize,
    pub(super) labels: LabelSelection,
}

#[derive(Default)]
pub(super) struct ProfileBuffer {
    files: HashMap<FileKey, OpenFile>,
    groups: HashSet<Group>,
    bytes: usize,
    since: Option<Instant>,
}

/// The profiles of one file agree in these fields, which cannot be recovered from the sums.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FileKey {
    group: Group,
    sample_types: Vec<(String, String)>,
    period_type: Option<(String, String)>,
    period: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Group {
    /// The values of the attributes, if the resource has them.
    Values(Vec<Option<String>>),
    /// All groups beyond the limit.
    Other,
}

struct OpenFile {
    builder: PprofBuilder,
    began: Timestamp,
    samples: u64,
    size: usize,
}

/// An encoded file.
#[derive(Debug)]
pub(super) struct EncodedFile {
    pub(super) parts: Parts,
    pub(super) bytes: Vec<u8>,
    /// Number of samples before aggregation.
    pub(super) samples: u64,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum AddError {
    #[error("more than {MAX_FILES} profile types and groups")]
    TooManyFiles,
    #[error(transparent)]
    Profiles(#[from] AddProfilesError),
}

/// A batch and its target files.
struct Plan<'a> {
    sets: Vec<(FileKey, ProfileSet<'a>)>,
    new_groups: HashSet<Group>,
}

/// Memory of an open file besides its content.
const BYTES_PER_FILE: usize = 1024 + size_of::<OpenFile>();
/// Sample types are arbitrary, so a batch could request as many files as it has profiles.
const MAX_FILES: usize = 4096;

impl ProfileBuffer {
    /// Adds a batch; returns how many of its samples went to the group `other`. Adds nothing
    /// if there would be too many files.
    pub(super) fn add(
        &mut self,
        model: &Model,
        deferred_symbols: &DeferredSymbols,
        grouping: &Grouping,
    ) -> Result<u64, AddError> {
        let plan = self.plan(model, grouping);
        let keys = plan.sets.iter().map(|(key, _)| key);
        let new_keys: HashSet<&FileKey> =
            keys.filter(|key| !self.files.contains_key(key)).collect();
        if self.files.len() + new_keys.len() > MAX_FILES {
            return Err(AddError::TooManyFiles);
        }
        for group in plan.new_groups {
            self.bytes += group.text_len();
            self.groups.insert(group);
        }
        let mut others = 0;
        for (key, set) in plan.sets {
            if key.group == Group::Other {
                others += set.sample_count() as u64;
            }
            self.add_set(&set, &model.dictionary, deferred_symbols, key, grouping)?;
        }
        Ok(others)
    }

    fn plan<'a>(&self, model: &'a Model, grouping: &Grouping) -> Plan<'a> {
        let mut plan = Plan {
            sets: Vec::new(),
            new_groups: HashSet::new(),
        };
        for set in sets(model).filter(|set| set.sample_count() > 0) {
            let values = grouping
                .keys
                .iter()
                .map(|key| value_of(set.resource(), key));
            let mut group = Group::Values(values.collect());
            let is_known = self.groups.contains(&group) || plan.new_groups.contains(&group);
            if !is_known {
                if self.groups.len() + plan.new_groups.len() < grouping.max_groups {
                    plan.new_groups.insert(group.clone());
                } else {
                    group = Group::Other;
                }
            }
            plan.sets.push((FileKey::new(group, &set), set));
        }
        plan
    }

    fn add_set(
        &mut self,
        set: &ProfileSet<'_>,
        dictionary: &Dictionary,
        deferred_symbols: &DeferredSymbols,
        key: FileKey,
        grouping: &Grouping,
    ) -> Result<(), AddError> {
        let bytes = &mut self.bytes;
        let key_size = key.text_len() + BYTES_PER_FILE;
        let file = self.files.entry(key).or_insert_with(|| {
            *bytes += key_size;
            OpenFile::new(grouping.labels.clone())
        });
        file.builder.add(set, dictionary, deferred_symbols)?;
        file.samples += set.sample_count() as u64;
        let size = file.builder.heap_size();
        *bytes = (*bytes + size).saturating_sub(file.size);
        file.size = size;
        self.since.get_or_insert_with(Instant::now);
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the first profile arrived.
    pub(super) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Encodes the files, one at a time, with the symbols available by now.
    pub(super) fn finish(self) -> impl Iterator<Item = EncodedFile> {
        self.files.into_iter().map(|(key, open)| EncodedFile {
            parts: Parts {
                kind: key.kind(),
                group: key.group.text(),
                time: open.began,
            },
            samples: open.samples,
            bytes: gzip(&open.builder.finish()),
        })
    }
}

impl OpenFile {
    fn new(labels: LabelSelection) -> Self {
        Self {
            builder: PprofBuilder::new(labels),
            began: Timestamp::now(),
            samples: 0,
            size: 0,
        }
    }
}

impl FileKey {
    fn new(group: Group, set: &ProfileSet<'_>) -> Self {
        let own = |(kind, unit): (&str, &str)| (kind.to_owned(), unit.to_owned());
        Self {
            group,
            sample_types: set.sample_types().map(own).collect(),
            period_type: set.period_type().map(own),
            period: set.period(),
        }
    }

    /// The sample type, and the period type if it differs: `samples.cpu`.
    fn kind(&self) -> String {
        let mut kinds: Vec<&str> = Vec::new();
        for (kind, _) in self.sample_types.iter().chain(&self.period_type) {
            if !kind.is_empty() && !kinds.contains(&kind.as_str()) {
                kinds.push(kind);
            }
        }
        kinds.join(".")
    }

    fn text_len(&self) -> usize {
        let types = self.sample_types.iter().chain(&self.period_type);
        let types = types.map(|(kind, unit)| kind.len() + unit.len());
        types.sum::<usize>() + self.group.text_len()
    }
}

impl Group {
    fn text(&self) -> String {
        match self {
            Self::Other => "other".to_owned(),
            Self::Values(values) if values.is_empty() => "all".to_owned(),
            Self::Values(values) => {
                let values = values
                    .iter()
                    .map(|value| value.as_deref().unwrap_or("none"));
                values.collect::<Vec<_>>().join("-")
            }
        }
    }

    fn text_len(&self) -> usize {
        match self {
            Self::Other => 0,
            Self::Values(values) => values.iter().flatten().map(String::len).sum(),
        }
    }
}

/// `None` for composite values.
fn value_of(resource: &ResourceProfiles, key: &str) -> Option<String> {
    let attributes = &resource.resource.as_ref()?.attributes;
    let found = attributes.iter().find(|attribute| &*attribute.key == key)?;
    match &found.value {
        Value::Str(text) => Some(text.to_string()),
        Value::Int(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Double(number) => Some(number.to_string()),
        Value::Empty | Value::Bytes(_) | Value::Array(_) | Value::Map(_) => None,
    }
}
