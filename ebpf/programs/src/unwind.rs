//! The unwinder of user stacks.

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use profcol_ebpf_common::barrier_var;
use profcol_ebpf_common::file::{self, FileId, file_number};
use profcol_ebpf_common::frame::Frame;
use profcol_ebpf_common::mappings::{self, Mapping};
use profcol_ebpf_common::reason::EndReason;
use profcol_ebpf_common::rule::EncodedRule;
use profcol_ebpf_common::settings::{self, Settings};
use profcol_ebpf_common::table::{PAGE_SIZE, Page};
use profcol_ebpf_common::walk::{self, CodeMapping, UserMemory};

use crate::Target;
use crate::arena::Arena;
use crate::beam;
use crate::dotnet;
use crate::files::{self, MappedFile};
use crate::frame_cache::{self, Key};
use crate::hotspot;
use crate::interpreter;
use crate::kernel::{self, Kernel};
use crate::luajit;
use crate::maps;
use crate::published;
use crate::scratch::{FRAME_CAPACITY, MAX_WINDOW, MIN_WINDOW, RECENT_CODE, Scratch, ScratchHandle};
use crate::stages;
use crate::v8;

/// Returned by the functions here if unwinding continues; other values are end reasons, or one of the
/// steps below.
pub const CONTINUE: u32 = 0;

/// Next step on a miss of [`lookup_cached`], in this order: look up recent code mappings, find the
/// mapping, resolve its file, look up the page, look up the rule in the page.
const NEED_CODE: u32 = 1 << 30;
const NEED_MAPPING: u32 = NEED_CODE + 1;
const NEED_FILE: u32 = NEED_CODE + 2;
const NEED_PAGE: u32 = NEED_CODE + 3;
const NEED_RULE: u32 = NEED_CODE + 4;
/// Then find the rule in the runtime of .NET.
const NEED_DOTNET: u32 = NEED_CODE + 5;

/// Which mapping to look up: that of the address, or the neighbours of an anonymous one.
const AT_ADDRESS: u32 = 0;
const BELOW: u32 = 1;
const ABOVE: u32 = 2;

/// Maximum number of frames per call of [`walk_frames`].
pub const FRAMES_PER_CALL: u32 = 32;

/// Unwinds some frames.
///
/// The verifier explores each iteration of a loop, so the loop over a thousand frames is split in two.
/// Kernels before 6.13 limit the combined stack of nested calls to 512 bytes, so the functions called
/// here do not call each other.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn walk_frames(handle: ScratchHandle, most: u32) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return EndReason::NoRegisters as u32;
    };
    for _ in 0..FRAMES_PER_CALL {
        if scratch.depth >= most || !interpreter::has_room(scratch) {
            return EndReason::Truncated as u32;
        }
        if scratch.interpreter_stage != interpreter::stage::NATIVE {
            let end = barrier_var(u64::from(stages::run_stage(scratch.handle()))) as u32;
            if end != CONTINUE {
                return end;
            }
            continue;
        }
        let mut found = barrier_var(u64::from(lookup_cached(scratch.handle()))) as u32;
        if found == NEED_CODE {
            found = barrier_var(u64::from(lookup_recent_code(scratch.handle()))) as u32;
        }
        if found == NEED_MAPPING {
            found = barrier_var(u64::from(find_mapping(scratch.handle()))) as u32;
        }
        if found == NEED_FILE {
            found = barrier_var(u64::from(resolve_mapping(scratch.handle()))) as u32;
        }
        if found == NEED_MAPPING {
            // No file: look at the mappings below and above.
            find_mapping(scratch.handle());
            resolve_mapping(scratch.handle());
            find_mapping(scratch.handle());
            found = barrier_var(u64::from(resolve_mapping(scratch.handle()))) as u32;
        }
        if found == NEED_PAGE {
            found = barrier_var(u64::from(lookup_page(scratch.handle()))) as u32;
        }
        if found == NEED_RULE {
            found = barrier_var(u64::from(lookup_rule(scratch.handle()))) as u32;
        }
        if found == NEED_DOTNET {
            scratch.interpreter_stage = interpreter::stage::DOTNET_SECTION;
            continue;
        }
        let end = barrier_var(u64::from(advance(scratch.handle(), found))) as u32;
        if end != CONTINUE {
            return end;
        }
    }
    CONTINUE
}

