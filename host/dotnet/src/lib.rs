//! Reads .NET assemblies in bounded pieces, from their files or from where a runtime mapped them.
//!
//! * [`Assembly`]: the PE headers and the metadata (ECMA-335): names of the assembly and its methods.
//! * [`ReadyToRun`]: which method the native code at an address belongs to, in images compiled ahead of time.
//! * [`IlMap`]: which IL a native instruction belongs to, for these images and for code of the JIT.
//! * [`DebugDirectory`], [`PortablePdb`]: which source line that IL has.
//! * [`Bundle`]: the assemblies in a single-file program.
//!
//! Files are untrusted and read with elevated privileges: anyone who can start a process can supply one. So each size
//! has a limit, and nothing but the methods' addresses is kept.
//!
//! The crate `object` could read the PE headers. Its reader wants the image in memory as in the file, and the headers
//! are a small part of what is read here.

mod assembly;
mod bundle;
mod bytes;
mod debug_directory;
mod error;
mod il_map;
mod image;
mod metadata;
mod native_format;
mod portable_pdb;
mod ready_to_run;
mod signature;
mod tables;
#[cfg(test)]
mod tests;
mod unwind;

pub use assembly::{Assembly, MethodToken};
pub use bundle::{Bundle, BundleFile, BundleFileKind, Part};
pub use debug_directory::{DebugDirectory, PdbId};
pub use error::DotNetError;
pub use il_map::{DebugInfoFormat, IlMap};
pub use image::{ImageLayout, Machine};
pub use portable_pdb::{PortablePdb, SourceLine};
pub use ready_to_run::{R2rMethod, ReadyToRun};
pub use unwind::UnwindFunction;
