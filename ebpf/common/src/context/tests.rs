//! Goroutines and labels in simulated memory.

use std::collections::HashMap;
use std::vec::Vec;

use super::go::{Goroutine, Layout, Switch, add_map, add_slice, labels};
use super::library::{BlockTable, LibraryVariable, kind};
use super::{ContextMemory, LabelText, Loss, MAX_LABELS, Variable, custom_labels, otel};

const THREAD: u64 = 0x7000;
const G0: u64 = 0x1_0000;
const M: u64 = 0x2_0000;
const GOROUTINE: u64 = 0x3_0000;
const LABELS: u64 = 0x4_0000;
const ARRAY: u64 = 0x5_0000;

#[derive(Default)]
struct Process {
    words: HashMap<u64, u64>,
    label: LabelText,
    added: Vec<LabelText>,
    lost: Vec<Loss>,
}

impl ContextMemory for Process {
    fn word(&mut self, address: u64) -> Option<u64> {
        self.words.get(&address).copied()
    }

    fn load_label(&mut self, key: u64, value: u64) -> bool {
        let word = |address: u64| self.words.get(&address).copied();
        let read = (word(key), word(key + 8), word(value), word(value + 8));
        let (Some(key), Some(key_bytes), Some(value), Some(value_bytes)) = read else {
            return false;
        };
        self.label = LabelText {
            key,
            key_bytes,
            value,
            value_bytes,
        };
        true
    }

    fn swap_label(&mut self) {
        let label = &mut self.label;
        (label.key, label.key_bytes) = (label.key_bytes, label.key);
        (label.value, label.value_bytes) = (label.value_bytes, label.value);
    }

    fn add_label(&mut self) {
        self.added.push(self.label);
    }

    fn added(&self) -> u64 {
        self.added.len() as u64
    }

    fn lose(&mut self, loss: Loss) {
        self.lost.push(loss);
    }
}

fn layout(form: u32) -> Layout {
    Layout {
        tls: 8u64.wrapping_neg(),
        m: 48,
        current: 184,
        id: 152,
        labels: 352,
        form,
        frame_pointer: 96,
    }
}

/// On the system stack.
fn process() -> Process {
    let mut process = Process::default();
    for (address, value) in [
        (THREAD - 8, G0),
        (G0 + 48, M),
        (M + 184, GOROUTINE),
        (GOROUTINE + 152, 7),
        (GOROUTINE + 352, LABELS),
    ] {
        process.words.insert(address, value);
    }
    process
}

fn with_slice(count: u64) -> Process {
    let mut process = process();
    process.words.insert(LABELS, ARRAY);
    process.words.insert(LABELS + 8, count);
    for word in 0..4 * count.min(64) {
        process.words.insert(ARRAY + 8 * word, word);
    }
    process
}

/// A map whose buckets have these occupied slots.
fn with_map(count: u64, shift: u64, buckets: &[&[u64]]) -> Process {
    let mut process = process();
    let map = LABELS + 0x100;
    process.words.insert(LABELS, map);
    process.words.insert(map, count);
    process.words.insert(map + 8, shift << 8);
    process.words.insert(map + 16, ARRAY);
    for (bucket, slots) in (0..).zip(buckets) {
        let bucket = ARRAY + bucket * 272;
        let hashes = slots
            .iter()
            .fold(0, |hashes, slot| hashes | 0x80 << (8 * slot));
        process.words.insert(bucket, hashes);
        for word in 1..34 {
            process.words.insert(bucket + 8 * word, word);
        }
    }
    process
}

#[test]
fn a_goroutine_is_found_from_any_stack() {
    let found = layout(labels::SLICE).goroutine(THREAD, &mut process());
    let expected = Goroutine {
        id: 7,
        labels: LABELS,
    };
    assert_eq!(found, Some(expected));
    for missing in [THREAD - 8, G0 + 48, M + 184] {
        let mut process = process();
        process.words.insert(missing, 0);
        assert_eq!(layout(labels::SLICE).goroutine(THREAD, &mut process), None);
        process.words.remove(&missing);
        assert_eq!(layout(labels::SLICE).goroutine(THREAD, &mut process), None);
    }
}

