//! LuaJIT's functions appear in exact call chains.
//!
//! `calls.lua` runs interpreted, and with compiled loops. Lua's functions have no names of their own: a chain has those by which
//! its callers call them.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use profcol_test_harness::calls::clock::Clock;
use profcol_test_harness::installation::Installation;
use profcol_test_harness::profile::Sample;
use profcol_test_harness::support::{root, skip};
use profcol_test_harness::toolchain::Workshop;

use crate::calls::{
    Calls, Churn, ShortLived, chain_of, check_isolated, is_main_thread, name, names_of,
    number_after, samples_in,
};
use crate::host::{Profiler, Running, can_profile};

/// Enough to sample each chain often.
const MIN_SAMPLES: usize = 1200;
/// Far longer than an idle machine needs.
const TIMEOUT: Duration = Duration::from_secs(180);

const KIND: &str = "luajit";
const PROGRAM: &str = "calls.lua";
pub const INTERPRETED: &str = "interpreted";
pub const COMPILED: &str = "compiled";

/// The chains of `calls.lua`, innermost first, without their common part. C has no name for the functions that it
/// calls; they have their place instead, written here with the text of that line.
const CHAINS: &[&[&str]] = &[
    &["burn", "inner", "middle", "by_call"],
    &["burn", "closure", "by_closure"],
    &["burn", "tail", "by_tail_call"],
    &["burn", "variadic", "by_variadic"],
    &["burn", "local function compare", "by_sort"],
    &["burn", "local function replace", "by_gsub"],
    &["burn", "local function inner", "by_pcall"],
    &["burn", "by_error"],
    &[
        "burn",
        "local function handle",
        "fail",
        "local function handled",
        "by_handler",
    ],
    &["burn", "local function in_coroutine", "by_coroutine"],
    &[
        "burn",
        "inner",
        "local function middle",
        "local function nested",
        "by_nested_coroutines",
    ],
    &[
        "burn",
        "local function compare",
        "local function sort_inside",
        "by_sort_in_coroutine",
    ],
    &["burn", "deposit", "by_method"],
    &["burn", "__add", "by_add"],
    &["burn", "__lt", "by_less"],
    &["burn", "account", "by_object"],
    &["burn", "__index", "by_index"],
    &["burn", "__newindex", "by_new_index"],
    &["burn", "__concat", "by_concat"],
    &["burn", "tostring", "by_text"],
    &["burn", "iterate", "by_iterator"],
    &["burn", "loaded", "by_load"],
    &["burn", "load(function", "by_reader"],
    &["local function short", "by_callbacks"],
];
const MAIN: &[&str] = &["main", "main chunk"];

fn calls(mode: &str) -> Calls {
    let source = std::fs::read_to_string(root().join("tests/ebpf/programs").join(PROGRAM)).unwrap();
    let place = move |function: String| {
        let is_it =
            |line: &str| line.trim_start().starts_with(&function) && function.contains("function");
        let line = source.lines().position(is_it);
        line.map_or(function.clone(), |line| format!("{PROGRAM}:{}", line + 1))
    };
    Calls {
        kind: KIND,
        program: PROGRAM,
        ways: CHAINS.len() + 1,
        chain: Box::new(move |way| {
            let chain = chain_of(way, CHAINS, MAIN);
            chain.into_iter().map(&place).collect()
        }),
        is_of_program: |frame| frame.source.0.ends_with(PROGRAM) || frame.source.0 == "loaded",
        name: |name| name,
        // A function that entered compiled code has no line.
        is_elsewhere: match mode {
            COMPILED => |frame| frame.source.0 == "loaded" || frame.source.1 == 0,
            _ => |frame| frame.source.0 == "loaded",
        },
        ends: &[],
        flawed: &[],
        lacking: 0,
        is_scheduled: false,
        is_of_thread: is_main_thread,
    }
}

/// This machine's LuaJIT. Builds with 32-bit references are not supported.
fn any_luajit() -> Option<PathBuf> {
    let luajit = PathBuf::from("luajit");
    let script = "os.exit(require('ffi').abi('gc64'))";
    let status = Command::new(&luajit).args(["-e", script]).status();
    if !status.is_ok_and(|status| status.success()) {
        skip("no luajit with 64-bit references");
        return None;
    }
    Some(luajit)
}

fn names(sample: &Sample) -> Vec<&str> {
    names_of(KIND, sample)
}

