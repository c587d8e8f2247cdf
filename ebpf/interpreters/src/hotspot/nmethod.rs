//! Compiled code: the functions at each position.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::layout::Layout;
use super::members::{DebugMembers, Metadata, ScopesData};
use super::method::Method;
use super::scopes::Scopes;
use super::{FrameKind, JavaFrame, stubs};
use crate::FunctionError;
use crate::memory::Memory;

/// Maximum size of PC and scope descriptors.
const MAX_DEBUG_BYTES: u64 = 1 << 20;
/// Maximum size of methods, with names and lines.
const MAX_METHOD_BYTES: usize = 4 << 20;

/// An nmethod with all its methods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nmethod {
    compiled: Method,
    /// By method number in scopes.
    methods: HashMap<u32, Method>,
    scopes: Scopes,
}

impl Nmethod {
    pub fn read(
        layout: &Layout,
        memory: &impl Memory,
        address: u64,
        compile_id: u32,
    ) -> Result<Self, FunctionError> {
        if self::compile_id(layout, memory, address)? != compile_id {
            return Err(FunctionError::Replaced);
        }
        let method = memory.word(address.wrapping_add(layout.nmethod.method.into()))?;
        let mut nmethod = Self {
            compiled: Method::read(layout, memory, method)?,
            methods: HashMap::new(),
            scopes: Scopes::default(),
        };
        if let Some(metadata) = metadata(layout, memory, address)? {
            let debug = Debug::read(layout, memory, address)?;
            let descriptors = memory.bytes(debug.pcs, debug.pcs_bytes)?;
            let data = memory.bytes(debug.data, debug.data_bytes)?;
            let excludes_zero = layout.nmethod.excludes_zero;
            nmethod.scopes = Scopes::parse(&descriptors, &data, excludes_zero)?;
            nmethod.read_methods(layout, memory, metadata)?;
        }
        // It may have been freed during the read.
        if self::compile_id(layout, memory, address)? != compile_id {
            return Err(FunctionError::Replaced);
        }
        Ok(nmethod)
    }

    fn read_methods(
        &mut self,
        layout: &Layout,
        memory: &impl Memory,
        metadata: u64,
    ) -> Result<(), FunctionError> {
        let mut bytes = 0;
        for number in self.scopes.methods() {
            let Entry::Vacant(place) = self.methods.entry(number) else {
                continue;
            };
            let slot = metadata.wrapping_add(u64::from(number - 1) * 8);
            let method = Method::read(layout, memory, memory.word(slot)?)?;
            bytes += method.bytes();
            if bytes > MAX_METHOD_BYTES {
                return Err(FunctionError::Invalid("the methods of compiled code"));
            }
            place.insert(method);
        }
        Ok(())
    }

    /// The functions at a code offset, innermost first; at least one.
    pub fn frames(&self, offset: u32) -> Vec<JavaFrame> {
        let scopes = self.scopes.at(offset);
        let mut frames: Vec<JavaFrame> = scopes
            .filter_map(|scope| {
                let method = self.methods.get(&scope.method)?;
                Some(method.frame(FrameKind::Inlined, scope.bci))
            })
            .collect();
        match frames.last_mut() {
            Some(last) => last.kind = FrameKind::Compiled,
            None => frames.push(self.compiled.frame(FrameKind::Compiled, None)),
        }
        frames
    }

    pub fn bytes(&self) -> usize {
        let methods = self.methods.values().chain([&self.compiled]);
        methods.map(Method::bytes).sum::<usize>() + self.scopes.bytes()
    }
}

fn compile_id(layout: &Layout, memory: &impl Memory, address: u64) -> Result<u32, FunctionError> {
    let place = address.wrapping_add(layout.common.nmethod_compile_id.into());
    Ok(memory.word(place)? as u32)
}

/// The address of the methods that scopes refer to; None if unknown.
fn metadata(
    layout: &Layout,
    memory: &impl Memory,
    address: u64,
) -> Result<Option<u64>, FunctionError> {
    let word = |offset: u16| memory.word(address.wrapping_add(offset.into()));
    let number = |offset: u16| Ok::<_, FunctionError>(u64::from(word(offset)? as u32));
    Ok(match layout.nmethod.metadata {
        Metadata::Own(offset) => Some(address.wrapping_add(number(offset)?)),
        Metadata::BehindCode(offset) => {
            let code = stubs::code(layout, memory, address)?;
            Some(code.end.wrapping_add(word(offset)? & 0xffff))
        }
        Metadata::Mutable {
            data,
            relocation_size,
        } => Some(word(data)?.wrapping_add(number(relocation_size)?)),
        Metadata::Unknown => None,
    })
}

/// The location of PC and scope descriptors.
struct Debug {
    pcs: u64,
    pcs_bytes: usize,
    data: u64,
    data_bytes: usize,
}

impl Debug {
    fn read(layout: &Layout, memory: &impl Memory, address: u64) -> Result<Self, FunctionError> {
        let word = |offset: u16| memory.word(address.wrapping_add(offset.into()));
        let number = |offset: u16| Ok::<_, FunctionError>(u64::from(word(offset)? as u32));
        let own = |offset: u16| Ok::<_, FunctionError>(address.wrapping_add(number(offset)?));
        let (pcs, pcs_end, data, data_end) = match layout.nmethod.debug {
            DebugMembers::Own {
                ref scopes_data,
                pcs,
                pcs_end,
            } => {
                let pcs = own(pcs)?;
                let data = match *scopes_data {
                    ScopesData::Offset(offset) => own(offset)?,
                    ScopesData::Pointer(offset) => word(offset)?,
                };
                (pcs, own(pcs_end)?, data, pcs)
            }
            DebugMembers::Immutable {
                data,
                size,
                pcs,
                scopes_data,
            } => {
                let start = word(data)?;
                let data = start.wrapping_add(number(scopes_data)?);
                let end = start.wrapping_add(number(size)?);
                (start.wrapping_add(number(pcs)?), data, data, end)
            }
        };
        let bytes = |start: u64, end: u64| match end.wrapping_sub(start) {
            bytes if bytes <= MAX_DEBUG_BYTES => Ok(bytes as usize),
            _ => Err(FunctionError::Invalid("the data of compiled code")),
        };
        Ok(Self {
            pcs,
            pcs_bytes: bytes(pcs, pcs_end)?,
            data,
            data_bytes: bytes(data, data_end)?,
        })
    }
}
