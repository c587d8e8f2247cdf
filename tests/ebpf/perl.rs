//! Perl functions appear in exact call chains.

#![expect(clippy::print_stdout, reason = "the figures are of interest")]

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use profcol_test_harness::calls::clock::Clock;
use profcol_test_harness::installation::Installation;
use profcol_test_harness::profile::Sample;
use profcol_test_harness::support::skip;

use crate::calls::{
    Calls, Churn, ShortLived, chain_of, check_isolated, count, is_main_thread, name, names_of,
    number_after, samples_in,
};
use crate::host::{Profiler, Running, can_profile};

/// Enough to sample each chain often.
const MIN_SAMPLES: usize = 1200;
/// Far longer than an idle machine needs.
const TIMEOUT: Duration = Duration::from_secs(180);

const KIND: &str = "perl";
const PROGRAM: &str = "calls.pl";

/// The chains of `calls.pl`, innermost first, without their common part.
const CHAINS: &[&[&str]] = &[
    &["burn", "inner", "middle", "by_call"],
    &["burn", "__ANON__", "by_anonymous"],
    &["burn", "compare", "by_sort"],
    &["burn", "by_sort_block"],
    &["burn", "by_sort_tail"],
    &["burn", "by_map"],
    &["burn", "by_grep"],
    &["burn", "__ANON__", "by_first"],
    &["burn", "__ANON__", "by_reduce"],
    &["burn", "by_substitution"],
    &["burn", "by_pattern"],
    &["burn", "by_block"],
    &["burn", "by_exception"],
    &["burn", "by_string"],
    &["burn", "inner", "by_replaced"],
    &["burn", "Made::make", "Derived::make", "by_method"],
    &["burn", "Made::AUTOLOAD", "by_autoload"],
    &["burn", "Made::add", "by_overload"],
    &["burn", "Made::__ANON__", "by_text"],
    &["burn", "Made::__ANON__", "by_sort_overload"],
    &["burn", "Made::FETCH", "by_tie"],
    &["burn", "Closed::DESTROY", "by_destructor"],
    &["burn", "__ANON__", "by_signal"],
    &["burn", "__ANON__", "by_warning"],
    &["burn", "guarded", "by_guard"],
    &["burn", "inner", "by_name"],
    &["burn", "by_größe"],
    &["short", "__ANON__", "by_callbacks"],
    &["Number::__ANON__", "by_overloads"],
    &["by_checksum"],
];
const MAIN: &[&str] = &["main", "<main>"];

fn calls() -> Calls {
    Calls {
        kind: KIND,
        program: PROGRAM,
        ways: CHAINS.len() + 1,
        chain: Box::new(|way| chain_of(way, CHAINS, MAIN)),
        is_of_program: |frame| frame.source.0.ends_with(PROGRAM),
        name: |name| name.strip_prefix("main::").unwrap_or(name),
        is_elsewhere: |_| false,
        ends: &[],
        flawed: &[],
        lacking: 0,
        is_scheduled: false,
        is_of_thread: is_main_thread,
    }
}

/// This machine's Perl.
fn any_perl() -> Option<PathBuf> {
    let perl = PathBuf::from("perl");
    let status = Command::new(&perl).args(["-e", "use Time::HiRes"]).status();
    if !status.is_ok_and(|status| status.success()) {
        skip("no perl with Time::HiRes");
        return None;
    }
    Some(perl)
}

fn names(sample: &Sample) -> Vec<&str> {
    names_of(KIND, sample)
}

#[test]
fn shows_exact_chains() {
    if !can_profile() {
        return;
    }
    if let Some(perl) = any_perl() {
        check(&Installation::of_this_machine(perl));
    }
}

pub fn check(perl: &Installation) {
    let calls = calls();
    let program = calls.path();
    let clock = Clock::new();
    let profiler = Profiler::start(499);
    let running = Running::start_installed(&clock, perl, &[program.to_str().unwrap(), "200"]);
    let pid = running.pid();
    let profile = profiler.until(TIMEOUT, |profile| {
        samples_in(KIND, profile, pid) >= MIN_SAMPLES
    });
    drop(running);
    calls.check(&profile, pid, &clock, &perl.to_string());
}

