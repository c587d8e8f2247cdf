//! A batch as a storage record: metadata in the head, encoded bytes as received in the body.

use std::net::IpAddr;

use bytes::Bytes;
use profcol_component::{Batch, BatchId, Metadata, Sizer, Source};
use profcol_net::Encoding;
use profcol_net::compress::decompress;
use profcol_profile::{Compressed, Profiles, Validation};
use profcol_storage::Counts;

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
    #[error("unknown compression or invalid compressed data")]
    Compression,
    #[error("{0}")]
    Profiles(#[from] profcol_profile::Invalid),
}

impl Record {
    pub fn of(batch: &Batch) -> Self {
        let profiles = &batch.profiles;
        let encoding = profiles.compressed().map_or("", |it| it.encoding);
        Self {
            head: head(batch, encoding),
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

fn head(batch: &Batch, encoding: &str) -> Vec<u8> {
    let mut head = vec![match batch.source {
        Source::Replayable => 0,
        Source::Recorded => 1,
        Source::Live => 2,
    }];
    put(&mut head, encoding.as_bytes());
    match batch.peer {
        None => put(&mut head, &[]),
        Some(IpAddr::V4(address)) => put(&mut head, &address.octets()),
        Some(IpAddr::V6(address)) => put(&mut head, &address.octets()),
    }
    let entries = batch.metadata.entries();
    let count: usize = entries.map(|(_, values)| values.len()).sum();
    head.extend((count as u32).to_le_bytes());
    for (name, values) in batch.metadata.entries() {
        for value in values {
            put(&mut head, name.as_bytes());
            put(&mut head, value.as_bytes());
        }
    }
    head
}

fn put(head: &mut Vec<u8>, bytes: &[u8]) {
    head.extend((bytes.len() as u32).to_le_bytes());
    head.extend(bytes);
}

/// Decodes the batch of a record. Its bytes are untrusted and validated like a client's.
pub fn batch_of(head: &[u8], body: Vec<u8>, counts: &Counts) -> Result<Batch, InvalidRecord> {
    let Head {
        source,
        encoding,
        peer,
        metadata,
    } = Head::read(head).ok_or(InvalidRecord::Head)?;
    let body = Bytes::from(body);
    let profiles = match encoding.as_str() {
        "" => read(body)?,
        name => {
            let encoding = Encoding::from_name(name).ok_or(InvalidRecord::Compression)?;
            // Its length when it was accepted.
            let limit = usize::try_from(counts.plain_bytes).unwrap_or(usize::MAX);
            let plain =
                decompress(encoding, &body, limit).map_err(|_| InvalidRecord::Compression)?;
            read(plain)?.with_compressed(Compressed {
                encoding: encoding.name(),
                bytes: body,
                decompress: |encoding, bytes, len| {
                    decompress(Encoding::from_name(encoding)?, bytes, len).ok()
                },
            })
        }
    };
    let mut batch = match source {
        Source::Live => Batch::live(profiles),
        source => Batch {
            source,
            ..Batch::new(profiles)
        },
    };
    batch.id = Some(BatchId::unique());
    Ok(batch.with_metadata(metadata).with_peer(peer))
}

fn read(wire: Bytes) -> Result<Profiles, profcol_profile::Invalid> {
    Ok(Profiles::from_wire(wire, Validation::Reject)?.profiles)
}

struct Head {
    source: Source,
    encoding: String,
    peer: Option<IpAddr>,
    metadata: Metadata,
}

impl Head {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (source, rest) = bytes.split_first()?;
        let mut fields = Fields(rest);
        let source = match source {
            0 => Source::Replayable,
            1 => Source::Recorded,
            2 => Source::Live,
            _ => return None,
        };
        let encoding = fields.text()?;
        let peer = match fields.bytes()? {
            [] => None,
            bytes => Some(match <[u8; 4]>::try_from(bytes) {
                Ok(octets) => IpAddr::from(octets),
                Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
            }),
        };
        let mut metadata = Metadata::default();
        for _ in 0..fields.number()? {
            metadata.add(&fields.text()?, &fields.text()?);
        }
        fields.0.is_empty().then_some(Self {
            source,
            encoding,
            peer,
            metadata,
        })
    }
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.number()? as usize;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use profcol_component::testkit::batch;

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
                (after.source, after.peer, &after.metadata),
                (source, before.peer, &before.metadata)
            );
            assert_eq!(after.profiles.to_wire(), before.profiles.to_wire());
        }
    }

    #[test]
    fn no_head_panics() {
        let record = Record::of(&batch(1));
        for len in 0..record.head.len() {
            let cut = &record.head[..len];
            assert!(
                batch_of(cut, record.body.to_vec(), &record.counts).is_err(),
                "{cut:?}"
            );
        }
        for position in 0..record.head.len() {
            let mut changed = record.head.clone();
            changed[position] ^= 0x81;
            // Any result is fine; it must not panic.
            let _ = batch_of(&changed, record.body.to_vec(), &record.counts);
        }
    }
}