/// Appends the current frame and unwinds to its caller; `found` is an end reason if no rule was found.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn advance(handle: ScratchHandle, found: u32) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return EndReason::NoRegisters as u32;
    };
    if scratch.frame.file() == file_number::ANONYMOUS && interpreter::is_generated_code(scratch) {
        return CONTINUE;
    }
    let slot = (scratch.sample.kernel_frames + scratch.sample.user_words) as usize;
    // SAFETY: the mask bounds the index.
    unsafe { *scratch.frames.as_mut_ptr().add(slot & (FRAME_CAPACITY - 1)) = scratch.frame.0 };
    scratch.sample.user_words += 1;
    scratch.depth += 1;
    scratch.sample.stack.add(scratch.frame.0);
    if scratch.frame.file() == file_number::ANONYMOUS {
        scratch.needs_names = 1;
    }
    if found != CONTINUE {
        return found;
    }
    if scratch.frame.file() == file_number::ANONYMOUS && hotspot::is_java_code(scratch) {
        return CONTINUE;
    }
    if scratch.frame.file() == file_number::ANONYMOUS && beam::is_beam_code(scratch) {
        return CONTINUE;
    }
    scratch.java_registers = [0; 3];
    let mut walk = scratch.walk;
    let was_exact = walk.exact;
    let (address, sp, fp) = (walk.address(), walk.registers.sp, walk.registers.fp);
    let step = walk.step::<Target>(scratch.rule, scratch);
    scratch.walk = walk;
    if walk.exact > was_exact {
        // A signal trampoline is not reached by a call: its return address is exact.
        // SAFETY: the mask bounds the index.
        unsafe { *scratch.frames.as_mut_ptr().add(slot & (FRAME_CAPACITY - 1)) += 1 };
        scratch.sample.stack.add(1);
    }
    match step {
        Ok(()) => {
            if scratch.rule.is_interpreter() {
                interpreter::prepare_frames(scratch, address, sp, fp);
            } else if scratch.frame.file() == file_number::ANONYMOUS {
                scratch.v8_frame = fp;
                v8::handle_generated(scratch);
            }
            CONTINUE
        }
        Err(reason) => {
            let end = reason as u32;
            if scratch.rule.is_interpreter() && luajit::is_in_helper(scratch, address, sp, end) {
                return CONTINUE;
            }
            end
        }
    }
}

/// Looks up the current frame and its rule, or its page, in the frame cache.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn lookup_cached(handle: ScratchHandle) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return EndReason::NoRegisters as u32;
    };
    let (epoch, cpu) = (scratch.epoch, scratch.sample.cpu);
    let address = scratch.walk.address();
    if !Key::is_address(address) {
        return NEED_CODE;
    }
    let key = Key::address(address);
    if let Some(slot) = frame_cache::slot(epoch, cpu, key)
        && slot.matches(epoch, key)
    {
        scratch.frame = slot.frame;
        scratch.rule = EncodedRule(slot.value);
        return with_dotnet(scratch);
    }
    let key = Key::page_of(address);
    if let Some(slot) = frame_cache::slot(epoch, cpu, key)
        && slot.matches(epoch, key)
    {
        scratch.frame = Frame(slot.frame.0 + (address & (PAGE_SIZE - 1)));
        scratch.page = slot.value;
        return NEED_RULE;
    }
    NEED_CODE
}

/// Looks up the current address in the code mappings of this stack.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn lookup_recent_code(handle: ScratchHandle) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return EndReason::NoRegisters as u32;
    };
    let address = scratch.walk.address();
    if scratch.code.holds(address) {
        return NEED_PAGE;
    }
    for code in &scratch.recent_code {
        if code.holds(address) {
            scratch.code = *code;
            return NEED_PAGE;
        }
    }
    scratch.frame = Frame::new(file_number::UNMAPPED, address);
    scratch.lookup_target = AT_ADDRESS;
    scratch.lookup_address = address;
    NEED_MAPPING
}

