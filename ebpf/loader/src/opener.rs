//! Opens the files of samples before their processes exit.
//!
//! To verify that the opened file is the sampled one, it is mapped into this process and looked up with
//! the `identify` program.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use profcol_ebpf_common::file::{self, TableRef};
use profcol_ebpf_interpreters::dotnet::{DotNetFile, ProgramDirectory};
use profcol_ebpf_reader::CodeFile;
use profcol_ebpf_unwind as unwind;
use profcol_elf::{ElfError, Source, hex, mappings, open_regular};

use crate::files::{AnnouncedFile, Files};
use crate::functions::Functions;
use crate::identify::{FileIdentifier, IdentifyError};
use crate::jobs::{Code, Job, JobQueue};
use crate::path_resolver::PathResolver;
use crate::sampled_files::SampledFile;
use crate::table_counts::Stats;

/// How long to wait for a file if there is none to retry.
const IDLE_WAIT: Duration = Duration::from_secs(10);

pub struct Opener {
    pub identifier: FileIdentifier,
    pub files: Arc<Files>,
    pub jobs: Arc<JobQueue>,
    pub stats: Arc<Stats>,
    pub path_resolver: PathResolver,
    /// The table of files without unwind information.
    pub empty_table: TableRef,
    pub on_opened: Option<OnOpened>,
}

/// Callback for each opened file.
pub type OnOpened = Box<dyn FnMut(Opened<'_>) + Send>;

/// A sampled file.
#[derive(Clone, Copy, Debug)]
pub struct Opened<'a> {
    pub sampled: &'a SampledFile,
    /// A process that has it mapped.
    pub pid: u32,
    pub file: &'a File,
}

/// A file, or memory of the kernel (the vDSO).
enum OpenedImage {
    File(Arc<File>),
    Memory(Arc<Vec<u8>>),
}

