//! The process visible to the programs: they only get scratch memory and access everything else through the kernel.

use std::cell::RefCell;

use crate::maps;
use crate::process::Process;

thread_local! {
    static PROCESS: RefCell<Process> = RefCell::default();
}

/// Switches to a new process with empty caches.
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
