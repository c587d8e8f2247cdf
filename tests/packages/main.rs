//! The packages from a user's view: the Debian package and the RPM are installed, started, upgraded and removed on a host
//! with a real systemd; the image runs.
//!
//! `cargo xtask dist --test` makes them, and runs this. It needs root and the right to load BPF programs.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use profcol_test_harness::support::root;
use profcol_test_harness::systemd::Host;
use serde_json::Value;

/// Set by `cargo xtask dist --test`: the directory with the packages, next to those of the upgrade.
const PACKAGES: &str = "PROFCOL_PACKAGES";

/// Also set by it: the archive of a system.
const SYSTEM: &str = "PROFCOL_SYSTEMD";

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the script `steps` reports about the package and its upgrade, on a host. `None` if a host cannot run here.
fn reports(steps: &str, kind: &str) -> Option<Reports> {
    let (packages, next) = packages();
    let system = std::env::var_os(SYSTEM).unwrap();
    let mut host = Host::unpack(Path::new(&system))?;
    let suffix = format!(".{kind}");
    host.add(&ending(&packages, &suffix), &format!("trial/now.{kind}"));
    host.add(&ending(&next, &suffix), &format!("trial/next.{kind}"));
    for (file, place) in [(steps, "trial"), ("common", "common")] {
        let file = root().join("tests/packages").join(file);
        host.add(&file, &format!("trial/{place}"));
    }
    let units = root().join("tests/systemd/units");
    let unit = "etc/systemd/system/trial.service";
    host.add(&units.join("trial.service"), unit);
    host.link(
        "etc/systemd/system/multi-user.target.wants/trial.service",
        "../trial.service",
    );
    host.boot();
    let reports = Reports(host.wait_for("trial/report", "@done"));
    reports.assert(&[
        ("idle", "inactive disabled"),
        ("version", &format!("profcol {VERSION}")),
        ("valid", "yes"),
        (
            "started",
            "active notify dynamic yes /lib/systemd/system/profcol.service",
        ),
        // The unit's six capabilities.
        ("capabilities", "CapEff:\t000001c400080004"),
        ("kept", "# Mine. # Changed."),
        ("restarted", "active enabled"),
    ]);
    assert!(!reports.0.contains("@missed"), "{}", reports.0);
    println(&format!("a flame graph {:?}", reports.of("shown")));
    Some(reports)
}

struct Reports(String);

impl Reports {
    fn of(&self, name: &str) -> Vec<&str> {
        let begin = format!("@{name} ");
        let lines = self.0.lines();
        lines.filter_map(|line| line.strip_prefix(&begin)).collect()
    }

    fn assert(&self, expected: &[(&str, &str)]) {
        for (name, expected) in expected {
            assert_eq!(self.of(name), [*expected], "{name}:\n{}", self.0);
        }
    }
}

/// It does not start before it is enabled, then follows the unit, and leaves nothing behind.
#[test]
#[ignore = "cargo xtask dist --test runs it"]
fn the_debian_package_is_installed_started_upgraded_and_removed() {
    let Some(reports) = reports("debian", "deb") else {
        return;
    };
    reports.assert(&[
        ("installed", &format!("installed {VERSION}-1")),
        ("upgraded", &format!("installed {VERSION}-2")),
        ("removed", "inactive  /etc/profcol/config.yaml"),
        ("left", "."),
    ]);
}

/// Its scripts run with systemd alone, and with the helper that newer RPM distributions add.
#[test]
#[ignore = "cargo xtask dist --test runs it"]
fn the_rpm_is_installed_started_upgraded_and_removed() {
    let Some(reports) = reports("rpm", "rpm") else {
        return;
    };
    reports.assert(&[
        ("installed", &format!("{VERSION}-1")),
        ("upgraded", &format!("{VERSION}-2")),
        (
            "removed",
            "inactive not-found  /etc/profcol/config.yaml.rpmsave",
        ),
        ("links", "."),
    ]);
    assert_eq!(
        reports.of("asked"),
        [
            "install-system-units profcol.service",
            "mark-restart-system-units profcol.service",
            "remove-system-units profcol.service",
        ]
    );
}

#[test]
#[ignore = "cargo xtask dist --test runs it"]
fn lintian_reports_nothing() {
    let (packages, _) = packages();
    let mut lintian = Command::new("lintian");
    // It warns when run as root.
    lintian.args(["--allow-root", "--fail-on", "error,warning"]);
    let printed = output(lintian.arg(ending(&packages, ".deb")));
    println(&printed);
}

