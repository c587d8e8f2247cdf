//! The chains of `calls.py`.

use super::{Calls, chain_of, is_main_thread};

/// Innermost first, with qualified names as since 3.11.
const CHAINS: &[&[&str]] = &[
    &["burn", "inner", "middle", "by_call"],
    &["burn", "Key.__lt__", "by_callback"],
    &["burn", "delegate", "generate", "by_generator"],
    &["burn", "delegate", "generate", "by_generator_from_c"],
    &["burn", "by_lambda.<locals>.<lambda>", "by_lambda"],
    &["burn", "inner", "middle", "by_partial"],
    &["burn", "handle", "by_exception"],
    &[
        "burn",
        "Base.method",
        "Derived.method",
        "Derived.attribute",
        "by_method",
    ],
    &["burn", "<module>", "by_execution"],
    &["burn", "wait_for", "gather", "by_coroutine"],
    // Tasks are resumed by their loop, in C.
    &[
        "burn",
        "wait_for",
        "in_task",
        "Handle._run",
        "BaseEventLoop._run_once",
        "BaseEventLoop.run_forever",
        "BaseEventLoop.run_until_complete",
        "by_tasks",
    ],
    &["by_hash"],
    &["burn", "by_größe"],
];
pub const KIND: &str = "cpython";

/// The chain of tasks, which threads do not run.
const TASKS: &str = "by_tasks";

/// The whole chain from `burn` to the outermost function.
fn expected(way: &str, minor: u32, callers: &[&str]) -> Vec<String> {
    let mut chain = chain_of(way, CHAINS, callers);
    if minor < 11 {
        for name in &mut chain {
            *name = name.rsplit('.').next().unwrap_or(name).to_owned();
        }
    }
    chain
}

/// The expectations for this version.
pub fn calls(minor: u32) -> Calls {
    Calls {
        kind: KIND,
        program: "calls.py",
        ways: CHAINS.len() + 1,
        chain: Box::new(move |way| expected(way, minor, &["main", "<module>"])),
        is_of_program: |_| true,
        name: |name| name,
        is_elsewhere: |frame| {
            let file = &frame.source.0;
            file == "<made up>" || file.contains("/asyncio/") || file.ends_with("/threading.py")
        },
        ends: &[],
        flawed: &[],
        lacking: 0,
        is_scheduled: false,
        is_of_thread: is_main_thread,
    }
}

/// The same, of a program that runs its chains in threads.
pub fn calls_in_threads(minor: u32) -> Calls {
    let callers = &[
        "main",
        "in_thread",
        "Thread.run",
        "Thread._bootstrap_inner",
        "Thread._bootstrap",
    ];
    let ways = CHAINS.iter().filter(|chain| chain.last() != Some(&TASKS));
    Calls {
        ways: ways.count() + 1,
        chain: Box::new(move |way| expected(way, minor, callers)),
        is_of_thread: |sample| !is_main_thread(sample),
        ..calls(minor)
    }
}
