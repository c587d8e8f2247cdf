//! Traces, spans and labels that programs keep in thread-local variables.

#![expect(clippy::print_stdout, reason = "the figures are of interest")]

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use profcol_profile::Link;
use profcol_test_harness::profile::{Profile, Sample, Symbols};
use profcol_test_harness::toolchain::Workshop;

use crate::host::{Profiler, Running, can_profile};

/// Far longer than an idle machine needs.
const TIMEOUT: Duration = Duration::from_secs(180);
const MIN_SAMPLES: usize = 100;

/// The program's functions, one for each thread.
const THREADS: [&str; 3] = ["traced", "labelled", "hostile"];

/// Samples of a thread.
fn of_thread<'a>(
    profile: &'a Profile,
    pid: u32,
    symbols: &mut Symbols,
    thread: &str,
) -> Vec<&'a Sample> {
    let samples = profile.samples.iter().filter(|sample| sample.pid == pid);
    let samples = samples.filter(|sample| {
        let mut names = sample.frames.iter().filter_map(|frame| symbols.name(frame));
        names.any(|name| name == thread)
    });
    samples.collect()
}

fn has_context(sample: &Sample) -> bool {
    !sample.labels.is_empty() || sample.link != Link::default()
}

#[test]
fn threads_have_their_trace_and_labels() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    // Debian's packages of newer versions have no unversioned command.
    let clang = match Command::new("clang").arg("--version").output() {
        Ok(_) => "clang -O1 -pthread -rdynamic contexts.c",
        Err(_) => "clang-22 -O1 -pthread -rdynamic contexts.c",
    };
    let mut programs = Vec::new();
    for (name, command) in [
        ("contexts", "gcc -O1 -pthread -rdynamic contexts.c"),
        (
            "contexts_fixed",
            "gcc -O1 -pthread -no-pie -rdynamic contexts.c",
        ),
        ("contexts_clang", clang),
        ("contexts_static", "gcc -O1 -pthread -static contexts.c"),
        // Has dynamic symbols, but not those of the program.
        (
            "contexts_static_pie",
            "gcc -O1 -pthread -static-pie contexts.c",
        ),
        (
            "contexts_musl",
            "musl-gcc -O1 -pthread -rdynamic contexts.c",
        ),
        (
            "contexts_musl_static",
            "musl-gcc -O1 -pthread -static contexts.c",
        ),
    ] {
        programs.extend(
            workshop
                .build(name, command)
                .map(|path| Program::new(name, path)),
        );
    }
    for options in ["frequency: 997", "frequency: 997, aggregation: count"] {
        check(&programs, options);
    }
}

/// Of a library: its name, and how it is built.
const LIBRARIES: [(&str, &str); 7] = [
    (
        "libcontexts_descriptor.so",
        "gcc -O1 -fPIC -shared -mtls-dialect=gnu2 context_library.c",
    ),
    // Too large for the room that glibc reserves beside the thread pointer.
    (
        "libcontexts_large.so",
        "gcc -O1 -fPIC -shared -mtls-dialect=gnu2 -DNUMBER=1000 context_library.c",
    ),
    (
        "libcontexts_module.so",
        "gcc -O1 -fPIC -shared -mtls-dialect=gnu context_library.c",
    ),
    (
        "libcontexts_block.so",
        "gcc -O1 -fPIC -shared -ftls-model=local-dynamic context_library.c",
    ),
    (
        "libcontexts_distance.so",
        "gcc -O1 -fPIC -shared -ftls-model=initial-exec context_library.c",
    ),
    (
        "libcontexts_musl.so",
        "musl-gcc -O1 -fPIC -shared -mtls-dialect=gnu context_library.c",
    ),
    (
        "libcontexts_musl_descriptor.so",
        "musl-gcc -O1 -fPIC -shared -mtls-dialect=gnu2 context_library.c",
    ),
];

#[test]
fn variables_may_be_in_libraries() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let (mut opening, mut linked) = (Vec::new(), Vec::new());
    for (name, command) in LIBRARIES {
        let compiler = command.split(' ').next().unwrap();
        let library = format!("{command} -Wl,-soname,{name}");
        let opens = format!("{compiler} -O1 -pthread -DOPENED contexts.c");
        let needs =
            format!("{compiler} -O1 -pthread -DLINKED contexts.c @{name} -Wl,-rpath,$ORIGIN");
        let (Some(library), Some(opens), Some(needs)) = (
            workshop.build(name, &library),
            workshop.build(&format!("opens_{name}"), &opens),
            workshop.build(&format!("needs_{name}"), &needs),
        ) else {
            continue;
        };
        opening.push(Program {
            arguments: vec![library.to_str().unwrap().to_owned()],
            ..Program::new(&format!("{name}, opened"), opens)
        });
        linked.push(Program::new(&format!("{name}, needed"), needs));
    }
    check(&opening, "frequency: 997");
    check(&linked, "frequency: 997, aggregation: count");
}

#[test]
fn a_library_may_be_opened_late() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let [(name, command), ..] = LIBRARIES;
    let (Some(library), Some(program)) = (
        workshop.build(name, command),
        workshop.build("opens_late", "gcc -O1 -pthread -DOPENED contexts.c"),
    ) else {
        return;
    };
    let library = library.to_str().unwrap().to_owned();
    let program = Program {
        arguments: vec!["5".to_owned(), library],
        ..Program::new("opened late", program)
    };
    check(&[program], "frequency: 997");
}

