//! `profcol convert` and `profcol diff`: profiles in files.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use profcol_component::files;
use profcol_files::{Format, call_tree, read, write};
use profcol_flamegraph::{
    CallTree, Document, FunctionTable, Relation, SampleType, Side, Source, Values, add_model,
    difference_svg, function_table, html, sample_types,
};
use profcol_printable::line;
use profcol_profile::Model;

use super::{CommandError, print_text};
use crate::cli::{Compare, Convert, Diff};
use crate::stderr::print;

pub fn convert(convert: &Convert) -> Result<(), CommandError> {
    let format = format_of(&convert.to)?;
    let model = load(&convert.from)?;
    let title = convert
        .from
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let content = write(&model, format, &title).map_err(|error| failed(&convert.from, &error))?;
    save(&convert.to, &content)
}

pub fn diff(diff: &Diff) -> Result<(), CommandError> {
    let output = match &diff.output {
        Some(output) => Some((output, format_of(output)?)),
        None => None,
    };
    if output.is_some_and(|(_, format)| !matches!(format, Format::Html | Format::Svg)) {
        return Err(CommandError::Usage(
            "--output draws the difference: its name must end in .html or .svg".to_owned(),
        ));
    }
    let (before, after) = (load(&diff.before)?, load(&diff.after)?);
    let kind = common_type(&before, &after)?;
    let (mut tree, mut source) = call_tree(&after, kind.clone());
    add_model(&mut tree, &before, &kind, Side::Base);
    source.is_comparison = true;
    let changes = changes(&tree, diff.compare);
    print_text(&table(&tree, &source, &changes, diff))?;
    if let Some((output, format)) = output {
        let title = format!("{} and {}", diff.before.display(), diff.after.display());
        let text = match format {
            Format::Svg => difference_svg(&tree, &source, &title, relation(diff.compare)),
            _ => html(&Document::new(&tree, &source, usize::MAX), &title),
        };
        save(output, text.as_bytes())?;
    }
    let grown = |percent: &f64| changes.iter().filter(|it| it.points() > *percent).count();
    match diff.fail_over.as_ref().map_or(0, grown) {
        0 => Ok(()),
        number => Err(CommandError::Runtime(format!(
            "{number} function{} grew by more than {}% of the profile",
            if number == 1 { "" } else { "s" },
            diff.fail_over.unwrap_or_default()
        ))),
    }
}

fn relation(compare: Compare) -> Relation {
    match compare {
        Compare::Share => Relation::Share,
        Compare::Value => Relation::Value,
    }
}

/// Self values of a function, before and after.
struct Change {
    name: String,
    before: f64,
    after: f64,
    /// Percent of the total.
    shares: (f64, f64),
}

impl Change {
    /// Percentage points.
    fn points(&self) -> f64 {
        self.shares.1 - self.shares.0
    }
}

/// Largest changes first.
fn changes(tree: &CallTree, compare: Compare) -> Vec<Change> {
    let FunctionTable { frame, own, .. } = function_table(tree, usize::MAX);
    let total = tree.total();
    // A function may have moved to another line or file, so sum by name.
    let mut sums: HashMap<String, Values> = HashMap::new();
    for (frame, own) in frame.into_iter().zip(own) {
        let sum = sums.entry(tree.frames.label(frame)).or_default();
        sum.add(Side::Current, own.value);
        sum.add(Side::Base, own.base);
    }
    let share = |value: f64, total: u64| match total {
        0 => 0.0,
        total => value / total as f64 * 100.0,
    };
    let mut changes: Vec<Change> = sums
        .into_iter()
        .map(|(name, Values { value, base })| Change {
            name,
            before: base as f64,
            after: value as f64,
            shares: (
                share(base as f64, total.base),
                share(value as f64, total.value),
            ),
        })
        .collect();
    let weight = |it: &Change| match compare {
        Compare::Share => it.points().abs(),
        Compare::Value => (it.after - it.before).abs(),
    };
    changes.sort_by(|left, right| {
        weight(right)
            .total_cmp(&weight(left))
            .then_with(|| left.name.cmp(&right.name))
    });
    changes
}

fn table(tree: &CallTree, source: &Source, changes: &[Change], diff: &Diff) -> String {
    let kind = &source.sample_type;
    let amount = |value: f64| match kind.unit.as_str() {
        "nanoseconds" => format!("{:.3} s", value / 1e9),
        unit => format!("{value} {unit}"),
    };
    let total = tree.total();
    let mut text = format!(
        "{}: {} before, {} after\n  before    after   change  function\n",
        line(&kind.name),
        amount(total.base as f64),
        amount(total.value as f64),
    );
    let unchanged = |it: &&Change| it.before != it.after || it.points() != 0.0;
    for it in changes.iter().filter(unchanged).take(diff.functions) {
        let (before, after, change) = match diff.compare {
            Compare::Share => (
                format!("{:.2}%", it.shares.0),
                format!("{:.2}%", it.shares.1),
                format!("{:+.2}%", it.points()),
            ),
            Compare::Value => (
                amount(it.before),
                amount(it.after),
                format!("{:+.1}%", (it.after / it.before - 1.0) * 100.0),
            ),
        };
        text += &format!("{before:>8} {after:>8} {change:>8}  {}\n", line(&it.name));
    }
    text
}

/// The first sample type present in both.
fn common_type(before: &Model, after: &Model) -> Result<SampleType, CommandError> {
    let (before_types, after_types) = (sample_types(before), sample_types(after));
    let names = |types: &[SampleType]| {
        let names: Vec<&str> = types.iter().map(|kind| kind.name.as_str()).collect();
        names.join(", ")
    };
    after_types
        .iter()
        .find(|kind| before_types.contains(kind))
        .cloned()
        .ok_or_else(|| {
            CommandError::Runtime(format!(
                "the profiles have no sample type in common: [{}] before, [{}] after",
                names(&before_types),
                names(&after_types)
            ))
        })
}

fn format_of(path: &Path) -> Result<Format, CommandError> {
    Format::of_file(&path.to_string_lossy()).map_err(|error| CommandError::Usage(error.to_string()))
}

fn load(path: &Path) -> Result<Model, CommandError> {
    let content = fs::read(path).map_err(|error| failed(path, &error))?;
    read(&content).map_err(|error| failed(path, &error))
}

fn save(path: &Path, content: &[u8]) -> Result<(), CommandError> {
    files::write(path, content).map_err(|error| failed(path, &error))?;
    let name = path.display().to_string();
    print(&format!("Wrote {}.\n", line(&name)));
    Ok(())
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> CommandError {
    CommandError::Runtime(format!("{}: {error}", path.display()))
}
