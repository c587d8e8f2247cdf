//! The step on handmade code and memory: each rule, each end reason, and arbitrary input.

mod aarch64;

use super::*;
use crate::architecture::{Aarch64, X86_64};
use crate::rule::{Cfa, ReturnAddress, Rule, SavedFp};
use crate::table::{MAX_ROWS_OF_PAGE, Row};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

/// One rule for all code, and memory in which each word is its own address.
struct OneRule(Rule);

impl Words for OneRule {
    /// Each page has the one row at word 0, which begins with the page.
    fn word(&self, index: u32) -> u32 {
        index % Page::WORDS
    }
}

impl UserMemory for OneRule {
    fn user_word(&mut self, address: u64) -> Option<u64> {
        Some(address)
    }

    fn address_bits(&self) -> u64 {
        ADDRESS_BITS
    }
}

impl Tables for OneRule {
    fn rule(&self, _: u32) -> EncodedRule {
        self.0.encode()
    }
}

/// The address bits on a machine that signs return addresses.
const ADDRESS_BITS: u64 = (1 << 48) - 1;

/// Uses the tables' rule for the frame's address.
fn step_on<A: Architecture, W: Tables + UserMemory>(
    walk: &mut Walk,
    code: &CodeMapping,
    memory: &mut W,
) -> Result<(), EndReason> {
    let address = walk.address();
    let page = code.page(memory, address)?;
    let rule = rule_at(memory, page, code.offset_of(address));
    walk.step::<A>(rule, memory)
}

fn step<W: Tables + UserMemory>(
    walk: &mut Walk,
    code: &CodeMapping,
    memory: &mut W,
) -> Result<(), EndReason> {
    step_on::<X86_64, W>(walk, code, memory)
}

/// Any address is in it.
fn everywhere() -> CodeMapping {
    let table = TableRef {
        pages: 0,
        first_page: 0,
        page_count: u32::MAX,
    };
    CodeMapping {
        end: u64::MAX,
        number: file_number::FIRST_FILE,
        table,
        ..CodeMapping::default()
    }
}

const FP: u64 = 0x9000;
const LINK: u64 = 0x2020;

fn walk(ip: u64, sp: u64) -> Walk {
    Walk {
        registers: Registers {
            ip,
            sp,
            fp: FP,
            link: LINK,
        },
        exact: 1,
        ..Walk::default()
    }
}

#[test]
fn goes_to_the_caller_that_the_rule_leads_to() {
    let at = |cfa, fp| Rule::x86_64(cfa, fp);
    let plt = Rule::Plt { pushed: 11 };
    let vfork = Rule::frame(Cfa::Sp(0), SavedFp::Same, ReturnAddress::LinkRegister);
    // The caller's instruction and stack pointers, and its frame pointer.
    for (rule, ip, expected) in [
        (at(Cfa::Sp(24), SavedFp::Same), 0x1000, (0x7010, 0x7018, FP)),
        (
            at(Cfa::Sp(24), SavedFp::At(-16)),
            0x1000,
            (0x7010, 0x7018, 0x7008),
        ),
        (
            at(Cfa::Fp(16), SavedFp::At(-16)),
            0x1000,
            (0x9008, 0x9010, 0x9000),
        ),
        (
            at(Cfa::SpSlot { slot: 8, plus: 8 }, SavedFp::AtFp(8)),
            0x1000,
            (0x7008, 0x7010, 0x9008),
        ),
        (plt, 0x100a, (0x7000, 0x7008, FP)),
        (plt, 0x100b, (0x7008, 0x7010, FP)),
        (Rule::FramePointer, 0x1000, (0x9008, 0x9010, 0x9000)),
        (Rule::OtherStack, 0x1000, (0x9008, 0x9010, 0x9000)),
        (vfork, 0x1000, (LINK, 0x7000, FP)),
    ] {
        let mut walk = walk(ip, 0x7000);
        assert_eq!(
            step(&mut walk, &everywhere(), &mut OneRule(rule)),
            Ok(()),
            "{rule:?}"
        );
        let Registers { ip, sp, fp, link } = walk.registers;
        assert_eq!((ip, sp, fp), expected, "{rule:?}");
        assert_eq!((link, walk.exact), (0, 0), "{rule:?}");
    }
}

