//! A batch as a storage record: metadata in the head, encoded bytes as received in the body.

use bytes::Bytes;
use profcol_component::{Batch, BatchId, Metadata, Sizer};
use profcol_net::Encoding;
use profcol_net::compress::{DecompressError, decompress};
use profcol_profile::{CompressedWire, Profiles, Validation};
use profcol_storage::{Counts, Head};

/// The record of a batch.
pub(super) struct Record {
    pub head: Vec<u8>,
    pub body: Bytes,
    pub counts: Counts,
}

/// Why an intact record is not a batch: it was not written by this code.
#[derive(Debug, thiserror::Error)]
pub enum InvalidRecord {
    #[error("invalid record head")]
    Head,
    #[error("unknown compression {0:?}")]
    Compression(String),
    #[error("failed to decompress the batch: {0}")]
    Decompress(#[from] DecompressError),
    #[error(transparent)]
    Profiles(#[from] profcol_profile::Invalid),
}

impl Record {
    pub fn of(batch: &Batch) -> Self {
        let profiles = &batch.profiles;
        let encoding = profiles.compressed().map_or("", |it| it.encoding);
        Self {
            head: Head {
                source: batch.source,
                encoding: encoding.to_owned(),
                peer: batch.peer,
                metadata: Metadata::clone(&batch.metadata),
                id: Some(batch.id),
            }
            .encode(),
            body: profiles.body(),
            counts: Counts {
                batches: 1,
                samples: profiles.sample_count() as u64,
                source_samples: batch.source_samples(),
                plain_bytes: profiles.encoded_len() as u64,
            },
        }
    }
}

/// The record's share of `queue_size`.
pub(super) fn size_in(sizer: Sizer, counts: &Counts) -> u64 {
    match sizer {
        Sizer::Requests => counts.batches,
        Sizer::Items => counts.samples,
        Sizer::Bytes => counts.plain_bytes,
    }
}

/// Decodes the batch of a record. Its bytes are untrusted and validated like a client's.
pub fn batch_of(head: &[u8], body: Vec<u8>, counts: &Counts) -> Result<Batch, InvalidRecord> {
    let Head {
        source,
        encoding,
        peer,
        metadata,
        id,
    } = Head::decode(head).ok_or(InvalidRecord::Head)?;
    let body = Bytes::from(body);
    let profiles = match encoding.as_str() {
        "" => read(body)?,
        name => {
            let encoding = Encoding::from_name(name)
                .ok_or_else(|| InvalidRecord::Compression(name.to_owned()))?;
            // Its length when it was accepted.
            let limit = usize::try_from(counts.plain_bytes).unwrap_or(usize::MAX);
            let plain = decompress(encoding, &body, limit)?;
            read(plain)?.with_compressed(CompressedWire {
                encoding: encoding.name(),
                bytes: body,
                decompress: |encoding, bytes, len| {
                    decompress(Encoding::from_name(encoding)?, bytes, len).ok()
                },
            })
        }
    };
    let batch = Batch {
        source,
        // Version 1 of the format had none.
        id: id.unwrap_or_else(BatchId::unique),
        ..Batch::new(profiles)
    };
    let batch = batch.with_metadata(metadata).with_peer(peer);
    Ok(batch.resent_as_itself())
}

fn read(wire: Bytes) -> Result<Profiles, profcol_profile::Invalid> {
    Ok(Profiles::from_wire(wire, Validation::Reject)?.profiles)
}

#[cfg(test)]
mod tests {
    use profcol_component::Source;
    use profcol_component::testkit::batch;
    use profcol_net::Level;
    use profcol_net::compress::compress;

    use super::*;

    #[test]
    fn a_batch_round_trips_with_its_metadata() {
        let mut metadata = Metadata::default();
        metadata.add("tenant", "a");
        metadata.add("tenant", "b");
        metadata.add("x", "");
        for (source, peer) in [
            (Source::Replayable, None),
            (Source::Recorded, Some("10.0.0.1")),
            (Source::Live, Some("2001:db8::1")),
        ] {
            let mut before = batch(3)
                .with_metadata(metadata.clone())
                .with_peer(peer.map(|peer| peer.parse().unwrap()));
            before.source = source;
            let record = Record::of(&before);
            assert_eq!(record.counts.samples, 3);
            let after = batch_of(&record.head, record.body.to_vec(), &record.counts).unwrap();
            assert_eq!(
                (after.id, after.source, after.peer, &after.metadata),
                (before.id, source, before.peer, &before.metadata)
            );
            assert_eq!(after.profiles.to_wire(), before.profiles.to_wire());
        }
    }

    #[test]
    fn no_head_panics() {
        let record = Record::of(&batch(1));
        for len in 0..record.head.len() {
            let cut = &record.head[..len];
            let read = batch_of(cut, record.body.to_vec(), &record.counts);
            // Without the id it is one of version 1.
            assert_eq!(read.is_ok(), len == record.head.len() - 16, "{cut:?}");
        }
        for position in 0..record.head.len() {
            let mut changed = record.head.clone();
            changed[position] ^= 0x81;
            // Any result is fine; it must not panic.
            let _ = batch_of(&changed, record.body.to_vec(), &record.counts);
        }
    }

    #[test]
    fn errors_say_why_a_batch_cannot_be_decompressed() {
        let batch = batch(3);
        let plain = batch.profiles.to_wire();
        let packed = compress(Encoding::Zstd, Level::default(), &plain);
        let error = |encoding: &str, body: &[u8], plain_bytes: usize| {
            let head = Head {
                source: batch.source,
                encoding: encoding.to_owned(),
                peer: None,
                metadata: Metadata::default(),
                id: None,
            };
            let counts = Counts {
                plain_bytes: plain_bytes as u64,
                ..Counts::default()
            };
            let read = batch_of(&head.encode(), body.to_vec(), &counts);
            read.map_or_else(|error| error.to_string(), |_| String::new())
        };
        let size = plain.len();
        assert_eq!(error("zstd", &packed, size), "");
        assert_eq!(error("rar", &packed, size), "unknown compression \"rar\"");
        assert_eq!(
            error("zstd", &packed, size - 1),
            format!(
                "failed to decompress the batch: decompressed size exceeds the limit of {} bytes",
                size - 1
            )
        );
        let torn = error("zstd", &packed[..packed.len() - 1], size);
        assert_eq!(
            torn,
            "failed to decompress the batch: invalid zstd data: Src size is incorrect"
        );
    }
}