impl OpenedImage {
    fn code(&self) -> CodeFile {
        match self {
            Self::File(file) => CodeFile {
                source: Arc::clone(file) as _,
                file: Some(Arc::clone(file)),
            },
            Self::Memory(bytes) => CodeFile {
                source: Arc::clone(bytes) as _,
                file: None,
            },
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum OpenError {
    #[error("file is gone: {0}")]
    Vanished(#[source] io::Error),
    #[error("file not found under any of {0} paths")]
    NotFound(usize),
    #[error(transparent)]
    Identify(#[from] IdentifyError),
}

impl Opener {
    pub fn run(mut self, announced: &Receiver<AnnouncedFile>) {
        loop {
            let next = self.files.wake_retries();
            let wait = next.map_or(IDLE_WAIT, |due| {
                due.saturating_duration_since(Instant::now())
            });
            match announced.recv_timeout(wait) {
                Ok(file) => self.handle(file),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.jobs.close();
    }

    fn handle(&mut self, announced: AnnouncedFile) {
        match self.open(&announced) {
            Ok((path, found)) => self.register(announced, path, found),
            Err(error) => {
                let file = &announced.file;
                tracing::debug!(pid = file.pid, path = %announced.path.display(), %error, "failed to open an executable");
                if self.files.retry_later(file) == 1 {
                    Stats::count(&self.stats.vanished);
                }
            }
        }
    }

    /// The display path and the file.
    fn open(&mut self, announced: &AnnouncedFile) -> Result<(String, OpenedImage), OpenError> {
        let AnnouncedFile { file, path } = announced;
        if file.id == file::VDSO {
            let bytes = read_vdso().map_err(OpenError::Vanished)?;
            return Ok(("[vdso]".into(), OpenedImage::Memory(Arc::new(bytes))));
        }
        let map_files_link = PathResolver::map_files_link(file);
        if let Ok(opened) = File::open(&map_files_link)
            && self.identifier.is_same_file(&opened, file.id)?
        {
            let shown = match path.is_absolute() {
                true => display_path(path),
                false => display_path(&fs::read_link(&map_files_link).unwrap_or_default()),
            };
            return Ok((shown, OpenedImage::File(Arc::new(opened))));
        }
        let roots = self.path_resolver.roots(file, path);
        for root in &roots {
            if let Ok(opened) = open_regular(root, path)
                && self.identifier.is_same_file(&opened, file.id)?
            {
                return Ok((display_path(path), OpenedImage::File(Arc::new(opened))));
            }
        }
        Err(OpenError::NotFound(roots.len() + 1))
    }

    /// Records the data for symbolizing its frames, and queues it for the builder.
    fn register(&mut self, announced: AnnouncedFile, path: String, found: OpenedImage) {
        let file = announced.file;
        let code = found.code();
        let source = &code.source;
        let mut sampled = SampledFile {
            path,
            ..SampledFile::default()
        };
        let elf = match unwind::ElfCode::read(&**source) {
            Ok(elf) => elf,
            Err(unwind::UnwindTableError::Elf(ElfError::NotElf)) => {
                return self.register_other(announced, sampled, code);
            }
            Err(refused) => {
                Stats::count(&self.stats.refused);
                tracing::debug!(path = sampled.path, error = %refused, "no unwind table for an executable");
                self.files.sampled_files().insert(file.number, sampled);
                self.files.publish(&file, TableRef::REFUSED);
                return;
            }
        };
        sampled.gnu_build_id = elf.build_id.as_deref().map(hex);
        sampled.go_build_id = elf.go_build_id.as_deref().map(str::to_owned);
        sampled.file_id = file_id(&**source);
        sampled.is_go = elf.is_go();
        sampled.segments = elf.segments.clone();
        if let OpenedImage::Memory(image) = &found {
            sampled.functions = Functions::of(image);
        }
        let path = sampled.path.clone();
        if let (Some(on_opened), OpenedImage::File(opened)) = (&mut self.on_opened, &found) {
            on_opened(Opened {
                sampled: &sampled,
                pid: file.pid,
                file: opened,
            });
        }
        self.files.sampled_files().insert(file.number, sampled);
        let job = Job {
            announced,
            path,
            file: code,
            code: Code::Elf(elf),
        };
        self.queue(job);
    }

    /// Records a file that is no executable of Linux.
    fn register_other(
        &mut self,
        announced: AnnouncedFile,
        mut sampled: SampledFile,
        code: CodeFile,
    ) {
        let source = &code.source;
        let file = announced.file;
        let path = sampled.path.clone();
        if is_memory(&path) {
            Stats::count(&self.stats.not_elf);
            self.files.sampled_files().insert(file.number, sampled);
            self.files.publish(&file, TableRef::GENERATED);
            return;
        }
        sampled.file_id = file_id(&**source);
        let directory = ProgramDirectory::of_file(file.pid, Path::new(&path));
        sampled.dotnet = DotNetFile::of_assembly(source, directory).map(Arc::new);
        let is_assembly = sampled.dotnet.is_some();
        self.files.sampled_files().insert(file.number, sampled);
        if is_assembly {
            let bytes = source.length().unwrap_or_default();
            self.queue(Job {
                announced,
                path,
                file: code,
                code: Code::Assembly(bytes),
            });
        } else {
            Stats::count(&self.stats.not_elf);
            self.files.publish(&file, self.empty_table);
        }
    }

    fn queue(&self, job: Job) {
        if let Err(job) = self.jobs.add(job) {
            tracing::debug!(
                path = job.path,
                "queue of executables without unwind tables is full"
            );
            self.files.retry_later(&job.announced.file);
        }
    }
}

fn file_id(source: &(impl Source + ?Sized)) -> Option<String> {
    unwind::htlhash(source).ok().map(|hash| hex(&hash))
}

/// Whether the file is shared memory: runtimes write code through one mapping and run it in another.
fn is_memory(path: &str) -> bool {
    const PREFIXES: [&str; 4] = ["/memfd:", "/dev/shm/", "/SYSV", "/anon_hugepage"];
    path == "/dev/zero" || PREFIXES.iter().any(|prefix| path.starts_with(prefix))
}

/// An unmounted file appears as `/`, such as runc's copy of itself: it has no path.
fn display_path(path: &Path) -> String {
    let path = path.to_string_lossy();
    match path.strip_suffix(" (deleted)").unwrap_or(&path) {
        "/" => String::new(),
        path => path.to_owned(),
    }
}

/// Reads the vDSO from this process: the kernel maps the same code into all processes.
pub fn read_vdso() -> io::Result<Vec<u8>> {
    /// It has two or three pages.
    const MAX_BYTES: u64 = 1 << 20;
    let missing = || io::Error::new(io::ErrorKind::NotFound, "this process has no vDSO");
    let mut own = mappings(Path::new("/proc/self"))?.map_while(Result::ok);
    let vdso = own.find(|mapping| mapping.path == Path::new("[vdso]"));
    let Range { start, end } = vdso.ok_or_else(missing)?.range;
    let mut memory = File::open("/proc/self/mem")?;
    memory.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    memory
        .take(end.saturating_sub(start).min(MAX_BYTES))
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}
