//! The location of the caller's registers at each instruction.

use profcol_ebpf_common::rule::{Cfa, Rule, SavedFp};

use super::effect::{Base, Effect, MemoryOperand, WORD};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// CFA = stack pointer + this.
    pub sp: Option<i32>,
    /// CFA = frame pointer + this.
    pub fp: Option<i32>,
    pub saved: FpLocation,
    /// The frame has no caller.
    pub outermost: bool,
    /// After a system call, which may have returned in a new thread.
    after_system_call: bool,
}

/// The caller's frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FpLocation {
    InRegister,
    /// On the stack, at this offset from the CFA.
    At(i32),
    Lost,
}

impl State {
    pub const CALLED: Self = Self {
        sp: Some(WORD),
        fp: None,
        saved: FpLocation::InRegister,
        outermost: false,
        after_system_call: false,
    };
    pub const OUTERMOST: Self = Self {
        outermost: true,
        ..Self::CALLED
    };

    pub fn rule(self) -> Rule {
        if self.outermost {
            return Rule::End;
        }
        let saved = match self.saved {
            FpLocation::InRegister => Some(SavedFp::Same),
            FpLocation::At(offset) => Some(SavedFp::At(offset)),
            FpLocation::Lost => None,
        };
        let cfa = self.sp.map(Cfa::Sp).or(self.fp.map(Cfa::Fp));
        match (cfa, saved) {
            (Some(cfa), Some(saved)) => Rule::x86_64(cfa, saved),
            _ => Rule::Unsupported,
        }
    }

    /// Whether the state is that at the call of the function.
    pub fn is_callers(self) -> bool {
        self.sp == Some(WORD) && self.saved == FpLocation::InRegister
    }

    /// The state where two paths meet.
    pub fn join(self, other: Self) -> Self {
        let is_same_end = self.outermost == other.outermost;
        let same = |a: Option<i32>, b| a.filter(|_| a == b && is_same_end);
        Self {
            sp: same(self.sp, other.sp),
            fp: same(self.fp, other.fp),
            saved: match self.saved == other.saved {
                true => self.saved,
                false => FpLocation::Lost,
            },
            outermost: self.outermost && is_same_end,
            after_system_call: self.after_system_call && other.after_system_call,
        }
    }

    /// The state after an instruction.
    pub fn after(mut self, effect: Effect) -> Self {
        match effect {
            Effect::Nothing => {}
            Effect::Grow(bytes) => self.grow(bytes),
            Effect::PushFp => {
                self.grow(WORD);
                if let (FpLocation::InRegister, Some(sp)) = (self.saved, self.sp) {
                    self.saved = FpLocation::At(-sp);
                }
            }
            Effect::PopFp => self.pop_frame_pointer(),
            Effect::Leave => {
                self.sp = self.fp;
                self.pop_frame_pointer();
            }
            Effect::SpIsFp => self.sp = self.fp,
            Effect::FpIsSp => {
                self.lose_frame_pointer();
                self.fp = self.sp;
            }
            Effect::SpIs(operand) => self.sp = self.below_cfa(operand),
            Effect::FpIs(operand) => {
                let below = self.below_cfa(operand);
                self.lose_frame_pointer();
                self.fp = below;
            }
            // The ABI marks a thread's first frame in this way.
            Effect::ClearFp if self.after_system_call && self.saved == FpLocation::InRegister => {
                self.outermost = true;
            }
            Effect::ClearFp => self.lose_frame_pointer(),
            Effect::SystemCall => self.after_system_call = true,
            Effect::LoadFp(operand) => match self.below_cfa(operand) {
                Some(below) if self.saved == FpLocation::At(-below) => {
                    self.saved = FpLocation::InRegister;
                    self.fp = None;
                }
                _ => self.lose_frame_pointer(),
            },
            Effect::SaveFp(operand) => {
                if let (FpLocation::InRegister, Some(below)) = (self.saved, self.below_cfa(operand))
                {
                    self.saved = FpLocation::At(-below);
                }
            }
            Effect::Lose { sp, fp } => {
                if sp {
                    self.sp = None;
                }
                if fp {
                    self.lose_frame_pointer();
                }
            }
        }
        self
    }

    fn grow(&mut self, bytes: i32) {
        self.sp = self.sp.and_then(|sp| sp.checked_add(bytes)).filter(fits);
    }

    fn lose_frame_pointer(&mut self) {
        self.fp = None;
        if self.saved == FpLocation::InRegister {
            self.saved = FpLocation::Lost;
        }
    }

    fn pop_frame_pointer(&mut self) {
        self.lose_frame_pointer();
        if let (FpLocation::At(offset), Some(sp)) = (self.saved, self.sp)
            && offset == -sp
        {
            self.saved = FpLocation::InRegister;
        }
        self.grow(-WORD);
    }

    fn below_cfa(&self, operand: MemoryOperand) -> Option<i32> {
        let base = match operand.base {
            Base::Sp => self.sp,
            Base::Fp => self.fp,
        };
        base?.checked_sub(operand.offset).filter(fits)
    }
}

/// Whether a rule can encode the offset; such an offset can also be negated.
fn fits(bytes: &i32) -> bool {
    bytes.unsigned_abs() < 1 << 30
}

impl Effect {
    /// The growth of the stack by it, if that does not depend on the state.
    pub fn growth(self) -> Option<i32> {
        let before = State {
            sp: Some(0),
            saved: FpLocation::Lost,
            ..State::CALLED
        };
        before.after(self).sp
    }
}
