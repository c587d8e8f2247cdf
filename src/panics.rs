//! The panic hook.

use std::borrow::Cow;
use std::panic::{set_hook, take_hook};

use profcol_printable::{indented, lines};

use crate::stderr::print;

/// Prints every panic except those that a parser of untrusted records turns into refusals.
pub fn install_hook() {
    let print = take_hook();
    set_hook(Box::new(move |panic| {
        #[cfg(feature = "parca")]
        if profcol_parca::ipc::catches_panics() {
            return;
        }
        // Some messages quote the text that caused the panic.
        match lines(&panic.to_string()) {
            Cow::Borrowed(_) => print(panic),
            Cow::Owned(escaped) => write(&escaped),
        }
    }));
}

fn write(panic: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or_default();
    print(&format!("thread '{name}' {}\n", indented(panic)));
}
