//! The profiler: loads the programs, verifies them and samples.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use aya::maps::{HashMap, MapData, PerCpuArray};
use profcol_ebpf_common::context::library::ProcessContexts;
use profcol_ebpf_common::counter::{self, COUNTERS};
use profcol_ebpf_common::interpreter::beam::BeamProcess;
use profcol_ebpf_common::interpreter::dotnet::DotNetProcess;
use profcol_ebpf_common::interpreter::hotspot::JavaProcess;
use profcol_ebpf_common::reason::{EndReason, REASONS};
use profcol_ebpf_common::record::{ProcessKey, process_state};
use profcol_ebpf_common::sample_counts::{SampleKey, count_buffer};
use profcol_ebpf_common::table::PAGE_SHIFT;
use profcol_reader::Readers;

use crate::btf;
use crate::clock::{Clock, Event};
use crate::events::Events;
use crate::file_map::FileMap;
use crate::files::{AnnouncedFile, Files};
use crate::identify::FileIdentifier;
use crate::mapping_source::{self, MappingSource};
use crate::namespace::{Namespace, Scope};
use crate::opener::OnOpened;
use crate::preflight;
use crate::programs::Sizes;
use crate::record_buffer::RecordBuffer;
use crate::records::{self, Record, StackFrame, StackFrames};
use crate::runtime_counts::RuntimeCounts;
use crate::sample_counts::SampleCounts;
use crate::sampled_files::SampledFiles;
use crate::sideband::{MappingCounts, Publisher, SideBand};
use crate::start_error::{ProfilerStartError, StartFailure};
use crate::sys;
use crate::table_counts::TableCounts;
use crate::tables::{TableParts, Tables};

/// What to sample, and size limits.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The sampling event.
    pub event: Event,
    /// Samples per second on each busy CPU.
    pub frequency: u64,
    /// Maximum number of frames of a user stack.
    pub max_frames: u32,
    /// Whether process records include arguments.
    pub with_arguments: bool,
    /// Memory limit for unwind tables.
    pub table_bytes: u64,
    /// Whether tables are built at low priority.
    pub low_table_priority: bool,
    /// Maximum number of tracked executables.
    pub files: u32,
    /// Maximum number of tracked processes.
    pub processes: u32,
    /// Size of the ring buffer; a power of two.
    pub ring_bytes: u32,
    pub scope: Scope,
    /// Maximum number of distinct samples counted in the kernel; 0 sends each sample.
    pub sample_counts: u32,
    /// What to read of the contexts of threads: a set of [`part`](crate::part)s.
    pub context_parts: u32,
}

/// Everything except the perf events: it does not sample yet.
pub struct Loaded {
    parts: Parts,
    sampler: OwnedFd,
    event: Event,
    frequency: u64,
}

pub struct Profiler {
    // First, so that sampling stops before the other fields are dropped.
    events: Events,
    parts: Parts,
}

struct Parts {
    records: RecordBuffer,
    counters: PerCpuArray<MapData, [u64; COUNTERS]>,
    processes: HashMap<MapData, ProcessKey, u32>,
    java_processes: HashMap<MapData, ProcessKey, JavaProcess>,
    beam_processes: HashMap<MapData, ProcessKey, BeamProcess>,
    dotnet_processes: HashMap<MapData, ProcessKey, DotNetProcess>,
    process_contexts: HashMap<MapData, ProcessKey, ProcessContexts>,
    sample_counts: SampleCounts,
    tables: Tables,
    sampled_files: SampledFiles,
    /// Set if the kernel's VMA tree cannot be read.
    sideband: Option<SideBand>,
}

/// The page of a table at which a stack was truncated: the number of its file, and its own.
fn needed_page(record: &Record<'_>) -> Option<(u32, u64)> {
    if let Record::Sample { sample, user, .. } = record
        && sample.end == EndReason::TablePending as u32
        && let Some(StackFrame::Native(last)) = user.stack().last()
        && last.has_file()
    {
        return Some((last.file(), last.offset() >> PAGE_SHIFT));
    }
    None
}

/// What drained records need from the threads of the tables.
#[derive(Default)]
struct Needed {
    files: Vec<AnnouncedFile>,
    pages: Vec<(u32, u64)>,
}

