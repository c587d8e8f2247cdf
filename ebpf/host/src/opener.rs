//! Opens the files that samples meet, before their processes are gone.
//!
//! A file is found through the process that was sampled; whether what was opened is what was sampled
//! is not guessed from paths or times but asked of the kernel: the file is mapped here, and the
//! program that identifies mappings says what it is.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use profcol_ebpf_common::file::{self, TableRef};
use profcol_ebpf_common::record;
use profcol_ebpf_unwind as unwind;

use crate::executables::Executable;
use crate::files::Files;
use crate::identify::{Identifier, IdentifyError};
use crate::jobs::{Job, Jobs};
use crate::sys::Mapped;
use crate::tables::Stats;

/// How often numbers are looked after where no file comes.
const PAUSE: Duration = Duration::from_secs(10);

pub struct Opener {
    pub identifier: Identifier,
    pub files: Arc<Files>,
    pub jobs: Arc<Jobs>,
    pub stats: Arc<Stats>,
}

#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("it is gone: {0}")]
    Vanished(io::Error),
    #[error("what is found in its place is another file")]
    Replaced,
    #[error(transparent)]
    Identify(#[from] IdentifyError),
}

impl Opener {
    pub fn run(mut self, announced: &Receiver<record::File>) {
        loop {
            match announced.recv_timeout(PAUSE) {
                Ok(file) => self.take_in(&file),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.files.free_rested_numbers();
        }
        self.jobs.close();
    }

    fn take_in(&mut self, announced: &record::File) {
        match self.open(announced) {
            Ok((path, source)) => self.describe(announced, path, source),
            Err(error) => {
                Stats::count(&self.stats.vanished);
                tracing::debug!(pid = announced.pid, inode = announced.id.inode, %error, "an executable cannot be opened");
                self.files.forget(announced);
            }
        }
    }

    /// The file and its path as the sampled process sees it.
    fn open(
        &mut self,
        announced: &record::File,
    ) -> Result<(String, Box<dyn unwind::Source + Send>), Unusable> {
        if announced.id == file::VDSO {
            let bytes = read_vdso().map_err(Unusable::Vanished)?;
            return Ok(("[vdso]".into(), Box::new(bytes)));
        }
        let link = link_to(announced);
        let opened = File::open(&link).map_err(Unusable::Vanished)?;
        let mapped = Mapped::first_page(opened.as_fd()).map_err(Unusable::Vanished)?;
        if self.identifier.identify(mapped.address())? != Some(announced.id) {
            return Err(Unusable::Replaced);
        }
        let path = fs::read_link(&link).unwrap_or_default();
        Ok((display_path(&path), Box::new(opened)))
    }

    /// Notes what the names of its frames need, and leaves the table to the builder.
    fn describe(
        &mut self,
        announced: &record::File,
        path: String,
        source: Box<dyn unwind::Source + Send>,
    ) {
        let mut executable = Executable {
            path,
            ..Executable::default()
        };
        let elf = match unwind::Executable::read(&*source) {
            Ok(elf) => elf,
            Err(refused) => {
                Stats::count(&self.stats.refused);
                tracing::debug!(path = executable.path, error = %refused, "an executable has no unwind table");
                self.files
                    .executables()
                    .insert(announced.number, executable);
                self.files.publish(announced, TableRef::REFUSED);
                return;
            }
        };
        executable.gnu_build_id = elf.build_id.as_deref().map(hex);
        executable.go_build_id = elf.go_build_id.as_deref().map(str::to_owned);
        executable.file_id = unwind::htlhash(&*source).ok().map(|hash| hex(&hash));
        executable.is_go = elf.is_go();
        executable.segments = elf.segments.clone();
        let path = executable.path.clone();
        self.files
            .executables()
            .insert(announced.number, executable);
        let job = Job {
            announced: *announced,
            path,
            source,
            elf,
        };
        if let Err(job) = self.jobs.add(job) {
            tracing::debug!(
                path = job.path,
                "too many executables wait for their unwind tables"
            );
            Stats::count(&self.stats.vanished);
            self.files.forget(announced);
        }
    }
}

/// What leads to the very file that the process has mapped, whatever its path says by now.
fn link_to(announced: &record::File) -> PathBuf {
    let record::File {
        pid, start, end, ..
    } = *announced;
    if start == 0 && end == 0 {
        return format!("/proc/{pid}/exe").into();
    }
    format!("/proc/{pid}/map_files/{start:x}-{end:x}").into()
}

fn display_path(path: &Path) -> String {
    let path = path.to_string_lossy();
    path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned()
}

/// The kernel maps the same page of code into every process.
fn read_vdso() -> io::Result<Vec<u8>> {
    /// It has two or three pages.
    const MOST: u64 = 1 << 20;
    let maps = fs::read_to_string("/proc/self/maps")?;
    let missing = || io::Error::new(io::ErrorKind::NotFound, "this process has no vDSO");
    let line = maps
        .lines()
        .find(|line| line.ends_with("[vdso]"))
        .ok_or_else(missing)?;
    let range = line
        .split_once(' ')
        .and_then(|(range, _)| range.split_once('-'));
    let (start, end) = range.ok_or_else(missing)?;
    let address = |text| u64::from_str_radix(text, 16).map_err(|_| missing());
    let (start, end) = (address(start)?, address(end)?);
    let mut memory = File::open("/proc/self/mem")?;
    memory.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    memory
        .take(end.saturating_sub(start).min(MOST))
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
