//! Ruby methods and blocks appear in exact call chains.
//!
//! Each Ruby runs `calls.rb`. Fibers, enumerators and threads have a
//! stack of their own, and so a chain without `main`.

#![expect(clippy::print_stdout, reason = "the figures are of interest")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use profcol_test_harness::calls::clock::Clock;
use profcol_test_harness::installation::Installation;
use profcol_test_harness::profile::Sample;
use profcol_test_harness::support::skip;

use crate::calls::{
    Calls, Churn, ShortLived, chain_of, check_isolated, count, name, names_of, number_after,
    samples_in,
};
use crate::host::{Profiler, Running, can_profile};

/// Enough to sample each chain often.
const MIN_SAMPLES: usize = 1200;
/// Far longer than an idle machine needs.
const TIMEOUT: Duration = Duration::from_secs(180);

const KIND: &str = "ruby";
const PROGRAM: &str = "calls.rb";

/// The chains of `calls.rb`, innermost first, without their common part.
const CHAINS: &[&[&str]] = &[
    &["burn", "inner", "middle", "by_call"],
    &["burn", "block in Object#by_each", "by_each"],
    &[
        "burn",
        "block (2 levels) in Object#by_nested",
        "block in Object#by_nested",
        "by_nested",
    ],
    &["burn", "Key#<=>", "by_sort"],
    &["burn", "block in Object#by_sort_by", "by_sort_by"],
    &["burn", "block in Object#by_lambda", "by_lambda"],
    &["burn", "block in Object#by_hash", "by_hash"],
    &["burn", "block in <class:Made>", "by_define_method"],
    &["burn", "Made.make", "by_class_method"],
    &["burn", "Made#method_missing", "by_method_missing"],
    &["burn", "Made#to_s", "by_interpolation"],
    &[
        "burn",
        "Base#mixed",
        "Mixed#mixed",
        "Derived#mixed",
        "by_super",
    ],
    &["burn", "inner", "by_send"],
    &[
        "burn",
        "block in Object#by_instance_eval",
        "by_instance_eval",
    ],
    &["burn", "by_eval"],
    &["burn", "rescue in Object#handle", "handle", "by_rescue"],
    &["burn", "ensure in Object#leave", "leave", "by_ensure"],
    &["burn", "block in Object#by_catch", "by_catch"],
    &["burn", "by_größe"],
    &["block in Object#by_times", "by_times"],
    &["by_checksum"],
];
/// Chains with a stack of their own.
const OWN_STACK: &[&[&str]] = &[
    &["burn", "by_fiber", "block in Object#in_fiber"],
    &["burn", "by_enumerator", "block in Object#in_enumerator"],
    &["burn", "by_thread", "block in Object#in_thread"],
];
const MAIN: &[&str] = &["block in Object#main", "main", "<main>"];

fn expected(way: &str) -> Vec<String> {
    match OWN_STACK.iter().find(|chain| chain.contains(&way)) {
        Some(chain) => chain.iter().copied().map(str::to_owned).collect(),
        None => chain_of(way, CHAINS, MAIN),
    }
}

fn calls() -> Calls {
    Calls {
        kind: KIND,
        program: PROGRAM,
        ways: CHAINS.len() + OWN_STACK.len() + 1,
        chain: Box::new(expected),
        is_of_program: |frame| frame.source.0.ends_with(PROGRAM),
        name: |name| name.strip_prefix("Object#").unwrap_or(name),
        is_elsewhere: |_| false,
        ends: &[],
        flawed: &[],
        lacking: 0,
        is_scheduled: false,
        is_of_thread: |_| true,
    }
}

/// This machine's Ruby, with its libraries.
fn any_ruby() -> Option<PathBuf> {
    let ruby = PathBuf::from("ruby");
    if Command::new(&ruby).arg("--version").output().is_err() {
        skip("no ruby");
        return None;
    }
    Some(ruby)
}

fn names(sample: &Sample) -> Vec<&str> {
    names_of(KIND, sample)
}

