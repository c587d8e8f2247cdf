//! The walk up the user's stack.

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use profcol_ebpf_common::file::{self, number};
use profcol_ebpf_common::frame::Frame;
use profcol_ebpf_common::hide;
use profcol_ebpf_common::mappings;
use profcol_ebpf_common::reason::EndReason;
use profcol_ebpf_common::rule::Encoded;
use profcol_ebpf_common::settings::Settings;
use profcol_ebpf_common::table::{PAGE_SIZE, Page};
use profcol_ebpf_common::walk::{self, Code, World};

use crate::arena::Arena;
use crate::files;
use crate::kernel::{self, Kernel};
use crate::maps;
use crate::remembered::{self, Key};
use crate::scratch::{FRAME_PLACES, KNOWN_CODES, SMALL_WINDOW, Scratch, WINDOW};

/// What [`advance`] and [`locate`] answer when the walk goes on; every other answer is a reason.
pub const GO_ON: u32 = 0;

/// Notes the frame that the walk stands in and goes on to its caller; `found` is what [`locate`]
/// answered for it.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn advance(scratch: *mut Scratch, found: u32) -> u32 {
    if scratch.is_null() {
        return EndReason::NoRegisters as u32;
    }
    // SAFETY: the caller has the only reference.
    let scratch = unsafe { &mut *scratch };
    let place = (scratch.sample.kernel_frames + scratch.sample.user_frames) as usize;
    // SAFETY: the mask bounds the place.
    unsafe { *scratch.frames.as_mut_ptr().add(place & (FRAME_PLACES - 1)) = scratch.frame.0 };
    scratch.sample.user_frames += 1;
    if found != GO_ON {
        return found;
    }
    let mut stack = Stack {
        window: &mut scratch.window,
        window_at: &mut scratch.window_at,
        window_bytes: &mut scratch.window_bytes,
    };
    match scratch.walk.step(scratch.rule, &mut stack) {
        Ok(()) => GO_ON,
        Err(reason) => reason as u32,
    }
}

/// Finds the frame that the walk stands in and the rule to leave it by.
///
/// [`advance`] does not call it: a kernel before 6.13 adds up the stacks of functions that call each
/// other, to at most 512 bytes.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn locate(scratch: *mut Scratch) -> u32 {
    let (false, Some(settings)) = (scratch.is_null(), maps::settings()) else {
        return EndReason::NoRegisters as u32;
    };
    // SAFETY: the caller has the only reference.
    let scratch = unsafe { &mut *scratch };
    let (epoch, cpu) = (scratch.epoch, scratch.sample.cpu);
    let address = scratch.walk.address();
    let key = Key::address(address);
    let place = remembered::place(epoch, cpu, key);
    if let Some(place) = &place
        && place.is_of(epoch, key)
    {
        scratch.frame = place.frame;
        scratch.rule = Encoded(place.more);
        return GO_ON;
    }
    let tables = Arena::new(settings);
    let (frame, page) = match page_of(scratch, settings, &tables, address) {
        Ok(found) => found,
        Err(reason) => return reason as u32,
    };
    scratch.frame = Frame(frame.0 + (address & (PAGE_SIZE - 1)));
    scratch.rule = walk::rule_at(&tables, page, address);
    if let Some(place) = place {
        place.note(epoch, key, scratch.frame, scratch.rule.0);
    }
    GO_ON
}

/// The first byte of the address's page as a frame, and what the table has for the page. Where that
/// is not found, the scratch has the address's own frame.
#[inline(always)]
fn page_of(
    scratch: &mut Scratch,
    settings: &Settings,
    tables: &Arena,
    address: u64,
) -> Result<(Frame, Page), EndReason> {
    let epoch = scratch.epoch;
    let key = Key::page_of(address);
    let place = remembered::place(epoch, scratch.sample.cpu, key);
    if let Some(place) = &place
        && place.is_of(epoch, key)
    {
        return Ok((place.frame, Page::from_word(place.more)));
    }
    scratch.frame = Frame::new(number::NOWHERE, address);
    enter(scratch, settings, address)?;
    let code = &scratch.code;
    scratch.frame = Frame::new(code.number, code.offset_of(address));
    let page = code.page(tables, address)?;
    let frame = Frame::new(code.number, code.offset_of(address & !(PAGE_SIZE - 1)));
    if let Some(place) = place {
        place.note(epoch, key, frame, page.to_word());
    }
    Ok((frame, page))
}

