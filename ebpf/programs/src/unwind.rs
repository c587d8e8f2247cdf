//! The walk up the user's stack.

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use profcol_ebpf_common::file::{self, FileId, number};
use profcol_ebpf_common::frame::Frame;
use profcol_ebpf_common::hide;
use profcol_ebpf_common::mappings::{self, Mapping};
use profcol_ebpf_common::reason::EndReason;
use profcol_ebpf_common::rule::Encoded;
use profcol_ebpf_common::settings::{self, Settings};
use profcol_ebpf_common::table::{PAGE_SIZE, Page};
use profcol_ebpf_common::walk::{self, Code, World};

use crate::Target;
use crate::arena::Arena;
use crate::files::{self, Met};
use crate::kernel::{self, Kernel};
use crate::maps;
use crate::published;
use crate::remembered::{self, Key};
use crate::scratch::{FRAME_PLACES, KNOWN_CODES, Lent, SMALL_WINDOW, Scratch, WINDOW};

/// What the functions here answer when the walk goes on; every other answer is a reason, or one of
/// those below.
pub const GO_ON: u32 = 0;

/// What has to be done where [`recall`] does not know the frame, in this order: look for the code among
/// what is known, find its mapping, meet its file, find the page, find the rule in the page.
const LOCATE: u32 = 1 << 30;
const FIND: u32 = LOCATE + 1;
const MEET: u32 = LOCATE + 2;
const OPEN: u32 = LOCATE + 3;
const SEARCH: u32 = LOCATE + 4;

/// Which mapping is found: that of the address, or where it has no file, those around it.
const ITS_OWN: u32 = 0;
const BELOW: u32 = 1;
const ABOVE: u32 = 2;

/// Frames that [`climb`] goes up at most.
pub const CLIMB: u32 = 32;

/// Goes up some frames.
///
/// The verifier goes through a loop round by round, so one of a thousand rounds is made of two. And
/// a kernel before 6.13 adds up the stacks of functions that call each other, to at most 512 bytes:
/// hence the functions called here do not call each other.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn climb(lent: Lent, most: u32) -> u32 {
    let Some(scratch) = Scratch::borrow(lent) else {
        return EndReason::NoRegisters as u32;
    };
    for _ in 0..CLIMB {
        if scratch.sample.user_frames >= most {
            return EndReason::Truncated as u32;
        }
        let mut found = hide(u64::from(recall(scratch.lend()))) as u32;
        if found == LOCATE {
            found = hide(u64::from(locate(scratch.lend()))) as u32;
        }
        if found == FIND {
            found = hide(u64::from(find(scratch.lend()))) as u32;
        }
        if found == MEET {
            found = hide(u64::from(meet(scratch.lend()))) as u32;
        }
        if found == FIND {
            // It has no file: what lies below and above may tell.
            find(scratch.lend());
            meet(scratch.lend());
            find(scratch.lend());
            found = hide(u64::from(meet(scratch.lend()))) as u32;
        }
        if found == OPEN {
            found = hide(u64::from(open(scratch.lend()))) as u32;
        }
        if found == SEARCH {
            found = hide(u64::from(search(scratch.lend()))) as u32;
        }
        let end = hide(u64::from(advance(scratch.lend(), found))) as u32;
        if end != GO_ON {
            return end;
        }
    }
    GO_ON
}

/// Notes the frame that the walk stands in and goes on to its caller; `found` is the reason why no
/// rule was found to do so.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn advance(lent: Lent, found: u32) -> u32 {
    let Some(scratch) = Scratch::borrow(lent) else {
        return EndReason::NoRegisters as u32;
    };
    let place = (scratch.sample.kernel_frames + scratch.sample.user_frames) as usize;
    // SAFETY: the mask bounds the place.
    unsafe { *scratch.frames.as_mut_ptr().add(place & (FRAME_PLACES - 1)) = scratch.frame.0 };
    scratch.sample.user_frames += 1;
    scratch.sample.stack.add(scratch.frame.0);
    if found != GO_ON {
        return found;
    }
    let mut walk = scratch.walk;
    let was_exact = walk.exact;
    let step = walk.step::<Target>(scratch.rule, scratch);
    scratch.walk = walk;
    if walk.exact > was_exact {
        // It returned from a signal, by code that no call leads to: its address is its first one.
        // SAFETY: the mask bounds the place.
        unsafe { *scratch.frames.as_mut_ptr().add(place & (FRAME_PLACES - 1)) += 1 };
        scratch.sample.stack.add(1);
    }
    match step {
        Ok(()) => GO_ON,
        Err(reason) => reason as u32,
    }
}

