//! The chains of `calls.js`.

use super::{Calls, chain_of, is_main_thread};

pub const KIND: &str = "v8js";
pub const PROGRAM: &str = "calls.js";

/// Innermost first.
const CHAINS: &[&[&str]] = &[
    &["burn", "inner", "middle", "by_call"],
    &["burn", "mapped", "by_map"],
    &["burn", "compare", "by_sort"],
    &["burn", "replacer", "by_replace"],
    &["burn", "revive", "by_json"],
    &["burn", "method", "method", "Derived", "by_class"],
    &["burn", "delegate", "generate", "by_generator"],
    &["burn", "closure", "by_closure"],
    &["burn", "inner", "middle", "by_bind"],
    &["burn", "inner", "by_apply"],
    &["burn", "get property", "by_getter"],
    &["burn", "get", "by_proxy"],
    &["burn", "by_exception"],
    &["burn", "by_größe"],
];

fn expected(way: &str) -> Vec<String> {
    match way {
        // After its `await` it has no caller.
        "by_async" => ["burn", "by_async"].map(str::to_owned).to_vec(),
        _ => chain_of(way, CHAINS, &["main"]),
    }
}

pub fn calls() -> Calls {
    Calls {
        kind: KIND,
        program: PROGRAM,
        ways: CHAINS.len() + 2,
        chain: Box::new(expected),
        is_of_program: |frame| {
            frame.source.0.ends_with(PROGRAM) && frame.function.as_deref() != Some("(anonymous)")
        },
        name: |name| name,
        is_elsewhere: |_| false,
        ends: &[],
        flawed: &[],
        lacking: 0,
        is_scheduled: false,
        is_of_thread: is_main_thread,
    }
}
