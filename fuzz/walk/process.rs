//! A process described by the input: files with tables, mappings, a stack, threads.

use profcol_ebpf_common::file::{self, FileEntry, FileId, TableRef, file_number};
use profcol_ebpf_common::interpreter::thread_variable::ThreadVariable;
use profcol_ebpf_common::interpreter::{
    Interpreter, RuntimeProcess, beam, dotnet, hotspot, luajit, perl, php, python, ruby, runtime,
    v8,
};
use profcol_ebpf_common::layout::Layout;
use profcol_ebpf_common::record::{MAX_KERNEL_FRAMES, MAX_USER_FRAMES, Sample};
use profcol_ebpf_common::rule::{Cfa, EncodedRule, PUSHED, ReturnAddress, Rule, SavedFp};
use profcol_ebpf_common::table::{Page, Row};
use profcol_ebpf_common::walk::Registers;
use profcol_ebpf_unwind::{ElfCode, Index, Table};

use crate::bytes::Bytes;
use crate::kernel_image::{KernelImage, LAYOUT, MM, Shape, identity};
use crate::tables::TableMemory;

pub const PAGE: u64 = 4096;
const FIRST_MAPPING: u64 = 0x40_0000;
const STACK: u64 = 0x7ffd_0000_0000;
const STACK_PAGES: u64 = 12;
const MAX_FILES: usize = 4;
const MAX_MAPPINGS: usize = 40;

#[derive(Default)]
pub struct Process {
    pub mappings: Vec<Mapping>,
    pub files: Vec<File>,
    pub tables: TableMemory,
    pub kernel: KernelImage,
    /// Nothing is damaged.
    pub is_sound: bool,
    pub interpreter: Option<&'static Interpreter>,
    /// Set if it runs Java.
    pub java: Option<&'static hotspot::JavaProcess>,
    /// Set if it runs BEAM.
    pub beam: Option<&'static beam::BeamProcess>,
    /// Set if it runs .NET.
    pub dotnet: Option<&'static dotnet::DotNetProcess>,
    /// Set if the V8 file was detected.
    pub v8_file: Option<&'static u32>,
    /// The state of Ruby or PHP.
    pub runtime: Option<&'static RuntimeProcess>,
    pub known_thread: Option<&'static u64>,
    has_thread: bool,
    stack: Vec<u8>,
    /// A bit per page.
    absent: u64,
    shape: Shape,
    changes: u32,
}

pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// Page offset in the file.
    pub page: u64,
    pub file: Option<usize>,
    pub has_code: bool,
    pub is_vdso: bool,
}

pub struct File {
    pub id: FileId,
    pub entry: FileEntry,
    /// The table's contents, whether or not it is loaded yet.
    pub table: Option<Table>,
    /// Pages without rows.
    pub not_built: Vec<u64>,
    content: Vec<u8>,
}

pub struct Thread {
    pub registers: Registers,
    pub is_exact: bool,
    pub java_registers: [u64; 3],
    pub loop_registers: [u64; 4],
    pub max_frames: u32,
    pub kernel_frames: u32,
}

impl Process {
    pub fn any(bytes: &mut Bytes) -> Self {
        let mut process = Self {
            is_sound: !bytes.rarely(4),
            ..Self::default()
        };
        process.shape = Shape {
            of_leaf: bytes.below(17),
            of_inner: bytes.below(11),
            stale: [0, 1, FIRST_MAPPING, u64::MAX][bytes.below(4)],
        };
        for index in 0..1 + bytes.below(MAX_FILES) {
            process.add_file(bytes, index);
        }
        process.add_mappings(bytes);
        process.fill_stack(bytes);
        if !process.is_sound {
            process.has_thread = !bytes.rarely(4);
            process.interpreter = Some(any_interpreter(bytes));
            let is_java = bytes.rarely(2);
            process.java = is_java.then(|| any_java(bytes));
            let is_beam = bytes.rarely(2);
            process.beam = is_beam.then(|| any_beam(bytes));
            let is_dotnet = bytes.rarely(2);
            process.dotnet = is_dotnet.then(|| any_dotnet(bytes));
            let has_v8 = bytes.rarely(2);
            process.v8_file = has_v8.then_some(&file_number::FIRST_FILE);
            let state = Word::any(bytes, &process).at(STACK);
            let has_runtime = bytes.below(2) == 0;
            process.runtime = has_runtime.then(|| any_runtime(state));
        }
        process.build_kernel(bytes);
        process
    }

