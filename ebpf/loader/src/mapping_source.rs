//! How the programs find the mappings of processes: in the kernel's VMA tree if the self-test passes, else
//! through the kernel's events.

use std::fmt;

use profcol_ebpf_common::layout::Layout;

use crate::programs::{Mappings, Programs, Sizes};
use crate::self_test::{self, SelfTestError};
use crate::start_error::StartFailure;

/// Forces one source, for tests.
const SOURCE_VARIABLE: &str = "PROFCOL_EBPF_MAPPINGS";
const TREE: &str = "tree";
const EVENTS: &str = "events";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MappingSource {
    /// Since Linux 6.1.
    MapleTree {
        verified: usize,
    },
    RedBlackTree {
        verified: usize,
    },
    Events {
        why: String,
    },
}

impl fmt::Display for MappingSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MapleTree { verified } => {
                write!(formatter, "maple tree, verified with {verified} mappings")
            }
            Self::RedBlackTree { verified } => {
                write!(
                    formatter,
                    "red-black tree, verified with {verified} mappings"
                )
            }
            Self::Events { why } => write!(formatter, "events: {why}"),
        }
    }
}

/// Loads the programs with the best source on this kernel.
pub fn load(layout: Layout, sizes: &Sizes) -> Result<(Programs, MappingSource), StartFailure> {
    let forced = std::env::var_os(SOURCE_VARIABLE);
    let why = match (forced, layout.missing_for_tree()) {
        (Some(source), _) if source == EVENTS => format!("requested by {SOURCE_VARIABLE}"),
        (_, Some(member)) => format!("the kernel's BTF has no `{member}`"),
        (forced, None) => match load_with_tree(layout, sizes) {
            Err(StartFailure::SelfTest(error)) if forced.is_none_or(|way| way != TREE) => {
                match error {
                    SelfTestError::Maps(_) => return Err(error.into()),
                    error => error.to_string(),
                }
            }
            loaded => return loaded,
        },
    };
    // No counter tracks each change of the mappings, so the programs must not cache.
    let layout = layout.without_mm_seq();
    // Whether a stack is valid is decided later, by its time.
    let sizes = Sizes {
        sample_counts: 0,
        ..*sizes
    };
    let programs = Programs::load(layout, Mappings::Published, &sizes)?;
    Ok((programs, MappingSource::Events { why }))
}

fn load_with_tree(
    layout: Layout,
    sizes: &Sizes,
) -> Result<(Programs, MappingSource), StartFailure> {
    let mut programs = Programs::load(layout, Mappings::Tree, sizes)?;
    let verified = self_test::verify_mappings(&mut programs.identifier)?;
    let mapping_source = if layout.has_maple_tree() {
        MappingSource::MapleTree { verified }
    } else {
        MappingSource::RedBlackTree { verified }
    };
    Ok((programs, mapping_source))
}
