//! Compares debuginfo messages with those recorded between a real agent and server.

use std::fs;
use std::path::PathBuf;

use profcol_parca::debuginfo::{
    BuildIdType, InitiateUploadRequest, InitiateUploadResponse, ShouldInitiateUploadRequest,
    ShouldInitiateUploadResponse, UploadData, UploadRequest, UploadStrategy, decode, encode,
};

/// The messages of a recorded call, in order.
fn recorded(call: &str) -> Vec<Vec<u8>> {
    let directory = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/parca/debuginfo"
    );
    let path = PathBuf::from(directory).join(format!("{call}.frames"));
    let bytes = fs::read(&path).expect("recording exists");
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
fn messages_match_a_recorded_dialogue() {
    let (queried, begun, uploaded, ended) = (
        recorded("0028-DebuginfoService.ShouldInitiateUpload"),
        recorded("0033-DebuginfoService.InitiateUpload"),
        recorded("0035-DebuginfoService.Upload"),
        recorded("0039-DebuginfoService.MarkUploadFinished"),
    );
    let decision: ShouldInitiateUploadResponse = decode(&queried[1]).unwrap();
    assert!(decision.should_initiate_upload);
    assert!(decision.reason.contains("First time"), "{decision:?}");
    let initiated: InitiateUploadResponse = decode(&begun[1]).unwrap();
    let instructions = initiated.upload_instructions.unwrap();
    assert_eq!(instructions.upload_strategy(), UploadStrategy::Grpc);

    // The agent found no build id in the file: its id is its hash.
    let build_id = instructions.build_id.clone();
    let should_initiate = ShouldInitiateUploadRequest {
        build_id: build_id.clone(),
        hash: String::new(),
        build_id_type: BuildIdType::Hash.into(),
    };
    assert_eq!(encode(&should_initiate), queried[0]);
    let size: usize = uploaded[1..uploaded.len() - 1]
        .iter()
        .map(|message| message.len() - 4)
        .sum();
    let initiate = InitiateUploadRequest {
        hash: build_id.clone(),
        build_id,
        size: size as i64,
        build_id_type: BuildIdType::Hash.into(),
    };
    assert_eq!(encode(&initiate), begun[0]);
    let upload = |data| encode(&UploadRequest { data: Some(data) });
    let info = UploadData::Info(instructions.info());
    assert_eq!(upload(info), uploaded[0]);
    let chunk = UploadData::ChunkData(uploaded[1][4..].to_vec().into());
    assert_eq!(upload(chunk), uploaded[1]);
    assert_eq!(encode(&instructions.info()), ended[0]);
}
