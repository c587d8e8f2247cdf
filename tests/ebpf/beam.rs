//! Erlang functions appear in exact call chains.

#![expect(clippy::print_stdout, reason = "the figures are of interest")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use profcol_test_harness::backend::wait_until;
use profcol_test_harness::calls::clock::Clock;
use profcol_test_harness::installation::Installation;
use profcol_test_harness::profile::Sample;
use profcol_test_harness::support::skip;
use profcol_test_harness::toolchain::Workshop;

use crate::calls::{Calls, ShortLived, chain_of, check_isolated, count, name, names_of};
use crate::host::{Profiler, Running, can_profile};

/// Enough to sample each chain often.
const MIN_SAMPLES: usize = 700;
/// Far longer than an idle machine needs.
const TIMEOUT: Duration = Duration::from_secs(180);

const KIND: &str = "beam";
const PROGRAM: &str = "calls.erl";
const NO_NAME: &str = "[beam: no name]";

/// The chains of `calls.erl`, innermost first, without modules and arities.
const CHAINS: &[&[&str]] = &[
    &["burn", "inner", "middle", "by_call"],
    &["burn", "-by_fun/0-fun-0-", "enter", "by_fun"],
    &["burn", "-by_map/0-fun-0-", "by_map"],
    &["burn", "-by_fold/0-fun-0-", "by_fold"],
    &["burn", "-by_sort/0-fun-0-", "by_sort"],
    &["burn", "-by_comprehension/0-lc$^0/1-0-", "by_comprehension"],
    &["burn", "inner", "by_apply"],
    &["burn", "inner", "by_name"],
    &["burn", "by_catch"],
    &["burn", "by_exception"],
    &["burn", "by_after"],
    &["burn", "-by_map_fold/0-fun-0-", "by_map_fold"],
    &["burn", "by_variables"],
    &["burn", "by_float"],
    &["burn", "by_größe"],
    &["garbage", "by_garbage"],
    &["builtin", "by_builtin"],
];
/// Runs in processes of its own.
const PROCESS: &str = "by_process";

fn calls() -> Calls {
    Calls {
        kind: KIND,
        program: PROGRAM,
        // And recursion, and processes.
        ways: CHAINS.len() + 2,
        chain: Box::new(|way| match way {
            PROCESS => ["burn", PROCESS].map(str::to_owned).to_vec(),
            _ => chain_of(way, CHAINS, &["main"]),
        }),
        is_of_program: |frame| frame.source.0.ends_with(PROGRAM),
        name: |name| {
            let function = name.strip_prefix("calls:").unwrap_or(name);
            function.rsplit_once('/').map_or(function, |(name, _)| name)
        },
        is_elsewhere: |_| false,
        ends: &[],
        // Callers are missing in some samples of C functions.
        flawed: &["by_builtin"],
        // The one that calls a C function through shared code.
        lacking: 3,
        is_scheduled: true,
        is_of_thread: |_| true,
    }
}

const ERLEXEC: &str = "erlexec";

/// The emulator's starter in `/usr/lib/erlang`, as the script `erl` runs it: the process becomes the one to profile.
pub struct Erlang {
    starter: Installation,
    directory: PathBuf,
}

impl Erlang {
    /// `installed` makes an installation of a program of this path.
    pub fn find(installed: impl Fn(&Path) -> Installation) -> Option<Self> {
        let library = Path::new("/usr/lib/erlang");
        let releases = installed(library).path_of("/usr/lib/erlang");
        let mut entries = fs::read_dir(releases).ok()?.flatten();
        let runtime = entries.find(|it| it.file_name().to_string_lossy().starts_with("erts-"))?;
        let directory = library.join(runtime.file_name()).join("bin");
        Some(Self {
            starter: installed(&directory.join(ERLEXEC)),
            directory,
        })
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.starter.command();
        command
            .args(arguments)
            .env("ROOTDIR", "/usr/lib/erlang")
            .env("BINDIR", &self.directory)
            .env("EMU", "beam")
            .env("PROGNAME", "erl")
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::null());
        command
    }
}

