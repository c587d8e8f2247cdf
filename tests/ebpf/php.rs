//! PHP functions appear in exact call chains.
//!
//! The PHP on the machine runs `calls.php` without opcache, with it, and with its JIT compiler.

#![expect(clippy::print_stdout, reason = "the figures are of interest")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use profcol_test_harness::calls::clock::Clock;
use profcol_test_harness::calls::php::{KIND, calls};
use profcol_test_harness::installation::Installation;
use profcol_test_harness::peers::free_address;
use profcol_test_harness::profile::{Frame, Profile, Sample};
use profcol_test_harness::support::skip;
use profcol_test_harness::toolchain::Workshop;

use crate::calls::{ShortLived, count, name, names_of, samples_in};
use crate::host::{Profiler, Running, can_profile};

/// Enough to sample each chain often.
const MIN_SAMPLES: usize = 1200;
/// Far longer than an idle machine needs.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Without opcache; with opcache; with its JIT compiler, which came with 8.0.
const KINDS_OF_CODE: [&[&str]; 3] = [
    &[],
    &["-dopcache.enable_cli=1", "-dopcache.jit=disable"],
    &[
        "-dopcache.enable_cli=1",
        "-dopcache.jit=tracing",
        "-dopcache.jit_buffer_size=64M",
    ],
];

/// The host's PHP, if it has fibers.
fn php() -> Option<PathBuf> {
    let php = PathBuf::from("php");
    let script = "exit((int) !class_exists('Fiber'));";
    let status = Command::new(&php).args(["-n", "-r", script]).status();
    if status.is_ok_and(|status| status.success()) {
        return Some(php);
    }
    skip("no php 8.1 or newer");
    None
}

fn names(sample: &Sample) -> Vec<&str> {
    names_of(KIND, sample)
}

#[test]
fn every_kind_of_code_shows_exact_chains() {
    if !can_profile() {
        return;
    }
    let Some(php) = php() else {
        return;
    };
    check(&Installation::of_this_machine(php));
}