/// Finds a mapping.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn find_mapping(handle: ScratchHandle) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return EndReason::NoRegisters as u32;
    };
    let address = scratch.lookup_address;
    let found = if settings.mappings == settings::mappings::PUBLISHED {
        barrier_var(u64::from(published::lookup_published(
            scratch.handle(),
            address,
        ))) as u32
    } else {
        let mut kernel = Kernel {
            node: &mut scratch.node,
        };
        match mappings::find(&mut kernel, settings, scratch.mm, address) {
            Ok(mapping) => {
                scratch.mapping = mapping;
                CONTINUE
            }
            Err(miss) => miss.reason() as u32,
        }
    };
    if scratch.lookup_target != AT_ADDRESS {
        if found != CONTINUE {
            scratch.mapping = Mapping::default();
        }
        return NEED_FILE;
    }
    if found != CONTINUE {
        return found;
    }
    if scratch.mapping.has_code {
        NEED_FILE
    } else {
        EndReason::NoMapping as u32
    }
}

/// The mapping of the address; an empty one if it is not mapped.
#[inline(always)]
pub fn mapping_at(scratch: &mut Scratch, address: u64) -> Mapping {
    scratch.lookup_target = BELOW;
    scratch.lookup_address = address;
    find_mapping(scratch.handle());
    scratch.mapping
}

/// Sets the current code mapping, or returns what is missing for it.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn resolve_mapping(handle: ScratchHandle) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return EndReason::NoRegisters as u32;
    };
    if scratch.lookup_target == BELOW {
        scratch.neighbour = scratch.mapping;
        scratch.lookup_target = ABOVE;
        scratch.lookup_address = scratch.anonymous.end;
        return NEED_MAPPING;
    }
    if scratch.lookup_target == ABOVE {
        let rest = mappings::file_behind_anonymous(
            &scratch.anonymous,
            &scratch.neighbour,
            &scratch.mapping,
        );
        scratch.neighbour = rest.unwrap_or_default();
        scratch.mapping = scratch.anonymous;
    }
    match code_for_mapping(scratch, settings) {
        Ok(code) => scratch.code = code,
        Err(answer) => return answer,
    }
    let slot = barrier_var(scratch.recent_next) as usize & (RECENT_CODE - 1);
    // SAFETY: the mask bounds the index.
    unsafe { *scratch.recent_code.as_mut_ptr().add(slot) = scratch.code };
    scratch.recent_next += 1;
    NEED_PAGE
}

/// Looks up the page in the unwind table.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn lookup_page(handle: ScratchHandle) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return EndReason::NoRegisters as u32;
    };
    let address = scratch.walk.address();
    let code = &scratch.code;
    scratch.frame = Frame::new(code.number, code.offset_of(address));
    let page = match code.page(&Arena::new(settings), address) {
        Ok(page) => page.to_word(),
        Err(reason) => return reason as u32,
    };
    scratch.page = page;
    let key = Key::page_of(address);
    if let Some(slot) = frame_cache::slot(scratch.epoch, scratch.sample.cpu, key) {
        let frame = Frame::new(code.number, code.offset_of(address & !(PAGE_SIZE - 1)));
        slot.store(scratch.epoch, key, frame, page);
    }
    NEED_RULE
}

/// Looks up the rule in the page.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn lookup_rule(handle: ScratchHandle) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::from_handle(handle), maps::settings()) else {
        return EndReason::NoRegisters as u32;
    };
    let address = scratch.walk.address();
    let page = Page::from_word(scratch.page);
    scratch.rule = walk::rule_at(&Arena::new(settings), page, address);
    let key = Key::address(address);
    if let Some(slot) = frame_cache::slot(scratch.epoch, scratch.sample.cpu, key) {
        slot.store(scratch.epoch, key, scratch.frame, scratch.rule.0);
    }
    with_dotnet(scratch)
}

/// Whether the rule that was looked up is final.
#[inline(always)]
fn with_dotnet(scratch: &mut Scratch) -> u32 {
    if dotnet::may_have_rule(scratch) {
        NEED_DOTNET
    } else {
        CONTINUE
    }
}