#[test]
fn stops_where_the_rule_leads_nowhere() {
    let vfork = Rule::frame(Cfa::Sp(0), SavedFp::Same, ReturnAddress::LinkRegister);
    for (rule, link, expected) in [
        (Rule::End, LINK, EndReason::Complete),
        (Rule::Unsupported, LINK, EndReason::Unsupported),
        (
            Rule::x86_64(Cfa::Sp(0), SavedFp::Same),
            LINK,
            EndReason::NotAdvancing,
        ),
        (
            Rule::x86_64(Cfa::Sp(-8), SavedFp::Same),
            LINK,
            EndReason::NotAdvancing,
        ),
        // A caller's value of the register is lost.
        (vfork, 0, EndReason::Unsupported),
    ] {
        let mut walk = walk(0x1000, 0x7000);
        walk.registers.link = link;
        assert_eq!(
            step(&mut walk, &everywhere(), &mut OneRule(rule)),
            Err(expected),
            "{rule:?}"
        );
    }
}

/// A file with one page of code at [`TEXT`], and a stack.
struct Process {
    words: Vec<u32>,
    rules: Vec<Rule>,
    memory: BTreeMap<u64, u64>,
}

const TEXT: u64 = 0x40_0000;
const STACK: u64 = 0x7fff_0000;

impl Process {
    /// `rows` begin at offsets in the page; memory is words at addresses.
    fn new(rows: &[(u64, Rule)], memory: &[(u64, u64)]) -> Self {
        let mut words = vec![Page::WORDS, rows.len() as u32];
        let rows_of_rules = rows.iter().enumerate();
        words.extend(rows_of_rules.map(|(index, &(at, _))| Row::new(at, index as u32).0));
        Self {
            words,
            rules: rows.iter().map(|&(_, rule)| rule).collect(),
            memory: memory.iter().copied().collect(),
        }
    }

    /// Walks from here to the end, and returns the addresses on the way.
    fn walk<A: Architecture>(&mut self, registers: Registers) -> (Vec<u64>, EndReason) {
        let mut walk = Walk {
            registers,
            exact: 1,
            ..Walk::default()
        };
        let code = code(TableRef {
            pages: 0,
            first_page: 0,
            page_count: 1,
        });
        let mut addresses = Vec::new();
        loop {
            addresses.push(walk.address());
            if !code.holds(walk.address()) {
                return (addresses, EndReason::NoMapping);
            }
            if let Err(reason) = step_on::<A, Self>(&mut walk, &code, self) {
                return (addresses, reason);
            }
        }
    }
}

impl Words for Process {
    fn word(&self, index: u32) -> u32 {
        self.words[index as usize]
    }
}

impl UserMemory for Process {
    fn user_word(&mut self, address: u64) -> Option<u64> {
        self.memory.get(&address).copied()
    }

    fn address_bits(&self) -> u64 {
        ADDRESS_BITS
    }
}

impl Tables for Process {
    fn rule(&self, index: u32) -> EncodedRule {
        self.rules[index as usize].encode()
    }
}

fn code(table: TableRef) -> CodeMapping {
    CodeMapping {
        start: TEXT,
        end: TEXT + 0x1000,
        offset_delta: 0u64.wrapping_sub(TEXT),
        number: file_number::FIRST_FILE,
        table,
    }
}

fn at(ip: u64, sp: u64, fp: u64) -> Registers {
    Registers {
        ip,
        sp,
        fp,
        link: 0,
    }
}

#[track_caller]
fn check(
    rows: &[(u64, Rule)],
    memory: &[(u64, u64)],
    from: Registers,
    expected: (&[u64], EndReason),
) {
    check_on::<X86_64>(rows, memory, from, expected);
}

#[track_caller]
fn check_on<A: Architecture>(
    rows: &[(u64, Rule)],
    memory: &[(u64, u64)],
    from: Registers,
    expected: (&[u64], EndReason),
) {
    let (addresses, reason) = Process::new(rows, memory).walk::<A>(from);
    assert_eq!((&*addresses, reason), expected);
}

const LEAF: Rule = Rule::Frame {
    cfa: Cfa::Sp(8),
    fp: SavedFp::Same,
    ra: crate::rule::PUSHED,
};

#[test]
fn a_return_address_belongs_to_the_call_before_it() {
    // The call is the last instruction of its function, and the thread's first function follows.
    let rows = [(0, LEAF), (0x10, Rule::End)];
    let memory = [(STACK, TEXT + 0x10), (STACK + 8, TEXT + 0x18)];
    check(
        &rows,
        &memory,
        at(TEXT + 4, STACK, 0),
        (&[TEXT + 4, TEXT + 0xf, TEXT + 0x17], EndReason::Complete),
    );
    // In the innermost frame the address is exact.
    check(
        &rows,
        &memory,
        at(TEXT + 0x10, STACK, 0),
        (&[TEXT + 0x10], EndReason::Complete),
    );
}

