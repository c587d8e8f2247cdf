//! The naive implementation of the walk.

use profcol_ebpf_common::file::{TableRef, file_number};
use profcol_ebpf_common::frame::Frame;
use profcol_ebpf_common::reason::EndReason;
use profcol_ebpf_common::rule::{Cfa, ReturnAddress, Rule, SavedFp};
use profcol_ebpf_common::walk::Registers;

use crate::process::{File, PAGE, Process, Thread};

const MAX_GUESSED_FRAME: u64 = 1 << 20;

/// Register offsets in the kernel's `ucontext`, relative to the stack pointer.
const SAVED_DI: u64 = 104;
const SAVED_BP: u64 = 120;
const SAVED_SP: u64 = 160;
const SAVED_IP: u64 = 168;

pub fn walk(process: &Process, thread: &Thread) -> (Vec<u64>, EndReason) {
    let mut frames = Vec::new();
    let mut walk = Step {
        process,
        at: thread.registers,
        is_exact: thread.is_exact,
    };
    loop {
        if frames.len() >= thread.max_frames as usize {
            return (frames, EndReason::Truncated);
        }
        let was_exact = walk.is_exact;
        let address = walk.at.ip.wrapping_sub(u64::from(!was_exact));
        let (frame, rule) = find(process, address);
        frames.push(frame.0);
        let before = walk.at;
        let is_other = rule == Ok(Rule::OtherStack);
        if let Err(reason) = rule.and_then(|rule| walk.leave_by(rule)) {
            return (frames, reason);
        }
        if walk.is_exact {
            // A signal trampoline was not called.
            if let (false, Some(last)) = (was_exact, frames.last_mut()) {
                *last += 1;
            }
        } else {
            let stays = before.link != 0 && walk.at.sp == before.sp;
            let is_up = walk.at.sp > before.sp;
            assert!(is_up || stays || is_other, "does not go up the stack");
        }
    }
}

fn find(process: &Process, address: u64) -> (Frame, Result<Rule, EndReason>) {
    let Some(mapping) = process.mapping(address).filter(|mapping| mapping.has_code) else {
        let nowhere = Frame::new(file_number::UNMAPPED, address);
        return (nowhere, Err(EndReason::NoMapping));
    };
    let (file, offset_delta) = match process.replaced(mapping) {
        Some(rest) => (rest.file, rest.offset_delta()),
        None => (mapping.file, mapping.offset_delta()),
    };
    let Some(file) = file.map(|index| &process.files[index]) else {
        return (Frame::new(file_number::ANONYMOUS, address), Ok(Rule::Gap));
    };
    let offset = address.wrapping_add(offset_delta);
    (Frame::new(file.entry.number, offset), look_up(file, offset))
}

fn look_up(file: &File, offset: u64) -> Result<Rule, EndReason> {
    if file.entry.table == TableRef::PENDING {
        return Err(EndReason::TablePending);
    }
    let Some(table) = file.table.as_ref().filter(|table| !table.pages.is_empty()) else {
        return Err(EndReason::TableRefused);
    };
    let number = offset / PAGE;
    if file.not_built.contains(&number) {
        return Err(EndReason::TablePending);
    }
    let page = number.checked_sub(table.first_page);
    let Some(page) = page.and_then(|index| table.pages.get(index as usize)) else {
        return Ok(Rule::Gap);
    };
    let rows = &table.rows[page.rows as usize..][..page.count as usize];
    let row = rows
        .iter()
        .rfind(|row| u64::from(row.offset()) <= offset % PAGE);
    Ok(row.map_or(Rule::Gap, |row| table.rules[row.rule() as usize].decode()))
}

struct Step<'p> {
    process: &'p Process,
    at: Registers,
    is_exact: bool,
}

