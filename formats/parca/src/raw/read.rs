//! Decodes a request, as strictly as Parca's server.

use std::collections::HashSet;
use std::sync::Arc;

use profcol_pprof::{Limits, PprofError};
use profcol_profile::proto::{Reader, WireError};
use profcol_profile::{
    Attribute, AttributeIdx, Attributes, Idx, KeyValue, Model, Profile, Profiles, Resource,
    SampleRef, Samples, Scope,
};

use super::{NAME, field};
use crate::model::{resource_key, sample_key, sample_value};

/// Profiles with a common label set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series<'a> {
    /// The value of `__name__`.
    pub name: &'a str,
    /// All other labels.
    pub labels: Vec<(&'a str, &'a str)>,
    pub files: Vec<&'a [u8]>,
}

/// Why a request is rejected.
#[derive(Debug, thiserror::Error)]
pub enum BadSeries {
    #[error("malformed request: {0}")]
    Wire(#[from] WireError),
    #[error("a label is not valid UTF-8")]
    NotUtf8,
    #[error("a series has no label {NAME}")]
    NoName,
    #[error("invalid profile name {name:?}: use letters, digits, _ and :")]
    BadName { name: String },
    #[error("a series has a label without a name")]
    EmptyLabel,
    #[error("a series has a duplicate label {name:?}")]
    DuplicateLabel { name: String },
    #[error(transparent)]
    File(#[from] PprofError),
}

/// The series of a request.
pub fn read(message: &[u8]) -> Result<Vec<Series<'_>>, BadSeries> {
    let mut all = Vec::new();
    let mut reader = Reader::new(message);
    while let Some(tag) = reader.tag()? {
        match tag {
            field::SERIES => all.push(Series::read(reader.message()?)?),
            unknown => reader.skip(unknown, 0)?,
        }
    }
    Ok(all)
}

impl<'a> Series<'a> {
    fn read(mut message: Reader<'a>) -> Result<Self, BadSeries> {
        let mut labels = Vec::new();
        let mut files = Vec::new();
        while let Some(tag) = message.tag()? {
            match tag {
                field::SERIES_LABELS => {
                    let mut set = message.message()?;
                    while let Some(tag) = set.tag()? {
                        match tag {
                            field::LABEL => labels.push(read_label(set.message()?)?),
                            unknown => set.skip(unknown, 0)?,
                        }
                    }
                }
                field::SERIES_SAMPLES => {
                    let mut sample = message.message()?;
                    while let Some(tag) = sample.tag()? {
                        match tag {
                            field::RAW_PROFILE => files.push(sample.bytes()?),
                            unknown => sample.skip(unknown, 0)?,
                        }
                    }
                }
                unknown => message.skip(unknown, 0)?,
            }
        }
        let mut names = HashSet::new();
        for (label, _) in &labels {
            if label.is_empty() {
                return Err(BadSeries::EmptyLabel);
            }
            if !names.insert(*label) {
                let name = (*label).to_owned();
                return Err(BadSeries::DuplicateLabel { name });
            }
        }
        let name = labels.iter().position(|(label, _)| *label == NAME);
        let (_, name) = labels.remove(name.ok_or(BadSeries::NoName)?);
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
        if name.is_empty() || !name.chars().all(fits) {
            let name = name.to_owned();
            return Err(BadSeries::BadName { name });
        }
        Ok(Self {
            name,
            labels,
            files,
        })
    }
}

fn read_label(mut label: Reader<'_>) -> Result<(&str, &str), BadSeries> {
    let (mut name, mut value): (&[u8], &[u8]) = (&[], &[]);
    while let Some(tag) = label.tag()? {
        match tag {
            field::LABEL_NAME => name = label.bytes()?,
            field::LABEL_VALUE => value = label.bytes()?,
            unknown => label.skip(unknown, 0)?,
        }
    }
    let text = |bytes| str::from_utf8(bytes).map_err(|_| BadSeries::NotUtf8);
    Ok((text(name)?, text(value)?))
}

/// The limits of the files, at most `max`: the usual expansion of files of this size and some headroom, so that the
/// memory can be admitted before reading.
pub fn limits(series: &[Series<'_>], max: Limits) -> Limits {
    /// gzip compresses pprof files by a factor of three to ten.
    const USUAL_RATIO: usize = 32;
    /// The highest possible deflate ratio.
    const MAX_RATIO: usize = 1032;
    /// The model stores samples once per sample type.
    const MODEL_RATIO: usize = 8;
    const MIN_MODEL_BYTES: usize = 16 << 20;
    let decompressed = |file: &&[u8]| {
        let length = file.len();
        // A gzip file ends with its decompressed size, unless forged.
        match (file.starts_with(&[0x1f, 0x8b]), file.last_chunk()) {
            (true, Some(size)) => (u32::from_le_bytes(*size) as usize).clamp(
                length.saturating_mul(USUAL_RATIO),
                length.saturating_mul(MAX_RATIO),
            ),
            _ => length,
        }
    };
    let files = series.iter().flat_map(|series| &series.files);
    let sizes = files.map(decompressed).map(|size| size.min(max.file_bytes));
    let (largest, total) = sizes.fold((0, 0_usize), |(largest, total), size| {
        (size.max(largest), total.saturating_add(size))
    });
    let model = total.saturating_mul(MODEL_RATIO).max(MIN_MODEL_BYTES);
    Limits {
        file_bytes: largest,
        model_bytes: model.min(max.model_bytes),
    }
}

/// All files as one batch. As in the other layouts, labels become resource attributes, except those that Parca Agent
/// sets per sample.
pub fn to_profiles(series: &[Series<'_>], limits: Limits) -> Result<Profiles, BadSeries> {
    let mut batches = Vec::new();
    let mut left = limits;
    for series in series {
        let labels = series.labels.iter().copied();
        let labels = labels.filter(|(_, text)| !text.is_empty());
        let (of_samples, of_resource): (Vec<_>, Vec<_>) =
            labels.partition(|(name, _)| sample_key(name).is_some());
        let attributes: Attributes = of_resource
            .into_iter()
            .map(|(name, text)| KeyValue::new(resource_key(name), text))
            .collect();
        for file in &series.files {
            let mut model = profcol_pprof::read(file, left)?;
            let own = own_attributes(&mut model, &of_samples);
            for resource in &mut model.resources {
                resource.resource = Some(Arc::new(Resource {
                    attributes: attributes.clone(),
                    ..Resource::default()
                }));
                for scope in &mut resource.scopes {
                    scope.scope = Some(Arc::new(Scope {
                        name: series.name.into(),
                        ..scope.scope.as_deref().cloned().unwrap_or_default()
                    }));
                    for profile in &mut scope.profiles {
                        add_to_samples(Arc::make_mut(profile), &own);
                    }
                }
            }
            let batch = Profiles::from_model(model);
            // The limit covers all files together.
            left.model_bytes = left.model_bytes.saturating_sub(batch.heap_size());
            batches.push(batch);
        }
    }
    Ok(Profiles::merge(batches))
}

/// The attribute rows common to all samples.
fn own_attributes(model: &mut Model, labels: &[(&str, &str)]) -> Vec<AttributeIdx> {
    let dictionary = Arc::make_mut(&mut model.dictionary);
    let labels = labels.iter();
    let labels = labels.filter_map(|(name, text)| Some((sample_key(name)?, text)));
    labels
        .map(|(key, text)| {
            dictionary.attributes.push(Attribute {
                key: dictionary.strings.push(key),
                value: sample_value(key, text),
                unit: Idx::UNSET,
            })
        })
        .collect()
}

fn add_to_samples(profile: &mut Profile, own: &[AttributeIdx]) {
    if own.is_empty() {
        return;
    }
    let mut samples = Samples::default();
    let mut attributes = Vec::new();
    for sample in profile.samples.iter() {
        attributes.clear();
        attributes.extend_from_slice(sample.attributes);
        attributes.extend_from_slice(own);
        samples.push(SampleRef {
            attributes: &attributes,
            ..sample
        });
    }
    profile.samples = samples;
}

#[cfg(test)]
mod tests {
    use profcol_profile::testkit;
    use proptest::prelude::*;

    use super::*;
    use crate::raw::encode;
    use crate::{Frames, LabelRules, Table};

    proptest! {
        #[test]
        fn written_requests_can_be_read(model in testkit::models()) {
            let table = Table::new(&model, &LabelRules::default());
            let request = encode(&table, &Frames::new(&model)).expect("small request");
            let series = match read(&request) {
                // The server may reject the producer as a profile name.
                Err(BadSeries::BadName { .. }) => return Ok(()),
                outcome => outcome.expect("valid"),
            };
            let limits = limits(&series, Limits::default());
            let profiles = to_profiles(&series, limits).expect("valid");
            let sum = |model: &Model| -> i128 {
                let samples = model.profiles().flat_map(|profile| profile.samples.iter());
                samples.flat_map(|sample| sample.values).map(|&value| i128::from(value)).sum()
            };
            let expected: i128 = table.values.iter().map(|&value| i128::from(value)).sum();
            prop_assert_eq!(sum(profiles.model()), expected);
        }

        #[test]
        fn damaged_bytes_never_panic(mut bytes: Vec<u8>, begin in 0_usize..4) {
            bytes.splice(0..0, [0x12, 0x40, 0x0a, 0x20].into_iter().take(begin));
            if let Ok(series) = read(&bytes) {
                let _ = to_profiles(&series, Limits::default());
            }
        }
    }
}
