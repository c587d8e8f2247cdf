//! The chains of `calls.php`.

use super::{Calls, chain_of, is_main_thread};

pub const KIND: &str = "php";
pub const PROGRAM: &str = "calls.php";

/// Innermost first, without their common part.
const CHAINS: &[&[&str]] = &[
    &["burn", "inner", "middle", "by_call"],
    &["burn", "{closure}", "by_map"],
    &["burn", "compare", "by_sort"],
    &["burn", "replace", "by_replace"],
    &["burn", "generate", "by_generator"],
    &["burn", "generate", "by_generator_from_c"],
    &["burn", "Base::method", "Derived::method", "by_method"],
    &["burn", "Derived::make", "by_static"],
    &["burn", "Derived::__call", "by_magic_call"],
    &["burn", "Derived::__get", "by_magic_get"],
    &["burn", "Derived::__toString", "by_string"],
    &["burn", "Derived::getIterator", "by_iterator"],
    &["burn", "Closed::__destruct", "by_destructor"],
    &["burn", "{closure}", "by_closure"],
    &["burn", "inner", "by_name"],
    &["burn", "inner", "by_reflection"],
    &["burn", "by_exception"],
    &["burn", "by_eval"],
    &["burn", "by_größe"],
    &["{closure}", "by_callbacks"],
    &["by_hash"],
];
const MAIN: &[&str] = &["main", "{main}"];

fn expected(way: &str) -> Vec<String> {
    match way {
        "by_fiber" => ["burn", "by_fiber", "{closure}"]
            .map(str::to_owned)
            .to_vec(),
        _ => chain_of(way, CHAINS, MAIN),
    }
}

pub fn calls() -> Calls {
    Calls {
        kind: KIND,
        program: PROGRAM,
        ways: CHAINS.len() + 2,
        chain: Box::new(expected),
        is_of_program: |frame| frame.source.0.ends_with(PROGRAM),
        // Since 8.4 with the place.
        name: |name| match name.starts_with("{closure") {
            true => "{closure}",
            false => name,
        },
        is_elsewhere: |_| false,
        // PHP's functions that switch fibers have no unwind information.
        ends: &["by_fiber"],
        // Callers are missing while C enters the function.
        flawed: &["by_callbacks"],
        lacking: 0,
        is_scheduled: false,
        is_of_thread: is_main_thread,
    }
}
