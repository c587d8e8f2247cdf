//! A function in a sample.

use crate::runtime::Runtime;

/// A sampled function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SampledFunction {
    /// One of [`runtime`](profcol_ebpf_common::interpreter::runtime).
    pub runtime: u32,
    pub address: u64,
    /// Distinguishes it from earlier functions at this address.
    pub generation: u32,
    /// An address in its generated code, or that of a method, see
    /// [`ruby::Function`](profcol_ebpf_common::interpreter::ruby::Function), or of what names it, see
    /// [`perl::Function`](profcol_ebpf_common::interpreter::perl::Function); 0 if there is none.
    pub code_address: u64,
}

impl SampledFunction {
    /// Whether its address is meaningless in another process.
    pub(crate) fn is_of_process(&self) -> bool {
        Runtime::from_number(self.runtime).is_some_and(Runtime::is_of_process)
    }
}
