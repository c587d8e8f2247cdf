//! The messages about debuginfo are those that a real agent sent and a real server answered.

use std::fs;
use std::path::PathBuf;

use profcol_parca::debuginfo::{BuildIdKind, Decision, Instructions, Subject, chunk};

/// The messages of a recorded call, in order.
fn recorded(call: &str) -> Vec<Vec<u8>> {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/parca/debuginfo"
    );
    let path = PathBuf::from(folder).join(format!("{call}.frames"));
    let bytes = fs::read(&path).expect("was recorded");
    let mut rest = &bytes[..];
    let mut messages = Vec::new();
    while let Some((head, tail)) = rest.split_first_chunk::<5>() {
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (message, tail) = tail.split_at(length);
        messages.push(message.to_vec());
        rest = tail;
    }
    messages
}

#[test]
fn messages_are_those_of_a_real_dialogue() {
    let (asked, begun, uploaded, ended) = (
        recorded("0028-DebuginfoService.ShouldInitiateUpload"),
        recorded("0033-DebuginfoService.InitiateUpload"),
        recorded("0035-DebuginfoService.Upload"),
        recorded("0039-DebuginfoService.MarkUploadFinished"),
    );
    let decision = Decision::read(&asked[1]).unwrap();
    assert!(decision.wants_it);
    assert!(decision.reason.contains("First time"), "{decision:?}");
    let instructions = Instructions::read(&begun[1]).unwrap().unwrap();
    assert_eq!(instructions.strategy, Instructions::BY_GRPC);

    // The file has no build id that the agent found: its name is its hash.
    let subject = Subject {
        build_id: &instructions.build_id,
        kind: BuildIdKind::Hash,
        hash: &instructions.build_id,
    };
    let without_hash = Subject {
        hash: "",
        ..subject
    };
    assert_eq!(without_hash.should_initiate_upload(), asked[0]);
    let size: usize = uploaded[1..uploaded.len() - 1]
        .iter()
        .map(|message| message.len() - 4)
        .sum();
    assert_eq!(subject.initiate_upload(size as u64), begun[0]);
    assert_eq!(instructions.info(), uploaded[0]);
    assert_eq!(chunk(&uploaded[1][4..]), uploaded[1]);
    assert_eq!(instructions.mark_upload_finished(), ended[0]);
}
