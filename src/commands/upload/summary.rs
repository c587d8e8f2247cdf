//! Summaries before and after an upload.

use std::fmt::Write;
use std::path::Path;

use profcol_padata::{Recording, State};
use profcol_printable::line;

use super::progress::Progress;
use crate::commands::CommandError;
use crate::commands::print::print_text;

/// The output of `--dry-run`.
pub fn print_contents(directory: &Path, recordings: &[Recording]) -> Result<(), CommandError> {
    let mut text = String::new();
    let (mut bytes, mut rows) = (0, 0);
    let mut all_times = None;
    for recording in recordings {
        let extent = recording.extent();
        bytes += recording.bytes;
        rows += extent.rows;
        all_times = both(all_times, extent.times);
        let _ = write!(
            text,
            "{}: {} bytes, {} rows",
            name(&recording.path),
            recording.bytes,
            extent.rows
        );
        if let Some(times) = extent.times {
            let _ = write!(text, ", {}", range(times));
        }
        let _ = write!(text, "; {}", state(&recording.state));
        if let Some(damage) = extent.damage {
            let _ = write!(text, "; damaged: {}", line(&damage.to_string()));
        }
        text.push('\n');
    }
    let _ = write!(
        text,
        "{}: {} files, {bytes} bytes, {rows} rows",
        line(&directory.to_string_lossy()),
        recordings.len()
    );
    if let Some(times) = all_times {
        let _ = write!(text, ", {}", range(times));
    }
    text.push('\n');
    print_text(&text)
}

/// Prints what was uploaded and each file left; returns how many files this upload should have delivered but did not.
pub fn print_left(
    progress: &Progress,
    before: &[Recording],
    after: &[Recording],
) -> Result<usize, CommandError> {
    let mut left = 0;
    let mut text = format!(
        "Uploaded {} batches, {} complete files.\n",
        progress.batches(),
        progress.files()
    );
    for recording in after {
        left += match recording.state {
            State::Waiting { .. } | State::Unreadable(_) => 1,
            State::Delivered | State::InUse => 0,
        };
        if !matches!(recording.state, State::Delivered) {
            let state = state(&recording.state);
            let _ = writeln!(text, "Left: {}: {state}", name(&recording.path));
        }
    }
    for recording in before {
        let damaged = format!("{}.damaged", recording.path.display());
        if Path::new(&damaged).exists() {
            left += 1;
            let damaged = name(Path::new(&damaged));
            let _ = writeln!(text, "Left: {damaged}: partly unreadable");
        }
    }
    print_text(&text)?;
    Ok(left)
}

fn state(state: &State) -> String {
    match state {
        State::Waiting {
            batches,
            settled,
            refused: 0,
        } => format!("{settled} of {batches} batches uploaded"),
        State::Waiting {
            batches,
            settled,
            refused,
        } => {
            let uploaded = usize::from(*settled).saturating_sub(*refused);
            format!("{uploaded} of {batches} batches uploaded, {refused} refused by the server")
        }
        State::Delivered => "uploaded, and kept".to_owned(),
        State::InUse => "in use by another process that records or uploads it".to_owned(),
        State::Unreadable(error) => format!("unreadable: {}", line(&error.to_string())),
    }
}

type Times = (i64, i64);

fn both(one: Option<Times>, other: Option<Times>) -> Option<Times> {
    match (one, other) {
        (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
        (one, other) => one.or(other),
    }
}

fn range((first, last): Times) -> String {
    format!("{} to {}", time(first), time(last))
}

/// Formats Unix nanoseconds in UTC.
fn time(nanoseconds: i64) -> String {
    let time = jiff::Timestamp::from_nanosecond(nanoseconds.into());
    time.map_or_else(
        |_| "time out of range".to_owned(),
        |time| time.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
    )
}

fn name(path: &Path) -> String {
    line(&path.file_name().unwrap_or_default().to_string_lossy()).into_owned()
}