fn version_of(php: &Installation) -> (u32, u32) {
    let script = "echo PHP_MAJOR_VERSION, '.', PHP_MINOR_VERSION;";
    let output = php.command().args(["-n", "-r", script]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (major, minor) = text.split_once('.').unwrap();
    (major.parse().unwrap(), minor.parse().unwrap())
}

/// All kinds of code, at once.
pub fn check(php: &Installation) {
    let version = version_of(php);
    let kinds = &KINDS_OF_CODE[..if version < (8, 0) { 2 } else { 3 }];
    let has_fibers = version >= (8, 1);
    let has_opcache_inside = version >= (8, 5);
    let program = calls().path();
    let profiler = Profiler::start(499);
    let running = kinds.iter().map(|options| {
        let mut arguments = options.to_vec();
        if !options.is_empty() && !has_opcache_inside {
            arguments.push("-dzend_extension=opcache");
        }
        arguments.extend(["-n", program.to_str().unwrap(), "200"]);
        let clock = Clock::new();
        let running = Running::start_installed(&clock, php, &arguments);
        (running, clock)
    });
    let running: Vec<(Running, Clock)> = running.collect();
    let profile = profiler.until(TIMEOUT, |profile| {
        let pids = running.iter().map(|(running, _)| running.pid());
        let counts = pids.map(|pid| samples_in(KIND, profile, pid));
        counts.min() >= Some(MIN_SAMPLES)
    });
    for ((running, clock), options) in running.into_iter().zip(kinds) {
        let pid = running.pid();
        drop(running);
        let mut calls = calls();
        calls.ways -= usize::from(!has_fibers);
        if options.contains(&"-dopcache.jit=tracing") {
            // The function that runs in generated code has no line.
            calls.is_elsewhere = |frame| frame.source.1 == 0;
        }
        let what = format!("{php} {}", options.join(" "));
        calls.check(&profile, pid, &clock, &what);
    }
}

/// Processes that live for about 50 ms each.
const SHORT: &str = r#"
function cpu_ns() {
    $used = getrusage();
    $seconds = $used['ru_utime.tv_sec'] + $used['ru_stime.tv_sec'];
    return ($seconds * 1_000_000 + $used['ru_utime.tv_usec'] + $used['ru_stime.tv_usec']) * 1000;
}
function unix_ns() {
    return number_format(microtime(true) * 1_000_000, 0, '', '') . '000';
}
function burn_shortly() {
    $limit = cpu_ns() + 50_000_000;
    while (cpu_ns() < $limit) {
        array_sum(range(1, 100));
    }
}
[$start, $cpu] = [unix_ns(), cpu_ns()];
burn_shortly();
[$cpu, $stop] = [cpu_ns() - $cpu, unix_ns()];
file_put_contents(getenv('PROFCOL_TEST_CLOCK'), getmypid() . " $start $stop $cpu $cpu\n", FILE_APPEND);
"#;

#[test]
fn processes_that_live_for_50_ms_have_names() {
    if !can_profile() {
        return;
    }
    let Some(php) = php() else {
        return;
    };
    ShortLived {
        kind: KIND,
        command: "\"$0\" -n -r \"$1\"",
        program: &php,
        script: SHORT,
        function: "burn_shortly",
        no_name: "[php: no name]",
        is_found_late: false,
    }
    .check();
}

const PAGES: usize = 20;

/// A page at whose addresses other pages of the same size have their code: a file, a function and a method on lines of
/// their own.
fn page(number: usize) -> String {
    let (before, after) = ("\n".repeat(number), "\n".repeat(PAGES - number));
    format!(
        "<?php {before}class Page_{number:02} {{ static function run() {{ return array_sum(range(1, 500)); }} }}
         function page_{number:02}() {{ for ($i = 0; $i < 50; $i++) {{ Page_{number:02}::run(); array_sum(range(1, 500)); }} }}
         for ($i = 0; $i < 5; $i++) {{ page_{number:02}(); array_sum(range(1, 5000)); }} {after}"
    )
}

/// PHP compiles each page anew for each request, often at the addresses of another page.
#[test]
fn pages_do_not_mix_up_their_names() {
    if !can_profile() {
        return;
    }
    let Some(php) = php() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    for number in 0..PAGES {
        let file = directory.path().join(format!("page_{number:02}.php"));
        fs::write(file, page(number)).unwrap();
    }
    let address = free_address();
    let directory = directory.path().to_str().unwrap();
    let profiler = Profiler::start(499);
    let server = Running::start_quietly(&php, &["-n", "-S", &address.to_string(), "-t", directory]);
    let pid = server.pid();
    let is_done = AtomicBool::new(false);
    let profile = thread::scope(|scope| {
        scope.spawn(|| {
            for number in (0..PAGES).cycle() {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                request(address, &format!("/page_{number:02}.php"));
            }
        });
        let profile = profiler.until(TIMEOUT, |profile| samples_in(KIND, profile, pid) >= 1000);
        is_done.store(true, Ordering::Relaxed);
        profile
    });
    let (mut right, mut wrong, mut nameless, mut without_line) = (0, Vec::new(), 0, 0);
    for sample in profile.samples.iter().filter(|sample| sample.pid == pid) {
        let frames: Vec<_> = sample.frames.iter().filter(|it| it.kind == KIND).collect();
        let numbers = frames.iter().filter_map(|frame| {
            // Of the function or class, of the file, and of the line.
            let of_name = name(frame).to_lowercase();
            let of_name = of_name.strip_prefix("page_").and_then(|name| name.get(..2));
            let of_file = frame
                .source
                .0
                .rsplit_once("page_")
                .and_then(|(_, file)| file.get(..2));
            Some((
                of_name.or(of_file)?.parse().ok()?,
                of_file?.parse().ok()?,
                frame.source.1,
            ))
        });
        let numbers: Vec<(i64, i64, i64)> = numbers.collect();
        let Some((first, ..)) = numbers.first() else {
            continue;
        };
        let is_right = |(of_name, of_file, line): &(i64, i64, i64)| {
            // A page returns on its last line.
            // PHP frees the code of a page before it leaves it: no line is known then.
            let is_of_page =
                [0, PAGES as i64 + 3].contains(line) || (1..=3).contains(&(line - first));
            of_name == first && of_file == first && is_of_page
        };
        if numbers.iter().all(is_right) {
            right += sample.count;
            let lines = numbers.iter().map(|(.., line)| *line);
            without_line += usize::from(lines.min() == Some(0)) * sample.count;
        } else {
            let frames = frames.iter().map(|frame| (name(frame), &frame.source));
            wrong.push(format!("{:?}", frames.collect::<Vec<_>>()));
        }
        nameless += count_of(&frames, "[php: no name]") * sample.count;
    }
    println!(
        "{right} have the names of one page, {without_line} without a line, {nameless} were gone"
    );
    assert!(
        right > 500 && without_line * 50 < right && wrong.is_empty(),
        "{}: {wrong:#?}",
        wrong.len()
    );
}

fn count_of(frames: &[&Frame], expected: &str) -> usize {
    frames
        .iter()
        .filter(|frame| name(frame) == expected)
        .count()
}

/// Waits until the server answers.
fn request(address: SocketAddr, path: &str) {
    let answer = TcpStream::connect(address).and_then(|mut connection| {
        write!(connection, "GET {path} HTTP/1.0\r\n\r\n")?;
        connection.read_to_end(&mut Vec::new())
    });
    if answer.is_err() {
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn damage_in_an_interpreter_only_affects_its_frames() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(program) = workshop.build("fake_php", "cc -O1 -g -rdynamic fake_php.c") else {
        return;
    };
    let named = "[php: no name]";
    let unreadable = "[php: unreadable]";
    let damages = [
        ("none", &[named, named][..]),
        ("frame", &[named, unreadable]),
        ("function", &[named, unreadable]),
        ("huge", &[named, unreadable]),
        ("state", &[unreadable]),
        ("cycle", &[named; 100]),
    ];
    let profiler = Profiler::start(499);
    let running = damages.map(|(damage, expected)| {
        let running = Running::start(&program, &[damage]);
        (running.pid(), damage, expected, running)
    });
    let of = |profile: &Profile, pid: u32| {
        count(profile, |sample| {
            sample.pid == pid && !names(sample).is_empty() && !sample.is_before_table()
        })
    };
    let profile = profiler.until(TIMEOUT, |profile| {
        running.iter().all(|(pid, ..)| of(profile, *pid) > 30)
    });
    for (pid, damage, expected, _running) in running {
        let mut checked = 0;
        for sample in profile.samples.iter().filter(|sample| sample.pid == pid) {
            let names = names(sample);
            if names.is_empty() || sample.is_before_table() {
                continue;
            }
            checked += sample.count;
            if damage == "cycle" {
                assert!(names.len() > 250 && names.starts_with(expected));
                assert_eq!(sample.end_reason.as_deref(), Some("truncated"));
            } else {
                assert_eq!(names, expected, "{damage}");
                assert_eq!(sample.end_reason, None, "{damage}: {sample:?}");
            }
        }
        assert!(checked > 20, "{damage}: {checked}");
    }
}