#[test]
#[ignore = "cargo xtask dist --test runs it"]
fn the_files_of_the_rpm_are_whole_in_a_root_of_its_own() {
    let (packages, next) = packages();
    let place = tempfile::tempdir().unwrap();
    // There is no shell to run scripts, which the test above does.
    let rpm = |arguments: &[&str], file: Option<&Path>| {
        let mut rpm = Command::new("rpm");
        rpm.arg("--root").arg(place.path());
        output(rpm.args(arguments).args(file))
    };
    let change = ["--nodeps", "--noscripts"];
    let file = ending(&packages, ".rpm");
    let query = |what: &str| {
        output(
            Command::new("rpm")
                .args(["--query", "--package", what])
                .arg(&file),
        )
    };
    let listed = query("--list");
    for place in [
        "/usr/bin/profcol",
        "/usr/lib/systemd/system/profcol.service",
        "/usr/share/man/man1/profcol-record.1.gz",
        "/usr/share/zsh/site-functions/_profcol",
        "/usr/share/licenses/profcol/LICENSE",
    ] {
        assert!(listed.lines().any(|it| it == place), "{place}:\n{listed}");
    }
    assert_eq!(query("--configfiles").trim(), "/etc/profcol/config.yaml");
    assert_eq!(
        query("--requires")
            .lines()
            .find(|it| !it.starts_with("rpmlib(")
                && !it.starts_with("/bin/sh")
                && !it.starts_with("config(")),
        None
    );

    rpm(&[&["--install"], &change[..]].concat(), Some(&file));
    assert_eq!(rpm(&["--verify", "--nodeps", "profcol"], None), "");
    let config = place.path().join("etc/profcol/config.yaml");
    let mine = fs::read_to_string(&config).unwrap() + "# Mine.\n";
    fs::write(&config, &mine).unwrap();
    let next = ending(&next, ".rpm");
    rpm(&[&["--upgrade"], &change[..]].concat(), Some(&next));
    assert_eq!(fs::read_to_string(&config).unwrap(), mine);
    assert!(config.with_file_name("config.yaml.rpmnew").exists());
    rpm(&["--erase", "--noscripts", "profcol"], None);
    assert!(!place.path().join("usr/bin/profcol").exists());
}

#[test]
#[ignore = "cargo xtask dist --test runs it"]
fn the_image_runs_and_is_minimal() {
    let (packages, _) = packages();
    let place = tempfile::tempdir().unwrap();
    let buildah = |arguments: &[&str]| {
        let mut buildah = Command::new("buildah");
        buildah.env("STORAGE_DRIVER", "vfs");
        for (option, directory) in [("--root", "root"), ("--runroot", "run")] {
            buildah.arg(option).arg(place.path().join(directory));
        }
        output(buildah.args(arguments)).trim().to_owned()
    };
    let archive = format!("oci-archive:{}", ending(&packages, ".oci.tar").display());
    let container = buildah(&["from", "--pull-never", &archive]);
    let run = ["run", "--isolation", "chroot", &container, "--"];
    let printed = buildah(&[&run[..], &["/usr/bin/profcol", "version"]].concat());
    assert_eq!(printed, format!("profcol {VERSION}"));
    let mounted = buildah(&["mount", &container]);
    let files = output(Command::new("find").args([&*mounted, "-type", "f", "-printf", "%P\\n"]));
    let files: BTreeSet<_> = files.lines().filter(|it| !it.starts_with("run/")).collect();
    let expected = BTreeSet::from([
        "etc/group",
        "etc/passwd",
        "etc/ssl/certs/ca-certificates.crt",
        "usr/bin/profcol",
        "usr/share/doc/profcol/rust-standard-library.html.gz",
        "usr/share/doc/profcol/third-party-licenses.txt.gz",
    ]);
    assert!(files.is_superset(&expected), "{files:?}");
    buildah(&["umount", &container]);
    let inspected: Value =
        serde_json::from_str(&buildah(&["inspect", "--type", "container", &container])).unwrap();
    assert_eq!(
        inspected["OCIv1"]["config"]["Entrypoint"][0],
        "/usr/bin/profcol"
    );
    buildah(&["rm", &container]);
}

