//! `profcol convert` and `profcol diff`: profiles in files.

use std::fs;
use std::path::Path;

use profcol_component::files;
use profcol_files::{Format, call_tree, read, write};
use profcol_flamegraph::{
    CallTree, Document, FunctionTable, Relation, SampleType, Side, Values, add_model,
    difference_svg, function_table, html, sample_types,
};
use profcol_printable::line;
use profcol_profile::Model;

use super::{CommandError, print_text};
use crate::cli::{By, Compare, Convert, Diff};
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
    let comparison = Comparison::new(&tree, diff);
    print_text(&comparison.table(&source.sample_type, diff))?;
    if let Some((output, format)) = output {
        let title = format!("{} and {}", diff.before.display(), diff.after.display());
        let text = match format {
            Format::Svg => difference_svg(&tree, &source, &title, relation(diff.compare)),
            _ => {
                let document = Document::new(&tree, &source, usize::MAX);
                html(&document.compared_by(relation(diff.compare)), &title)
            }
        };
        save(output, text.as_bytes())?;
    }
    match diff
        .fail_over
        .and_then(|percent| comparison.growth_over(percent))
    {
        None => Ok(()),
        Some(growth) => Err(CommandError::Runtime(growth)),
    }
}

fn relation(compare: Compare) -> Relation {
    match compare {
        Compare::Share => Relation::Share,
        Compare::Value => Relation::Value,
    }
}

/// The functions of two profiles, largest changes first.
struct Comparison {
    compare: Compare,
    total: Values,
    changes: Vec<Change>,
}

/// A function before and after.
struct Change {
    name: String,
    values: Values,
}

impl Comparison {
    fn new(tree: &CallTree, diff: &Diff) -> Self {
        // A function may have moved to another line or file.
        let tree = tree.by_name();
        let FunctionTable {
            frame, own, total, ..
        } = function_table(&tree, usize::MAX);
        let values = match diff.by {
            By::Own => own,
            By::Total => total,
        };
        let changes = frame.into_iter().zip(values).map(|(frame, values)| Change {
            name: tree.frames.label(frame),
            values,
        });
        let mut comparison = Self {
            compare: diff.compare,
            total: tree.total(),
            changes: Vec::new(),
        };
        let mut changes: Vec<Change> = changes.collect();
        let size = |it: &Change| match diff.compare {
            Compare::Share => comparison.growth(it.values).abs(),
            Compare::Value => it.values.value.abs_diff(it.values.base) as f64,
        };
        changes.sort_by(|left, right| {
            size(right)
                .total_cmp(&size(left))
                .then_with(|| left.name.cmp(&right.name))
        });
        comparison.changes = changes;
        comparison
    }

    /// Percent of each profile.
    fn shares(&self, values: Values) -> (f64, f64) {
        (
            percent(values.base as f64, self.total.base),
            percent(values.value as f64, self.total.value),
        )
    }

    /// In percent of the profile: of the share in each, or of the value in relation to the profile before.
    fn growth(&self, values: Values) -> f64 {
        match self.compare {
            Compare::Share => {
                let (before, after) = self.shares(values);
                after - before
            }
            Compare::Value => percent(values.value as f64 - values.base as f64, self.total.base),
        }
    }

    /// What grew by more than this, in words.
    fn growth_over(&self, limit: f64) -> Option<String> {
        let grown = self.changes.iter();
        let grown = grown.filter(|it| self.growth(it.values) > limit).count();
        let of = match self.compare {
            Compare::Share => "the profile",
            Compare::Value => "the profile before",
        };
        let functions = (grown > 0).then(|| {
            let plural = if grown == 1 { "" } else { "s" };
            format!("{grown} function{plural} grew by more than {limit}% of {of}")
        });
        // Shares add up to the same.
        let whole = Some(self.growth(self.total)).filter(|growth| *growth > limit);
        let whole = whole.map(|growth| format!("the whole profile grew by {growth:.1}%"));
        match (functions, whole) {
            (Some(functions), Some(whole)) => Some(format!("{functions}, and {whole}")),
            (functions, whole) => functions.or(whole),
        }
    }

    fn table(&self, kind: &SampleType, diff: &Diff) -> String {
        let amount = |value: u64| match kind.unit.as_str() {
            "nanoseconds" => format!("{:.3} s", value as f64 / 1e9),
            unit => format!("{value} {unit}"),
        };
        let of_function = match diff.by {
            By::Own => "self",
            By::Total => "total",
        };
        let changed = self.changes.iter().filter(|it| {
            let (before, after) = self.shares(it.values);
            it.values.base != it.values.value || before != after
        });
        let head = ["before", "after", "change"].map(str::to_owned);
        let mut rows = vec![(head, format!("function ({of_function})"))];
        rows.extend(changed.take(diff.functions).map(|it| {
            let Values { value, base } = it.values;
            let columns = match self.compare {
                Compare::Share => {
                    let (before, after) = self.shares(it.values);
                    [
                        format!("{before:.2}%"),
                        format!("{after:.2}%"),
                        format!("{:+.2}%", after - before),
                    ]
                }
                Compare::Value => [amount(base), amount(value), relative(value, base)],
            };
            (columns, line(&it.name).into_owned())
        }));
        let widths = [0, 1, 2].map(|column| {
            let lengths = rows
                .iter()
                .map(|(columns, _)| columns[column].chars().count());
            lengths.max().unwrap_or(0).max(MIN_WIDTH)
        });
        let mut text = format!(
            "{}: {} before, {} after\n",
            line(&kind.name),
            amount(self.total.base),
            amount(self.total.value),
        );
        for ([before, after, change], name) in rows {
            let [of_before, of_after, of_change] = widths;
            text +=
                &format!("{before:>of_before$} {after:>of_after$} {change:>of_change$}  {name}\n");
        }
        text
    }
}

/// Minimum width of columns with numbers.
const MIN_WIDTH: usize = 8;

/// How a value changed, in relation to what it was.
fn relative(value: u64, base: u64) -> String {
    match (base, value) {
        (0, _) => "new".to_owned(),
        (_, 0) => "gone".to_owned(),
        (base, value) => format!("{:+.1}%", (value as f64 / base as f64 - 1.0) * 100.0),
    }
}

/// Infinite for a share of an empty profile: anything is more than all of it.
fn percent(value: f64, of: u64) -> f64 {
    match of {
        0 if value == 0.0 => 0.0,
        of => value / of as f64 * 100.0,
    }
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