/// Remembers the frame that the walk stands in and the rule to leave it by, or its page.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn recall(lent: Lent) -> u32 {
    let Some(scratch) = Scratch::borrow(lent) else {
        return EndReason::NoRegisters as u32;
    };
    let (epoch, cpu) = (scratch.epoch, scratch.sample.cpu);
    let address = scratch.walk.address();
    if !Key::is_address(address) {
        return LOCATE;
    }
    let key = Key::address(address);
    if let Some(place) = remembered::place(epoch, cpu, key)
        && place.is_of(epoch, key)
    {
        scratch.frame = place.frame;
        scratch.rule = Encoded(place.more);
        return GO_ON;
    }
    let key = Key::page_of(address);
    if let Some(place) = remembered::place(epoch, cpu, key)
        && place.is_of(epoch, key)
    {
        scratch.frame = Frame(place.frame.0 + (address & (PAGE_SIZE - 1)));
        scratch.page = place.more;
        return SEARCH;
    }
    LOCATE
}

/// Looks for the code that the walk stands in among what this stack went through.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn locate(lent: Lent) -> u32 {
    let Some(scratch) = Scratch::borrow(lent) else {
        return EndReason::NoRegisters as u32;
    };
    let address = scratch.walk.address();
    if scratch.code.holds(address) {
        return OPEN;
    }
    for code in &scratch.known {
        if code.holds(address) {
            scratch.code = *code;
            return OPEN;
        }
    }
    scratch.frame = Frame::new(number::NOWHERE, address);
    scratch.finding = ITS_OWN;
    scratch.find_at = address;
    FIND
}

/// Finds a mapping.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn find(lent: Lent) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::borrow(lent), maps::settings()) else {
        return EndReason::NoRegisters as u32;
    };
    let address = scratch.find_at;
    let found = if settings.mappings == settings::mappings::PUBLISHED {
        hide(u64::from(published::look_up(scratch.lend(), address))) as u32
    } else {
        let mut kernel = Kernel {
            node: &mut scratch.node,
        };
        match mappings::find(&mut kernel, settings, scratch.mm, address) {
            Ok(mapping) => {
                scratch.mapping = mapping;
                GO_ON
            }
            Err(miss) => miss.reason() as u32,
        }
    };
    if scratch.finding != ITS_OWN {
        if found != GO_ON {
            scratch.mapping = Mapping::default();
        }
        return MEET;
    }
    if found != GO_ON {
        return found;
    }
    if scratch.mapping.has_code {
        MEET
    } else {
        EndReason::NoMapping as u32
    }
}

/// The mapping that holds the address, of no file where there is none.
#[inline(always)]
pub fn mapping_at(scratch: &mut Scratch, address: u64) -> Mapping {
    scratch.finding = BELOW;
    scratch.find_at = address;
    find(scratch.lend());
    scratch.mapping
}

/// Makes the code of the mapping the walk's, or says what has to be done before.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn meet(lent: Lent) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::borrow(lent), maps::settings()) else {
        return EndReason::NoRegisters as u32;
    };
    if scratch.finding == BELOW {
        scratch.beside = scratch.mapping;
        scratch.finding = ABOVE;
        scratch.find_at = scratch.gap.end;
        return FIND;
    }
    if scratch.finding == ABOVE {
        let rest = mappings::replaced(&scratch.gap, &scratch.beside, &scratch.mapping);
        scratch.beside = rest.unwrap_or_default();
        scratch.mapping = scratch.gap;
    }
    match code_of(scratch, settings) {
        Ok(code) => scratch.code = code,
        Err(answer) => return answer,
    }
    let place = hide(scratch.known_next) as usize & (KNOWN_CODES - 1);
    // SAFETY: the mask bounds the place.
    unsafe { *scratch.known.as_mut_ptr().add(place) = scratch.code };
    scratch.known_next += 1;
    OPEN
}

/// Finds what the table of the code has for the page.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn open(lent: Lent) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::borrow(lent), maps::settings()) else {
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
    if let Some(place) = remembered::place(scratch.epoch, scratch.sample.cpu, key) {
        let frame = Frame::new(code.number, code.offset_of(address & !(PAGE_SIZE - 1)));
        place.note(scratch.epoch, key, frame, page);
    }
    SEARCH
}

