//! Records in the formats that agents send.

use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_ipc::{CompressionType, MetadataVersion};
use profcol_parca::ipc;
use profcol_parca::v1::{encode_samples, encode_stacks};
use profcol_parca::{Frames, LabelRules, StackIds, Table, v2};
use profcol_profile::Model;

pub const LIMIT: usize = 64 << 20;

/// Samples and their stacks.
pub fn encode_v1(model: &Model) -> (Vec<u8>, Vec<u8>) {
    let table = Table::new(model, &LabelRules::default());
    let frames = Frames::new(model);
    let mut ids = StackIds::new(&frames);
    let samples = encode_samples(&table, &mut ids).expect("can be encoded");
    let mut stacks = Vec::new();
    for &stack in &table.stacks {
        let id = ids.id(stack);
        if stacks.iter().all(|(other, _)| *other != id) {
            stacks.push((id, Some(stack)));
        }
    }
    let stacks = encode_stacks(&frames, &stacks).expect("can be encoded");
    (samples, stacks)
}

pub fn encode_v2(model: &Model) -> Vec<u8> {
    let table = Table::new(model, &LabelRules::default());
    let frames = Frames::new(model);
    let mut ids = StackIds::new(&frames);
    v2::encode(&table, &frames, &mut ids).expect("can be encoded")
}

/// A record with compressed bodies, as some agents send it.
pub fn compressed(record: &[u8]) -> Vec<u8> {
    let batch = ipc::read(record, LIMIT).expect("valid");
    let batch = batch.expect("has rows");
    let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5)
        .and_then(|options| options.try_with_compression(Some(CompressionType::LZ4_FRAME)));
    let schema = batch.schema_ref();
    let writer =
        StreamWriter::try_new_with_options(Vec::new(), schema, options.expect("supported"));
    let mut writer = writer.expect("can be encoded");
    writer.write(&batch).expect("can be encoded");
    writer.into_inner().expect("can be encoded")
}
