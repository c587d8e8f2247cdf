//! Unwind rules: how to get from one frame to its caller.
//!
//! A rule has eight bytes. Tables hold indices of rules, since a whole distribution needs only a few
//! thousand distinct ones.
//!
//! ```text
//!  63            40 39          24 23           8 7    6 5    4 3    0
//! ┌────────────────┬──────────────┬──────────────┬──────┬──────┬──────┐
//! │ CFA offset     │ RA or slot   │ FP offset    │I, RA │  FP  │ kind │
//! └────────────────┴──────────────┴──────────────┴──────┴──────┴──────┘
//! ```
//!
//! I marks the code of an interpreter's loop. Offsets of saved registers are relative to the CFA, the stack pointer's value in the caller, in
//! words of eight bytes: aarch64 saves them at the other end of a frame, which may be a large one.

/// How to unwind one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// No unwind information.
    Gap,
    /// The thread's first frame: there is no caller.
    End,
    /// The unwind information is not supported.
    Unsupported,
    /// The signal trampoline; the interrupted registers are in the kernel's signal frame.
    SignalFrame,
    /// PLT entries on x86-64, sixteen bytes each: from this byte of an entry on, its push has moved
    /// the stack pointer by eight bytes.
    Plt { pushed: u8 },
    /// The frame pointer probably leads to the caller.
    FramePointer,
    /// The frame pointer leads to the caller, which may be on another stack.
    OtherStack,
    Frame {
        cfa: Cfa,
        fp: SavedFp,
        ra: ReturnAddress,
    },
}

/// The stack pointer's value in the caller, from this frame's registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cfa {
    Sp(i32),
    Fp(i32),
    /// `*(sp + slot) + plus`: the stack was realigned and the old stack pointer saved in a slot.
    SpSlot {
        slot: i32,
        plus: i32,
    },
    FpSlot {
        slot: i32,
        plus: i32,
    },
}

/// The caller's frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SavedFp {
    Same,
    /// On the stack, this far from the CFA.
    At(i32),
    /// On the stack, this far from this frame's own frame pointer: the stack was realigned, so the
    /// distance to the CFA is dynamic.
    AtFp(i32),
}

/// The location of the return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReturnAddress {
    /// On the stack, this far from the CFA: always -8 on x86-64.
    At(i32),
    /// Still in a register: the link register, as in a leaf function on aarch64, or `rdi` on x86-64,
    /// where vfork keeps it off the stack that two processes share.
    LinkRegister,
}

/// Where the call instruction of x86-64 puts the return address.
pub const PUSHED: ReturnAddress = ReturnAddress::At(-8);

/// Set if the return address is on the stack.
const RA_SAVED: u64 = 1 << 6;
/// Set in the loop of an interpreter.
const INTERPRETER: u64 = 1 << 7;

/// CFA offsets are 24 bits wide.
const CFA_LIMIT: i32 = 1 << 23;

/// The others are 16 bits wide, and in words.
const WORD: i32 = 8;
const LIMIT: i32 = WORD << 15;

pub mod kind {
    pub const GAP: u64 = 0;
    pub const END: u64 = 1;
    pub const UNSUPPORTED: u64 = 2;
    pub const SIGNAL_FRAME: u64 = 3;
    pub const PLT: u64 = 4;
    pub const FRAME_POINTER: u64 = 5;
    pub const SP: u64 = 6;
    pub const FP: u64 = 7;
    pub const SP_SLOT: u64 = 8;
    pub const FP_SLOT: u64 = 9;
    pub const OTHER_STACK: u64 = 10;
}

/// The location of the caller's frame pointer.
pub mod fp {
    pub const SAME: u64 = 0;
    pub const AT: u64 = 1;
    pub const AT_FP: u64 = 2;
}

/// A rule, encoded in eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct EncodedRule(pub u64);

impl Rule {
    /// A frame of x86-64, or [`Rule::Unsupported`] if an offset does not fit.
    pub fn x86_64(cfa: Cfa, fp: SavedFp) -> Self {
        Self::frame(cfa, fp, PUSHED)
    }