pub fn check(luajit: &Installation, mode: &str) {
    let calls = calls(mode);
    let program = calls.path();
    let clock = Clock::new();
    let profiler = Profiler::start(499);
    let arguments = [program.to_str().unwrap(), "200", mode];
    let running = Running::start_installed(&clock, luajit, &arguments);
    let pid = running.pid();
    let profile = profiler.until(TIMEOUT, |profile| {
        samples_in(KIND, profile, pid) >= MIN_SAMPLES
    });
    drop(running);
    calls.check(&profile, pid, &clock, &format!("{luajit} {mode}"));
}

#[test]
fn shows_exact_chains() {
    if !can_profile() {
        return;
    }
    if let Some(luajit) = any_luajit() {
        check(&Installation::of_this_machine(luajit), INTERPRETED);
    }
}

#[test]
fn functions_with_compiled_loops_have_exact_chains() {
    if !can_profile() {
        return;
    }
    if let Some(luajit) = any_luajit() {
        check(&Installation::of_this_machine(luajit), COMPILED);
    }
}

#[test]
fn the_stripped_library_in_another_program_has_exact_chains() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    // The development package has a link without the version.
    let command = "cc -O1 luajit.c -l:libluajit-5.1.so.2";
    let Some(program) = workshop.build("luajit", command) else {
        return;
    };
    let calls = calls(INTERPRETED);
    let path = calls.path();
    let profiler = Profiler::start(499);
    let arguments = [path.to_str().unwrap(), "200", INTERPRETED];
    let clock = Clock::new();
    let running = Running::start_with(&clock, &program, &arguments);
    let pid = running.pid();
    let profile = profiler.until(TIMEOUT, |profile| {
        samples_in(KIND, profile, pid) >= MIN_SAMPLES
    });
    drop(running);
    calls.check(&profile, pid, &clock, "library");
}

/// Processes that live for about 50 ms each.
const SHORT: &str = r#"
local ffi = require('ffi')
ffi.cdef('typedef struct { int64_t s, ns; } time; int clock_gettime(int, time *); int getpid(void);')
local function unix_ns()
    local time = ffi.new('time')
    ffi.C.clock_gettime(0, time)
    return (tostring(time.s * 1000000000LL + time.ns):gsub('LL', ''))
end
local function burn_shortly()
    local limit = os.clock() + 0.05
    while os.clock() < limit do
        local sum = 0
        for number = 1, 100 do sum = sum + number end
    end
end
local start, cpu = unix_ns(), os.clock()
burn_shortly()
local used, stop = (os.clock() - cpu) * 1e9, unix_ns()
local clock = io.open(os.getenv('PROFCOL_TEST_CLOCK'), 'a')
clock:write(string.format('%d %s %s %.0f %.0f\n', ffi.C.getpid(), start, stop, used, used))
clock:close()
"#;

#[test]
fn processes_that_live_for_50_ms_have_names() {
    if !can_profile() {
        return;
    }
    let Some(luajit) = any_luajit() else {
        return;
    };
    ShortLived {
        kind: KIND,
        command: "\"$0\" -e \"$1\"",
        program: &luajit,
        script: SHORT,
        function: "burn_shortly",
        no_name: "[luajit: no name]",
        is_found_late: false,
    }
    .check();
}

/// The file of each function contains its line, and each is freed soon.
const CHURN: &str = r#"
local limit = os.time() + 200
local number = 0
while os.time() < limit do
    number = (number + 1) % 1000
    local source = string.rep('\n', number) .. 'local function made() local sum = 0; for step = 1, 300 do sum = sum + step end end made()'
    loadstring(source, '=made_' .. number)()
end
"#;

#[test]
fn short_lived_functions_do_not_mix_up_names() {
    if !can_profile() {
        return;
    }
    let Some(luajit) = any_luajit() else {
        return;
    };
    Churn {
        kind: KIND,
        program: &luajit,
        arguments: &["-joff", "-e", CHURN],
        no_name: "[luajit: no name]",
    }
    .check(|frames| {
        let made = frames.iter().filter_map(|frame| {
            let number = number_after(&frame.source.0, "made_")?;
            // A file that was just entered has no line.
            let is_entered = name(frame) == "main chunk" && frame.source.1 == 0;
            Some(frame.source.1 == number + 1 || is_entered)
        });
        made.reduce(|all, it| all && it)
    });
}

#[test]
fn names_functions_in_another_root_and_pid_namespace() {
    if !can_profile() {
        return;
    }
    let Some(luajit) = any_luajit() else {
        return;
    };
    let path = calls(INTERPRETED).path();
    let command = format!("{} {} 200", luajit.display(), path.display());
    check_isolated(KIND, &command, "[luajit: no name]", |sample| {
        names(sample).ends_with(&["main", "main chunk"])
    });
}
