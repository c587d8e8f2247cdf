//! `profcol storage inspect`: lists and verifies the stored queues and positions, and the profiles that `live_view` keeps on
//! disk.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use profcol_component::files;
use profcol_engine::stored_batch;
use profcol_history::Coverage;
use profcol_otlp::json::{self, ResourceAttrEncoding};
use profcol_profile::Profiles;
use profcol_storage::{
    Checkpoint, Counts, FoundLog, LogReport, Purpose, SegmentReport, logs, records, shared_bodies,
};

use super::CommandError;
use super::print::print_text;
use crate::cli::InspectStorage;

pub fn inspect_storage(command: &InspectStorage) -> Result<(), CommandError> {
    let contents = logs(&command.directory).map_err(|error| failed(&error))?;
    let mut export = command.export.as_deref().map(Export::begin).transpose()?;
    let is_in_use = contents.owner.is_some();
    let mut text = match contents.owner {
        Some(owner) => {
            format!("In use by process {owner}; a record being written may show as torn.\n")
        }
        None => "Not in use.\n".to_owned(),
    };
    let mut logs = contents.logs;
    if let Some(exporter) = &command.queue {
        logs.retain(|log| log.exporter == *exporter);
        if logs.is_empty() {
            let directory = command.directory.display();
            return Err(CommandError::Runtime(format!(
                "{directory} has no queue or history of exporter {exporter:?}"
            )));
        }
    }
    let mut bad = 0;
    let mut references = BTreeMap::new();
    for log in logs {
        let mut unusable = 0;
        let mut time: Option<Coverage> = None;
        let report = records(&log.directory, |counts, head, body| {
            let Ok(batch) = stored_batch(head, body, counts) else {
                unusable += 1;
                return Ok(());
            };
            if let Some(covered) = Coverage::of(&batch.metadata) {
                time.get_or_insert_with(|| covered.clone()).add(&covered);
            }
            match &mut export {
                Some(export) => export.add(&batch.profiles),
                None => Ok(()),
            }
        });
        let report = report.map_err(|error| failed(&error))??;
        for (segment, records) in &report.references {
            *references.entry(*segment).or_default() += records;
        }
        bad += unusable + append_report(&mut text, &log, &report, time.as_ref(), unusable);
        if !is_in_use {
            bad += report.segments.iter().map(|it| it.missing).sum::<u64>();
        }
    }
    if command.queue.is_none() {
        let shared = shared_bodies(&command.directory).map_err(|error| failed(&error))?;
        if let Some(shared) = shared {
            bad += append_shared(&mut text, &shared, &references);
        }
        for checkpoint in contents.checkpoints {
            bad += append_checkpoint(&mut text, &checkpoint);
        }
    }
    if let Some(export) = export {
        let exported = export.end()?;
        let _ = writeln!(text, "exported {exported} batches");
    }
    print_text(&text)?;
    match bad {
        0 => Ok(()),
        bad => Err(CommandError::Runtime(format!(
            "{bad} damaged places; profcol drops and counts their records and uses the rest"
        ))),
    }
}

/// Appends the state of a receiver to the text; returns its number of damaged places.
fn append_checkpoint(text: &mut String, checkpoint: &Checkpoint) -> u64 {
    let loaded = checkpoint.load();
    // Writing to a string cannot fail.
    let _ = match &loaded {
        Ok(state) => {
            let bytes = state.as_ref().map_or(0, Vec::len);
            writeln!(
                text,
                "{}: {bytes} bytes of positions",
                checkpoint.path().display()
            )
        }
        Err(error) => writeln!(text, "{error}"),
    };
    u64::from(loaded.is_err())
}

/// Appends a log's report to the text; returns its number of damaged places.
fn append_report(
    text: &mut String,
    log: &FoundLog,
    report: &LogReport,
    time: Option<&Coverage>,
    unusable: u64,
) -> u64 {
    let mut waiting = Counts::default();
    let (mut bytes, mut corrupt) = (0, 0);
    for segment in &report.segments {
        waiting += segment.waiting;
        bytes += segment.bytes;
        corrupt += damaged_places(segment);
    }
    let Counts {
        batches,
        source_samples,
        ..
    } = waiting;
    let exporter = &log.exporter;
    // Writing to a string cannot fail.
    let _ = match log.purpose {
        Purpose::Queue => write!(
            text,
            "{exporter}: {batches} batches with {source_samples} samples wait"
        ),
        Purpose::History => write!(
            text,
            "history of {exporter}: {source_samples} samples in {batches} records"
        ),
    };
    if let Some(time) = time {
        let _ = write!(text, ", {} to {}", utc(time.from), utc(time.until));
    }
    let _ = writeln!(
        text,
        "; {bytes} bytes in {} segments, {} damaged places",
        report.segments.len(),
        corrupt + unusable,
    );
    for segment in &report.segments {
        let (file, bytes) = (segment.file.display(), segment.bytes);
        let records = segment.waiting.batches;
        let _ = match log.purpose {
            Purpose::Queue => write!(
                text,
                "  {file}: {bytes} bytes, {records} waiting, {} delivered or dropped",
                segment.settled
            ),
            Purpose::History => write!(text, "  {file}: {bytes} bytes, {records} records"),
        };
        append_problems(text, segment);
    }
    corrupt
}