/// This machine's Erlang.
fn any_erlang() -> Option<Erlang> {
    let found = Erlang::find(|path| Installation::of_this_machine(path));
    if found.is_none() {
        skip("no Erlang: install erlang-base");
    }
    found
}

fn names(sample: &Sample) -> Vec<&str> {
    names_of(KIND, sample)
}

/// Newer releases run the code of older ones.
fn compile(source: &Path, directory: &Path) {
    let compiled = Command::new("erlc")
        .arg("-o")
        .arg(directory)
        .arg(source)
        .status();
    assert!(compiled.is_ok_and(|status| status.success()), "erlc failed");
}

pub fn check(erlang: &Erlang, options: &[&str]) {
    let calls = calls();
    let workshop = Workshop::open();
    let directory = workshop.path("beam");
    fs::create_dir_all(&directory).unwrap();
    compile(&calls.path(), &directory);
    let clock = Clock::new();
    let path = directory.display().to_string();
    let account = clock.path().display().to_string();
    let program = [
        "-noinput", "-pa", &path, "-run", "calls", "main", "200", &account,
    ];
    // Schedulers would take CPU time while they wait for work.
    let idle = "+sbwt none +sbwtdcpu none +sbwtdio none".split(' ');
    let idle: Vec<&str> = idle.collect();
    let running = erlang
        .command(&[options, &idle, &program].concat())
        .spawn()
        .unwrap();
    let running = Running::of(running);
    let pid = running.pid();
    wait_until(&format!("{} to start", erlang.starter), || {
        clock.has_begun()
    });
    let is_of_program = |sample: &Sample| {
        sample.pid == pid && names(sample).iter().any(|name| name.starts_with("calls:"))
    };
    let profile = Profiler::start(199).until(TIMEOUT, |profile| {
        count(profile, is_of_program) >= MIN_SAMPLES
    });
    drop(running);
    let what = format!("{} {}", erlang.starter, options.join(" "));
    calls.check(&profile, pid, &clock, &what);
}

#[test]
fn shows_exact_chains() {
    if !can_profile() {
        return;
    }
    if let Some(erlang) = any_erlang() {
        check(&erlang, &[]);
    }
}

/// The names that the runtime itself gives to its code do not matter, and neither do its frame pointers.
#[test]
fn code_with_frame_pointers_shows_exact_chains() {
    if !can_profile() {
        return;
    }
    let Some(erlang) = any_erlang() else {
        return;
    };
    check(&erlang, &["+JPperf", "true"]);
}

/// Each process burns for some tenths of a second, after the start of the emulator.
#[test]
fn short_lived_emulators_have_names() {
    if !can_profile() {
        return;
    }
    let Some(_) = any_erlang() else {
        return;
    };
    let burn = r#"
        F = fun Burn(0) -> ok; Burn(N) -> _ = lists:sum(lists:seq(1, 100)), Burn(N - 1) end,
        {Start, {Cpu, _}} = {os:system_time(nanosecond), erlang:statistics(runtime)},
        F(300000),
        {Stop, {Used, _}} = {os:system_time(nanosecond), erlang:statistics(runtime)},
        Ns = (Used - Cpu) * 1000000,
        Line = io_lib:format("~s ~b ~b ~b ~b~n", [os:getpid(), Start, Stop, Ns, Ns]),
        %% The test may have ended.
        _ = file:write_file(os:getenv("PROFCOL_TEST_CLOCK"), Line, [append]),
        halt()."#;
    ShortLived {
        kind: KIND,
        command: "\"$0\" -noinput +sbwt none +sbwtdcpu none +sbwtdio none -eval \"$1\"",
        program: Path::new("erl"),
        script: burn,
        function: "erl_eval:",
        no_name: NO_NAME,
        is_found_late: true,
    }
    .check();
}

/// Loads a module again and again, whose functions have other names and lines each time.
const CHURN: &str = r##"
-module(churn).
-export([main/1]).

