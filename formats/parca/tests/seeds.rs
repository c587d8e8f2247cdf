//! The seeds of the fuzz targets `parca` and `padata`: small records of every kind, and files of them. `UPDATE=1`
//! regenerates them.

mod records;

use std::fs;
use std::path::{Path, PathBuf};

use profcol_parca::padata::{COUNT_AT, Reader, header, push_frame};
use profcol_parca::v1::{Stacks, encode_stack_request, read_stack_request};
use profcol_parca::{ipc, read_samples, to_model};
use profcol_profile::Model;
use profcol_profile::testkit::model_of;
use records::{LIMIT, compressed, encode_v1, encode_v2};

fn directory(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/seeds")
        .join(target)
}

/// The seed of that name; `made` is its generated content.
fn seed(target: &str, name: &str, made: &[u8]) -> Vec<u8> {
    let path = directory(target).join(name);
    if std::env::var_os("UPDATE").is_some_and(|update| update == "1") {
        fs::create_dir_all(directory(target)).expect("a directory");
        fs::write(&path, made).expect("written");
    }
    fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; UPDATE=1 generates it", path.display()))
}

/// A small model that covers every feature.
fn model() -> Model {
    let tape: Vec<u32> = (0..500_u32)
        .map(|n| n.wrapping_mul(2_654_435_761))
        .collect();
    let model = model_of(&tape);
    assert!(model.sample_count() > 0);
    model
}

#[test]
fn each_record_seed_is_a_valid_record() {
    let model = model();
    let (samples, stacks) = encode_v1(&model);
    let both = encode_v2(&model);
    let ids: [&[u8]; 2] = [&[1; 16], &[2; 16]];
    let wanted = encode_stack_request(ids).expect("can be encoded");
    let read = |name: &str, made: &[u8]| {
        let seed = seed("parca", name, made);
        assert!(seed.len() <= 16 << 10, "{name} has {} bytes", seed.len());
        ipc::read(&seed, LIMIT).expect("valid").expect("has rows")
    };
    let mut received = Stacks::default();
    received
        .add(&read("stacks-v1", &stacks))
        .expect("are stacks");
    for (name, made) in [
        ("samples-v1", samples.clone()),
        ("samples-v1-lz4", compressed(&samples)),
        ("samples-v2", both.clone()),
        ("samples-v2-lz4", compressed(&both)),
    ] {
        let samples = read_samples(&read(name, &made)).expect("are samples");
        let read = to_model(&samples, &received).expect("complete");
        assert!(read.sample_count() > 0, "{name}");
    }
    let wanted = read_stack_request(&read("wanted-v1", &wanted)).expect("are ids");
    assert_eq!(wanted.iter().map(|id| &**id).collect::<Vec<_>>(), ids);
}

#[test]
fn each_file_seed_has_two_batches() {
    let model = model();
    let (samples, stacks) = encode_v1(&model);
    let both = encode_v2(&model);
    for (name, frames) in [
        ("v1.padata", vec![samples, stacks]),
        ("v2.padata", vec![both]),
    ] {
        let mut file = header().to_vec();
        for _ in 0..2 {
            for frame in &frames {
                push_frame(&mut file, frame).expect("fits");
            }
        }
        file[COUNT_AT as usize + 1] = 2;
        let file = seed("padata", name, &file);
        let mut reader = Reader::new(&file[..], 1 << 20).expect("valid header");
        for _ in 0..2 {
            assert!(reader.next_batch().expect("valid").is_some(), "{name}");
        }
        assert!(reader.next_batch().expect("valid").is_none(), "{name}");
    }
}
