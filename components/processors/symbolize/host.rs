//! Names that only this host can give, while it runs: of its kernel's code, and of what the runtimes of its
//! processes generated.
//!
//! An address says nothing of where it was seen. So each is asked for together with who has it, and is named only if
//! all of them are of this host, of this boot, and agree.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use profcol_component::SymbolFrame;
use profcol_processes::{Described, Host, JitProcesses, KernelNames};
use profcol_profile::{LocationIdx, Model, ResourceProfiles, StackIdx};

use super::names::Answer;
use super::telemetry::Reason;
use crate::shared::local::{LocalProcess, is_of};
use crate::shared::locks::lock;

/// A clock may be set while a process starts, in milliseconds.
const SLACK: i64 = 1000;

/// A place that is in no executable of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HostPlace {
    /// Where the kernel is in memory, and what it was built as, if that is told.
    Kernel(u64, Option<Arc<str>>),
    /// From where the kernel or a module begins that was built as this.
    KernelFile(Arc<str>, u64),
    /// In the memory of its processes.
    Generated(u64),
}

/// A place, and who has it.
#[derive(Debug)]
pub(super) struct Question {
    location: LocationIdx,
    place: HostPlace,
    /// Somebody has it of whom is not known that it was here and at this boot.
    is_foreign: bool,
    processes: HashSet<Seen>,
}

/// A process, and when it was profiled, in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Seen {
    process: LocalProcess,
    at: i64,
}

/// A number may be another process's by now: when it started, in ticks, tells.
type ProcessKey = (u32, u64);

pub(super) struct HostNames {
    assume_local: bool,
    host: OnceLock<Host>,
    /// From the first address in the kernel on.
    kernel: Mutex<Option<KernelNames>>,
    generated: Mutex<JitProcesses<ProcessKey>>,
    has_warned: AtomicBool,
}

impl HostNames {
    /// Names of generated code take no more than so many bytes.
    pub fn new(assume_local: bool, bytes: usize) -> Self {
        Self {
            assume_local,
            host: OnceLock::new(),
            kernel: Mutex::default(),
            generated: Mutex::new(JitProcesses::new(bytes)),
            has_warned: AtomicBool::new(false),
        }
    }

    pub fn learn_host(&self) {
        self.host.get_or_init(Host::read);
    }

    /// Of each place who has it.
    pub fn questions(
        &self,
        model: &Model,
        places: HashMap<LocationIdx, HostPlace>,
    ) -> Vec<Question> {
        let question = |(location, place)| {
            let question = Question {
                location,
                place,
                is_foreign: false,
                processes: HashSet::new(),
            };
            (location, question)
        };
        let mut questions: HashMap<LocationIdx, Question> =
            places.into_iter().map(question).collect();
        for row in &model.resources {
            let owner = self.owner(row);
            let profiles = row.scopes.iter().flat_map(|scope| &scope.profiles);
            for profile in profiles {
                let at = i64::try_from(profile.time_unix_nano / 1_000_000).unwrap_or(0);
                let is_here = owner.is_here && self.is_of_this_boot(at);
                let seen = owner.process.clone().map(|process| Seen { process, at });
                let stacks: HashSet<StackIdx> =
                    profile.samples.iter().map(|sample| sample.stack).collect();
                for stack in stacks {
                    for location in model.dictionary.stacks.get(stack) {
                        if let Some(question) = questions.get_mut(location) {
                            question.add(is_here, seen.as_ref());
                        }
                    }
                }
            }
        }
        questions.into_values().collect()
    }

    fn owner(&self, row: &ResourceProfiles) -> Owner {
        let attributes = row.resource.as_ref().map(|it| &it.attributes);
        let Some((attributes, host)) = attributes.zip(self.host.get()) else {
            return Owner::default();
        };
        Owner {
            is_here: is_of(host, attributes).unwrap_or(self.assume_local),
            process: LocalProcess::of(attributes, host, self.assume_local),
        }
    }

    /// The kernel and its modules are elsewhere at each boot.
    fn is_of_this_boot(&self, at: i64) -> bool {
        let started = self.host.get().and_then(Host::started);
        started.is_some_and(|started| at > 0 && at >= started - SLACK)
    }

