//! The memory of the unwind tables.

use profcol_ebpf_common::rule::EncodedRule;
use profcol_ebpf_common::settings::Settings;
use profcol_ebpf_common::table::Words;
use profcol_ebpf_common::walk::Tables;

use crate::stage;

#[derive(Clone, Copy)]
pub struct Arena;

impl Arena {
    pub fn new(_: &Settings) -> Self {
        Self
    }
}

impl Words for Arena {
    fn word(&self, index: u32) -> u32 {
        stage::with(|process| process.tables.word(index))
    }
}

impl Tables for Arena {
    fn rule(&self, index: u32) -> EncodedRule {
        stage::with(|process| process.tables.rule(index))
    }
}
