//! Encodes the model as a file.

use profcol_flamegraph::{
    CallTree, Document, SampleType, Side, Source, add_model, firefox, folded, html, sample_types,
    speedscope, svg, to_model,
};
use profcol_otlp::json;
use profcol_pprof::{Builder, Options, sets};
use profcol_profile::{Model, Profiles};

use crate::Format;

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("the profile has no samples")]
    Empty,
    #[error("{0}; a pprof file holds a single sample kind")]
    Pprof(#[from] profcol_pprof::AddProfilesError),
}

/// `title` names what was profiled. Formats that hold a single sample type get the first one.
pub fn write(model: &Model, format: Format, title: &str) -> Result<Vec<u8>, WriteError> {
    let kind = sample_types(model)
        .into_iter()
        .next()
        .ok_or(WriteError::Empty)?;
    match format {
        Format::Pprof => pprof(model),
        Format::OtlpProto => Ok(Profiles::from_model(model.clone()).to_wire().to_vec()),
        Format::OtlpJson => Ok(json::encode(model, json::ResourceAttrEncoding::default())),
        Format::Firefox => Ok(firefox(model, &kind, title).into_bytes()),
        Format::FirefoxGzip => Ok(profcol_pprof::gzip(firefox(model, &kind, title).as_bytes())),
        Format::Folded | Format::Svg | Format::Html | Format::Speedscope => {
            let (tree, source) = call_tree(model, kind);
            write_tree(&tree, &source, format, title)
        }
    }
}

/// The call tree keeps only this much of a profile: no labels, no addresses.
pub fn write_tree(
    tree: &CallTree,
    source: &Source,
    format: Format,
    title: &str,
) -> Result<Vec<u8>, WriteError> {
    let text = match format {
        Format::Svg => svg(tree, source, title),
        Format::Speedscope => speedscope(tree, source, title),
        Format::Html => html(&Document::new(tree, source, usize::MAX), title),
        Format::Folded => folded(tree),
        Format::Pprof
        | Format::OtlpProto
        | Format::OtlpJson
        | Format::Firefox
        | Format::FirefoxGzip => {
            return write(&to_model(tree, source), format, title);
        }
    };
    Ok(text.into_bytes())
}

/// The stacks of one sample type, merged by function.
pub fn call_tree(model: &Model, kind: SampleType) -> (CallTree, Source) {
    let mut tree = CallTree::default();
    let samples = add_model(&mut tree, model, &kind, Side::Current);
    let milliseconds = |nanoseconds: u64| nanoseconds / 1_000_000;
    let starts = model.profiles().map(|it| it.time_unix_nano);
    let ends = model
        .profiles()
        .map(|it| it.time_unix_nano.saturating_add(it.duration_nano));
    let source = Source {
        sample_type: kind,
        from: milliseconds(starts.min().unwrap_or(0)),
        until: milliseconds(ends.max().unwrap_or(0)),
        samples,
        is_comparison: false,
    };
    (tree, source)
}

fn pprof(model: &Model) -> Result<Vec<u8>, WriteError> {
    let mut builder = Builder::new(Options {
        period_values: true,
        ..Options::default()
    });
    for set in sets(model).filter(|set| set.sample_count() > 0) {
        builder.add(&set)?;
    }
    Ok(profcol_pprof::gzip(&builder.finish()))
}
