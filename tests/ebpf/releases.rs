//! Other releases of language runtimes, each in a file system of its own that `cargo xtask runtimes` unpacked.

use std::path::Path;

use profcol_test_harness::installation::Installation;
use profcol_test_harness::toolchain::Workshop;

use crate::host::can_profile;
use crate::luajit::{COMPILED, INTERPRETED};
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
    for release in ["luajit-2025-01", "luajit-2025-10", "luajit-2026-08"] {
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
    let release = "otp-27";
    let unpacked = |path: &Path| Installation::unpacked(release, path);
    let erlang = beam::Erlang::find(unpacked).expect("no runtime");
    beam::check(&erlang, &[]);
}