/// Three interpreters, each in a thread of its own.
const THREADS: &str = "
use threads;
sub work { my $sum = 0; $sum += $_ for 1 .. 1000; $sum }
sub in_thread { work() while 1 }
$_->join for map { threads->create(\\&in_thread) } 1 .. 3;
";

#[test]
fn threads_have_interpreters_of_their_own() {
    if !can_profile() {
        return;
    }
    let Some(perl) = any_perl() else {
        return;
    };
    let status = Command::new(&perl).args(["-e", "use threads"]).status();
    if !status.is_ok_and(|status| status.success()) {
        skip("no perl with threads");
        return;
    }
    let profiler = Profiler::start(499);
    let running = Running::start(&perl, &["-e", THREADS]);
    let pid = running.pid();
    let is_thread = |sample: &Sample| sample.pid == pid && names(sample).contains(&"main::work");
    let profile = profiler.until(TIMEOUT, |profile| count(profile, is_thread) > 500);
    drop(running);
    let is_exact =
        |sample: &Sample| is_thread(sample) && names(sample) == ["main::work", "main::in_thread"];
    let (exact, all) = (count(&profile, is_exact), count(&profile, is_thread));
    println!("{exact} of {all} are exact");
    assert!(exact * 100 >= all * 99, "{exact} of {all}");
}

/// Processes that live for about 50 ms each.
const SHORT: &str = r#"
use Time::HiRes qw(clock time);
sub burn_shortly {
    my $limit = clock() + 0.05;
    while (clock() < $limit) {
        my $sum = 0;
        $sum += $_ for 1 .. 100;
    }
}
my ($start, $cpu) = (time, clock());
burn_shortly();
($cpu, my $stop) = (clock() - $cpu, time);
open my $clock, '>>', $ENV{PROFCOL_TEST_CLOCK} or die;
printf $clock "%d %.0f %.0f %.0f %.0f\n", $$, $start * 1e9, $stop * 1e9, $cpu * 1e9, $cpu * 1e9;
"#;

#[test]
fn processes_that_live_for_50_ms_have_names() {
    if !can_profile() {
        return;
    }
    let Some(perl) = any_perl() else {
        return;
    };
    ShortLived {
        kind: KIND,
        command: "\"$0\" -e \"$1\"",
        program: &perl,
        script: SHORT,
        function: "main::burn_shortly",
        no_name: "[perl: no name]",
        is_found_late: false,
    }
    .check();
}

/// The name of each function contains its line, and each is freed immediately.
const CHURN: &str = r##"
my $end = time + 200;
my $number = 0;
while (time < $end) {
    $number = ($number + 1) % 1000;
    my $source = "\n" x $number . "sub made_$number { my \$sum = 0; \$sum += \$_ for 1 .. 300 } made_$number()";
    eval "#line 1 made.pl\n$source";
    delete $main::{"made_$number"};
}
"##;

#[test]
fn short_lived_functions_do_not_mix_up_names() {
    if !can_profile() {
        return;
    }
    let Some(perl) = any_perl() else {
        return;
    };
    Churn {
        kind: KIND,
        program: &perl,
        arguments: &["-e", CHURN],
        no_name: "[perl: no name]",
    }
    .check(|frames| {
        let made = frames
            .iter()
            .filter_map(|frame| Some(frame.source.1 == number_after(name(frame), "made_")? + 1));
        made.reduce(|all, it| all && it)
    });
}

#[test]
fn names_functions_in_another_root_and_pid_namespace() {
    if !can_profile() {
        return;
    }
    let Some(perl) = any_perl() else {
        return;
    };
    let command = format!("{} {} 200", perl.display(), calls().path().display());
    check_isolated(KIND, &command, "[perl: no name]", |sample| {
        names(sample).ends_with(&["main::main", "<main>"])
    });
}