#[test]
fn a_goroutine_continues_where_it_left_its_stack() {
    let layout = layout(labels::SLICE);
    let mut process = process();
    for (address, value) in [
        (M, G0),
        (GOROUTINE + 56, 0x9000),
        (GOROUTINE + 64, 0x40_1000),
        (GOROUTINE + 96, 0x9040),
    ] {
        process.words.insert(address, value);
    }
    let expected = Switch::Goroutine {
        pc: 0x40_1000,
        sp: 0x9000,
        fp: 0x9040,
    };
    assert_eq!(layout.switch(THREAD, &mut process), Some(expected));
    process.words.insert(GOROUTINE + 64, 0);
    assert_eq!(layout.switch(THREAD, &mut process), None);
    process.words.insert(M + 184, 0);
    assert_eq!(layout.switch(THREAD, &mut process), Some(Switch::Scheduler));
    // On its own stack.
    process.words.insert(M, GOROUTINE);
    assert_eq!(layout.switch(THREAD, &mut process), None);
}

#[test]
fn labels_of_a_slice_are_bounded() {
    for (count, added, lost) in [
        (0, 0, &[][..]),
        (2, 2, &[]),
        (10, 10, &[]),
        (11, 10, &[Loss::TooMany]),
        (u64::MAX, 10, &[Loss::TooMany]),
    ] {
        let mut process = with_slice(count);
        add_slice(LABELS, &mut process);
        assert_eq!(process.added.len(), added, "{count}");
        assert_eq!(process.lost, lost, "{count}");
    }
    let mut process = with_slice(3);
    process.words.remove(&(ARRAY + 32));
    add_slice(LABELS, &mut process);
    assert_eq!(
        (process.added.len(), &*process.lost),
        (1, &[Loss::Unreadable][..])
    );
}

#[test]
fn labels_of_a_map_are_those_of_its_occupied_slots() {
    let mut process = with_map(2, 0, &[&[1, 6]]);
    add_map(LABELS, &mut process);
    let first = LabelText {
        key: 3,
        key_bytes: 4,
        value: 19,
        value_bytes: 20,
    };
    assert_eq!(process.added.first(), Some(&first));
    assert_eq!((process.added.len(), process.lost.len()), (2, 0));

    let all = &[0, 1, 2, 3, 4, 5, 6, 7][..];
    for (count, shift, buckets, added, lost) in [
        (9, 1, &[all, &[2]][..], 9, &[][..]),
        (16, 1, &[all, all], MAX_LABELS as usize, &[Loss::TooMany]),
        // Forged sizes.
        (u64::MAX, 0, &[all], 8, &[Loss::TooMany]),
        (3, 200, &[&[], &[], &[], &[]], 0, &[Loss::TooMany]),
        (3, 63, &[&[]], 0, &[Loss::Unreadable]),
    ] {
        let mut process = with_map(count, shift, buckets);
        add_map(LABELS, &mut process);
        assert_eq!(process.added.len(), added, "{count}");
        assert_eq!(process.lost, lost, "{count}");
    }
}

const VARIABLE: Variable = Variable {
    offset: 16u64.wrapping_neg(),
};

#[test]
fn trace_and_span_are_those_of_a_valid_record() {
    let record = |trace: u64, span: u64, state: u64| {
        let mut process = Process::default();
        for (address, value) in [
            (THREAD - 16, LABELS),
            (LABELS, trace),
            (LABELS + 8, 0),
            (LABELS + 16, span),
            (LABELS + 24, state),
        ] {
            process.words.insert(address, value);
        }
        process
    };
    let link = |mut process: Process| {
        let address = VARIABLE.value(THREAD, &mut process)?;
        let record = otel::Record::read(address, &mut process)?;
        let link = record
            .has_link()
            .then_some((record.trace_id, record.span_id));
        let attributes = (record.attributes, record.attribute_bytes);
        Some((link?, attributes))
    };
    assert_eq!(
        link(record(5, 6, 0x77_0004_0101)),
        Some((([5, 0], 6), (LABELS + 28, 4)))
    );
    for (trace, span, state) in [(5, 6, 0), (5, 6, 2), (0, 6, 1), (5, 0, 1)] {
        assert_eq!(link(record(trace, span, state)), None);
    }
    assert_eq!(link(Process::default()), None);
    let none = Variable::default();
    assert_eq!(none.value(THREAD, &mut record(5, 6, 1)), None);
}