    /// Applies random changes between two samples.
    pub fn change(&mut self, bytes: &mut Bytes) {
        match bytes.below(5) {
            1 => {
                let index = bytes.below(self.files.len());
                self.publish(index, bytes);
            }
            2 => {
                let index = bytes.below(self.mappings.len());
                let file = bytes.below(self.files.len());
                if let Some(mapping) = self.mappings.get_mut(index)
                    && self.files[file].id != file::VDSO
                    && mapping.start != STACK
                {
                    mapping.file = Some(file);
                    mapping.is_vdso = false;
                    mapping.page = bytes.below(8) as u64;
                    mapping.has_code = !bytes.rarely(8);
                }
                self.changes += 1;
                self.build_kernel(bytes);
            }
            3 => {
                let index = bytes.below(self.mappings.len());
                if index < self.mappings.len() {
                    self.mappings.remove(index);
                }
                self.changes += 1;
                self.build_kernel(bytes);
            }
            4 => self.fill_stack(bytes),
            _ => {}
        }
    }

    fn add_file(&mut self, bytes: &mut Bytes, index: usize) {
        let kind = bytes.below(8);
        let content = match kind {
            0 => bytes.take(32),
            1..4 => {
                let length = bytes.short() as usize;
                bytes.take(length)
            }
            _ => bytes.take(64),
        };
        let content = content.to_vec();
        let table = match kind {
            0 => None,
            1..3 => ElfCode::read(&content)
                .and_then(|elf| Table::build(&elf, &content))
                .ok(),
            3 => ElfCode::read(&content)
                .and_then(|elf| Index::open(&elf, &content))
                .and_then(|index| index.pages(&content, bytes.below(16) as u64, 1))
                .ok(),
            _ => Some(any_table(bytes)),
        };
        let table = table.map(|mut table| {
            // The obvious walk does not support interpreters.
            if !self.is_sound && bytes.rarely(2) {
                let start = bytes.short() % (4 * PAGE);
                let range = start..start + bytes.short();
                table.mark_interpreter(std::slice::from_ref(&range));
            }
            table
        });
        // The last file may be the vDSO.
        let is_vdso = index + 1 == MAX_FILES;
        let id = if is_vdso {
            file::VDSO
        } else {
            identity(100 + index as u64)
        };
        self.files.push(File {
            id,
            entry: FileEntry {
                number: if is_vdso {
                    file_number::VDSO
                } else {
                    file_number::FIRST_FILE + index as u32
                },
                table: TableRef::PENDING,
                used: 0,
            },
            table,
            not_built: Vec::new(),
            content,
        });
        if !bytes.rarely(4) {
            self.publish(index, bytes);
        }
    }

    /// The loader has processed the file.
    fn publish(&mut self, index: usize, bytes: &mut Bytes) {
        let Some(file) = self.files.get_mut(index) else {
            return;
        };
        if file.entry.table != TableRef::PENDING {
            return;
        }
        let Some(table) = &file.table else {
            file.entry.table = TableRef::REFUSED;
            return;
        };
        let is_giant = bytes.rarely(4);
        let mut page = table.first_page;
        let not_built = &mut file.not_built;
        file.entry.table = self.tables.insert(table, || {
            let is_built = !is_giant || !bytes.rarely(2);
            if !is_built {
                not_built.push(page);
            }
            page += 1;
            is_built
        });
        if table.pages.is_empty() {
            file.entry.table = TableRef::REFUSED;
        }
    }