/// Runs each with its options, concurrently.
pub fn check(commands: &[(Installation, &[&str])]) {
    let calls = calls();
    let program = calls.path();
    let mut profiler = Profiler::start(499);
    // A process is known to run Ruby after its first sample in the interpreter, which needs the unwind table.
    let before = commands.iter().map(|(ruby, _)| {
        let script = "loop { 100.times { |number| number } }";
        let command = &mut ruby.command();
        Running::of(
            command
                .args(["--disable-gems", "-e", script])
                .spawn()
                .unwrap(),
        )
    });
    let before: Vec<Running> = before.collect();
    profiler.wait(TIMEOUT, |profile| {
        before.iter().all(|running| {
            let is_known =
                |sample: &Sample| sample.pid == running.pid() && !names(sample).is_empty();
            profile.samples.iter().any(is_known)
        })
    });
    drop(before);
    let running = commands.iter().map(|(ruby, options)| {
        let common = ["--disable-gems", program.to_str().unwrap(), "200"];
        let clock = Clock::new();
        let arguments = [options, &common[..]].concat();
        let running = Running::start_installed(&clock, ruby, &arguments);
        (format!("{ruby} {}", options.join(" ")), running, clock)
    });
    let running: Vec<(String, Running, Clock)> = running.collect();
    let pids: Vec<u32> = running
        .iter()
        .map(|(_, running, _)| running.pid())
        .collect();
    let profile = profiler.until(TIMEOUT, |profile| {
        pids.iter()
            .all(|&pid| samples_in(KIND, profile, pid) >= MIN_SAMPLES)
    });
    for (what, process, clock) in running {
        let pid = process.pid();
        drop(process);
        calls.check(&profile, pid, &clock, &what);
    }
}

#[test]
fn shows_exact_chains() {
    if !can_profile() {
        return;
    }
    if let Some(ruby) = any_ruby() {
        check(&[(Installation::of_this_machine(ruby), &[])]);
    }
}

#[test]
fn generated_code_shows_exact_chains() {
    if !can_profile() {
        return;
    }
    let Some(ruby) = any_ruby() else {
        return;
    };
    let ruby = Installation::of_this_machine(ruby);
    if has_yjit(&ruby) {
        check(&[(ruby, &["--yjit"])]);
    } else {
        skip("no ruby with YJIT");
    }
}

pub fn has_yjit(ruby: &Installation) -> bool {
    let script = "exit RubyVM::YJIT.enabled?";
    let mut command = ruby.command();
    let status = command
        .args(["--disable-gems", "--yjit", "-e", script])
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// Compresses with the GVL released.
const THREADS: &str = "
require 'zlib'
DATA = Random.bytes(1 << 20)
def compress
  Zlib.deflate(DATA)
end
def in_thread
  loop { compress }
end
Array.new(3) { Thread.new { in_thread } }.each(&:join)
";

#[test]
fn threads_without_the_gvl_have_their_own_stacks() {
    if !can_profile() {
        return;
    }
    let Some(ruby) = any_ruby() else {
        return;
    };
    let profiler = Profiler::start(499);
    let running = Running::start(&ruby, &["--disable-gems", "-e", THREADS]);
    let pid = running.pid();
    let is_thread = |sample: &Sample| {
        let is_in_zlib = sample
            .frames
            .iter()
            .any(|frame| frame.file.contains("libz"));
        sample.pid == pid && is_in_zlib && sample.end_reason.is_none()
    };
    let profile = profiler.until(TIMEOUT, |profile| count(profile, is_thread) > 500);
    drop(running);
    let is_exact = |sample: &Sample| {
        let expected = [
            "Object#compress",
            "block in Object#in_thread",
            "Object#in_thread",
            "block (2 levels) in <main>",
        ];
        let names = names(sample).into_iter();
        is_thread(sample) && names.filter(|name| !name.ends_with("loop")).eq(expected)
    };
    let (exact, all) = (count(&profile, is_exact), count(&profile, is_thread));
    println!("{exact} of {all} are exact");
    assert!(exact * 100 >= all * 99, "{exact} of {all}");
}

/// Processes that live for about 50 ms each.
const SHORT: &str = r##"
def cpu_ns
  Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond)
end
def unix_ns
  Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)
end
def burn_shortly
  limit = cpu_ns + 50_000_000
  100.times { |number| number * number } while cpu_ns < limit
