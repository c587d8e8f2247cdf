//! What is told of panics.

use std::panic::{set_hook, take_hook};

use profcol_parca::ipc;

/// Of all but those that a reader of hostile records makes refusals of, which are told as such.
pub fn tell_of_defects() {
    let tell = take_hook();
    set_hook(Box::new(move |panic| {
        if !ipc::refuses_panics() {
            tell(panic);
        }
    }));
}