    fn add_mappings(&mut self, bytes: &mut Bytes) {
        let mut at = FIRST_MAPPING;
        for _ in 0..bytes.below(MAX_MAPPINGS) {
            let start = at + bytes.below(4) as u64 * PAGE;
            let end = start + (1 + bytes.below(4) as u64) * PAGE;
            let file = bytes.below(self.files.len() + 1);
            let file = (file < self.files.len()).then_some(file);
            let is_vdso = file.is_some_and(|index| self.files[index].id == file::VDSO)
                && !self.mappings.iter().any(|mapping| mapping.is_vdso);
            self.mappings.push(Mapping {
                start,
                end,
                page: if is_vdso { 0 } else { bytes.below(8) as u64 },
                // There is only one vDSO mapping.
                file: file.filter(|&index| is_vdso || self.files[index].id != file::VDSO),
                has_code: !bytes.rarely(8),
                is_vdso,
            });
            at = end;
        }
        self.mappings.push(Mapping {
            start: STACK,
            end: STACK + STACK_PAGES * PAGE,
            page: 0,
            file: None,
            has_code: false,
            is_vdso: false,
        });
    }

    /// Repeats a few words, because repetition leads to deep stacks.
    fn fill_stack(&mut self, bytes: &mut Bytes) {
        self.absent = match bytes.below(4) {
            0 => bytes.short(),
            _ => 0,
        };
        let words: Vec<Word> = (0..1 + bytes.below(48))
            .map(|_| Word::any(bytes, self))
            .collect();
        self.stack.clear();
        for (index, word) in (0..STACK_PAGES * PAGE / 8).zip(words.iter().cycle()) {
            let word = word.at(STACK + index * 8);
            self.stack.extend(word.to_le_bytes());
        }
    }

    fn build_kernel(&mut self, bytes: &mut Bytes) {
        self.kernel = KernelImage::new(&self.mappings, &self.files, self.changes, self.shape);
        if !self.is_sound {
            self.enter_thread(bytes);
            for _ in 0..bytes.below(4) {
                let value = Word::any(bytes, self).at(MM + bytes.short());
                self.kernel.damage(bytes.short() as usize, value);
            }
            self.tables
                .damage(bytes.short() as usize, bytes.word() as u32);
        }
    }

    /// The interpreter state contains the thread, at any stack position.
    fn enter_thread(&mut self, bytes: &mut Bytes) {
        let Some(interpreter) = self.interpreter.filter(|_| self.has_thread) else {
            return;
        };
        let thread = STACK + bytes.short() % (STACK_PAGES * PAGE) / 8 * 8;
        let mut id = [0; 8];
        if self.read(thread + u64::from(interpreter.python.thread_id), &mut id) {
            self.kernel
                .set(MM + LAYOUT.task_thread_pointer, u64::from_le_bytes(id));
            self.known_thread = Some(Box::leak(Box::new(thread)));
        }
    }

    pub fn mm(&self) -> u64 {
        MM
    }

    pub fn layout(&self) -> Layout {
        LAYOUT
    }

    pub fn sample(&self) -> Sample {
        Sample::default()
    }

    pub fn mapping(&self, address: u64) -> Option<&Mapping> {
        self.mappings
            .iter()
            .find(|mapping| (mapping.start..mapping.end).contains(&address))
    }

    /// The file of code replaced by an anonymous mapping, which lies between two mappings of that file.
    pub fn replaced(&self, gap: &Mapping) -> Option<&Mapping> {
        if gap.file.is_some() {
            return None;
        }
        let neighbour = |is_beside: &dyn Fn(&Mapping) -> bool| {
            let mut neighbours = self.mappings.iter().filter(|mapping| is_beside(mapping));
            neighbours.next().filter(|mapping| !mapping.is_vdso)
        };
        let below = neighbour(&|mapping| mapping.end == gap.start)?;
        let above = neighbour(&|mapping| mapping.start == gap.end)?;
        if below.file.is_none() || below.file != above.file {
            return None;
        }
        if below.has_code == above.has_code && below.offset_delta() != above.offset_delta() {
            return None;
        }
        let rest = if below.has_code { below } else { above };
        let is_in_file = gap.start.wrapping_add(rest.offset_delta()) >> 63 == 0;
        is_in_file.then_some(rest)
    }

