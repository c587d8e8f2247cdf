//! The Java code of a frame.

use profcol_ebpf_common::interpreter::{hotspot, runtime};

use super::layout::Layout;
use super::method::Method;
use super::nmethod::Nmethod;
use super::stubs::Stubs;
use super::{FrameKind, JavaFrame};
use crate::FunctionError;
use crate::memory::Memory;

/// The code at an address, read once: naming its frames does not need the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    Interpreted(Method),
    Compiled(Nmethod),
    Stubs(Stubs),
}

impl Code {
    /// `function` and `generation` are those of a frame; `bias` is that of [`Layout::read`].
    pub fn read(
        layout: &Layout,
        memory: &impl Memory,
        bias: u64,
        runtime: u32,
        function: u64,
        generation: u32,
    ) -> Result<Self, FunctionError> {
        match runtime {
            runtime::HOTSPOT_INTERPRETED => {
                let method = Method::read(layout, memory, function)?;
                if method.generation != generation {
                    return Err(FunctionError::Replaced);
                }
                Ok(Self::Interpreted(method))
            }
            runtime::HOTSPOT_COMPILED => {
                Nmethod::read(layout, memory, function, generation).map(Self::Compiled)
            }
            _ => Stubs::read(layout, memory, bias, function).map(Self::Stubs),
        }
    }

    /// The frames at a position, innermost first, at least one. In compiled code, inlined functions come before the
    /// compiled one.
    pub fn frames(&self, position: u32) -> Vec<JavaFrame> {
        match self {
            Self::Interpreted(method) => {
                let bci = Some(position).filter(|bci| *bci != hotspot::NO_BCI);
                vec![method.frame(FrameKind::Interpreted, bci)]
            }
            Self::Compiled(nmethod) => nmethod.frames(position),
            Self::Stubs(stubs) => vec![JavaFrame {
                kind: FrameKind::Stub,
                name: stubs.name(position).into(),
                file: String::new(),
                line: 0,
            }],
        }
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Interpreted(method) => method.bytes(),
                Self::Compiled(nmethod) => nmethod.bytes(),
                Self::Stubs(stubs) => stubs.bytes(),
            }
    }
}