    pub fn frame(cfa: Cfa, fp: SavedFp, ra: ReturnAddress) -> Self {
        let (offset, slot) = match cfa {
            Cfa::Sp(offset) | Cfa::Fp(offset) => (offset, None),
            Cfa::SpSlot { slot, plus } | Cfa::FpSlot { slot, plus } => (plus, Some(slot)),
        };
        let fp_offset = match fp {
            SavedFp::Same => 0,
            SavedFp::At(offset) | SavedFp::AtFp(offset) => offset,
        };
        let ra_offset = match ra {
            ReturnAddress::At(offset) => offset,
            ReturnAddress::LinkRegister => 0,
        };
        let fits = |offset: i32| offset % WORD == 0 && (-LIMIT..LIMIT).contains(&offset);
        let all_fit = (-CFA_LIMIT..CFA_LIMIT).contains(&offset)
            && [fp_offset, ra_offset, slot.unwrap_or(0)]
                .into_iter()
                .all(fits);
        // A slot and the return address share their bits; only x86-64 has slots.
        if !all_fit || (slot.is_some() && ra != PUSHED) {
            return Self::Unsupported;
        }
        Self::Frame { cfa, fp, ra }
    }

    pub fn encode(self) -> EncodedRule {
        EncodedRule(match self {
            Self::Gap => kind::GAP,
            Self::End => kind::END,
            Self::Unsupported => kind::UNSUPPORTED,
            Self::SignalFrame => kind::SIGNAL_FRAME,
            Self::Plt { pushed } => kind::PLT | RA_SAVED | u64::from(pushed) << 40,
            Self::FramePointer => kind::FRAME_POINTER,
            Self::OtherStack => kind::OTHER_STACK,
            Self::Frame { cfa, fp, ra } => {
                let (kind, offset, slot) = match cfa {
                    Cfa::Sp(offset) => (kind::SP, offset, None),
                    Cfa::Fp(offset) => (kind::FP, offset, None),
                    Cfa::SpSlot { slot, plus } => (kind::SP_SLOT, plus, Some(slot)),
                    Cfa::FpSlot { slot, plus } => (kind::FP_SLOT, plus, Some(slot)),
                };
                let (fp_location, fp_offset) = match fp {
                    SavedFp::Same => (fp::SAME, 0),
                    SavedFp::At(offset) => (fp::AT, offset),
                    SavedFp::AtFp(offset) => (fp::AT_FP, offset),
                };
                let (ra_saved, ra_offset) = match ra {
                    ReturnAddress::At(offset) => (RA_SAVED, offset),
                    ReturnAddress::LinkRegister => (0, 0),
                };
                let words = |offset: i32| u64::from((offset / WORD) as u16);
                kind | fp_location << 4
                    | ra_saved
                    | words(fp_offset) << 8
                    | words(slot.unwrap_or(ra_offset)) << 24
                    | (offset as i64 as u64) << 40
            }
        })
    }
}

impl EncodedRule {
    /// The same rule for code of an interpreter's loop.
    pub fn in_interpreter(self) -> Self {
        Self(self.0 | INTERPRETER)
    }

    pub fn is_interpreter(self) -> bool {
        self.0 & INTERPRETER != 0
    }

    pub fn kind(self) -> u64 {
        self.0 & 0xf
    }

    /// One of [`fp`].
    pub fn fp_location(self) -> u64 {
        self.0 >> 4 & 3
    }

    pub fn ra_saved(self) -> bool {
        self.0 & RA_SAVED != 0
    }

    #[inline(always)]
    pub fn fp_offset(self) -> i64 {
        i64::from((self.0 >> 8) as i16) * i64::from(WORD)
    }

    /// The offset of the return address, or of the slot.
    #[inline(always)]
    pub fn ra_or_slot(self) -> i64 {
        i64::from((self.0 >> 24) as i16) * i64::from(WORD)
    }

    pub fn cfa_offset(self) -> i64 {
        self.0 as i64 >> 40
    }