#[test]
fn a_signal_may_interrupt_any_instruction_on_any_stack() {
    let lower = STACK - 0x8000;
    let rows = [
        (0, LEAF),
        (0x10, Rule::SignalFrame),
        (0x20, LEAF),
        (0x30, Rule::End),
    ];
    // The handler on the alternate stack above, what it interrupted below, at the first byte of a function.
    let memory = [
        (STACK, TEXT + 0x11),
        // After the flags, the link and the stack of a `ucontext`: the registers 16, 15, 10 and 8.
        (STACK + 8 + 168, TEXT + 0x20),
        (STACK + 8 + 160, lower),
        (STACK + 8 + 120, 0),
        (STACK + 8 + 104, 0),
        (lower, TEXT + 0x38),
    ];
    check(
        &rows,
        &memory,
        at(TEXT, STACK, 0),
        (
            &[TEXT, TEXT + 0x10, TEXT + 0x20, TEXT + 0x37],
            EndReason::Complete,
        ),
    );
    check(
        &rows,
        &memory[..2],
        at(TEXT, STACK, 0),
        (&[TEXT, TEXT + 0x10], EndReason::StackUnreadable),
    );
}

#[test]
fn another_stack_may_be_anywhere() {
    let lower = STACK - 0x8000;
    check(
        &[(0, Rule::OtherStack), (0x10, Rule::End)],
        &[(lower, 0), (lower + 8, TEXT + 0x18)],
        at(TEXT + 4, STACK, lower),
        (&[TEXT + 4, TEXT + 0x17], EndReason::Complete),
    );
}

#[test]
fn follows_the_frame_pointer_where_nothing_is_known() {
    let fp = STACK + 0x20;
    let saved = [(fp, 0), (fp + 8, TEXT + 0x10)];
    let from = |sp, fp| at(TEXT + 4, sp, fp);
    let lost = (&[TEXT + 4][..], EndReason::NoUnwindInfo);
    check(
        &[],
        &saved,
        from(STACK, fp),
        (&[TEXT + 4, TEXT + 0xf], EndReason::FramePointerEnd),
    );
    check(
        &[],
        &saved,
        from(STACK, 0),
        (&[TEXT + 4], EndReason::FramePointerEnd),
    );
    check(&[], &saved, from(fp + 8, fp), lost);
    check(&[], &saved, from(STACK, fp + 4), lost);
    check(&[], &saved, from(fp - MAX_GUESSED_FRAME - 8, fp), lost);
    check(
        &[],
        &[],
        from(STACK, fp),
        (&[TEXT + 4], EndReason::StackUnreadable),
    );
}

#[test]
fn does_not_lose_the_caller_of_unknown_code_that_just_begins_or_ends() {
    let fp = STACK + 0x40;
    let (caller, callers_caller) = (TEXT + 0x21, TEXT + 0x41);
    for (instruction, moved) in [
        (&X86_64::PUSH_FP[..], 0),
        (&X86_64::ENDBR_PUSH_FP, 0),
        (&X86_64::SET_FP, 8),
        (&X86_64::SET_FP_ALT, 8),
        (&X86_64::RET, 0),
    ] {
        let mut bytes = [0x90; 8];
        bytes[..instruction.len()].copy_from_slice(instruction);
        let memory = [
            (TEXT + 4, u64::from_le_bytes(bytes)),
            (STACK, fp),
            (STACK + moved, caller),
            (fp, 0),
            (fp + 8, callers_caller),
        ];
        check(
            &[],
            &memory,
            at(TEXT + 4, STACK, fp),
            (
                &[TEXT + 4, caller - 1, callers_caller - 1],
                EndReason::FramePointerEnd,
            ),
        );
    }
}

#[test]
fn says_why_a_file_has_no_rule() {
    let try_step = |table, mut words: Vec<u32>| {
        words.resize(2, 0);
        let mut process = Process {
            words,
            rules: Vec::new(),
            memory: BTreeMap::new(),
        };
        let mut walk = Walk {
            registers: at(TEXT, STACK, 0),
            exact: 1,
            ..Walk::default()
        };
        step(&mut walk, &code(table), &mut process)
    };
    let built = TableRef {
        pages: 0,
        first_page: 0,
        page_count: 1,
    };
    let elsewhere = TableRef {
        first_page: 7,
        ..built
    };
    for (table, words, expected) in [
        (TableRef::PENDING, vec![], EndReason::TablePending),
        (TableRef::REFUSED, vec![], EndReason::TableRefused),
        (built, vec![0, u32::MAX], EndReason::TablePending),
        (
            built,
            vec![0, MAX_ROWS_OF_PAGE + 1],
            EndReason::TablePending,
        ),
        // No unwind information, and no frame pointer.
        (built, vec![0, 0], EndReason::FramePointerEnd),
        (elsewhere, vec![], EndReason::FramePointerEnd),
    ] {
        assert_eq!(try_step(table, words), Err(expected), "{table:?}");
    }
}

