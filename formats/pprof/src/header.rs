//! Puts what was read together: a profile for each sample type.

use std::sync::Arc;

use super::attributes::{
    COMMENT, DEFAULT_SAMPLE_TYPE, DOC_URL, DROP_FRAMES, KEEP_FRAMES, SAMPLE_TYPE_ORDER,
};
use super::read::{Header, Problem, TypeRows};
use super::symbols::Symbols;
use profcol_profile::{
    AttributeIdx, KeyValue, Model, Profile, ResourceProfiles, Samples, Scope, ScopeProfiles, Value,
    ValueType,
};

/// The model of a file; `samples` are those of each sample type.
pub(super) fn profiles(
    header: &Header<'_>,
    mut symbols: Symbols<'_>,
    samples: Vec<Samples>,
) -> Result<Model, Problem> {
    let attributes = profile_attributes(header, &mut symbols)?;
    let period_type = header
        .period_type
        .map(|rows| value_type(&mut symbols, rows))
        .transpose()?;
    let mut profiles = Vec::with_capacity(samples.len());
    for (position, samples) in samples.into_iter().enumerate() {
        let sample_type = value_type(&mut symbols, header.sample_types[position])?;
        profiles.push(Arc::new(Profile {
            sample_type: Some(sample_type),
            samples,
            time_unix_nano: header.time.try_into().unwrap_or_default(),
            duration_nano: header.duration.try_into().unwrap_or_default(),
            period_type,
            period: header.period,
            attributes: attributes.clone(),
            ..Profile::default()
        }));
    }
    let default_kind = symbols.string(header.default_sample_type)?;
    let is_default = |profile: &Arc<Profile>| {
        let kind = profile.sample_type.map(|sample_type| sample_type.kind);
        default_kind.is_set() && kind == Some(default_kind)
    };
    let last = profiles.len().saturating_sub(1);
    let default = profiles.iter().position(is_default).unwrap_or(last);
    // Whoever shows an OTLP request starts with the first profile, and a pprof with its default
    // type or else the last.
    let mut order: Vec<usize> = (0..profiles.len()).collect();
    if default < order.len() {
        order[..=default].rotate_right(1);
        profiles[..=default].rotate_right(1);
    }
    let scope = ScopeProfiles {
        scope: scope(header, &symbols, &order)?.map(Arc::new),
        profiles,
        ..ScopeProfiles::default()
    };
    Ok(Model {
        dictionary: Arc::new(symbols.tables.finish()),
        resources: vec![ResourceProfiles {
            scopes: vec![scope],
            ..ResourceProfiles::default()
        }],
    })
}

fn value_type(symbols: &mut Symbols<'_>, rows: TypeRows) -> Result<ValueType, Problem> {
    Ok(ValueType {
        kind: symbols.string(rows.kind)?,
        unit: symbols.string(rows.unit)?,
    })
}

fn profile_attributes(
    header: &Header<'_>,
    symbols: &mut Symbols<'_>,
) -> Result<Vec<AttributeIdx>, Problem> {
    let mut attributes = Vec::new();
    if !header.comments.is_empty() {
        let mut comments = Vec::with_capacity(header.comments.len());
        for row in &header.comments {
            comments.push(symbols.text_value(*row)?);
        }
        attributes.push(symbols.attribute(COMMENT, Value::Array(comments.into())));
    }
    for (key, row) in [
        (DROP_FRAMES, header.drop_frames),
        (KEEP_FRAMES, header.keep_frames),
        (DOC_URL, header.doc_url),
    ] {
        let text = symbols.text(row)?;
        if !text.is_empty() {
            attributes.push(symbols.attribute(key, &*text));
        }
    }
    Ok(attributes)
}

fn scope(
    header: &Header<'_>,
    symbols: &Symbols<'_>,
    order: &[usize],
) -> Result<Option<Scope>, Problem> {
    let mut attributes = Vec::new();
    if !order.is_sorted() {
        let order = order.iter().map(|&position| Value::Int(position as i64));
        attributes.push(KeyValue::new(
            SAMPLE_TYPE_ORDER,
            Value::Array(order.collect()),
        ));
    }
    let default = symbols.text(header.default_sample_type)?;
    if !default.is_empty() {
        attributes.push(KeyValue::new(DEFAULT_SAMPLE_TYPE, &*default));
    }
    let scope = Scope {
        attributes,
        ..Scope::default()
    };
    Ok((!scope.attributes.is_empty()).then_some(scope))
}
