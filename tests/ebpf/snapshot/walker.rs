//! The walk of the BPF programs on a stopped process, with mappings from `/proc`, its memory, and unwind tables.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use profcol_ebpf_common::architecture::X86_64;
use profcol_ebpf_common::reason::EndReason;
use profcol_ebpf_common::rule::Rule;
use profcol_ebpf_common::walk::{Registers, UserMemory, Walk};
use profcol_ebpf_unwind::{ElfCode, Table};
use profcol_elf::Source;

use super::described::ProcessDescription;

/// The same limit as for gdb.
const MAX_FRAMES: usize = 200;

/// Cached tables of files, by inode and time; none for rejected ones.
#[derive(Default)]
pub struct Files(HashMap<String, Option<Known>>);

struct Known {
    table: Table,
    described: Option<ProcessDescription>,
}

const VDSO: &str = "[vdso]";

pub struct Stopped {
    pid: u32,
    mappings: Vec<Mapping>,
    memory: File,
}

struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    has_code: bool,
    /// Device and inode; zeros if there is no file.
    file: String,
    path: String,
}

impl Stopped {
    pub fn open(pid: u32) -> Option<Self> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
        Some(Self {
            pid,
            mappings: maps.lines().filter_map(Mapping::parse).collect(),
            memory: File::open(format!("/proc/{pid}/mem")).ok()?,
        })
    }

    /// The instruction pointer of each frame, and the end reason.
    pub fn walk(&mut self, registers: Registers, files: &mut Files) -> (Vec<u64>, EndReason) {
        let mut walk = Walk {
            registers,
            exact: 1,
            ..Walk::default()
        };
        let mut frames = Vec::new();
        while frames.len() < MAX_FRAMES {
            frames.push(walk.registers.ip);
            let rule = self.rule(walk.address(), files);
            if let Err(end) = rule.and_then(|rule| walk.step::<X86_64>(rule.encode(), self)) {
                return (frames, end);
            }
        }
        (frames, EndReason::Truncated)
    }

    fn rule(&self, address: u64, files: &mut Files) -> Result<Rule, EndReason> {
        let mapping = self.mapping(address).ok_or(EndReason::NoMapping)?;
        if !mapping.path.starts_with('/') && mapping.path != VDSO {
            return Ok(Rule::Gap);
        }
        let known = self.known(mapping, files);
        let table = &known.ok_or(EndReason::TableRefused)?.table;
        Ok(table.lookup(mapping.offset_of(address)))
    }

    /// Whether there is unwind information for the code before or at this address.
    pub fn is_described(&self, address: u64, files: &mut Files) -> bool {
        let Some(mapping) = self.mapping(address) else {
            return false;
        };
        let known = self.known(mapping, files);
        let described = known.and_then(|known| known.described.as_ref());
        described.is_some_and(|described| described.has(mapping.offset_of(address)))
    }

    fn mapping(&self, address: u64) -> Option<&Mapping> {
        self.mappings
            .iter()
            .find(|mapping| (mapping.start..mapping.end).contains(&address))
            .filter(|mapping| mapping.has_code)
    }

    fn known<'f>(&self, mapping: &Mapping, files: &'f mut Files) -> Option<&'f Known> {
        if mapping.path == VDSO {
            let mut image = vec![0; (mapping.end - mapping.start) as usize];
            self.memory.read_exact_at(&mut image, mapping.start).ok()?;
            return files.get(VDSO, || Some(image));
        }
        // Works for deleted files, too.
        let link = self.link(mapping);
        let written = fs::metadata(&link).ok()?.modified().ok()?;
        let file = format!("{} {written:?}", mapping.file);
        files.get(&file, || File::open(link).ok())
    }

    fn link(&self, mapping: &Mapping) -> String {
        let Mapping { start, end, .. } = mapping;
        format!("/proc/{}/map_files/{start:x}-{end:x}", self.pid)
    }
}

impl UserMemory for Stopped {
    fn user_word(&mut self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.memory.read_exact_at(&mut word, address).ok()?;
        Some(u64::from_le_bytes(word))
    }

    fn address_bits(&self) -> u64 {
        u64::MAX
    }
}

impl Files {
    fn get<S: Source>(&mut self, file: &str, open: impl FnOnce() -> Option<S>) -> Option<&Known> {
        if !self.0.contains_key(file) {
            let read = || {
                let source = open()?;
                let elf = ElfCode::read(&source).ok()?;
                Some(Known {
                    table: Table::build(&elf, &source).ok()?,
                    described: ProcessDescription::read(&elf, &source),
                })
            };
            self.0.insert(file.to_owned(), read());
        }
        self.0.get(file)?.as_ref()
    }
}

impl Mapping {
    fn offset_of(&self, address: u64) -> u64 {
        // The vDSO's page offset is its address.
        address - self.start + if self.path == VDSO { 0 } else { self.offset }
    }

    /// `start-end rwxp offset device inode path`
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end) = words.next()?.split_once('-')?;
        let has_code = words.next()?.contains('x');
        let offset = number(words.next()?)?;
        let file = [words.next()?, words.next()?].join(" ");
        Some(Self {
            start: number(start)?,
            end: number(end)?,
            offset,
            has_code,
            file,
            path: words.next().unwrap_or_default().to_owned(),
        })
    }
}
