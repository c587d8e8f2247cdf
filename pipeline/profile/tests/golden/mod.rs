//! Recorded requests of real and synthetic profilers.

use std::path::{Path, PathBuf};

use bytes::Bytes;

/// All recorded requests by name.
pub fn requests() -> Vec<(String, Bytes)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/otlp");
    let mut files: Vec<PathBuf> = ["profiler", "generated"]
        .iter()
        .flat_map(|directory| std::fs::read_dir(root.join(directory)).unwrap())
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