/// Finds the rule in the page.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn search(lent: Lent) -> u32 {
    let (Some(scratch), Some(settings)) = (Scratch::borrow(lent), maps::settings()) else {
        return EndReason::NoRegisters as u32;
    };
    let address = scratch.walk.address();
    let page = Page::from_word(scratch.page);
    scratch.rule = walk::rule_at(&Arena::new(settings), page, address);
    let key = Key::address(address);
    if let Some(place) = remembered::place(scratch.epoch, scratch.sample.cpu, key) {
        place.note(scratch.epoch, key, scratch.frame, scratch.rule.0);
    }
    GO_ON
}

#[inline(always)]
fn code_of(scratch: &mut Scratch, settings: &Settings) -> Result<Code, u32> {
    let layout = &settings.layout;
    let mapping = &scratch.mapping;
    let mut code = Code {
        start: mapping.start,
        end: mapping.end,
        to_offset: mapping.to_offset,
        ..Code::default()
    };
    let mut met = Met {
        id: mapping.id,
        file: mapping.file,
        start: mapping.start,
        end: mapping.end,
    };
    if met.id == FileId::default() {
        if kernel::word(scratch.mm + layout.mm_vdso) == Some(met.start) {
            // Its mapping counts pages from its own address.
            code.to_offset = 0u64.wrapping_sub(met.start);
            met.id = file::VDSO;
        } else if settings.mappings != settings::mappings::PUBLISHED
            && scratch.gap.start != met.start
        {
            scratch.gap = scratch.mapping;
            scratch.finding = BELOW;
            scratch.find_at = met.start.wrapping_sub(1);
            return Err(FIND);
        } else if scratch.beside.file == 0 {
            code.number = number::ANONYMOUS;
            code.to_offset = 0;
            return Ok(code);
        } else {
            let beside = &scratch.beside;
            code.to_offset = beside.to_offset;
            met = Met {
                id: beside.id,
                file: beside.file,
                start: beside.start,
                end: beside.end,
            };
        }
    }
    let entry = files::entry(scratch, &met);
    if entry.table.is_generated() {
        code.number = number::ANONYMOUS;
        code.to_offset = 0;
        return Ok(code);
    }
    code.number = entry.number;
    code.table = entry.table;
    Ok(code)
}

impl World for Scratch {
    #[inline(always)]
    fn user_word(&mut self, address: u64) -> Option<u64> {
        (hide(u64::from(fetch(self.lend(), address))) == 0).then_some(self.word)
    }

    #[inline(always)]
    fn address_bits(&self) -> u64 {
        self.address_bits
    }
}

/// A function saves registers right below its return address, which is read first.
const SAVED_REGISTERS: u64 = 56;
const CACHE_LINE: u64 = 64;

/// Reads a word of the process's stack; 0 says that it is there. The stack is read in pieces: one
/// call of the helper costs as much as the copy.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn fetch(lent: Lent, address: u64) -> u32 {
    let Some(scratch) = Scratch::borrow(lent) else {
        return 1;
    };
    let mut distance = address.wrapping_sub(scratch.window_at);
    if distance & 7 != 0 {
        return read_word(scratch, address);
    }
    if distance >= scratch.window_bytes {
        if !move_window(scratch, address) {
            // It reached into a page that is not there; the word itself may be.
            return read_word(scratch, address);
        }
        distance = address.wrapping_sub(scratch.window_at);
    }
    let place = hide(distance >> 3) as usize & (WINDOW - 1);
    // SAFETY: the mask bounds the place.
    scratch.word = unsafe { *scratch.window.as_ptr().add(place) };
    0
}

/// Each time the window is twice as large: a stack that went on so far is likely to go on.
#[inline(always)]
fn move_window(scratch: &mut Scratch, address: u64) -> bool {
    let start = address.wrapping_sub(SAVED_REGISTERS) & !(CACHE_LINE - 1);
    let mut bytes = hide(scratch.window_bytes << 1);
    if bytes > (WINDOW * 8) as u64 {
        bytes = (WINDOW * 8) as u64;
    }
    // SAFETY: the helper checks the address; the window is ours and has room for as much.
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

/// No address of a user is this close to it.
pub const NO_WINDOW: u64 = 1 << 63;
/// The window that is read next is twice as large.
pub const NO_WINDOW_BYTES: u64 = SMALL_WINDOW as u64 * 4;

#[inline(always)]
fn read_word(scratch: &mut Scratch, address: u64) -> u32 {
    // SAFETY: the helper checks the address; the word is ours.
    let failed =
        unsafe { bpf_probe_read_user((&raw mut scratch.word).cast(), 8, address as *const _) };
    u32::from(failed != 0)
}