main([Seconds]) ->
    loop(0, erlang:monotonic_time(millisecond) + list_to_integer(Seconds) * 1000).

loop(Number, Until) ->
    Name = list_to_atom("made_" ++ integer_to_list(Number rem 50)),
    Line = Number rem 50 + 1,
    Forms = [{attribute, Line, file, {"made.erl", Line}},
             {attribute, Line, module, made},
             {attribute, Line, export, [{Name, 1}]},
             {function, Line, Name, 1,
              [{clause, Line, [{integer, Line, 0}], [], [{atom, Line, done}]},
               {clause, Line, [{var, Line, 'N'}], [],
                [{match, Line, {var, Line, '_'},
                  {call, Line, {remote, Line, {atom, Line, erlang}, {atom, Line, phash2}}, [{var, Line, 'N'}]}},
                 {call, Line, {atom, Line, Name}, [{op, Line, '-', {var, Line, 'N'}, {integer, Line, 1}}]}]}]}],
    {ok, made, Code} = compile:forms(Forms, []),
    {module, made} = code:load_binary(made, "made.erl", Code),
    made:Name(200000),
    true = code:purge(made) orelse true,
    case erlang:monotonic_time(millisecond) < Until of
        true -> loop(Number + 1, Until);
        false -> halt()
    end.
"##;

#[test]
fn code_that_replaces_other_code_does_not_mix_up_names() {
    if !can_profile() {
        return;
    }
    let Some(erlang) = any_erlang() else {
        return;
    };
    let workshop = Workshop::open();
    let directory = workshop.path("churn");
    fs::create_dir_all(&directory).unwrap();
    let source = directory.join("churn.erl");
    fs::write(&source, CHURN).unwrap();
    compile(&source, &directory);
    let profiler = Profiler::start(199);
    let path = directory.display().to_string();
    let program = ["-noinput", "-pa", &path, "-run", "churn", "main", "200"];
    let running = Running::of(erlang.command(&program).spawn().unwrap());
    let pid = running.pid();
    let is_made = |sample: &Sample| {
        sample.pid == pid && names(sample).iter().any(|name| name.starts_with("made:"))
    };
    let profile = profiler.until(TIMEOUT, |profile| count(profile, is_made) >= 1000);
    drop(running);
    let (mut right, mut wrong, mut nameless, mut numbers) = (0, 0, 0, BTreeSet::new());
    for sample in profile.samples.iter().filter(|sample| sample.pid == pid) {
        for frame in sample.frames.iter().filter(|frame| frame.kind == KIND) {
            let number = name(frame).strip_prefix("made:made_");
            let number = number.and_then(|rest| rest.strip_suffix("/1")?.parse::<i64>().ok());
            if let Some(number) = number {
                let is_right = frame.source.1 == number + 1;
                *(if is_right { &mut right } else { &mut wrong }) += sample.count;
                numbers.insert(number);
            }
            nameless += usize::from(name(frame) == NO_NAME) * sample.count;
        }
    }
    let found = numbers.len();
    println!(
        "{right} of {found} functions have the line of their name, {wrong} have not, {nameless} were gone"
    );
    assert!(right > 300 && found > 20 && wrong == 0, "{wrong}");
}

#[test]
fn names_functions_in_another_root_and_pid_namespace() {
    if !can_profile() {
        return;
    }
    let Some(_) = any_erlang() else {
        return;
    };
    let workshop = Workshop::open();
    let directory = workshop.path("isolated");
    fs::create_dir_all(&directory).unwrap();
    compile(&calls().path(), &directory);
    let command = format!(
        "erl -noinput -pa {directory} -run calls main 200 {directory}/up",
        directory = directory.display()
    );
    check_isolated(KIND, &command, NO_NAME, |sample| {
        let names = names(sample);
        names.contains(&"calls:burn/1")
            && names.last().is_some_and(|name| name.starts_with("init:"))
    });
}