    /// All or nothing.
    pub fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let mut done = 0;
        while done < into.len() {
            let Some(at) = address.checked_add(done as u64) else {
                return false;
            };
            let in_page = (PAGE - at % PAGE) as usize;
            let end = into.len().min(done + in_page);
            if !self.read_in_page(at, &mut into[done..end]) {
                return false;
            }
            done = end;
        }
        true
    }

    fn read_in_page(&self, address: u64, into: &mut [u8]) -> bool {
        let Some(mapping) = self.mapping(address) else {
            return false;
        };
        let offset = (address - mapping.start) as usize;
        if mapping.start == STACK {
            let is_absent = self.absent >> (offset as u64 / PAGE) & 1 == 1;
            into.copy_from_slice(&self.stack[offset..offset + into.len()]);
            return !is_absent;
        }
        let (content, offset) = match mapping.file {
            Some(index) => {
                let offset = offset + (mapping.page * PAGE) as usize;
                (&self.files[index].content, offset)
            }
            // JIT-compiled code reuses the content of a file.
            None => (&self.files[0].content, offset),
        };
        let there = content.get(offset..).unwrap_or_default();
        let length = there.len().min(into.len());
        into[..length].copy_from_slice(&there[..length]);
        into[length..].fill(0);
        true
    }
}

impl Mapping {
    /// Adding it to an address yields the file offset.
    pub fn offset_delta(&self) -> u64 {
        (self.page * PAGE).wrapping_sub(self.start)
    }
}

impl Thread {
    pub fn any(bytes: &mut Bytes, process: &Process) -> Self {
        let ip = Word::any(bytes, process).at(STACK);
        let middle = STACK + STACK_PAGES * PAGE / 2;
        Self {
            registers: Registers {
                ip,
                sp: Word::any(bytes, process).at(middle),
                fp: Word::any(bytes, process).at(middle),
                link: Word::any(bytes, process).at(middle),
            },
            is_exact: !bytes.rarely(4),
            java_registers: [(); 3].map(|()| Word::any(bytes, process).at(middle)),
            loop_registers: [(); 4].map(|()| Word::any(bytes, process).at(middle)),
            max_frames: match bytes.below(4) {
                0 => 128,
                1 => 1 + bytes.below(MAX_USER_FRAMES) as u32,
                _ => MAX_USER_FRAMES as u32,
            },
            kernel_frames: bytes.below(MAX_KERNEL_FRAMES + 1) as u32,
        }
    }
}

/// A value in a register or on the stack.
enum Word {
    Any(u64),
    /// A stack address relative to the position of the word.
    Relative(i64),
}

impl Word {
    fn any(bytes: &mut Bytes, process: &Process) -> Self {
        match bytes.below(12) {
            0 => Self::Any(0),
            1 => Self::Any(bytes.word()),
            2 => Self::Any(STACK + bytes.short()),
            // With a bit that no valid address has: page keys of the frame cache use one.
            3 => {
                let at = match bytes.below(3) {
                    0 => text(bytes, process),
                    start => text(bytes, process) / PAGE * PAGE + start as u64 - 1,
                };
                Self::Any(at ^ 1 << (46 + bytes.below(18)))
            }
            4..8 => Self::Relative(i64::from(bytes.byte() as i8) * 8),
            _ => Self::Any(text(bytes, process)),
        }
    }

    fn at(&self, address: u64) -> u64 {
        match self {
            Self::Any(word) => *word,
            Self::Relative(distance) => address.wrapping_add_signed(*distance),
        }
    }
}

fn text(bytes: &mut Bytes, process: &Process) -> u64 {
    let mapping = process.mappings.get(bytes.below(process.mappings.len()));
    let (start, end) = mapping.map_or((FIRST_MAPPING, FIRST_MAPPING + PAGE), |mapping| {
        (mapping.start, mapping.end)
    });
    // Includes the end: a call may be the last instruction.
    start + bytes.short() % (end - start + 1)
}

fn any_table(bytes: &mut Bytes) -> Table {
    let rules = (0..1 + bytes.below(12))
        .map(|_| any_rule(bytes).encode())
        .collect();
    let mut table = Table {
        first_page: bytes.below(3) as u64,
        pages: Vec::new(),
        rows: Vec::new(),
        rules,
    };
    for _ in 0..bytes.below(6) {
        let rows = table.rows.len();
        let mut offsets: Vec<u64> = (0..bytes.below(9)).map(|_| bytes.short() % PAGE).collect();
        if !bytes.rarely(4)
            && let Some(first) = offsets.first_mut()
        {
            *first = 0;
        }
        offsets.sort_unstable();
        offsets.dedup();
        for offset in offsets {
            let rule = bytes.below(table.rules.len()) as u32;
            table.rows.push(Row::new(offset, rule));
        }
        table.pages.push(Page {
            rows: rows as u32,
            count: (table.rows.len() - rows) as u32,
        });
    }
    table
}