end
start, cpu = unix_ns, cpu_ns
burn_shortly
cpu = cpu_ns - cpu
File.write(ENV['PROFCOL_TEST_CLOCK'], "#{Process.pid} #{start} #{unix_ns} #{cpu} #{cpu}\n", mode: 'a')
"##;

#[test]
fn processes_that_live_for_50_ms_have_names() {
    if !can_profile() {
        return;
    }
    let Some(ruby) = any_ruby() else {
        return;
    };
    ShortLived {
        kind: KIND,
        command: "\"$0\" --disable-gems -e \"$1\"",
        program: &ruby,
        script: SHORT,
        function: "Object#burn_shortly",
        no_name: "[ruby: no name]",
        is_found_late: false,
    }
    .check();
}

/// The name of each method contains its first line, and each is freed immediately.
const CHURN: &str = "
def make(number)
  source = \"\\n\" * number + \"def made_#{number}\\n300.times { |i| i * i }\\nend\\nmade_#{number}\"
  eval(source, binding, 'made.rb', 1)
end
limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 200
number = 0
while Process.clock_gettime(Process::CLOCK_MONOTONIC) < limit
  number = (number + 1) % 1000
  make(number)
end
";

#[test]
fn short_lived_methods_do_not_mix_up_names() {
    if !can_profile() {
        return;
    }
    let Some(ruby) = any_ruby() else {
        return;
    };
    Churn {
        kind: KIND,
        program: &ruby,
        arguments: &["--disable-gems", "-e", CHURN],
        no_name: "[ruby: no name]",
    }
    .check(|frames| {
        let made = frames.iter().filter_map(|frame| {
            let number = number_after(name(frame), "made_")?;
            Some((number + 1..=number + 3).contains(&frame.source.1))
        });
        made.reduce(|all, it| all && it)
    });
}

#[test]
fn names_functions_in_another_root_and_pid_namespace() {
    if !can_profile() {
        return;
    }
    let Some(ruby) = any_ruby() else {
        return;
    };
    let command = format!(
        "{} --disable-gems {} 200",
        ruby.display(),
        calls().path().display()
    );
    check_isolated(KIND, &command, "[ruby: no name]", |sample| {
        names(sample).ends_with(&["Object#main", "<main>"])
    });
}

/// Blocks that C constantly enters and leaves.
const SHORT_BLOCKS: &str = "
def short
  loop_long { 1000.times { |number| number } }
end
def loop_long
  limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 200
  yield while Process.clock_gettime(Process::CLOCK_MONOTONIC) < limit
end
short
";

#[test]
fn entering_or_leaving_a_block_hides_no_frame() {
    if !can_profile() {
        return;
    }
    let Some(ruby) = any_ruby() else {
        return;
    };
    let profiler = Profiler::start(499);
    let running = Running::start(&ruby, &["--disable-gems", "-e", SHORT_BLOCKS]);
    let pid = running.pid();
    let profile = profiler.until(TIMEOUT, |profile| samples_in(KIND, profile, pid) >= 1000);
    drop(running);
    let whole = [
        "block (2 levels) in Object#short",
        "block in Object#short",
        "Object#loop_long",
        "Object#short",
        "<main>",
    ];
    let (mut in_block, mut between, mut wrong) = (0, 0, BTreeMap::<String, usize>::new());
    let samples = profile.samples.iter().filter(|sample| sample.pid == pid);
    for sample in samples.filter(|sample| names(sample).contains(&"Object#loop_long")) {
        let names = names(sample);
        if names == whole {
            in_block += sample.count;
        } else if whole.ends_with(&names) {
            between += sample.count;
        } else {
            *wrong.entry(names.join(" < ")).or_default() += sample.count;
        }
    }
    let missing = count(&profile, |sample| {
        sample.pid == pid && whole[3..].ends_with(&names(sample)) && !names(sample).is_empty()
    });
    println!("{in_block} in the block, {between} beside it, {missing} without it, {wrong:?} wrong");
    let all = in_block + between + wrong.values().sum::<usize>() + missing;
    assert!(
        // The proportion depends on the CPU.
        in_block * 20 > all && between * 20 > all,
        "{in_block}, {between}"
    );
    assert!(
        (in_block + between) * 100 >= all * 99,
        "{wrong:?}, {missing}"
    );
}
