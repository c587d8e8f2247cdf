//! The step from one frame to its caller.

use crate::architecture::Architecture;
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
    /// Whether the frame's stack pointer is not known, only that it is not lower than `sp`.
    pub sp_is_bound: u32,
}

/// Tables and the rules that their rows name.
pub trait Tables: Words {
    fn rule(&self, index: u32) -> Encoded;
}

/// What a walk reads.
pub trait World {
    fn user_word(&mut self, address: u64) -> Option<u64>;
    /// The bits that a user's address may have.
    fn address_bits(&self) -> u64;
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
    pub fn step<A: Architecture>(
        &mut self,
        rule: Encoded,
        world: &mut impl World,
    ) -> Result<(), EndReason> {
        let Registers { ip, sp, fp, link } = self.registers;
        let is_bound = !A::CALLS_PUSH && self.sp_is_bound != 0;
        let cfa = match rule.kind() {
            kind::SP | kind::SIGNAL_FRAME if is_bound => self.frame_of_pair(rule)?,
            kind::SP => sp.wrapping_add_signed(rule.cfa_offset()),
            kind::FP => fp.wrapping_add_signed(rule.cfa_offset()),
            kind::GAP if self.exact != 0 => return self.leave_unknown_code::<A>(world),
            kind::GAP | kind::FRAME_POINTER => return self.follow_frame_pointer::<A>(world),
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
            kind::SIGNAL_FRAME => return self.leave_signal::<A>(world),
            kind::OTHER_STACK => return self.follow_pair::<A>(world, fp),
            _ => return Err(EndReason::Unsupported),
        };
        let is_saved = rule.ra_saved();
        // Without a frame of its own, a function leaves the stack as it is.
        if cfa < sp || cfa == sp && is_saved {
            return Err(EndReason::NotAdvancing);
        }
        let ra_offset = if A::CALLS_PUSH { -8 } else { rule.ra_or_slot() };
        let ip = match (is_saved, link) {
            (true, _) => read(world, cfa.wrapping_add_signed(ra_offset))?,
            (false, 0) => return Err(EndReason::Unsupported),
            (false, link) => link,
        };
        let fp = match rule.fp_place() {
            fp::SAME => fp,
            fp::AT => read(world, cfa.wrapping_add_signed(rule.fp_offset()))?,
            _ => read(world, fp.wrapping_add_signed(rule.fp_offset()))?,
        };
        self.enter_caller::<A>(world, ip, cfa, fp)
    }

    /// Code of which nothing is known, at any of its instructions: where it just begins or ends, the
    /// frame pointer is still or again the caller's, and would lead past it.
    #[inline(always)]
    fn leave_unknown_code<A: Architecture>(
        &mut self,
        world: &mut impl World,
    ) -> Result<(), EndReason> {
        let Registers { ip, sp, fp, link } = self.registers;
        let code = world.user_word(ip).unwrap_or(0);
        if A::is_frameless(code) {
            let (ip, sp) = if A::CALLS_PUSH {
                (read(world, sp)?, sp.wrapping_add(8))
            } else {
                (link, sp)
            };
            return self.enter_caller::<A>(world, ip, sp, fp);
        }
        if A::has_saved(code) {
            return self.follow_pair::<A>(world, sp);
        }
        if A::is_about_to_save(code) {
            self.enter_caller::<A>(world, link, sp, fp)?;
            self.set_bound::<A>(true);
            return Ok(());
        }
        self.follow_frame_pointer::<A>(world)
    }

    /// Where nothing is known of the code, its frame pointer may still be one. It is believed where
    /// it leads up the stack, by no more than a frame may measure.
    #[inline(always)]
    fn follow_frame_pointer<A: Architecture>(
        &mut self,
        world: &mut impl World,
    ) -> Result<(), EndReason> {
        let Registers { sp, fp, .. } = self.registers;
        if fp == 0 {
            return Err(EndReason::FramePointerEnd);
        }
        if fp < sp || fp - sp > LARGEST_GUESSED_FRAME || fp & 7 != 0 {
            return Err(EndReason::NoUnwindInfo);
        }
        self.follow_pair::<A>(world, fp)
    }

    /// On to the caller by the frame pointer and the return address that were saved side by side.
    #[inline(always)]
    fn follow_pair<A: Architecture>(
        &mut self,
        world: &mut impl World,
        pair: u64,
    ) -> Result<(), EndReason> {
        let ip = read(world, pair.wrapping_add(8))?;
        let fp = read(world, pair)?;
        self.enter_caller::<A>(world, ip, pair.wrapping_add(16), fp)?;
        self.set_bound::<A>(true);
        Ok(())
    }

    /// Where calls push, what is saved is the end of the frame, and the stack pointer always known.
    #[inline(always)]
    fn set_bound<A: Architecture>(&mut self, sp_is_bound: bool) {
        if !A::CALLS_PUSH {
            self.sp_is_bound = u32::from(sp_is_bound);
        }
    }

    /// The CFA of a frame whose stack pointer is not known: where it saved a frame pointer, its own
    /// one points there, if it is one.
    #[inline(always)]
    fn frame_of_pair(&self, rule: Encoded) -> Result<u64, EndReason> {
        let Registers { sp, fp, .. } = self.registers;
        if rule.fp_place() != fp::AT || fp < sp || fp - sp > LARGEST_GUESSED_FRAME {
            return Err(EndReason::FramePointerEnd);
        }
        Ok(fp.wrapping_add_signed(-rule.fp_offset()))
    }

    #[inline(always)]
    fn enter_caller<A: Architecture>(
        &mut self,
        world: &impl World,
        return_address: u64,
        sp: u64,
        fp: u64,
    ) -> Result<(), EndReason> {
        let ip = A::return_address(return_address, world.address_bits());
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

    /// On to what the signal interrupted, by the registers that the kernel saved on the stack. That
    /// may be another stack, so it need not lie above.
    #[inline(always)]
    fn leave_signal<A: Architecture>(&mut self, world: &mut impl World) -> Result<(), EndReason> {
        let frame = self.registers.sp;
        let mut at = |place: u64| read(world, frame.wrapping_add(place));
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
fn read(world: &mut impl World, address: u64) -> Result<u64, EndReason> {
    world.user_word(address).ok_or(EndReason::StackUnreadable)
}

#[cfg(test)]
mod tests;
