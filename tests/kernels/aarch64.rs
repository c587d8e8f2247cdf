//! aarch64: programs with known chains, with signed return addresses, on kernels with 48-bit addresses and tables in
//! blocks, and with 52-bit addresses and an arena; and programs of interpreted languages.

use std::fs;
use std::path::Path;

use profcol_test_harness::calls::{javascript, names_of, php, python};
use profcol_test_harness::judge::{MinSamples, Subject};
use profcol_test_harness::profile::{Profile, Sample};
use profcol_test_harness::programs::{Program, program};
use profcol_test_harness::toolchain::Workshop;

use crate::guest::{AARCH64, Guest};
use crate::{check_run, kernels};

/// Set by `cargo xtask kernels`: profcol for aarch64.
const PROFCOL: &str = "PROFCOL_AARCH64";

const CONFIG: &str = "\
receivers:
  ebpf_cpu:
    frequency: 199
    interval: 1s
    # Its own table is the largest of all, and not what is looked at.
    exclude: [{executable: /bin/profcol}]
exporters:
  file: {path: /tmp/profiles.jsonl}
service:
  telemetry: {metrics: {level: none}, logs: {level: debug}}
  pipelines:
    profiles: {receivers: [ebpf_cpu], exporters: [file]}
";

/// The libraries of Debian's cross compiler.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu/lib";

/// Low, since all programs share an emulated machine.
const MIN_SAMPLES: MinSamples = MinSamples {
    all: 30,
    of_chain: 1,
};

const PLAIN: &str = "leaf inner middle outer main .. _start";
const SIGNAL: &str = "hot on_signal [vdso] fault inner outer main .. _start";

#[rustfmt::skip]
fn programs() -> Vec<Program> {
    vec![
        program("c", "aarch64-linux-gnu-gcc -O2 -fomit-frame-pointer plain.c", PLAIN),
        program("c++", "aarch64-linux-gnu-g++ -O2 -fomit-frame-pointer -static chain.cc", PLAIN),
        program("unoptimized", "aarch64-linux-gnu-gcc -O0 plain.c", PLAIN),
        program("debug-frame", "aarch64-linux-gnu-gcc -O2 -fomit-frame-pointer -fno-asynchronous-unwind-tables -g plain.c", PLAIN),
        program("frame-pointers-only", "aarch64-linux-gnu-gcc -O1 -fno-asynchronous-unwind-tables -fno-omit-frame-pointer plain.c", PLAIN),
        program("signed", "aarch64-linux-gnu-gcc -O2 -fomit-frame-pointer -mbranch-protection=standard plain.c", PLAIN),
        program("signed-leaves", "aarch64-linux-gnu-gcc -O2 -mbranch-protection=pac-ret+leaf+b-key plain.c", PLAIN),
        program("signed-frame-pointers-only", "aarch64-linux-gnu-gcc -O1 -mbranch-protection=pac-ret+leaf -fno-asynchronous-unwind-tables -fno-omit-frame-pointer plain.c", PLAIN),
        program("freestanding", "aarch64-linux-gnu-gcc -O2 -fomit-frame-pointer -nostdlib -static -ffreestanding freestanding.c", "leaf inner _start"),
        program("go", "GOARCH=arm64 go chain.go", "main.leaf main.inner main.outer main.spin main.main runtime.main runtime.goexit.abi0")
            .and("main.leaf main.inner main.outer main.spin main.work runtime.goexit.abi0"),
        program("plt", "aarch64-linux-gnu-gcc -O2 plt.c @library.so -Wl,-z,lazy", "plt spin outer main .. _start")
            .and("step spin outer main .. _start")
            .needs("library.so", "aarch64-linux-gnu-gcc -O2 -shared -fPIC library.c"),
        program("signal-stack-below", "aarch64-linux-gnu-gcc -O2 -DON_STACK=-1 signal.c", SIGNAL),
        program("signal-stack-above", "aarch64-linux-gnu-gcc -O2 -DON_STACK=1 -mbranch-protection=standard signal.c", SIGNAL),
        program("vdso", "aarch64-linux-gnu-gcc -O2 vdso.c", "[vdso] ? ask main .. _start"),
        program("starts", "aarch64-linux-gnu-gcc -O2 starts.c", "leaf inner main .. _start")
            .and("leaf inner coroutine ?").and("leaf inner thread ? ?"),
        program("generated", "aarch64-linux-gnu-gcc -O2 generated.c", "leaf [anon] call main .. _start"),
    ]
}

#[test]
#[ignore = "cargo xtask kernels runs it"]
fn samples_aarch64_on_linux_6_1() {
    check("6.1", "blocks");
}

#[test]
#[ignore = "cargo xtask kernels runs it"]
fn samples_aarch64_on_linux_6_12() {
    check("6.12", "arena");
}

