//! Where the caller's registers are, instruction by instruction.

use profcol_ebpf_common::rule::{Cfa, Rule, SavedFp};

use super::effect::{Base, Effect, MemoryOperand, WORD};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The stack pointer and this is the CFA.
    pub sp: Option<i32>,
    /// The frame pointer and this is the CFA.
    pub fp: Option<i32>,
    pub saved: FpLocation,
    /// There is no caller.
    pub outermost: bool,
    /// The kernel was called, and may have returned in a new thread.
    after_system_call: bool,
}

/// The caller's frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FpLocation {
    InRegister,
    /// On the stack, this far from the CFA.
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

    /// Everything is as it was when the function was called.
    pub fn is_callers(self) -> bool {
        self.sp == Some(WORD) && self.saved == FpLocation::InRegister
    }

    /// What is known where two ways meet.
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

    /// What holds behind an instruction.
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
            // A thread's first frame, in the words of the ABI.
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

/// No frame is larger than a rule can say, and what fits can be negated.
fn fits(bytes: &i32) -> bool {
    bytes.unsigned_abs() < 1 << 30
}

impl Effect {
    /// How much the stack grows by it, if that is known without its caller.
    pub fn growth(self) -> Option<i32> {
        let before = State {
            sp: Some(0),
            saved: FpLocation::Lost,
            ..State::CALLED
        };
        before.after(self).sp
    }
}
