//! Assemblies, PDBs and programs that are built by hand, from a compiler, of real runtimes, and damaged.

mod build;
mod compiled;
mod damage;
mod images;
mod lines;