/// Each kind of call of CPython, PHP and Node.js, as on x86-64.
#[test]
#[ignore = "cargo xtask kernels runs it"]
fn samples_interpreters_of_aarch64() {
    let version = "6.12";
    let directory = kernels().join("aarch64");
    let guest = guest(&directory);
    let mut list = String::new();
    let languages = [
        (
            "python",
            "/usr/bin/python3.11",
            "-S",
            &[("SLICE_NS = 20_000_000", "SLICE_NS = 200_000_000")][..],
            python::calls(11),
        ),
        (
            "php",
            "/usr/bin/php8.2",
            "-n",
            &[
                ("SLICE = 20_000_000", "SLICE = 200_000_000"),
                (
                    "return number_format(microtime(true) * 1_000_000, 0, '', '') . '000';",
                    "return 0;",
                ),
            ],
            php::calls(),
        ),
        (
            "node",
            "/usr/bin/node",
            "--no-warnings",
            &[
                ("SLICE_MS = 20", "SLICE_MS = 200"),
                ("usage.call(process)", "{ user: 0, system: 0 }"),
            ],
            javascript::calls(),
        ),
    ];
    for (name, executable, option, changes, calls) in &languages {
        guest.add_all(&directory.join(name));
        let program = calls.path();
        guest.add(&program, &program);
        // What programs do between their chains takes longer on an emulated machine, so the chains take longer, too. Nobody
        // reads their account, so the clocks for it go.
        let mut text = fs::read_to_string(&program).unwrap();
        for (before, after) in *changes {
            assert!(text.contains(before), "{before}");
            text = text.replacen(before, after, 1);
        }
        guest.write(program.strip_prefix("/").unwrap().to_str().unwrap(), &text);
        list += &format!("{executable} {option} {} 600\n", program.display());
    }
    guest.write("etc/programs", &list);
    let ran = guest.boot(&directory.join(version).join("vmlinuz"), "cpu_seconds=25");

    check_run(&ran, version, "arena");
    let mut profile = Profile::default();
    profile.read_on(&ran.profiles);
    for (name, executable, _, _, calls) in &languages {
        let samples = profile.samples.iter();
        let samples = samples.filter(|sample| sample.executable == *executable);
        let has_begun = |sample: &Sample| {
            let mut names = names_of(calls.kind, sample).into_iter();
            names.any(|name| name.starts_with("by_"))
        };
        let samples: Vec<Sample> = samples.skip_while(|it| !has_begun(it)).cloned().collect();
        let pid = samples.first().map(|sample| sample.pid);
        let pid = pid.unwrap_or_else(|| panic!("no {name}: {}", ran.reported("output")));
        calls.check_chains(&Profile::of(samples), pid, &format!("{name} on aarch64"));
    }
}

fn guest(directory: &Path) -> Guest {
    let profcol = std::env::var_os(PROFCOL).expect("`cargo xtask kernels` sets PROFCOL_AARCH64");
    let script = include_str!("init-aarch64");
    let guest = Guest::new(AARCH64, &directory.join("busybox"), script, CONFIG);
    guest.add_program(Path::new(&profcol), "profcol");
    guest
}

#[expect(clippy::print_stdout, reason = "what was measured is of interest")]
fn check(version: &str, tables: &str) {
    let kernels = kernels();
    let only = std::env::var("PROGRAM").unwrap_or_default();
    let workshop = Workshop::open();
    let mut subjects: Vec<Subject> = programs()
        .into_iter()
        .filter(|program| program.name.contains(&only))
        .map(|program| {
            let files = workshop.build_all(&program).unwrap();
            Subject::new(program, files)
        })
        .collect();

    let directory = kernels.join("aarch64");
    let guest = guest(&directory);
    for library in ["ld-linux-aarch64.so.1", "libc.so.6"] {
        let file = Path::new(LIBRARIES).join(library);
        guest.add(&file, &Path::new("/lib").join(library));
    }
    let mut list = String::new();
    for subject in &subjects {
        // At the same paths as here: some programs contain the path of a library.
        for file in &subject.files {
            guest.add(file, file);
        }
        list += &format!("{}\n", subject.executable().display());
    }
    guest.write("etc/programs", &list);
    let ran = guest.boot(&directory.join(version).join("vmlinuz"), "");

    check_run(&ran, version, tables);
    // Otherwise return addresses are not signed.
    let features = ran.reported("features");
    assert!(features.contains(" paca"), "{features}");
    let mut profile = Profile::default();
    profile.read_on(&ran.profiles);
    let mut failed = String::new();
    for subject in &mut subjects {
        let verdict = subject.judge(&profile);
        let text = verdict.describe(subject.program.name);
        print!("{version} {text}");
        if !verdict.is_right(&subject.program, MIN_SAMPLES) {
            failed += &text;
        }
    }
    assert!(failed.is_empty(), "\n{failed}{}", ran.reported("output"));
}