    /// Invalid bytes decode to [`Rule::Unsupported`].
    pub fn decode(self) -> Rule {
        let fp = match self.fp_location() {
            fp::SAME => SavedFp::Same,
            fp::AT => SavedFp::At(self.fp_offset() as i32),
            fp::AT_FP => SavedFp::AtFp(self.fp_offset() as i32),
            _ => return Rule::Unsupported,
        };
        let place = self.ra_or_slot() as i32;
        let ra = if self.ra_saved() {
            ReturnAddress::At(place)
        } else {
            ReturnAddress::LinkRegister
        };
        let offset = self.cfa_offset() as i32;
        match self.kind() {
            kind::GAP => Rule::Gap,
            kind::END => Rule::End,
            kind::SIGNAL_FRAME => Rule::SignalFrame,
            kind::PLT => Rule::Plt {
                pushed: self.cfa_offset() as u8,
            },
            kind::FRAME_POINTER => Rule::FramePointer,
            kind::OTHER_STACK => Rule::OtherStack,
            kind::SP => Rule::Frame {
                cfa: Cfa::Sp(offset),
                fp,
                ra,
            },
            kind::FP => Rule::Frame {
                cfa: Cfa::Fp(offset),
                fp,
                ra,
            },
            kind::SP_SLOT => Rule::x86_64(
                Cfa::SpSlot {
                    slot: place,
                    plus: offset,
                },
                fp,
            ),
            kind::FP_SLOT => Rule::x86_64(
                Cfa::FpSlot {
                    slot: place,
                    plus: offset,
                },
                fp,
            ),
            _ => Rule::Unsupported,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_rule() -> impl Strategy<Value = Rule> {
        let offset = -CFA_LIMIT..CFA_LIMIT;
        let words = || any::<i16>().prop_map(|words| i32::from(words) * WORD);
        let fp = prop_oneof![
            Just(SavedFp::Same),
            words().prop_map(SavedFp::At),
            words().prop_map(SavedFp::AtFp)
        ];
        let cfa = (offset, words(), 0..4).prop_map(|(plus, slot, which)| match which {
            0 => Cfa::Sp(plus),
            1 => Cfa::Fp(plus),
            2 => Cfa::SpSlot { slot, plus },
            _ => Cfa::FpSlot { slot, plus },
        });
        let ra = prop_oneof![
            Just(PUSHED),
            Just(ReturnAddress::LinkRegister),
            words().prop_map(ReturnAddress::At)
        ];
        prop_oneof![
            Just(Rule::Gap),
            Just(Rule::End),
            Just(Rule::Unsupported),
            Just(Rule::SignalFrame),
            any::<u8>().prop_map(|pushed| Rule::Plt { pushed }),
            Just(Rule::FramePointer),
            Just(Rule::OtherStack),
            (cfa, fp, ra).prop_map(|(cfa, fp, ra)| Rule::frame(cfa, fp, ra)),
        ]
    }

    proptest! {
        #[test]
        fn a_rule_survives_its_eight_bytes(rule in any_rule()) {
            prop_assert_eq!(rule.encode().decode(), rule);
        }

        #[test]
        fn any_eight_bytes_are_some_rule(bytes in any::<u64>()) {
            let rule = EncodedRule(bytes).decode();
            prop_assert_eq!(rule.encode().decode(), rule);
        }
    }

    #[test]
    fn refuses_offsets_that_do_not_fit() {
        let saved = |offset| {
            let ra = ReturnAddress::At(offset);
            let rules = [
                Rule::frame(Cfa::Sp(1 << 20), SavedFp::At(-8), ra),
                Rule::x86_64(Cfa::Sp(16), SavedFp::At(offset)),
                Rule::x86_64(Cfa::Sp(16), SavedFp::AtFp(offset)),
                Rule::x86_64(
                    Cfa::FpSlot {
                        slot: offset,
                        plus: 0,
                    },
                    SavedFp::Same,
                ),
            ];
            rules.map(|rule| rule != Rule::Unsupported)
        };
        assert_eq!(saved(-LIMIT), [true; 4]);
        assert_eq!(saved(-LIMIT - WORD), [false; 4]);
        assert_eq!(saved(LIMIT), [false; 4]);
        assert_eq!(saved(-12), [false; 4]);
        assert_eq!(
            Rule::x86_64(Cfa::Sp(CFA_LIMIT), SavedFp::Same),
            Rule::Unsupported
        );
        assert_ne!(
            Rule::x86_64(Cfa::Sp(CFA_LIMIT - 1), SavedFp::Same),
            Rule::Unsupported
        );
    }
}
