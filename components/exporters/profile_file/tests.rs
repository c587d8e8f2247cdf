//! All batches as one file, read back in four formats, the memory limit, and files that cannot be written.

use profcol_component::Batch;
use profcol_component::testkit::{batch, context, load};
use tempfile::TempDir;

use super::*;

fn exporter(config: &str) -> (Arc<dyn Exporter>, BuildContext) {
    let (config, context) = (load(config).unwrap(), context("profile_file"));
    let exporter = ProfileFile::build(&config, &context).unwrap();
    (Arc::from(exporter), context)
}

async fn finish(exporter: Arc<dyn Exporter>) -> Result<(), RunError> {
    let stop = Stop::new();
    stop.cancel();
    exporter.run(stop).await
}

fn path(directory: &TempDir, name: &str) -> String {
    directory.path().join(name).display().to_string()
}

fn samples(file: &str) -> usize {
    let model = profcol_files::read(&std::fs::read(file).unwrap()).unwrap();
    model.profiles().next().unwrap().samples.len()
}

#[tokio::test]
async fn aggregates_all_batches_in_one_file() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["a.pb.gz", "a.folded", "a.otlp", "new/directory/a.otlp.json"] {
        let file = path(&directory, name);
        let (exporter, context) = exporter(&format!("path: {file}"));
        for _ in 0..3 {
            exporter.export(&batch(5)).await.unwrap();
        }
        exporter.export(&batch(7)).await.unwrap();
        assert!(!Path::new(&file).exists());
        finish(exporter).await.unwrap();
        assert_eq!(samples(&file), 7, "{name}");
        let metrics = String::from_utf8(context.meter.render().unwrap()).unwrap();
        assert!(
            metrics.contains("written_samples{exporter=\"profile_file\"} 22\n"),
            "{metrics}"
        );
        assert!(
            metrics.contains("unnamed_samples{exporter=\"profile_file\"} 0\n"),
            "{metrics}"
        );
    }
}

#[tokio::test]
async fn an_existing_file_is_kept_until_it_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let file = path(&directory, "a.folded");
    std::fs::write(&file, "old 1\n").unwrap();
    let (nothing, _) = exporter(&format!("path: {file}"));
    finish(nothing).await.unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), b"old 1\n");
    let (exporter, _) = exporter(&format!("path: {file}"));
    exporter.export(&batch(2)).await.unwrap();
    finish(exporter).await.unwrap();
    assert_eq!(samples(&file), 2);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn refuses_batches_beyond_the_memory_limit() {
    let directory = tempfile::tempdir().unwrap();
    let config = format!("path: {}\nmax_memory_mib: 1", path(&directory, "a.pb.gz"));
    let (exporter, _) = exporter(&config);
    exporter.export(&batch(20_000)).await.unwrap();
    let refusal = exporter
        .export(&Batch::new(batch(1).profiles))
        .await
        .unwrap_err();
    assert!(!refusal.is_retryable());
    assert!(
        refusal
            .to_string()
            .starts_with("the profile has reached 1 MiB; "),
        "{refusal}"
    );
    finish(exporter).await.unwrap();
}

#[tokio::test]
async fn a_write_error_has_its_reason() {
    let directory = tempfile::tempdir().unwrap();
    let (exporter, _) = exporter(&format!("path: {}", path(&directory, "a.svg")));
    exporter.export(&batch(2)).await.unwrap();
    std::fs::create_dir(path(&directory, "a.svg")).unwrap();
    assert!(
        exporter
            .start()
            .await
            .unwrap_err()
            .to_string()
            .ends_with("a.svg is a directory")
    );
    let error = finish(exporter).await.unwrap_err().to_string();
    assert!(error.starts_with("failed to write "), "{error}");
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(path(&directory, "file"), b"").unwrap();
    let (refused, _) = exporter(&format!("path: {}", path(&directory, "file/a.svg")));
    let error = refused.start().await.unwrap_err().to_string();
    assert!(error.contains("file/a.svg: Not a directory"), "{error}");
    let (written, _) = exporter(&format!("path: {}", path(&directory, "new/a.svg")));
    written.start().await.unwrap();
    let left = std::fs::read_dir(path(&directory, "new")).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn the_extension_selects_the_format() {
    let error = load::<ProfileFileConfig>("path: profile.xyz").unwrap_err();
    assert!(error.contains("unknown file extension"), "{error}");
    assert!(
        load::<ProfileFileConfig>("{}")
            .unwrap_err()
            .contains("must not be empty")
    );
}