/// `cargo xtask helm` renders the chart from such an archive.
#[test]
#[ignore = "cargo xtask dist --test runs it"]
fn the_chart_and_the_manifests_are_those_of_the_repository() {
    let (packages, _) = packages();
    for (archive, top, expected) in [
        (
            format!("profcol-{VERSION}.tgz"),
            "deploy/helm/profcol",
            ["Chart.yaml", "values.yaml", "templates/daemonset.yaml"],
        ),
        (
            format!("profcol-{VERSION}-kubernetes.tar.gz"),
            "",
            [
                "deploy/kubernetes/daemonset.yaml",
                "deploy/kubernetes/rights.yaml",
                "config-examples/kubernetes-daemonset.yaml",
            ],
        ),
    ] {
        let archive = packages.join(archive);
        let mut list = Command::new("tar");
        list.args(["--list", "--verbose", "--numeric-owner", "--file"]);
        let listed = output(list.arg(&archive));
        assert!(listed.lines().all(|it| it.contains(" 0/0 ")), "{listed}");
        let place = tempfile::tempdir().unwrap();
        let mut unpack = Command::new("tar");
        unpack.args(["--extract", "--strip-components=1", "--file"]);
        output(unpack.arg(&archive).arg("--directory").arg(place.path()));
        let mut find = Command::new("find");
        let found = output(
            find.arg(place.path())
                .args(["-type", "f", "-printf", "%P\\n"]),
        );
        let found: BTreeSet<_> = found.lines().collect();
        assert!(expected.iter().all(|it| found.contains(it)), "{found:?}");
        for file in found {
            let packed = fs::read(place.path().join(file)).unwrap();
            let ours = fs::read(root().join(top).join(file)).unwrap();
            assert!(packed == ours, "{file}");
        }
    }
}

#[test]
#[ignore = "cargo xtask dist --test runs it"]
fn the_sbom_is_complete() {
    let (packages, _) = packages();
    let text = fs::read_to_string(ending(&packages, ".cdx.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let components = document["components"].as_array().unwrap();
    let names: BTreeSet<_> = components
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    for name in ["ring", "zstd-sys", "profcol-engine", "rust-std", "aya"] {
        assert!(names.contains(name), "{name}");
    }
    for name in ["criterion", "proptest", "serde_derive", "cc"] {
        assert!(!names.contains(name), "{name}");
    }
    let mut references: BTreeSet<_> = components
        .iter()
        .map(|it| it["bom-ref"].as_str().unwrap())
        .collect();
    references.insert(
        document["metadata"]["component"]["bom-ref"]
            .as_str()
            .unwrap(),
    );
    for component in components {
        let name = component["name"].as_str().unwrap();
        let is_ours = name.starts_with("profcol") || name == "rust-std";
        assert_eq!(component["hashes"].is_null(), is_ours, "{name}");
        assert!(component["licenses"][0]["expression"].is_string(), "{name}");
    }
    for dependency in document["dependencies"].as_array().unwrap() {
        for reference in dependency["dependsOn"].as_array().unwrap() {
            assert!(
                references.contains(reference.as_str().unwrap()),
                "{reference}"
            );
        }
    }
}

#[test]
#[ignore = "cargo xtask dist --test runs it"]
fn the_checksums_match_the_files() {
    let (packages, _) = packages();
    let mut check = Command::new("sha256sum");
    check.args(["--check", "--strict", "SHA256SUMS"]);
    let printed = output(check.current_dir(&packages));
    let files = fs::read_dir(packages).unwrap().count();
    assert_eq!(printed.lines().count() + 1, files, "{printed}");
}

fn packages() -> (PathBuf, PathBuf) {
    let packages = std::env::var_os(PACKAGES).map(PathBuf::from);
    let packages = packages.expect("`cargo xtask dist --test` sets PROFCOL_PACKAGES");
    let next = packages.with_file_name("packages-next");
    (packages, next)
}

/// The only file in a directory with this suffix.
fn ending(directory: &Path, ending: &str) -> PathBuf {
    let files = fs::read_dir(directory).unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    let file = files.find(|path| path.to_str().unwrap().ends_with(ending));
    file.unwrap_or_else(|| panic!("no {ending} in {}", directory.display()))
}

fn output(command: &mut Command) -> String {
    let ran = command.output();
    let ran = ran.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdout = String::from_utf8(ran.stdout).unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{command:?}: {stdout}{errors}");
    stdout
}

#[expect(clippy::print_stdout, reason = "reports measurements")]
fn println(text: &str) {
    println!("{text}");
}
