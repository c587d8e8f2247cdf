//! The recorded requests of real and synthetic profilers, read where they lie.

use std::path::{Path, PathBuf};

use bytes::Bytes;

/// All recorded requests by name; none, with a line that says so, where they are not there.
pub fn requests() -> Vec<(String, Bytes)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden/otlp");
    if !root.exists() {
        assert!(
            std::env::var_os("CI").is_none_or(|ci| ci != "true"),
            "no recorded requests at {}",
            root.display()
        );
        eprintln!("skipped: no recorded requests at {}", root.display());
        return Vec::new();
    }
    let mut files: Vec<PathBuf> = ["profiler", "generated"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(root.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pb"))
        .collect();
    files.sort();
    assert_eq!(files.len(), 16);
    files
        .into_iter()
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read(path).unwrap().into())
        })
        .collect()
}
