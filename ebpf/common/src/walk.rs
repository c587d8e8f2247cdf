//! The step from one frame to its caller.

use crate::file::{TableRef, number};
use crate::reason::EndReason;
use crate::rule::{Encoded, fp, kind};
use crate::table::{self, Page, Words};

/// The registers that a walk needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Registers {
    pub ip: u64,
    pub sp: u64,
    pub fp: u64,
    /// What may hold the return address before it is on the stack; known of the innermost frame alone,
    /// and else 0.
    pub link: u64,
}

/// A stretch of a process's memory that has code, and the table for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Code {
    pub start: u64,
    pub end: u64,
    /// Added to an address gives the offset in the file.
    pub to_offset: u64,
    pub number: u32,
    pub table: TableRef,
}

/// A walk under way.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Walk {
    pub registers: Registers,
    /// Whether `ip` is the next instruction, and not where a call returns to: a call may be the last
    /// instruction of its function, and what follows belongs to another.
    pub exact: u32,
}

/// Tables and the rules that their rows name.
pub trait Tables: Words {
    fn rule(&self, index: u32) -> Encoded;
}

/// What a walk reads.
pub trait World {
    fn user_word(&mut self, address: u64) -> Option<u64>;
}

/// A chain of frame pointers that jumps further than this is none.
const LARGEST_GUESSED_FRAME: u64 = 1 << 20;

impl Code {
    pub fn holds(&self, address: u64) -> bool {
        address >= self.start && address < self.end
    }

    pub fn offset_of(&self, address: u64) -> u64 {
        address.wrapping_add(self.to_offset)
    }

    /// What the table has for the page of this address.
    #[inline(always)]
    pub fn page(&self, tables: &impl Words, address: u64) -> Result<Page, EndReason> {
        if self.number == number::ANONYMOUS {
            return Ok(Page::EMPTY);
        }
        let table = &self.table;
        if table.page_count == 0 {
            return Err(if *table == TableRef::PENDING {
                EndReason::TablePending
            } else {
                EndReason::TableRefused
            });
        }
        let offset = self.offset_of(address);
        let page = (offset >> table::PAGE_SHIFT).wrapping_sub(u64::from(table.first_page));
        if page >= u64::from(table.page_count) {
            return Ok(Page::EMPTY);
        }
        let entry = table
            .pages
            .wrapping_add((page as u32).wrapping_mul(Page::WORDS));
        // The count first: the loader writes it last.
        let count = tables.word(entry.wrapping_add(1));
        let rows = tables.word(entry);
        if count > table::MAX_ROWS_OF_PAGE {
            return Err(EndReason::TablePending);
        }
        Ok(Page { rows, count })
    }
}

/// The rule that a page has for an offset.
#[inline(always)]
pub fn rule_at(tables: &impl Tables, page: Page, offset: u64) -> Encoded {
    let gap = Encoded(kind::GAP);
    if page.count == 0 {
        return gap;
    }
    let row = table::search(tables, page.rows, page.count, offset);
    row.map_or(gap, |row| tables.rule(row.rule()))
}

impl Walk {
    /// The address that stands for this frame: in the call instruction, not behind it.
    #[inline(always)]
    pub fn address(&self) -> u64 {
        let behind = u64::from(self.exact == 0);
        self.registers.ip.wrapping_sub(behind)
    }

    /// Goes on to the caller by the rule that holds at this frame's address.
    #[inline(always)]
    pub fn step(&mut self, rule: Encoded, world: &mut impl World) -> Result<(), EndReason> {
        let Registers { ip, sp, fp, link } = self.registers;
        let cfa = match rule.kind() {
            kind::SP => sp.wrapping_add_signed(rule.cfa_offset()),
            kind::FP => fp.wrapping_add_signed(rule.cfa_offset()),
            kind::GAP if self.exact != 0 => return self.leave_unknown_code(world),
            kind::GAP | kind::FRAME_POINTER => return self.follow_frame_pointer(world),
            kind::PLT => {
                let pushed = (ip & 15) as i64 >= rule.cfa_offset();
                sp.wrapping_add(8 + (u64::from(pushed) << 3))
            }
            kind::SP_SLOT | kind::FP_SLOT => {
                let base = if rule.kind() == kind::SP_SLOT { sp } else { fp };
                let slot = base.wrapping_add_signed(rule.ra_or_slot());
                read(world, slot)?.wrapping_add_signed(rule.cfa_offset())
            }
            kind::END => return Err(EndReason::Complete),
            kind::SIGNAL_FRAME => return self.leave_signal(world),
            kind::OTHER_STACK => return self.enter_by_frame_pointer(world),
            _ => return Err(EndReason::Unsupported),
        };
        let is_saved = rule.ra_saved();
        // Without a frame of its own, a function leaves the stack as it is.
        if cfa < sp || cfa == sp && is_saved {
            return Err(EndReason::NotAdvancing);
        }
        let ip = match (is_saved, link) {
            (true, _) => read(world, cfa.wrapping_sub(8))?,
            (false, 0) => return Err(EndReason::Unsupported),
            (false, link) => link,
        };
        let fp = match rule.fp_place() {
            fp::SAME => fp,
            fp::AT => read(world, cfa.wrapping_add_signed(rule.fp_offset()))?,
            _ => read(world, fp.wrapping_add_signed(rule.fp_offset()))?,
        };
        self.enter_caller(Registers {
            ip,
            sp: cfa,
            fp,
            link: 0,
        })
    }

