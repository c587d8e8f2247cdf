//! One unwind step, from a frame to its caller.

use crate::architecture::Architecture;
use crate::file::{TableRef, file_number};
use crate::reason::EndReason;
use crate::rule::{EncodedRule, fp, kind};
use crate::table::{self, Page, Words};

/// The registers that unwinding needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Registers {
    pub ip: u64,
    pub sp: u64,
    pub fp: u64,
    /// The register that may hold the return address; known for the innermost frame only, else 0.
    pub link: u64,
}

/// An executable mapping of a process, and its unwind table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CodeMapping {
    pub start: u64,
    pub end: u64,
    /// Offset in the file = address + this.
    pub offset_delta: u64,
    pub number: u32,
    pub table: TableRef,
}

/// The state of the unwinder.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Walk {
    pub registers: Registers,
    /// Whether `ip` is an exact instruction pointer and not a return address: a call may be the last
    /// instruction of its function.
    pub exact: u32,
    /// Whether `sp` is only a lower bound of the frame's stack pointer.
    pub sp_is_bound: u32,
}

/// Unwind tables and their rules.
pub trait Tables: Words {
    fn rule(&self, index: u32) -> EncodedRule;
}

/// Memory of the sampled process.
pub trait UserMemory {
    fn user_word(&mut self, address: u64) -> Option<u64>;
    /// Mask of valid user addresses.
    fn address_bits(&self) -> u64;
}

/// Maximum distance up the stack at which a frame pointer is followed.
const MAX_GUESSED_FRAME: u64 = 1 << 20;

impl CodeMapping {
    pub fn holds(&self, address: u64) -> bool {
        address >= self.start && address < self.end
    }

    pub fn offset_of(&self, address: u64) -> u64 {
        address.wrapping_add(self.offset_delta)
    }

