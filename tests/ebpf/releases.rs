//! Other releases of language runtimes, each in a file system of its own that `cargo xtask runtimes` unpacked.

use std::path::Path;

use profcol_test_harness::backend::wait_until;
use profcol_test_harness::installation::Installation;
use profcol_test_harness::toolchain::Workshop;

use crate::host::{Running, can_profile};
use crate::luajit::{COMPILED, INTERPRETED};
use crate::unknown_versions::described;
use crate::{beam, java, javascript, luajit, perl, php, python, ruby};

#[test]
#[ignore = "cargo xtask runtimes runs it"]
fn python_shows_exact_chains() {
    if !can_profile() {
        return;
    }
    python::check(&[9, 13, 14].map(|minor| {
        let program = format!("/usr/bin/python3.{minor}");
        let python = Installation::unpacked(&format!("python-3.{minor}"), program);
        (python, minor)
    }));
}

#[test]
#[ignore = "cargo xtask runtimes runs it"]
fn javascript_shows_exact_chains() {
    if !can_profile() {
        return;
    }
    // Debian's have V8 in a library.
    for release in ["node-20", "node-24"] {
        let node = Installation::unpacked(release, "/usr/bin/node");
        javascript::check(&node, &[], release);
    }
}

#[test]
#[ignore = "cargo xtask runtimes runs it"]
fn java_shows_exact_chains() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(classes) = java::classes(&workshop) else {
        return;
    };
    for major in [8, 11, 21, 25] {
        let program = format!("/usr/lib/jvm/java-{major}-openjdk-amd64/bin/java");
        let java = Installation::unpacked(&format!("java-{major}"), program);
        java::check(&java, &[], &classes);
        java::check(&java, &["-Xint"], &classes);
    }
}

#[test]
#[ignore = "cargo xtask runtimes runs it"]
fn ruby_shows_exact_chains() {
    if !can_profile() {
        return;
    }
    for version in ["2.7", "3.3", "3.4"] {
        let program = format!("/usr/bin/ruby{version}");
        let ruby = Installation::unpacked(&format!("ruby-{version}"), program);
        let mut commands = vec![(ruby.clone(), &[][..])];
        if ruby::has_yjit(&ruby) {
            commands.push((ruby, &["--yjit"]));
        }
        ruby::check(&commands);
    }
}

#[test]
#[ignore = "cargo xtask runtimes runs it"]
fn php_shows_exact_chains() {
    if !can_profile() {
        return;
    }
    for (major, minor) in [(7, 4), (8, 4), (8, 5)] {
        let program = format!("/usr/bin/php{major}.{minor}");
        let php = Installation::unpacked(&format!("php-{major}.{minor}"), program);
        php::check(&php, (major, minor));
    }
}

#[test]
#[ignore = "cargo xtask runtimes runs it"]
fn perl_shows_exact_chains() {
    if !can_profile() {
        return;
    }
    for release in ["perl-5.32", "perl-5.40", "perl-5.42"] {
        perl::check(&Installation::unpacked(release, "/usr/bin/perl"));
    }
}

#[test]
#[ignore = "cargo xtask runtimes runs it"]
fn lua_shows_exact_chains() {
    if !can_profile() {
        return;
    }
    for release in ["luajit-2025-01", "luajit-2025-10"] {
        let luajit = Installation::unpacked(release, "/usr/bin/luajit");
        for mode in [INTERPRETED, COMPILED] {
            luajit::check(&luajit, mode);
        }
    }
}

#[test]
#[ignore = "cargo xtask runtimes runs it"]
fn erlang_shows_exact_chains() {
    if !can_profile() {
        return;
    }
    beam::check(&erlang("otp-27"), &[]);
}

fn erlang(release: &str) -> beam::Erlang {
    let unpacked = |path: &Path| Installation::unpacked(release, path);
    beam::Erlang::find(unpacked).expect("no runtime")
}

/// Newer than those that profcol knows.
#[test]
#[ignore = "cargo xtask runtimes runs it"]
fn newer_ones_are_named_as_unsupported() {
    if !can_profile() {
        return;
    }
    let workshop = Workshop::open();
    let Some(classes) = java::classes(&workshop) else {
        return;
    };
    let python = Installation::unpacked("python-3.15", "/usr/bin/python3.15");
    let php = Installation::unpacked("php-8.6", "/usr/bin/php8.6");
    let java = "/usr/lib/jvm/java-26-openjdk-amd64/bin/java";
    let java = Installation::unpacked("java-26", java);
    let classes = classes.to_str().unwrap();
    let commands = [
        (
            python.command(),
            &["-c", "while True: pass"][..],
            "Python 3.15.",
        ),
        (php.command(), &["-n", "-r", "while (true);"], "PHP 8.6."),
        (
            java.command(),
            &["-cp", classes, "Calls", "200"],
            "HotSpot 26.0.",
        ),
        (erlang("otp-29").command(&["-noinput"]), &[], "Erlang"),
    ];
    for (mut command, arguments, version) in commands {
        let running = Running::of(command.args(arguments).spawn().unwrap());
        // Some begin as another program.
        wait_until(&format!("{version} to be unsupported"), || {
            let described = described(running.pid());
            let unsupported = described["profcol.runtime.unsupported"].as_str();
            unsupported.is_some_and(|it| it.contains(version))
        });
    }
}
