//! The walk up the user's stack.

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use profcol_ebpf_common::file::{self, number};
use profcol_ebpf_common::frame::Frame;
use profcol_ebpf_common::hide;
use profcol_ebpf_common::mappings;
use profcol_ebpf_common::reason::EndReason;
use profcol_ebpf_common::rule::Encoded;
use profcol_ebpf_common::settings::Settings;
use profcol_ebpf_common::table::Words;
use profcol_ebpf_common::walk::{Code, World};

use crate::arena::Arena;
use crate::files::{self, Met};
use crate::kernel::{self, Kernel};
use crate::maps;
use crate::scratch::{FRAME_PLACES, KNOWN_CODES, Scratch, WINDOW};

/// What [`advance`] and [`locate`] answer when the walk goes on; every other answer is a reason.
pub const GO_ON: u32 = 0;

/// Notes the frame that the walk stands in and goes on to its caller; `found` is what [`locate`]
/// answered for it.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn advance(scratch: *mut Scratch, found: u32) -> u32 {
    let (false, Some(settings)) = (scratch.is_null(), maps::settings()) else {
        return EndReason::NoRegisters as u32;
    };
    // SAFETY: the caller has the only reference.
    let scratch = unsafe { &mut *scratch };
    let address = scratch.walk.address();
    let code = &scratch.walk.code;
    let frame = if found == GO_ON {
        Frame::new(code.number, code.offset_of(address))
    } else {
        Frame::new(number::NOWHERE, address)
    };
    let place = (scratch.sample.kernel_frames + scratch.sample.user_frames) as usize;
    // SAFETY: the mask bounds the place.
    unsafe { *scratch.frames.as_mut_ptr().add(place & (FRAME_PLACES - 1)) = frame.0 };
    scratch.sample.user_frames += 1;
    scratch.sample.stack.add(frame.0);
    if found != GO_ON {
        return found;
    }

    let mut walk = scratch.walk;
    let mut world = Process {
        arena: Arena::new(settings),
        window: &mut scratch.window,
        window_at: &mut scratch.window_at,
    };
    let step = walk.step(&mut world);
    scratch.walk = walk;
    match step {
        Ok(()) => GO_ON,
        Err(reason) => reason as u32,
    }
}

/// Finds the code that the walk stands in.
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
    let address = scratch.walk.address();
    if scratch.walk.code.holds(address) {
        return GO_ON;
    }
    for code in &scratch.known {
        if code.holds(address) {
            scratch.walk.code = *code;
            return GO_ON;
        }
    }
    match find(scratch, settings, address) {
        Ok(code) => {
            let place = hide(scratch.known_next) as usize & (KNOWN_CODES - 1);
            // SAFETY: the mask bounds the place.
            unsafe { *scratch.known.as_mut_ptr().add(place) = code };
            scratch.known_next += 1;
            scratch.walk.code = code;
            GO_ON
        }
        Err(reason) => reason as u32,
    }
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
    let met = Met {
        id,
        file: mapping.file,
        start: mapping.start,
        end: mapping.end,
    };
    let entry = files::entry(scratch, &met);
    code.number = entry.number;
    code.table = entry.table;
    Ok(code)
}

/// The process's memory and the tables.
struct Process<'a> {
    arena: Arena,
    /// The stack is read in pieces: one call of the helper costs about as much as the copy.
    window: &'a mut [u64; WINDOW],
    window_at: &'a mut u64,
}

impl Words for Process<'_> {
    #[inline(always)]
    fn word(&self, index: u32) -> u32 {
        self.arena.word(index)
    }
}

impl World for Process<'_> {
    #[inline(always)]
    fn rule(&self, index: u32) -> Encoded {
        self.arena.rule(index)
    }

    #[inline(always)]
    fn user_word(&mut self, address: u64) -> Option<u64> {
        let mut distance = address.wrapping_sub(*self.window_at);
        if distance & 7 != 0 {
            return read_user_word(address);
        }
        if distance >= (WINDOW * 8) as u64 {
            // SAFETY: the helper checks the address; the window is ours.
            let failed = unsafe {
                bpf_probe_read_user(
                    self.window.as_mut_ptr().cast(),
                    (WINDOW * 8) as u32,
                    address as *const _,
                )
            };
            if failed != 0 {
                // The window reached into a page that is not there; the word itself may be.
                *self.window_at = NO_WINDOW;
                return read_user_word(address);
            }
            *self.window_at = address;
            distance = 0;
        }
        let place = hide(distance >> 3) as usize & (WINDOW - 1);
        // SAFETY: the mask bounds the place.
        Some(unsafe { *self.window.as_ptr().add(place) })
    }
}

/// No address of a user is this close to it.
pub const NO_WINDOW: u64 = 1 << 63;

#[inline(always)]
fn read_user_word(address: u64) -> Option<u64> {
    let mut word = 0u64;
    // SAFETY: the helper checks the address.
    let failed = unsafe { bpf_probe_read_user((&raw mut word).cast(), 8, address as *const _) };
    (failed == 0).then_some(word)
}
