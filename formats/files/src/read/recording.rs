//! Recordings in `.padata` files.

use profcol_parca::padata::Reader;
use profcol_parca::v1::Stacks;
use profcol_parca::{RecordBatch, RecordError, ipc, read_samples, to_model};
use profcol_profile::{Model, Profiles};

use super::ReadError;

pub(super) use profcol_parca::padata::MAGIC;

pub(super) fn read(content: &[u8], max_bytes: usize) -> Result<Model, ReadError> {
    let longest = u32::try_from(max_bytes).unwrap_or(u32::MAX);
    let mut file = Reader::new(content, longest)?;
    // All stacks of the file so far.
    let mut stacks = Stacks::default();
    let mut batches = Vec::new();
    while let Some(batch) = file.next_batch()? {
        let mut decode = || -> Result<Model, RecordError> {
            if let Some(added) = &batch.stacks {
                stacks.add(&rows(added, max_bytes)?)?;
            }
            to_model(&read_samples(&rows(&batch.samples, max_bytes)?)?, &stacks)
        };
        let model = decode().map_err(|error| ReadError::Batch {
            at: batch.at,
            error,
        })?;
        batches.push(Profiles::from_model(model));
    }
    Ok(Profiles::merge(batches).into_model())
}

fn rows(record: &[u8], max_bytes: usize) -> Result<RecordBatch, RecordError> {
    ipc::read(record, max_bytes)?.ok_or(RecordError::Empty)
}