    /// Code of which nothing is known, at any of its instructions: where it just begins or ends, the
    /// frame pointer is still or again the caller's, and would lead past it.
    #[inline(always)]
    fn leave_unknown_code(&mut self, world: &mut impl World) -> Result<(), EndReason> {
        let Registers { ip, sp, fp, .. } = self.registers;
        let code = world.user_word(ip).unwrap_or(0);
        let stands_at = |instruction: &[u8]| {
            let mut bytes = [0; 8];
            bytes[..instruction.len()].copy_from_slice(instruction);
            let unused = 64 - 8 * instruction.len() as u32;
            code << unused == u64::from_le_bytes(bytes) << unused
        };
        if stands_at(&PUSH_FP) || stands_at(&MARKED_PUSH_FP) || stands_at(&RETURN) {
            let ip = read(world, sp)?;
            let sp = sp.wrapping_add(8);
            return self.enter_caller(Registers {
                ip,
                sp,
                fp,
                link: 0,
            });
        }
        if stands_at(&SET_FP) || stands_at(&SET_FP_OTHERWISE) {
            let caller = Registers {
                ip: read(world, sp.wrapping_add(8))?,
                sp: sp.wrapping_add(16),
                fp: read(world, sp)?,
                link: 0,
            };
            return self.enter_caller(caller);
        }
        self.follow_frame_pointer(world)
    }

    /// Where nothing is known of the code, its frame pointer may still be one. It is believed where
    /// it leads up the stack, by no more than a frame may measure.
    #[inline(always)]
    fn follow_frame_pointer(&mut self, world: &mut impl World) -> Result<(), EndReason> {
        let Registers { sp, fp, .. } = self.registers;
        if fp == 0 {
            return Err(EndReason::FramePointerEnd);
        }
        if fp < sp || fp - sp > LARGEST_GUESSED_FRAME || fp & 7 != 0 {
            return Err(EndReason::NoUnwindInfo);
        }
        self.enter_by_frame_pointer(world)
    }

    #[inline(always)]
    fn enter_by_frame_pointer(&mut self, world: &mut impl World) -> Result<(), EndReason> {
        let fp = self.registers.fp;
        let caller = Registers {
            ip: read(world, fp.wrapping_add(8))?,
            sp: fp.wrapping_add(16),
            fp: read(world, fp)?,
            link: 0,
        };
        self.enter_caller(caller)
    }

    fn enter_caller(&mut self, caller: Registers) -> Result<(), EndReason> {
        if caller.ip == 0 {
            return Err(EndReason::Complete);
        }
        self.registers = caller;
        self.exact = 0;
        Ok(())
    }

    /// On to what the signal interrupted, by the registers that the kernel saved on the stack. That
    /// may be another stack, so it need not lie above.
    #[inline(always)]
    fn leave_signal(&mut self, world: &mut impl World) -> Result<(), EndReason> {
        let frame = self.registers.sp;
        self.registers = Registers {
            ip: read(world, frame.wrapping_add(SIGNAL_IP))?,
            sp: read(world, frame.wrapping_add(SIGNAL_SP))?,
            fp: read(world, frame.wrapping_add(SIGNAL_FP))?,
            link: read(world, frame.wrapping_add(SIGNAL_LINK))?,
        };
        self.exact = 1;
        Ok(())
    }
}

/// With these begin and end functions that keep a frame pointer on x86-64: `push rbp`, also behind an
/// `endbr64`, `mov rbp, rsp` in either encoding, and `ret`.
const PUSH_FP: [u8; 1] = [0x55];
const MARKED_PUSH_FP: [u8; 5] = [0xf3, 0x0f, 0x1e, 0xfa, 0x55];
const SET_FP: [u8; 3] = [0x48, 0x89, 0xe5];
const SET_FP_OTHERWISE: [u8; 3] = [0x48, 0x8b, 0xec];
const RETURN: [u8; 1] = [0xc3];

/// Places in the `ucontext` that the stack pointer points to in a signal's return code on x86-64:
/// flags, link and stack, then the registers.
const SIGNAL_LINK: u64 = 40 + 8 * 8;
const SIGNAL_FP: u64 = 40 + 10 * 8;
const SIGNAL_SP: u64 = 40 + 15 * 8;
const SIGNAL_IP: u64 = 40 + 16 * 8;

#[inline(always)]
fn read(world: &mut impl World, address: u64) -> Result<u64, EndReason> {
    world.user_word(address).ok_or(EndReason::StackUnreadable)
}

#[cfg(test)]
mod tests;
