//! How the programs find the mappings of processes: by the kernel's own tree where that is proved to
//! be read rightly, and by the kernel's events where it cannot be.

use std::fmt;

use profcol_ebpf_common::layout::Layout;

use crate::profiler::StartError;
use crate::programs::{Mappings, Programs, Sizes};
use crate::self_test::{self, SelfTestError};

/// Names the only way to try, for tests.
const SOURCE_VARIABLE: &str = "PROFCOL_EBPF_MAPPINGS";
const TREE: &str = "tree";
const EVENTS: &str = "events";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MappingSource {
    /// Since Linux 6.1.
    MapleTree {
        proved: usize,
    },
    RedBlackTree {
        proved: usize,
    },
    Events {
        why: String,
    },
}

impl fmt::Display for MappingSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MapleTree { proved } => write!(formatter, "maple tree, proved on {proved}"),
            Self::RedBlackTree { proved } => {
                write!(formatter, "red-black tree, proved on {proved}")
            }
            Self::Events { why } => write!(formatter, "events: {why}"),
        }
    }
}

/// Loads the programs, in the way that this kernel allows.
pub fn load(layout: Layout, sizes: &Sizes) -> Result<(Programs, MappingSource), StartError> {
    let forced = std::env::var_os(SOURCE_VARIABLE);
    let why = match (forced, layout.missing_for_tree()) {
        (Some(way), _) if way == EVENTS => format!("{SOURCE_VARIABLE} asks for it"),
        (_, Some(member)) => format!("the kernel's type information has no `{member}`"),
        (forced, None) => match load_with_tree(layout, sizes) {
            Err(StartError::SelfTest(error)) if forced.is_none_or(|way| way != TREE) => match error
            {
                SelfTestError::Maps(_) => return Err(error.into()),
                error => error.to_string(),
            },
            loaded => return loaded,
        },
    };
    // There is no number that tells of each change of the mappings, so nothing may be remembered.
    let layout = layout.without_mm_seq();
    // Whether a stack can be believed is known later, of each by its time.
    let sizes = Sizes {
        sample_counts: 0,
        ..*sizes
    };
    let programs = Programs::load(layout, Mappings::Published, &sizes)?;
    Ok((programs, MappingSource::Events { why }))
}

fn load_with_tree(layout: Layout, sizes: &Sizes) -> Result<(Programs, MappingSource), StartError> {
    let mut programs = Programs::load(layout, Mappings::Tree, sizes)?;
    let proved = self_test::verify_mappings(&mut programs.identifier)?;
    let mapping_source = if layout.has_maple_tree() {
        MappingSource::MapleTree { proved }
    } else {
        MappingSource::RedBlackTree { proved }
    };
    Ok((programs, mapping_source))
}
