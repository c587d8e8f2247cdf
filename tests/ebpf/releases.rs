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
    let releases = [("python-3.9", 9), ("python-3.13", 13), ("python-3.14", 14)];
    python::check(&releases.map(|(release, minor)| (versioned(release), minor)));
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
    for release in ["java-8", "java-11", "java-21", "java-25"] {
        let java = jdk(release);
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
    for release in ["ruby-2.7", "ruby-3.3", "ruby-3.4"] {
        let ruby = versioned(release);
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
    for release in ["php-7.4", "php-8.4", "php-8.5"] {
        php::check(&versioned(release));
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

/// `php-8.4` has `/usr/bin/php8.4`.
fn versioned(release: &str) -> Installation {
    let program = release.replace('-', "");
    Installation::unpacked(release, format!("/usr/bin/{program}"))
}

fn jdk(release: &str) -> Installation {
    let program = format!("/usr/lib/jvm/{release}-openjdk-amd64/bin/java");
    Installation::unpacked(release, program)
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
    let [python, php] = ["python-3.15", "php-8.6"].map(versioned);
    let java = jdk("java-26");
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