fn dispatch(
    item: &[u8],
    tables: &Tables,
    sideband: Option<&SideBand>,
    needed: &mut Needed,
    take: &mut impl FnMut(Record<'_>),
) {
    let Some(mut record) = records::parse(item) else {
        tracing::error!(bytes = item.len(), "Unknown record in the ring buffer.");
        return;
    };
    match (&mut record, sideband) {
        (Record::File { file, path }, sideband) => {
            let path = match sideband {
                Some(sideband) if file.names_bytes == 0 => sideband.path(&file.id),
                _ => path.path(),
            };
            let announced = AnnouncedFile { file: *file, path };
            // Before the record of its process.
            tables.announce(&announced);
            needed.files.push(announced);
            return;
        }
        (Record::Sample { sample, user, .. }, Some(sideband)) => {
            if let Some(reason) = sideband.correct_reason(sample) {
                sample.end = reason as u32;
                sample.user_words = 0;
                *user = StackFrames::default();
            }
        }
        _ => {}
    }
    needed.pages.extend(needed_page(&record));
    take(record);
}

/// Counters of the programs since load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub samples: u64,
    /// Events in excluded processes.
    pub excluded: u64,
    /// Run time of the sampling program.
    pub run_time: Duration,
    pub by_reason: Vec<(EndReason, u64)>,
    /// Samples dropped because the ring buffer was full.
    pub lost_samples: u64,
    pub lost_processes: u64,
    pub lost_files: u64,
    pub no_free_file_number: u64,
    /// Interpreted frames whose memory could not be read.
    pub interpreter_unreadable: u64,
    /// Samples in an interpreter without state for the thread.
    pub interpreter_no_thread: u64,
    /// Labels without room, with too long a key or value, or without readable memory.
    pub too_many_labels: u64,
    pub too_long_labels: u64,
    pub unreadable_labels: u64,
}

impl Loaded {
    /// Loads the programs. `on_opened` must be quick: other files wait for its thread. `readers` start a process that reads
    /// the files.
    pub fn new(
        settings: &Settings,
        on_opened: Option<OnOpened>,
        readers: &Readers,
    ) -> Result<Self, ProfilerStartError> {
        preflight::check(settings.scope)?;
        let is_namespace = settings.scope.is_namespace(Path::new("/"));
        let namespace = is_namespace.then(Namespace::own).transpose();
        let namespace = namespace.map_err(StartFailure::Namespace)?;
        let layout = btf::kernel_layout()?;
        let sizes = Sizes {
            table_bytes: settings.table_bytes,
            files: settings.files,
            processes: settings.processes,
            ring_bytes: settings.ring_bytes,
            max_frames: settings.max_frames,
            with_arguments: settings.with_arguments,
            namespace,
            sample_counts: settings.sample_counts,
            context_parts: settings.context_parts,
        };
        let begin = Instant::now();
        let (mut programs, mapping_source) = mapping_source::load(layout, &sizes)?;
        let sampler = programs.sampler_fd()?;
        tracing::info!(
            kernel = sys::kernel_release(),
            tables = programs.table_memory.name(),
            mappings = %mapping_source,
            milliseconds = begin.elapsed().as_millis(),
            "Loaded the BPF programs."
        );
        let sideband = match mapping_source {
            MappingSource::Events { .. } => {
                let publisher = Publisher::new(programs.image_areas, programs.areas);
                Some(SideBand::start(publisher)?)
            }
            MappingSource::MapleTree { .. } | MappingSource::RedBlackTree { .. } => None,
        };
        let identifier = match &sideband {
            Some(_) => FileIdentifier::Events,
            None => FileIdentifier::Kernel(Box::new(programs.identifier)),
        };

        let sampled_files = SampledFiles::default();
        let files = Files::new(
            programs.files,
            programs.free_numbers,
            sampled_files.clone(),
            settings.files as usize,
        );
        let low_priority = settings.low_table_priority;
        let parts = TableParts {
            arena: programs.arena,
            files,
            identifier,
            interpreters: FileMap::new(programs.interpreters),
            contexts: FileMap::new(programs.executable_contexts),
        };
        let tables =
            Tables::start(parts, on_opened, low_priority, readers).map_err(StartFailure::Thread)?;
        let parts = Parts {
            records: RecordBuffer::new(programs.records).map_err(StartFailure::RecordBuffer)?,
            counters: programs.counters,
            processes: programs.processes,
            java_processes: programs.java_processes,
            beam_processes: programs.beam_processes,
            dotnet_processes: programs.dotnet_processes,
            process_contexts: programs.process_contexts,
            sample_counts: programs.sample_counts,
            tables,
            sampled_files,
            sideband,
        };
        Ok(Self {
            parts,
            sampler,
            event: settings.event,
            frequency: settings.frequency,
        })
    }

