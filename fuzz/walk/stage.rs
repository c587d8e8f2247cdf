//! The process that the programs see: they are given scratch memory alone and reach the rest through the kernel.

use std::cell::RefCell;

use crate::maps;
use crate::process::Process;

thread_local! {
    static PROCESS: RefCell<Process> = RefCell::default();
}

/// A new process, of which nothing is remembered.
pub fn enter(process: Process) {
    maps::forget();
    PROCESS.set(process);
}

pub fn change(change: impl FnOnce(&mut Process)) {
    PROCESS.with_borrow_mut(change);
}

pub fn with<T>(look: impl FnOnce(&Process) -> T) -> T {
    PROCESS.with_borrow(look)
}