/// Leaked, because the programs keep references to map values. It has about a hundred bytes.
fn any_interpreter(bytes: &mut Bytes) -> &'static Interpreter {
    let mut offset = || u32::from(bytes.byte());
    let layout = python::Layout {
        runtime_interpreters: offset(),
        interpreter_next: offset(),
        interpreter_threads: offset(),
        thread_next: offset(),
        thread_interpreter: offset(),
        thread_id: offset(),
        thread_frame: offset(),
        cframe_frame: match offset() {
            odd if odd % 2 == 1 => python::NO_CFRAME,
            even => even,
        },
        cframe_previous: offset(),
        frame_bytes: offset(),
        frame_previous: offset(),
        frame_code: offset(),
        frame_instruction: offset(),
        frame_owner: offset(),
        shim_owner: offset(),
        code_identity: offset(),
        identity_first: offset(),
        identity_second: offset(),
        identity_name: offset(),
        identity_file: offset(),
        text_data: offset(),
        code_instructions: offset(),
        position_shift: offset() % 32,
        boundary: offset() % 4,
    };
    let v8 = v8::Layout {
        function_shared: offset() as u16 % 14 * 8,
        has_unique_id: offset() as u16 % 2,
        shared_numbers: offset(),
    };
    let ruby = ruby::Layout {
        context: ThreadVariable {
            place: offset() % 4,
            offset: offset(),
            table_shift: offset() % 5,
        },
        frame_bytes: 56 + offset() % 2 * 8,
        loop_start: offset() << 8,
        loop_end: offset() << 8,
    };
    let perl = perl::Layout {
        interpreter: ruby.context,
        place: offset() % 3,
        operation: offset(),
        statement: offset(),
        stack_info: offset(),
        context_bytes: offset(),
        context_function: 8 + offset() % 2,
        file_is_glob: offset() % 2,
        enter_start: 0,
        enter_end: offset() << 8,
        catch_start: 0,
        catch_end: offset() << 8,
    };
    let luajit = luajit::Layout {
        current: offset(),
        body: offset() << 8,
    };
    Box::leak(Box::new(Interpreter {
        state: bytes.word(),
        runtime: [
            runtime::PYTHON,
            runtime::V8,
            runtime::RUBY,
            runtime::PHP,
            runtime::PERL,
            runtime::LUAJIT,
        ][bytes.below(6)],
        v8,
        python: layout,
        ruby,
        php: php::Layout {
            body: u32::from(bytes.byte()),
            frame_bytes: u32::from(bytes.byte()),
            text_start: 0,
            text_end: u32::from(bytes.byte()) << 24,
            function_file: u32::from(bytes.byte()),
        },
        perl,
        luajit,
    }))
}

/// Leaked as above.
fn any_runtime(state: u64) -> &'static RuntimeProcess {
    Box::leak(Box::new(RuntimeProcess {
        state,
        file: file_number::FIRST_FILE,
        unused: 0,
    }))
}

