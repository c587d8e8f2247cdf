//! `profcol storage inspect`: lists waiting batches of the stored queues and verifies them.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use profcol_component::files;
use profcol_engine::stored_batch;
use profcol_otlp::json::{self, ResourceAttrEncoding};
use profcol_profile::Profiles;
use profcol_storage::{Counts, QueueReport, queues, records};

use super::CommandError;
use super::print::print_text;
use crate::cli::InspectStorage;

pub fn inspect_storage(command: &InspectStorage) -> Result<(), CommandError> {
    let contents = queues(&command.directory).map_err(|error| failed(&error))?;
    let mut export = command.export.as_deref().map(Export::begin).transpose()?;
    let mut text = match contents.owner {
        Some(owner) => {
            format!("In use by process {owner}; a record being written may show as torn.\n")
        }
        None => "Not in use.\n".to_owned(),
    };
    let is_selected = |exporter: &str| {
        command
            .queue
            .as_deref()
            .is_none_or(|queue| queue == exporter)
    };
    let mut queues = contents.queues;
    queues.retain(|(exporter, _)| is_selected(exporter));
    if let Some(queue) = command.queue.as_ref().filter(|_| queues.is_empty()) {
        let directory = command.directory.display();
        return Err(CommandError::Runtime(format!(
            "{directory} has no queue for exporter {queue:?}"
        )));
    }
    let mut bad = 0;
    for (exporter, folder) in queues {
        let mut unusable = 0;
        let report = records(&exporter, &folder, |counts, head, body| {
            match (stored_batch(head, body, counts), &mut export) {
                (Err(_), _) => unusable += 1,
                (Ok(batch), Some(export)) => export.add(&batch.profiles)?,
                (Ok(_), None) => {}
            }
            Ok(())
        });
        let report = report.map_err(|error| failed(&error))??;
        bad += unusable + append_report(&mut text, &report, unusable);
    }
    if let Some(export) = export {
        let exported = export.end()?;
        let _ = writeln!(text, "exported {exported} batches");
    }
    print_text(&text)?;
    match bad {
        0 => Ok(()),
        bad => Err(CommandError::Runtime(format!(
            "{bad} damaged places; profcol drops and counts their records and delivers the rest"
        ))),
    }
}

/// Appends a queue's report to the text; returns its number of damaged places.
fn append_report(text: &mut String, report: &QueueReport, unusable: u64) -> u64 {
    let mut waiting = Counts::default();
    let (mut bytes, mut corrupt) = (0, 0);
    for segment in &report.segments {
        waiting += segment.waiting;
        bytes += segment.bytes;
        corrupt += segment.corrupt + u64::from(segment.unreadable.is_some());
    }
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{}: {} batches with {} samples wait; {bytes} bytes in {} segments, {} damaged places",
        report.exporter,
        waiting.batches,
        waiting.source_samples,
        report.segments.len(),
        corrupt + unusable,
    );
    for segment in &report.segments {
        let _ = write!(
            text,
            "  {}: {} bytes, {} waiting, {} delivered or dropped",
            segment.file.display(),
            segment.bytes,
            segment.waiting.batches,
            segment.settled
        );
        if segment.corrupt > 0 {
            let _ = write!(text, ", {} damaged places", segment.corrupt);
        }
        if segment.torn_bytes > 0 {
            let _ = write!(text, ", {} bytes torn at the end", segment.torn_bytes);
        }
        if let Some(why) = &segment.unreadable {
            let _ = write!(text, ", unreadable: {why}");
        }
        text.push('\n');
    }
    corrupt
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
