//! The outputs for plain text: the terminal and files.

use std::fs::File;
use std::io::{self, Write};

use parking_lot::Mutex;
use profcol_component::files;

pub(super) struct Output {
    destinations: Vec<Destination>,
}

/// Each batch is written under a lock, so that batches do not mix.
enum Destination {
    Stdout,
    Stderr,
    File { path: String, file: Mutex<File> },
}

#[derive(Debug, thiserror::Error)]
pub(super) enum OutputError {
    #[error("failed to open the output file {path}: {source}")]
    Open { path: String, source: io::Error },
    #[error("failed to write to {path}: {source}")]
    Write { path: String, source: io::Error },
}

impl Output {
    pub(super) fn open(paths: &[String]) -> Result<Self, OutputError> {
        if paths.is_empty() {
            let destinations = vec![Destination::Stdout];
            return Ok(Self { destinations });
        }
        let destinations = paths.iter().map(|path| Destination::open(path));
        Ok(Self {
            destinations: destinations.collect::<Result<_, _>>()?,
        })
    }

    pub(super) fn write(&self, text: &str) -> Result<(), OutputError> {
        self.destinations
            .iter()
            .try_for_each(|destination| destination.write(text))
    }
}

impl Destination {
    fn open(path: &str) -> Result<Self, OutputError> {
        Ok(match path {
            "stdout" => Self::Stdout,
            "stderr" => Self::Stderr,
            path => {
                let file = files::options().create(true).append(true).open(path);
                let file = file.map_err(|source| OutputError::Open {
                    path: path.to_owned(),
                    source,
                })?;
                Self::File {
                    path: path.to_owned(),
                    file: Mutex::new(file),
                }
            }
        })
    }

    fn write(&self, text: &str) -> Result<(), OutputError> {
        let (path, written) = match self {
            Self::Stdout => ("stdout", write_to(io::stdout().lock(), text)),
            Self::Stderr => ("stderr", write_to(io::stderr().lock(), text)),
            Self::File { path, file } => (path.as_str(), write_to(&mut *file.lock(), text)),
        };
        written.map_err(|source| OutputError::Write {
            path: path.to_owned(),
            source,
        })
    }
}

fn write_to(mut destination: impl Write, text: &str) -> io::Result<()> {
    destination.write_all(text.as_bytes())?;
    destination.flush()
}