#[test]
fn ends_where_there_is_nothing_to_return_to() {
    check(
        &[(0, LEAF)],
        &[(STACK, 0)],
        at(TEXT, STACK, 0),
        (&[TEXT], EndReason::Complete),
    );
    check(
        &[(0, LEAF)],
        &[],
        at(TEXT, STACK, 0),
        (&[TEXT], EndReason::StackUnreadable),
    );
    check(
        &[(0, LEAF)],
        &[(STACK, 0x1234)],
        at(TEXT, STACK, 0),
        (&[TEXT, 0x1233], EndReason::NoMapping),
    );
}

/// Words, rules and memory of any content.
#[derive(Clone, Debug)]
struct Anything {
    words: Vec<u32>,
    rules: Vec<u64>,
    memory: Vec<u64>,
}

impl Words for Anything {
    fn word(&self, index: u32) -> u32 {
        self.words[index as usize % self.words.len()]
    }
}

impl UserMemory for Anything {
    /// Like the kernel: the lowest page and the kernel half are unmapped.
    fn user_word(&mut self, address: u64) -> Option<u64> {
        let is_user = (0x1_0000..1 << 47).contains(&address);
        is_user.then(|| self.memory[(address >> 3) as usize % self.memory.len()])
    }

    fn address_bits(&self) -> u64 {
        ADDRESS_BITS
    }
}

impl Tables for Anything {
    fn rule(&self, index: u32) -> EncodedRule {
        EncodedRule(self.rules[index as usize % self.rules.len()])
    }
}

/// Often a plausible value.
fn any_word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (0..64u64).prop_map(|at| STACK + at * 8),
        (0..0x1000u64).prop_map(|at| TEXT + at),
        Just(0),
    ]
}

fn any_rule() -> impl Strategy<Value = u64> {
    let known = (0..11u64, 0..3u64, any::<i8>(), any::<i8>(), any::<i8>()).prop_map(
        |(kind, fp_location, cfa, ra, fp)| {
            let places = (i64::from(cfa) << 40) as u64 | u64::from(i64::from(ra) as u16) << 24;
            places | u64::from(i64::from(fp) as u16) << 8 | fp_location << 4 | 1 << 6 | kind
        },
    );
    prop_oneof![any::<u64>(), known]
}

proptest! {
    /// Does not panic, and never goes down the stack unless it switches stacks.
    #[test]
    fn survives_anything(
        words in proptest::collection::vec(any::<u32>(), 1..64),
        rules in proptest::collection::vec(any_rule(), 1..16),
        memory in proptest::collection::vec(any_word(), 1..64),
        registers in (any_word(), any_word(), any_word(), any_word()),
        pages in any::<u32>(),
        first_page in prop_oneof![Just(0), any::<u32>()],
        page_count in prop_oneof![Just(1), any::<u32>()],
        exact in 0..2u32,
        number in file_number::ANONYMOUS..file_number::FIRST_FILE + 1,
    ) {
        let memory = Anything { words, rules, memory };
        let (ip, sp, fp, link) = registers;
        let table = TableRef { pages, first_page, page_count };
        let walk = Walk {
            registers: Registers { ip, sp, fp, link },
            exact,
            sp_is_bound: exact,
        };
        let code = CodeMapping { number, ..code(table) };
        survives::<X86_64>(walk, &code, memory.clone())?;
        survives::<Aarch64>(walk, &code, memory)?;
    }
}

fn survives<A: Architecture>(
    mut walk: Walk,
    code: &CodeMapping,
    mut memory: Anything,
) -> Result<(), TestCaseError> {
    for _ in 0..256 {
        let before = walk.registers;
        let had_link = before.link != 0;
        let address = walk.address();
        let rule = code
            .page(&memory, address)
            .map(|page| rule_at(&memory, page, address));
        if step_on::<A, Anything>(&mut walk, code, &mut memory).is_err() {
            break;
        }
        let after = walk.registers;
        let is_signal = walk.exact == 1;
        let is_other = rule.is_ok_and(|rule| rule.kind() == kind::OTHER_STACK);
        let is_up = after.sp > before.sp || had_link && after.sp == before.sp;
        prop_assert!(is_up || is_signal || is_other, "{before:?} to {after:?}");
    }
    Ok(())
}