    /// Starts sampling.
    pub fn start(self) -> Result<Profiler, ProfilerStartError> {
        let events = Events::open(self.event, self.frequency, self.sampler)?;
        Ok(Profiler {
            events,
            parts: self.parts,
        })
    }
}

impl Profiler {
    /// Waits for urgent records or the timeout.
    pub fn wait(&mut self, timeout: Duration) {
        self.events.update_cpus();
        sys::wait_readable(self.parts.records.as_raw_fd(), timeout);
    }

    /// Calls `take` with the records of samples and processes since the last call and until now, and returns the new files.
    /// Pass each to [`build_table`](Self::build_table) or [`postpone_table`](Self::postpone_table).
    #[must_use]
    pub fn drain(&mut self, mut take: impl FnMut(Record<'_>)) -> Vec<AnnouncedFile> {
        let Parts {
            records,
            tables,
            sideband,
            ..
        } = &mut self.parts;
        let mut needed = Needed::default();
        match sideband {
            None => records.drain(|item| dispatch(item, tables, None, &mut needed, &mut take)),
            Some(sideband) => {
                let mut drained: Vec<Vec<u8>> = Vec::new();
                records.drain(|item| drained.push(item.to_vec()));
                if !drained.is_empty() {
                    sideband.catch_up();
                    for item in &drained {
                        dispatch(item, tables, Some(sideband), &mut needed, &mut take);
                    }
                    sideband.rescan_requested();
                }
            }
        }
        // At once: the threads of the tables have a low priority, and a host without idle time would let them keep
        // the lock for long.
        tables.request_pages(&needed.pages);
        needed.files
    }

    /// Builds the file's unwind table in the background.
    pub fn build_table(&self, file: AnnouncedFile) {
        self.parts.tables.build(file);
    }

    /// Builds no table until the next sample in the file: its process is excluded.
    pub fn postpone_table(&self, file: &AnnouncedFile) {
        self.parts.tables.postpone(file);
    }

    /// All drained records are symbolized: numbers of evicted files may be reused.
    pub fn release_file_numbers(&self) {
        self.parts.tables.release_file_numbers();
    }

    /// The process is announced again at its next sample.
    pub fn forget(&mut self, process: &ProcessKey) {
        if let Err(error) = self.parts.processes.remove(process) {
            tracing::trace!(pid = process.pid, %error, "process not in the map");
        }
    }

    /// Publishes the data for walking the stacks of a Java process.
    pub fn set_java_process(&mut self, process: &ProcessKey, java: &JavaProcess) {
        if let Err(error) = self.parts.java_processes.insert(process, java, 0) {
            tracing::warn!(pid = process.pid, %error, "Failed to publish a Java process.");
        }
    }

    /// Publishes the data for finding the unwind rules of a process that runs .NET.
    pub fn set_dotnet_process(&mut self, process: &ProcessKey, dotnet: &DotNetProcess) {
        if let Err(error) = self.parts.dotnet_processes.insert(process, dotnet, 0) {
            tracing::warn!(pid = process.pid, %error, "Failed to publish a process that runs .NET.");
        }
    }

    /// Publishes the data for walking the stacks of a process that runs BEAM.
    pub fn set_beam_process(&mut self, process: &ProcessKey, beam: &BeamProcess) {
        if let Err(error) = self.parts.beam_processes.insert(process, beam, 0) {
            tracing::warn!(pid = process.pid, %error, "Failed to publish a process that runs BEAM.");
        }
    }

    /// Publishes where the libraries of a process keep the contexts of its threads.
    pub fn set_process_contexts(
        &mut self,
        process: &ProcessKey,
        contexts: Option<&ProcessContexts>,
    ) {
        let published = match contexts {
            Some(contexts) => self.parts.process_contexts.insert(process, contexts, 0),
            None => self.parts.process_contexts.remove(process),
        };
        if let Err(error) = published {
            tracing::debug!(pid = process.pid, %error, "failed to publish the thread contexts of a process");
        }
    }

    /// Excludes the process from sampling. Earlier samples may still be in the ring.
    pub fn exclude(&mut self, process: &ProcessKey) {
        if let Err(error) = self
            .parts
            .processes
            .insert(process, process_state::EXCLUDED, 0)
        {
            tracing::debug!(pid = process.pid, %error, "failed to exclude a process in the kernel");
        }
    }

    /// The buffer that currently counts equal samples.
    pub fn count_buffer(&self) -> u32 {
        self.parts.sample_counts.count_buffer()
    }

    /// Swaps the count buffers. When this returns, the previous buffer is complete and can be read.
    pub fn swap_count_buffers(&mut self) {
        if self.parts.sample_counts.count_buffer() != count_buffer::NONE
            && let Err(error) = self.parts.sample_counts.swap_count_buffers()
        {
            tracing::error!(%error, "Failed to swap the count buffers.");
        }
    }

    /// Calls `take` with the counts of the previous buffer.
    pub fn take_sample_counts(&self, take: impl FnMut(SampleKey, u64)) {
        if let Err(error) = self.parts.sample_counts.take(take) {
            tracing::error!(%error, "Failed to read the sample counts.");
        }
    }

    /// The sampling event in use.
    pub fn clock(&self) -> Clock {
        self.events.clock()
    }

    /// Sets the sampling frequency.
    pub fn set_frequency(&mut self, frequency: u64) {
        self.events.set_frequency(frequency);
    }

    /// Stops sampling. Earlier records can still be drained.
    pub fn stop(&self) {
        self.events.stop();
    }

    pub fn sampled_files(&self) -> &SampledFiles {
        &self.parts.sampled_files
    }

    pub fn table_counts(&self) -> TableCounts {
        self.parts.tables.counts()
    }

    /// The runtimes in files.
    pub fn runtime_counts(&self) -> RuntimeCounts {
        self.parts.tables.runtime_counts()
    }

    /// None if the kernel's VMA tree is read.
    pub fn mapping_counts(&self) -> Option<MappingCounts> {
        self.parts.sideband.as_ref().map(SideBand::counts)
    }

    pub fn counts(&self) -> Counts {
        let mut sums = [0u64; COUNTERS];
        if let Ok(by_cpu) = self.parts.counters.get(&0, 0) {
            for counts in by_cpu.iter() {
                for (sum, count) in sums.iter_mut().zip(counts) {
                    *sum += count;
                }
            }
        }
        if let Some(sideband) = &self.parts.sideband {
            for (sum, more) in sums.iter_mut().zip(sideband.corrections()) {
                *sum = sum.saturating_add_signed(more);
            }
        }
        let at = |counter: u32| sums.get(counter as usize).copied().unwrap_or(0);
        let reasons = (0..REASONS as u32).filter_map(EndReason::from_code);
        Counts {
            samples: at(counter::SAMPLES),
            excluded: at(counter::EXCLUDED),
            run_time: Duration::from_nanos(at(counter::RUN_NANOSECONDS)),
            by_reason: reasons.map(|reason| (reason, at(reason as u32))).collect(),
            lost_samples: at(counter::RING_FULL_SAMPLE),
            lost_processes: at(counter::RING_FULL_PROCESS),
            lost_files: at(counter::RING_FULL_FILE),
            no_free_file_number: at(counter::NO_FREE_FILE_NUMBER),
            interpreter_unreadable: at(counter::INTERPRETER_UNREADABLE),
            interpreter_no_thread: at(counter::INTERPRETER_NO_THREAD),
            too_many_labels: at(counter::TOO_MANY_LABELS),
            too_long_labels: at(counter::TOO_LONG_LABELS),
            unreadable_labels: at(counter::UNREADABLE_LABELS),
        }
    }
}