/// Leaked as above. Its code is anywhere below or on the stack.
fn any_java(bytes: &mut Bytes) -> &'static hotspot::JavaProcess {
    let mut range = |within: hotspot::AddressRange| {
        let size = (within.end - within.start).max(1);
        let start = within.start + bytes.word() % size;
        hotspot::AddressRange {
            start,
            end: start + bytes.word() % size,
        }
    };
    let all = hotspot::AddressRange {
        start: FIRST_MAPPING,
        end: STACK + STACK_PAGES * PAGE,
    };
    let heaps = [(); hotspot::MAX_HEAPS].map(|()| hotspot::CodeHeap {
        range: range(all),
        segment_map: range(all).start,
        segment_shift: 4 + range(all).start as u32 % 13,
        unused: 0,
    });
    let cache = hotspot::CodeCache {
        range: all,
        heaps,
        interpreter: range(all),
        continuation: range(all),
    };
    let mut offset = || u16::from(bytes.byte());
    let layout = hotspot::Layout {
        heap_block_bytes: offset(),
        blob_name: offset() % 120,
        blob_code_begin: offset() % 120,
        blob_code_end: offset() % 120,
        blob_frame_size: offset() % 120,
        blob_frame_complete: offset() % 120,
        frame_complete_shift: offset() % 32,
        code_address: offset() % 2,
        nmethod_compile_id: offset(),
        nmethod_orig_pc_offset: offset(),
        nmethod_deopt_handler: offset(),
        nmethod_deopt_mh_handler: offset() % 2 * 8,
        method_const_method: offset(),
        const_method_code_size: offset(),
        const_method_bytes: offset(),
        frame_bcp: offset(),
    };
    Box::leak(Box::new(hotspot::JavaProcess { layout, cache }))
}

/// Leaked as above. Its code is anywhere below or on the stack.
fn any_beam(bytes: &mut Bytes) -> &'static beam::BeamProcess {
    let mut address = || match bytes.below(2) {
        0 => STACK + bytes.word() % (STACK_PAGES * PAGE),
        _ => FIRST_MAPPING + bytes.word() % (64 * PAGE),
    };
    let [
        shared,
        main,
        main_return,
        first_return,
        modules,
        scheduler_key,
    ] = [(); 6].map(|()| address());
    let [shared, main] = [shared, main].map(|start| hotspot::AddressRange {
        start,
        end: start + PAGE,
    });
    let [
        place,
        offset,
        frame_bytes,
        registers_bias,
        scheduler_process,
    ] = [(); 5].map(|()| u32::from(bytes.byte()));
    Box::leak(Box::new(beam::BeamProcess {
        code: hotspot::AddressRange {
            start: FIRST_MAPPING,
            end: STACK + STACK_PAGES * PAGE,
        },
        shared,
        main,
        main_return,
        first_return,
        modules,
        scheduler_key,
        scheduler: ThreadVariable {
            place: place % 4,
            offset,
            table_shift: offset % 8,
        },
        main_frame_bytes: frame_bytes * 8,
        registers_bias,
        scheduler_process,
    }))
}

/// Leaked as above. Its tables are on the stack, whose words point to it.
fn any_dotnet(bytes: &mut Bytes) -> &'static dotnet::DotNetProcess {
    Box::leak(Box::new(dotnet::DotNetProcess {
        ranges: STACK + bytes.word() % (STACK_PAGES * PAGE),
        has_distances: u32::from(bytes.rarely(2)),
        unused: 0,
    }))
}

fn any_rule(bytes: &mut Bytes) -> Rule {
    let mut distance = || i32::from(bytes.byte() as i8) * 8;
    let (offset, slot, fp) = (distance(), distance(), distance());
    let cfa = match bytes.below(6) {
        0 | 1 => Cfa::Sp(offset.abs()),
        2 => Cfa::Fp(offset.abs()),
        3 => Cfa::SpSlot { slot, plus: offset },
        4 => Cfa::FpSlot { slot, plus: offset },
        _ => Cfa::Sp(offset),
    };
    let fp = match bytes.below(3) {
        0 => SavedFp::Same,
        1 => SavedFp::At(fp),
        _ => SavedFp::AtFp(fp),
    };
    match bytes.below(24) {
        0 => Rule::Gap,
        1 => Rule::End,
        2 => Rule::Unsupported,
        3 | 4 => Rule::SignalFrame,
        5 | 6 => Rule::Plt {
            pushed: bytes.byte(),
        },
        7 => Rule::FramePointer,
        8 => Rule::OtherStack,
        9 => Rule::frame(cfa, fp, ReturnAddress::LinkRegister),
        10 => x86_64(EncodedRule(bytes.word()).decode()),
        _ => Rule::frame(cfa, fp, PUSHED),
    }
}

/// x86-64 has a fixed place for the return address.
fn x86_64(rule: Rule) -> Rule {
    match rule {
        Rule::Frame {
            cfa,
            fp,
            ra: ReturnAddress::At(_),
        } => Rule::x86_64(cfa, fp),
        other => other,
    }
}
