//! Interpreted functions in the files of exporters, as others read them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use profcol_test_harness::backend::wait_until;
use profcol_test_harness::calls::python::calls;
use profcol_test_harness::peers::profcol;
use profcol_test_harness::support::{root, skip};
use serde_json::{Value, json};

use crate::host::{Running, can_profile};
use crate::python::any_interpreter;

/// The line of the program with this text.
fn line_of(program: &Path, text: &str) -> usize {
    let source = fs::read_to_string(program).unwrap();
    let found = source.lines().position(|line| line == text);
    found.unwrap_or_else(|| panic!("no line {text:?}")) + 1
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = files.map(|file| file.path());
    // Not those that lock a folder.
    let is_hidden = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|it| it.to_string_lossy().starts_with('.'))
    };
    files.filter(|path| !is_hidden(path)).collect()
}

#[test]
fn files_have_lines_and_first_lines_of_interpreted_functions() {
    if !can_profile() {
        return;
    }
    let Some(python) = any_interpreter() else {
        return;
    };
    let program = calls(python.minor).path();
    let running = Running::start(&python.path, &[program.to_str().unwrap(), "200"]);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let process = profcol(&format!(
        "\
receivers:
  ebpf_cpu: {{interval: 500ms, frequency: 199}}
exporters:
  pprof_file: {{directory: {folder}/pprof, interval: 1s}}
  padata/v1: {{storage_path: {folder}/v1, schema: v1}}
  padata/v2: {{storage_path: {folder}/v2, schema: v2}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [ebpf_cpu], exporters: [pprof_file, padata/v1, padata/v2]}}
",
        folder = folder.path().display()
    ));
    wait_until("profiles of some seconds", || {
        files(&path("pprof")).len() > 3
    });
    let (status, said) = process.stop();
    assert!(status.success(), "{said}");
    drop(running);
    let lines = (
        line_of(&program, "def middle():"),
        line_of(&program, "    inner()  # calls"),
    );
    check_pprof(&files(&path("pprof")), &program, lines);
    for schema in ["v1", "v2"] {
        check_recordings(schema, &files(&path(schema)), &program, lines);
    }
}

/// By Go's tool.
fn check_pprof(files: &[PathBuf], program: &Path, (first, line): (usize, usize)) {
    let output = Command::new("go")
        .args(["tool", "pprof", "-symbolize=none", "-raw"])
        .args(files)
        .output();
    let Ok(output) = output else {
        skip("no go");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Other tests run programs with the same functions.
    let of_program = format!(" middle {}:", program.display());
    let expected = format!(" middle {}:{line}:0 s={first}", program.display());
    let found = text
        .lines()
        .filter(|line| line.contains(&of_program))
        .collect::<Vec<_>>();
    assert!(
        !found.is_empty() && found.iter().all(|line| line.contains(&expected)),
        "{expected}: {found:#?} {output:?}"
    );
}

/// By Arrow's own library: as Parca Agent describes such a function, without a file that is mapped.
fn check_recordings(
    schema: &str,
    files: &[PathBuf],
    program: &Path,
    (first, line): (usize, usize),
) {
    let output = Command::new("python3")
        .arg(root().join("tests/parca/read.py"))
        .arg("--function=middle")
        .args(files)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    if String::from_utf8_lossy(&output.stderr).contains("No module named 'pyarrow'") {
        skip("there is no Python with pyarrow");
        return;
    }
    let expected = json!({
        "type": "cpython",
        "mapping": if schema == "v1" { json!("") } else { Value::Null },
        "build_id": null,
        "file": program.to_str(),
        "line": line,
        "start_line": first,
    });
    let found = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let found = found.filter(|frame: &Value| frame["file"] == expected["file"]);
    let found: Vec<Value> = found.collect();
    assert_eq!(
        found,
        [expected],
        "{schema}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