#[test]
fn custom_labels_are_those_of_the_current_set() {
    let mut process = with_slice(2);
    custom_labels::add(LABELS, &mut process);
    let first = LabelText {
        key: 1,
        key_bytes: 0,
        value: 3,
        value_bytes: 2,
    };
    assert_eq!(process.added.first(), Some(&first));
    assert_eq!((process.added.len(), process.lost.len()), (2, 0));
    let mut process = with_slice(u64::MAX);
    custom_labels::add(LABELS, &mut process);
    assert_eq!(
        (process.added.len(), &*process.lost),
        (10, &[Loss::TooMany][..])
    );
}

const WITNESS: u64 = 0x6_0000;
const TABLE: u64 = 0x7_0000;
const BLOCK: u64 = 0x8_0000;
const GLIBC: BlockTable = BlockTable {
    pointer: 8,
    last: 16u64.wrapping_neg(),
    shift: 4,
};
const MUSL: BlockTable = BlockTable {
    pointer: 8,
    last: 0,
    shift: 3,
};
const IN_LIBRARY: LibraryVariable = LibraryVariable {
    kind: kind::OTEL,
    module: 3,
    offset: 24,
    witness: WITNESS,
    witnessed: 3,
    generation: 5,
};

/// A thread with a block of the third module.
fn with_block(table: BlockTable, last: u64, generation: u64) -> Process {
    let mut process = Process::default();
    for (address, value) in [
        (WITNESS, 3),
        (THREAD + 8, TABLE),
        (TABLE, generation),
        (TABLE.wrapping_add(table.last), last),
        (TABLE + (3 << table.shift), BLOCK),
        (BLOCK + 24, LABELS),
    ] {
        process.words.insert(address, value);
    }
    process
}

#[test]
fn a_block_of_a_library_is_found_by_its_table() {
    for (table, last, generation, variable, expected) in [
        (GLIBC, 3, 5, IN_LIBRARY, Some(LABELS)),
        (GLIBC, 70, 9, IN_LIBRARY, Some(LABELS)),
        // The table is too short, or older than the module.
        (GLIBC, 2, 5, IN_LIBRARY, None),
        (GLIBC, 3, 4, IN_LIBRARY, None),
        (
            MUSL,
            3,
            3,
            LibraryVariable {
                generation: 0,
                ..IN_LIBRARY
            },
            Some(LABELS),
        ),
    ] {
        let found = variable.value(&table, THREAD, &mut with_block(table, last, generation));
        assert_eq!(found, Ok(expected), "{last} {generation}");
    }
    // The thread has not used it yet.
    for block in [0, u64::MAX] {
        let mut process = with_block(GLIBC, 3, 5);
        process.words.insert(TABLE + (3 << 4), block);
        assert_eq!(IN_LIBRARY.value(&GLIBC, THREAD, &mut process), Ok(None));
    }
    let mut process = with_block(GLIBC, 3, 5);
    process.words.insert(BLOCK + 24, 0);
    assert_eq!(IN_LIBRARY.value(&GLIBC, THREAD, &mut process), Ok(None));
}

#[test]
fn a_library_that_is_closed_has_no_variables() {
    let mut process = with_block(GLIBC, 3, 5);
    process.words.insert(WITNESS, 4);
    assert_eq!(IN_LIBRARY.value(&GLIBC, THREAD, &mut process), Ok(None));
    process.words.remove(&WITNESS);
    assert_eq!(IN_LIBRARY.value(&GLIBC, THREAD, &mut process), Ok(None));
}

#[test]
fn unreadable_tables_of_blocks_are_counted() {
    for missing in [THREAD + 8, TABLE, TABLE - 16, TABLE + (3 << 4), BLOCK + 24] {
        let mut process = with_block(GLIBC, 3, 5);
        process.words.remove(&missing);
        let found = IN_LIBRARY.value(&GLIBC, THREAD, &mut process);
        assert_eq!(found, Err(Loss::Unreadable), "{missing:#x}");
    }
}

#[test]
fn a_library_that_was_loaded_at_start_has_a_fixed_place() {
    let variable = LibraryVariable {
        module: 0,
        offset: 16u64.wrapping_neg(),
        ..IN_LIBRARY
    };
    let mut process = Process::default();
    process.words.insert(WITNESS, 3);
    process.words.insert(THREAD - 16, LABELS);
    let found = variable.value(&GLIBC, THREAD, &mut process);
    assert_eq!(found, Ok(Some(LABELS)));
}