#[test]
fn a_closed_library_leaves_no_contexts() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let [_, (name, command), ..] = LIBRARIES;
    let (Some(library), Some(other), Some(program)) = (
        workshop.build(name, command),
        workshop.build("libcontexts_other.so", command),
        workshop.build("closes", "gcc -O1 -pthread -DOPENED contexts.c"),
    ) else {
        return;
    };
    // The other one gets the number of the closed one, and the threads still have that one's blocks.
    let paths = [&library, &other].map(|path| path.to_str().unwrap());
    let arguments = [paths[0], "start", "15", "close", paths[1], "600"];
    let profiler = Profiler::start_with("frequency: 997");
    let running = Running::start(&program, &arguments);
    let pid = running.pid();
    let mut symbols = Symbols::read(&program);
    let mut had_contexts = |profile: &Profile, thread: &str| {
        let samples = of_thread(profile, pid, &mut symbols, thread);
        let have: Vec<bool> = samples.iter().map(|it| has_context(it)).collect();
        let last = have.iter().rposition(|&has| has).unwrap_or(0);
        println!(
            "{thread}: the last context is in sample {last} of {}",
            have.len()
        );
        let count = have.iter().filter(|&&has| has).count();
        count > MIN_SAMPLES / 4 && have.len() - last > MIN_SAMPLES
    };
    let profile = profiler.until(TIMEOUT, |profile| {
        ["traced", "labelled"]
            .iter()
            .all(|thread| had_contexts(profile, thread))
    });
    drop(running);
    for thread in ["traced", "labelled"] {
        assert!(had_contexts(&profile, thread), "{thread}");
    }
}

/// A program whose threads have contexts.
struct Program {
    name: String,
    path: PathBuf,
    arguments: Vec<String>,
}

impl Program {
    fn new(name: &str, path: PathBuf) -> Self {
        Self {
            name: name.to_owned(),
            path,
            arguments: Vec::new(),
        }
    }
}

/// Profiles all programs at once until each of their threads has enough samples, and checks the contexts.
fn check(programs: &[Program], options: &str) {
    let running = programs.iter().map(|program| {
        let running = Running::start(&program.path, &program.arguments);
        (running, Symbols::read(&program.path))
    });
    let mut running: Vec<(Running, Symbols)> = running.collect();
    let profile = Profiler::start_with(options).until(TIMEOUT, |profile| {
        running.iter_mut().all(|(running, symbols)| {
            THREADS.iter().all(|thread| {
                let of_thread = of_thread(profile, running.pid(), symbols, thread);
                let samples = of_thread.iter().map(|sample| sample.count).sum::<usize>();
                let have = of_thread.iter().filter(|it| has_context(it));
                let with_context = have.map(|sample| sample.count).sum::<usize>();
                samples > MIN_SAMPLES && (with_context > MIN_SAMPLES / 2 || *thread == "hostile")
            })
        })
    });
    for (program, (running, symbols)) in programs.iter().zip(&mut running) {
        let what = format!("{}, {options}", program.name);
        check_contexts(&what, &profile, running.pid(), symbols);
    }
}

fn check_contexts(name: &str, profile: &Profile, pid: u32, symbols: &mut Symbols) {
    let link = Link {
        trace_id: std::array::from_fn(|at| 16 + at as u8),
        span_id: std::array::from_fn(|at| 64 + at as u8),
    };
    let traced = of_thread(profile, pid, symbols, "traced");
    let labelled = of_thread(profile, pid, symbols, "labelled");
    let hostile = of_thread(profile, pid, symbols, "hostile");
    let forger = of_thread(profile, pid, symbols, "forger");
    let with_context = |samples: &[&Sample]| {
        samples
            .iter()
            .filter(|it| has_context(it))
            .map(|it| it.count)
            .sum::<usize>()
    };
    println!(
        "{name}: {} traced, {} labelled, {} hostile, {} forger",
        with_context(&traced),
        with_context(&labelled),
        with_context(&hostile),
        with_context(&forger)
    );
    // The programs learn within seconds where the contexts are.
    assert!(with_context(&traced) > MIN_SAMPLES / 4, "{name}");
    assert!(with_context(&labelled) > MIN_SAMPLES / 4, "{name}");
    let mut with_attributes = 0;
    for sample in traced.iter().filter(|it| has_context(it)) {
        let labels: Vec<_> = sample.labels.iter().collect();
        assert_eq!(sample.link, link, "{name}");
        // The keys of an executable's attributes may be found later than its records.
        if !labels.is_empty() {
            let [(key, value)] = *labels else {
                panic!("{name}: {labels:?}");
            };
            assert_eq!((&**key, &**value), ("route", "/shop"), "{name}");
            with_attributes += sample.count;
        }
    }
    assert!(
        with_attributes > MIN_SAMPLES / 4,
        "{name}: {with_attributes}"
    );
    let expected = [("route", "/cart"), ("tenant", "acme")];
    for sample in labelled.iter().filter(|it| has_context(it)) {
        let labels = sample.labels.iter();
        let labels: Vec<(&str, &str)> = labels.map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(
            (&*labels, sample.link),
            (&expected[..], Link::default()),
            "{name}"
        );
    }
    for sample in hostile.iter().chain(&forger) {
        assert!(sample.labels.len() <= 10, "{name}: {:?}", sample.labels);
        assert!(
            sample.labels.values().all(|value| value.len() <= 3 * 128),
            "{name}"
        );
    }
}