/// Appends the bodies that queues share to the text, and how many waiting batches need them; returns the number of
/// damaged places.
fn append_shared(text: &mut String, report: &LogReport, references: &BTreeMap<u64, u64>) -> u64 {
    let segments = &report.segments;
    let bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
    let damaged = segments.iter().map(damaged_places).sum();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "shared by the queues: {bytes} bytes in {} segments, {damaged} damaged places",
        segments.len()
    );
    for segment in segments {
        let (file, bytes) = (segment.file.display(), segment.bytes);
        let stored = segment.waiting.batches;
        let _ = write!(text, "  {file}: {bytes} bytes, {stored} batches, ");
        let _ = match references.get(&segment.number) {
            Some(records) => write!(text, "needed {records} times"),
            None => write!(text, "not needed"),
        };
        append_problems(text, segment);
    }
    damaged
}

fn damaged_places(segment: &SegmentReport) -> u64 {
    segment.corrupt + u64::from(segment.unreadable.is_some())
}

/// Ends the line of a segment.
fn append_problems(text: &mut String, segment: &SegmentReport) {
    // Writing to a string cannot fail.
    if segment.corrupt > 0 {
        let _ = write!(text, ", {} damaged places", segment.corrupt);
    }
    if segment.torn_bytes > 0 {
        let _ = write!(text, ", {} bytes torn at the end", segment.torn_bytes);
    }
    if segment.missing > 0 {
        let _ = write!(text, ", {} without what they share", segment.missing);
    }
    if let Some(why) = &segment.unreadable {
        let _ = write!(text, ", unreadable: {why}");
    }
    text.push('\n');
}

/// Unix time in milliseconds, as RFC 3339.
fn utc(milliseconds: u64) -> String {
    let time = i64::try_from(milliseconds)
        .ok()
        .and_then(|it| jiff::Timestamp::from_millisecond(it).ok());
    time.map_or_else(|| milliseconds.to_string(), |time| time.to_string())
}

/// The output file of `--export`.
struct Export<'a> {
    path: &'a Path,
    file: BufWriter<File>,
    is_json: bool,
    batches: u64,
}

impl<'a> Export<'a> {
    fn begin(path: &'a Path) -> Result<Self, CommandError> {
        let opened = files::options().write(true).create_new(true).open(path);
        Ok(Self {
            path,
            file: BufWriter::new(opened.map_err(|error| not_written(path, &error))?),
            is_json: path.extension().is_some_and(|ending| ending == "jsonl"),
            batches: 0,
        })
    }

    fn add(&mut self, profiles: &Profiles) -> Result<(), CommandError> {
        let written = match self.is_json {
            true => {
                let line = json::encode(profiles.model(), ResourceAttrEncoding::Plain);
                self.file
                    .write_all(&line)
                    .and_then(|()| self.file.write_all(b"\n"))
            }
            false => {
                let wire = profiles.to_wire();
                let Ok(length) = u32::try_from(wire.len()) else {
                    return Err(CommandError::Runtime(
                        "a batch is larger than 4 GiB".to_owned(),
                    ));
                };
                let written = self.file.write_all(&length.to_be_bytes());
                written.and_then(|()| self.file.write_all(&wire))
            }
        };
        self.batches += 1;
        written.map_err(|error| not_written(self.path, &error))
    }

    fn end(mut self) -> Result<u64, CommandError> {
        self.file
            .flush()
            .map_err(|error| not_written(self.path, &error))?;
        Ok(self.batches)
    }
}

fn not_written(path: &Path, error: &std::io::Error) -> CommandError {
    CommandError::Runtime(format!("{}: {error}", path.display()))
}

fn failed(error: &profcol_storage::InspectError) -> CommandError {
    CommandError::Runtime(error.to_string())
}
