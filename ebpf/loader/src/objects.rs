//! The BPF programs for the target architecture, built by `cargo xtask bpf`.

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("no BPF programs for this architecture; build without the feature `ebpf_cpu`");

#[cfg(target_arch = "x86_64")]
pub use profcol_ebpf_common::architecture::X86_64 as Machine;
#[cfg(target_arch = "x86_64")]
pub static ARENA: &[u8] = aya::include_bytes_aligned!("../../objects/x86_64.o");
#[cfg(target_arch = "x86_64")]
pub static BLOCKS: &[u8] = aya::include_bytes_aligned!("../../objects/x86_64-blocks.o");

#[cfg(target_arch = "aarch64")]
pub use profcol_ebpf_common::architecture::Aarch64 as Machine;
#[cfg(target_arch = "aarch64")]
pub static ARENA: &[u8] = aya::include_bytes_aligned!("../../objects/aarch64.o");
#[cfg(target_arch = "aarch64")]
pub static BLOCKS: &[u8] = aya::include_bytes_aligned!("../../objects/aarch64-blocks.o");