    /// Reads files, so it is no work for the threads that move batches.
    pub fn answer(&self, questions: Vec<Question>) -> Vec<(LocationIdx, Answer)> {
        let is_kernel = |it: &Question| !matches!(it.place, HostPlace::Generated(_));
        let (kernel, generated): (Vec<_>, Vec<_>) = questions.into_iter().partition(is_kernel);
        let mut answers = Vec::with_capacity(kernel.len() + generated.len());
        if !kernel.is_empty() {
            self.name_kernel(&kernel, &mut answers);
        }
        if !generated.is_empty() {
            self.name_generated(&generated, &mut answers);
        }
        answers
    }

    fn name_kernel(&self, questions: &[Question], answers: &mut Vec<(LocationIdx, Answer)>) {
        let mut kernel = lock(&self.kernel);
        let names = kernel.get_or_insert_with(|| {
            // Who may ask for BPF programs has their names from the receiver.
            KernelNames::read(|_| None).unwrap_or_else(|error| {
                tracing::debug!(%error, "failed to read /proc/kallsyms");
                KernelNames::none()
            })
        });
        names.keep_up();
        if names.are_hidden() && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "The kernel hides its addresses: its frames have no names. \
                 Add CAP_SYSLOG, or set kernel.kptr_restrict to 0 or 1."
            );
        }
        for question in questions {
            answers.push((question.location, kernel_frame(names, question)));
        }
    }

    fn name_generated(&self, questions: &[Question], answers: &mut Vec<(LocationIdx, Answer)>) {
        let mut generated = lock(&self.generated);
        let mut known: HashMap<&Seen, Option<ProcessKey>> = HashMap::new();
        for seen in questions.iter().flat_map(|question| &question.processes) {
            known.entry(seen).or_insert_with(|| {
                let key = self.still_there(seen)?;
                generated.meet(key, seen.process.pid);
                Some(key)
            });
        }
        generated.refresh();
        for question in questions {
            let mut found = question.processes.iter().map(|seen| {
                let key = (*known.get(seen)?)?;
                let HostPlace::Generated(address) = question.place else {
                    return None;
                };
                generated.names(&key)?.find(address)
            });
            let first = found.next().flatten();
            let do_agree = found.all(|other| other == first);
            let answer = match first {
                _ if question.is_foreign => Err(Reason::NotLocal),
                Some(code) if do_agree => Ok(one(SymbolFrame {
                    name: code.name.into(),
                    system_name: code.name.into(),
                    file: code.file.into(),
                    line: code.line,
                    ..SymbolFrame::default()
                })),
                _ => Err(Reason::NotFound),
            };
            answers.push((question.location, answer));
        }
    }

    /// Whether the process runs that was profiled, and not another one with its number.
    fn still_there(&self, seen: &Seen) -> Option<ProcessKey> {
        let pid = seen.process.pid;
        let start = Described::start_of(pid)?;
        let created = self.host.get()?.time_of(start)?;
        let is_it = seen.process.may_be_from(Some(created)) && created <= seen.at + SLACK;
        is_it.then_some((pid, start))
    }
}

/// Of a resource.
#[derive(Default)]
struct Owner {
    is_here: bool,
    process: Option<LocalProcess>,
}

impl Question {
    fn add(&mut self, is_here: bool, seen: Option<&Seen>) {
        match self.place {
            HostPlace::Kernel(..) => self.is_foreign |= !is_here,
            // The same file is the same everywhere.
            HostPlace::KernelFile(..) => {}
            HostPlace::Generated(_) => match seen {
                Some(seen) if !self.processes.contains(seen) => {
                    self.processes.insert(seen.clone());
                }
                Some(_) => {}
                None => self.is_foreign = true,
            },
        }
    }
}

fn kernel_frame(names: &KernelNames, question: &Question) -> Answer {
    if question.is_foreign {
        return Err(Reason::NotLocal);
    }
    if names.are_hidden() {
        return Err(Reason::NoNames);
    }
    let (address, build_id) = match &question.place {
        HostPlace::Kernel(address, build_id) => (*address, build_id.as_ref()),
        HostPlace::KernelFile(build_id, offset) => {
            let address = names.address_of(build_id, *offset);
            (address.ok_or(Reason::NotLocal)?, Some(build_id))
        }
        HostPlace::Generated(_) => return Err(Reason::NotFound),
    };
    let found = names.find(address);
    let name = found.function.ok_or(Reason::NotFound)?;
    if build_id.is_some_and(|told| found.build_id != Some(&**told)) {
        return Err(Reason::NotLocal);
    }
    Ok(one(SymbolFrame {
        name: name.into(),
        system_name: name.into(),
        ..SymbolFrame::default()
    }))
}

fn one(frame: SymbolFrame) -> Arc<[SymbolFrame]> {
    Arc::new([frame])
}