/// Makes the code that holds `address` the walk's.
#[inline(always)]
fn enter(scratch: &mut Scratch, settings: &Settings, address: u64) -> Result<(), EndReason> {
    if scratch.code.holds(address) {
        return Ok(());
    }
    for code in &scratch.known {
        if code.holds(address) {
            scratch.code = *code;
            return Ok(());
        }
    }
    let code = find(scratch, settings, address)?;
    let place = hide(scratch.known_next) as usize & (KNOWN_CODES - 1);
    // SAFETY: the mask bounds the place.
    unsafe { *scratch.known.as_mut_ptr().add(place) = code };
    scratch.known_next += 1;
    scratch.code = code;
    Ok(())
}

#[inline(always)]
fn find(scratch: &mut Scratch, settings: &Settings, address: u64) -> Result<Code, EndReason> {
    let mut kernel = Kernel {
        node: &mut scratch.node,
    };
    let layout = &settings.layout;
    let mapping =
        mappings::find(&mut kernel, layout, scratch.mm, address).map_err(|miss| miss.reason())?;
    if !mapping.has_code {
        return Err(EndReason::NoMapping);
    }
    let mut code = Code {
        start: mapping.start,
        end: mapping.end,
        to_offset: mapping.to_offset,
        ..Code::default()
    };
    let mut id = mapping.id;
    if mapping.file == 0 {
        if kernel::word(scratch.mm + layout.mm_vdso) != Some(mapping.start) {
            code.number = number::ANONYMOUS;
            code.to_offset = 0;
            return Ok(code);
        }
        // Its mapping counts pages from its own address.
        code.to_offset = 0u64.wrapping_sub(mapping.start);
        id = file::VDSO;
    }
    let entry = files::entry(&id, mapping.start, mapping.end);
    code.number = entry.number;
    code.table = entry.table;
    Ok(code)
}

/// The stack of the process, read in pieces: one call of the helper costs as much as the copy.
struct Stack<'a> {
    window: &'a mut [u64; WINDOW],
    window_at: &'a mut u64,
    window_bytes: &'a mut u64,
}

/// A function saves registers right below its return address, which is read first.
const SAVED_REGISTERS: u64 = 56;
const CACHE_LINE: u64 = 64;

impl World for Stack<'_> {
    #[inline(always)]
    fn user_word(&mut self, address: u64) -> Option<u64> {
        let mut distance = address.wrapping_sub(*self.window_at);
        if distance & 7 != 0 {
            return read_user_word(address);
        }
        if distance >= *self.window_bytes {
            distance = self.read_on(address)?;
        }
        let place = hide(distance >> 3) as usize & (WINDOW - 1);
        // SAFETY: the mask bounds the place.
        Some(unsafe { *self.window.as_ptr().add(place) })
    }
}

impl Stack<'_> {
    /// Moves the window to `address` and says how far in it that is. Each time the window is twice
    /// as large: a stack that went on so far is likely to go on.
    #[inline(always)]
    fn read_on(&mut self, address: u64) -> Option<u64> {
        let start = address.wrapping_sub(SAVED_REGISTERS) & !(CACHE_LINE - 1);
        let mut bytes = hide(*self.window_bytes << 1);
        if bytes > (WINDOW * 8) as u64 {
            bytes = (WINDOW * 8) as u64;
        }
        *self.window_at = start;
        // SAFETY: the helper checks the address; the window is ours and has room for as much.
        let failed = unsafe {
            bpf_probe_read_user(
                self.window.as_mut_ptr().cast(),
                bytes as u32,
                start as *const _,
            )
        };
        if failed == 0 {
            *self.window_bytes = bytes;
            return Some(address - start);
        }
        // The window reached into a page that is not there; the word itself may be.
        *self.window_at = address;
        *self.window_bytes = 8;
        let word = read_user_word(address)?;
        self.window[0] = word;
        Some(0)
    }
}

/// No address of a user is this close to it.
pub const NO_WINDOW: u64 = 1 << 63;
/// The window that is read next is twice as large.
pub const NO_WINDOW_BYTES: u64 = SMALL_WINDOW as u64 * 4;

#[inline(always)]
fn read_user_word(address: u64) -> Option<u64> {
    let mut word = 0u64;
    // SAFETY: the helper checks the address.
    let failed = unsafe { bpf_probe_read_user((&raw mut word).cast(), 8, address as *const _) };
    (failed == 0).then_some(word)
}