impl Step<'_> {
    fn leave_by(&mut self, rule: Rule) -> Result<(), EndReason> {
        let Registers { ip, sp, fp, link } = self.at;
        match rule {
            Rule::End => Err(EndReason::Complete),
            Rule::Unsupported => Err(EndReason::Unsupported),
            Rule::FramePointer => self.follow_frame_pointer(),
            Rule::OtherStack => self.enter_by_frame_pointer(),
            Rule::Gap => {
                if self.is_exact
                    && let Some(saved) = self.frame_under_way()
                {
                    return self.enter(sp + saved, if saved == 0 { fp } else { self.word(sp)? });
                }
                self.follow_frame_pointer()
            }
            Rule::SignalFrame => {
                self.at = Registers {
                    ip: self.word(sp.wrapping_add(SAVED_IP))?,
                    sp: self.word(sp.wrapping_add(SAVED_SP))?,
                    fp: self.word(sp.wrapping_add(SAVED_BP))?,
                    link: self.word(sp.wrapping_add(SAVED_DI))?,
                };
                self.is_exact = true;
                Ok(())
            }
            Rule::Plt { pushed } => {
                let is_pushed = ip % 16 >= u64::from(pushed);
                let return_address = sp.wrapping_add(if is_pushed { 8 } else { 0 });
                self.enter_above(return_address, fp)
            }
            Rule::Frame { cfa, fp: saved, ra } => {
                let cfa = match cfa {
                    Cfa::Sp(offset) => sp.wrapping_add_signed(offset.into()),
                    Cfa::Fp(offset) => fp.wrapping_add_signed(offset.into()),
                    Cfa::SpSlot { slot, plus } => self.slot(sp, slot, plus)?,
                    Cfa::FpSlot { slot, plus } => self.slot(fp, slot, plus)?,
                };
                let in_register = ra == ReturnAddress::LinkRegister;
                if cfa < sp || cfa == sp && !in_register {
                    return Err(EndReason::NotAdvancing);
                }
                let ip = match (in_register, link) {
                    (false, _) => self.word(cfa.wrapping_sub(8))?,
                    (true, 0) => return Err(EndReason::Unsupported),
                    (true, link) => link,
                };
                let fp = match saved {
                    SavedFp::Same => fp,
                    SavedFp::At(offset) => self.word(cfa.wrapping_add_signed(offset.into()))?,
                    SavedFp::AtFp(offset) => self.word(fp.wrapping_add_signed(offset.into()))?,
                };
                self.go_to(ip, cfa, fp)
            }
        }
    }

    /// The distance of the return address from the top of the stack in a function's prologue or epilogue.
    fn frame_under_way(&self) -> Option<u64> {
        let mut code = [0; 8];
        if !self.process.read(self.at.ip, &mut code) {
            return None;
        }
        match code {
            [0x55, ..] | [0xc3, ..] | [0xf3, 0x0f, 0x1e, 0xfa, 0x55, ..] => Some(0),
            [0x48, 0x89, 0xe5, ..] | [0x48, 0x8b, 0xec, ..] => Some(8),
            _ => None,
        }
    }

    fn follow_frame_pointer(&mut self) -> Result<(), EndReason> {
        let Registers { sp, fp, .. } = self.at;
        if fp == 0 {
            return Err(EndReason::FramePointerEnd);
        }
        if fp < sp || fp - sp > MAX_GUESSED_FRAME || fp % 8 != 0 {
            return Err(EndReason::NoUnwindInfo);
        }
        self.enter_by_frame_pointer()
    }

    fn enter_by_frame_pointer(&mut self) -> Result<(), EndReason> {
        let fp = self.at.fp;
        let ip = self.word(fp.wrapping_add(8))?;
        let saved = self.word(fp)?;
        self.go_to(ip, fp.wrapping_add(16), saved)
    }

    fn enter(&mut self, return_address: u64, fp: u64) -> Result<(), EndReason> {
        let ip = self.word(return_address)?;
        self.go_to(ip, return_address.wrapping_add(8), fp)
    }

    fn enter_above(&mut self, return_address: u64, fp: u64) -> Result<(), EndReason> {
        if return_address.wrapping_add(8) <= self.at.sp {
            return Err(EndReason::NotAdvancing);
        }
        self.enter(return_address, fp)
    }

    fn go_to(&mut self, ip: u64, sp: u64, fp: u64) -> Result<(), EndReason> {
        if ip == 0 {
            return Err(EndReason::Complete);
        }
        self.at = Registers {
            ip,
            sp,
            fp,
            link: 0,
        };
        self.is_exact = false;
        Ok(())
    }

    fn slot(&self, base: u64, slot: i32, plus: i32) -> Result<u64, EndReason> {
        let moved = self.word(base.wrapping_add_signed(slot.into()))?;
        Ok(moved.wrapping_add_signed(plus.into()))
    }

    fn word(&self, address: u64) -> Result<u64, EndReason> {
        let mut word = [0; 8];
        if !self.process.read(address, &mut word) {
            return Err(EndReason::StackUnreadable);
        }
        Ok(u64::from_le_bytes(word))
    }
}