#[inline(always)]
fn code_for_mapping(scratch: &mut Scratch, settings: &Settings) -> Result<CodeMapping, u32> {
    let layout = &settings.layout;
    let mapping = &scratch.mapping;
    let mut code = CodeMapping {
        start: mapping.start,
        end: mapping.end,
        offset_delta: mapping.offset_delta,
        ..CodeMapping::default()
    };
    let mut mapped = MappedFile {
        id: mapping.id,
        file: mapping.file,
        start: mapping.start,
        end: mapping.end,
    };
    if mapped.id == FileId::default() {
        if kernel::word(scratch.mm + layout.mm_vdso) == Some(mapped.start) {
            // Its page offset is its address.
            code.offset_delta = 0u64.wrapping_sub(mapped.start);
            mapped.id = file::VDSO;
        } else if settings.mappings != settings::mappings::PUBLISHED
            && scratch.anonymous.start != mapped.start
        {
            scratch.anonymous = scratch.mapping;
            scratch.lookup_target = BELOW;
            scratch.lookup_address = mapped.start.wrapping_sub(1);
            return Err(NEED_MAPPING);
        } else if scratch.neighbour.file == 0 {
            code.number = file_number::ANONYMOUS;
            code.offset_delta = 0;
            return Ok(code);
        } else {
            let neighbour = &scratch.neighbour;
            code.offset_delta = neighbour.offset_delta;
            mapped = MappedFile {
                id: neighbour.id,
                file: neighbour.file,
                start: neighbour.start,
                end: neighbour.end,
            };
        }
    }
    let entry = files::entry(scratch, &mapped);
    if entry.table.is_generated_code() {
        code.number = file_number::ANONYMOUS;
        code.offset_delta = 0;
        return Ok(code);
    }
    code.number = entry.number;
    code.table = entry.table;
    Ok(code)
}

impl UserMemory for Scratch {
    #[inline(always)]
    fn user_word(&mut self, address: u64) -> Option<u64> {
        (barrier_var(u64::from(read_user_word(self.handle(), address))) == 0).then_some(self.word)
    }

    #[inline(always)]
    fn address_bits(&self) -> u64 {
        self.address_bits
    }
}

/// A function saves registers below its return address, which is read first.
const SAVED_REGISTERS: u64 = 56;
const CACHE_LINE: u64 = 64;

/// Reads a word of the user stack; returns 0 on success. The stack is read in windows: a helper call
/// costs as much as the copy.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn read_user_word(handle: ScratchHandle, address: u64) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return 1;
    };
    let mut distance = address.wrapping_sub(scratch.window_at);
    if distance & 7 != 0 {
        return read_word(scratch, address);
    }
    if distance >= scratch.window_bytes {
        if !move_window(scratch, address) {
            // The window reached into an unmapped page; the word itself may be readable.
            return read_word(scratch, address);
        }
        distance = address.wrapping_sub(scratch.window_at);
    }
    let slot = barrier_var(distance >> 3) as usize & (MAX_WINDOW - 1);
    // SAFETY: the mask bounds the index.
    scratch.word = unsafe { *scratch.window.as_ptr().add(slot) };
    0
}

/// Doubles the window each time: a stack that is deep so far is likely to be deeper.
#[inline(always)]
fn move_window(scratch: &mut Scratch, address: u64) -> bool {
    let start = address.wrapping_sub(SAVED_REGISTERS) & !(CACHE_LINE - 1);
    let mut bytes = barrier_var(scratch.window_bytes << 1);
    if bytes > (MAX_WINDOW * 8) as u64 {
        bytes = (MAX_WINDOW * 8) as u64;
    }
    // SAFETY: the helper checks the address; the window is large enough.
    let failed = unsafe {
        bpf_probe_read_user(
            scratch.window.as_mut_ptr().cast(),
            bytes as u32,
            start as *const _,
        )
    };
    if failed != 0 {
        scratch.window_at = NO_WINDOW;
        scratch.window_bytes = NO_WINDOW_BYTES;
        return false;
    }
    scratch.window_at = start;
    scratch.window_bytes = bytes;
    true
}

/// Far from any user address.
pub const NO_WINDOW: u64 = 1 << 63;
/// Half of the size of the first window.
pub const NO_WINDOW_BYTES: u64 = MIN_WINDOW as u64 * 4;

#[inline(always)]
fn read_word(scratch: &mut Scratch, address: u64) -> u32 {
    // SAFETY: the helper checks the address.
    let failed =
        unsafe { bpf_probe_read_user((&raw mut scratch.word).cast(), 8, address as *const _) };
    u32::from(failed != 0)
}