    /// The page index entry for this address.
    #[inline(always)]
    pub fn page(&self, tables: &impl Words, address: u64) -> Result<Page, EndReason> {
        if self.number == file_number::ANONYMOUS {
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

/// The rule for an offset in a page.
#[inline(always)]
pub fn rule_at(tables: &impl Tables, page: Page, offset: u64) -> EncodedRule {
    let gap = EncodedRule(kind::GAP);
    if page.count == 0 {
        return gap;
    }
    let row = table::search(tables, page.rows, page.count, offset);
    row.map_or(gap, |row| tables.rule(row.rule()))
}

impl Walk {
    /// The address to look up: inside the call instruction, not after it.
    #[inline(always)]
    pub fn address(&self) -> u64 {
        let behind = u64::from(self.exact == 0);
        self.registers.ip.wrapping_sub(behind)
    }

    /// Unwinds to the caller by the rule for this frame's address.
    #[inline(always)]
    pub fn step<A: Architecture>(
        &mut self,
        rule: EncodedRule,
        memory: &mut impl UserMemory,
    ) -> Result<(), EndReason> {
        let Registers { ip, sp, fp, link } = self.registers;
        let is_bound = !A::CALLS_PUSH && self.sp_is_bound != 0;
        let cfa = match rule.kind() {
            kind::SP | kind::SIGNAL_FRAME if is_bound => self.frame_of_pair(rule)?,
            kind::SP => sp.wrapping_add_signed(rule.cfa_offset()),
            kind::FP => fp.wrapping_add_signed(rule.cfa_offset()),
            kind::GAP if self.exact != 0 => return self.leave_unknown_code::<A>(memory),
            kind::GAP | kind::FRAME_POINTER => return self.follow_frame_pointer::<A>(memory),
            kind::PLT => {
                let pushed = (ip & 15) as i64 >= rule.cfa_offset();
                sp.wrapping_add(8 + (u64::from(pushed) << 3))
            }
            kind::SP_SLOT | kind::FP_SLOT => {
                let base = if rule.kind() == kind::SP_SLOT { sp } else { fp };
                let slot = base.wrapping_add_signed(rule.ra_or_slot());
                read(memory, slot)?.wrapping_add_signed(rule.cfa_offset())
            }
            kind::END => return Err(EndReason::Complete),
            kind::SIGNAL_FRAME => return self.leave_signal::<A>(memory),
            kind::OTHER_STACK => return self.follow_pair::<A>(memory, fp),
            _ => return Err(EndReason::Unsupported),
        };
        let is_saved = rule.ra_saved();
        // A function without a frame does not move the stack pointer.
        if cfa < sp || cfa == sp && is_saved {
            return Err(EndReason::NotAdvancing);
        }
        let ra_offset = if A::CALLS_PUSH { -8 } else { rule.ra_or_slot() };
        let ip = match (is_saved, link) {
            (true, _) => read(memory, cfa.wrapping_add_signed(ra_offset))?,
            (false, 0) => return Err(EndReason::Unsupported),
            (false, link) => link,
        };
        let fp = match rule.fp_location() {
            fp::SAME => fp,
            fp::AT => read(memory, cfa.wrapping_add_signed(rule.fp_offset()))?,
            _ => read(memory, fp.wrapping_add_signed(rule.fp_offset()))?,
        };
        self.enter_caller::<A>(memory, ip, cfa, fp)
    }

    /// Code without unwind information, at any instruction: in its prologue and epilogue the frame
    /// pointer is the caller's, and following it would skip the caller.
    #[inline(always)]
    fn leave_unknown_code<A: Architecture>(
        &mut self,
        memory: &mut impl UserMemory,
    ) -> Result<(), EndReason> {
        let Registers { ip, sp, fp, link } = self.registers;
        let code = memory.user_word(ip).unwrap_or(0);
        if A::is_frameless(code) {
            let (ip, sp) = if A::CALLS_PUSH {
                (read(memory, sp)?, sp.wrapping_add(8))
            } else {
                (link, sp)
            };
            return self.enter_caller::<A>(memory, ip, sp, fp);
        }
        if A::has_pushed_fp(code) {
            return self.follow_pair::<A>(memory, sp);
        }
        if A::is_about_to_save_pair(code) {
            self.enter_caller::<A>(memory, link, sp, fp)?;
            self.set_bound::<A>(true);
            return Ok(());
        }
        self.follow_frame_pointer::<A>(memory)
    }

    /// Without unwind information, the frame pointer is followed if it points up the stack, by at most
    /// [`MAX_GUESSED_FRAME`].
    #[inline(always)]
    fn follow_frame_pointer<A: Architecture>(
        &mut self,
        memory: &mut impl UserMemory,
    ) -> Result<(), EndReason> {
        let Registers { sp, fp, .. } = self.registers;
        if fp == 0 {
            return Err(EndReason::FramePointerEnd);
        }
        if fp < sp || fp - sp > MAX_GUESSED_FRAME || fp & 7 != 0 {
            return Err(EndReason::NoUnwindInfo);
        }
        self.follow_pair::<A>(memory, fp)
    }

    /// Unwinds by a saved pair of frame pointer and return address.
    #[inline(always)]
    fn follow_pair<A: Architecture>(
        &mut self,
        memory: &mut impl UserMemory,
        pair: u64,
    ) -> Result<(), EndReason> {
        let ip = read(memory, pair.wrapping_add(8))?;
        let fp = read(memory, pair)?;
        self.enter_caller::<A>(memory, ip, pair.wrapping_add(16), fp)?;
        self.set_bound::<A>(true);
        Ok(())
    }

    /// If calls push, the saved registers end the frame and the stack pointer is always known.
    #[inline(always)]
    fn set_bound<A: Architecture>(&mut self, sp_is_bound: bool) {
        if !A::CALLS_PUSH {
            self.sp_is_bound = u32::from(sp_is_bound);
        }
    }

    /// The CFA of a frame with unknown stack pointer: its frame pointer points to the saved one.
    #[inline(always)]
    fn frame_of_pair(&self, rule: EncodedRule) -> Result<u64, EndReason> {
        let Registers { sp, fp, .. } = self.registers;
        if rule.fp_location() != fp::AT || fp < sp || fp - sp > MAX_GUESSED_FRAME {
            return Err(EndReason::FramePointerEnd);
        }
        Ok(fp.wrapping_add_signed(-rule.fp_offset()))
    }

    #[inline(always)]
    fn enter_caller<A: Architecture>(
        &mut self,
        memory: &impl UserMemory,
        return_address: u64,
        sp: u64,
        fp: u64,
    ) -> Result<(), EndReason> {
        let ip = A::return_address(return_address, memory.address_bits());
        if ip == 0 {
            return Err(EndReason::Complete);
        }
        self.registers = Registers {
            ip,
            sp,
            fp,
            link: 0,
        };
        self.exact = 0;
        self.set_bound::<A>(false);
        Ok(())
    }

    /// Unwinds to the interrupted code, by the registers that the kernel saved in the signal frame. It
    /// may be on another stack, so the stack pointer need not increase.
    #[inline(always)]
    fn leave_signal<A: Architecture>(
        &mut self,
        memory: &mut impl UserMemory,
    ) -> Result<(), EndReason> {
        let frame = self.registers.sp;
        let mut at = |place: u64| read(memory, frame.wrapping_add(place));
        self.registers = Registers {
            ip: at(A::SIGNAL_FRAME.ip)?,
            sp: at(A::SIGNAL_FRAME.sp)?,
            fp: at(A::SIGNAL_FRAME.fp)?,
            link: at(A::SIGNAL_FRAME.link)?,
        };
        self.exact = 1;
        self.set_bound::<A>(false);
        Ok(())
    }
}

#[inline(always)]
fn read(memory: &mut impl UserMemory, address: u64) -> Result<u64, EndReason> {
    memory.user_word(address).ok_or(EndReason::StackUnreadable)
}

#[cfg(test)]
mod tests;
