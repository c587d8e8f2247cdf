//! The head of a record: a batch's source, client, compression, metadata and id.

use std::net::IpAddr;

use profcol_component::{BatchId, Metadata, Source};

#[derive(Clone, Debug)]
pub struct Head {
    pub source: Source,
    /// The compression of the body; empty for none.
    pub encoding: String,
    /// The address of the client.
    pub peer: Option<IpAddr>,
    pub metadata: Metadata,
    /// Histories have none, nor have records of version 1.
    pub id: Option<BatchId>,
}

impl Head {
    pub fn encode(&self) -> Vec<u8> {
        let mut head = vec![match self.source {
            Source::Replayable => 0,
            Source::Recorded => 1,
            Source::Live => 2,
        }];
        put(&mut head, self.encoding.as_bytes());
        match self.peer {
            None => put(&mut head, &[]),
            Some(IpAddr::V4(address)) => put(&mut head, &address.octets()),
            Some(IpAddr::V6(address)) => put(&mut head, &address.octets()),
        }
        let entries = self.metadata.entries();
        let count: usize = entries.map(|(_, values)| values.len()).sum();
        head.extend((count as u32).to_le_bytes());
        for (name, values) in self.metadata.entries() {
            for value in values {
                put(&mut head, name.as_bytes());
                put(&mut head, value.as_bytes());
            }
        }
        head.extend(self.id.into_iter().flat_map(BatchId::to_bytes));
        head
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
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
        let id = match fields.0 {
            [] => None,
            bytes => Some(BatchId::from_bytes(bytes.try_into().ok()?)),
        };
        Some(Self {
            source,
            encoding,
            peer,
            metadata,
            id,
        })
    }
}

fn put(head: &mut Vec<u8>, bytes: &[u8]) {
    head.extend((bytes.len() as u32).to_le_bytes());
    head.extend(bytes);
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
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn heads() -> Vec<Head> {
        let mut metadata = Metadata::default();
        metadata.add("tenant", "one");
        metadata.add("tenant", "two");
        let v4 = IpAddr::from(Ipv4Addr::LOCALHOST);
        let v6 = IpAddr::from(Ipv6Addr::LOCALHOST);
        [
            (Source::Replayable, "", None, Metadata::default(), None),
            (Source::Recorded, "zstd", Some(v4), metadata.clone(), None),
            (
                Source::Live,
                "gzip",
                Some(v6),
                metadata,
                Some(BatchId::unique()),
            ),
        ]
        .map(|(source, encoding, peer, metadata, id)| Head {
            source,
            encoding: encoding.to_owned(),
            peer,
            metadata,
            id,
        })
        .into()
    }

    fn entries(head: &Head) -> Vec<(&str, Vec<&str>)> {
        let entries = head.metadata.entries();
        let entries =
            entries.map(|(name, values)| (name, values.iter().map(AsRef::as_ref).collect()));
        entries.collect()
    }

    #[test]
    fn a_head_is_read_as_it_was_written() {
        for head in heads() {
            let read = Head::decode(&head.encode()).unwrap();
            assert_eq!(
                (
                    read.id,
                    read.source,
                    &read.encoding,
                    read.peer,
                    entries(&read)
                ),
                (
                    head.id,
                    head.source,
                    &head.encoding,
                    head.peer,
                    entries(&head)
                )
            );
        }
    }

    /// Changing this requires a new [`VERSION`](crate::VERSION).
    #[test]
    fn bytes_match_the_documented_format() {
        let mut metadata = Metadata::default();
        metadata.add("a", "b");
        let head = Head {
            source: Source::Live,
            encoding: "gzip".to_owned(),
            peer: Some(Ipv4Addr::LOCALHOST.into()),
            metadata,
            id: None,
        };
        let version_1 = [
            &[2, 4, 0, 0, 0][..],
            b"gzip",
            &[4, 0, 0, 0, 127, 0, 0, 1],
            &[1, 0, 0, 0, 1, 0, 0, 0, b'a', 1, 0, 0, 0, b'b'],
        ];
        let version_1 = version_1.concat();
        assert_eq!(head.encode(), version_1);
        assert_eq!(Head::decode(&version_1).unwrap().id, None);
        let id = BatchId::from_bytes(*b"0123456789abcdef");
        let version_2 = Head {
            id: Some(id),
            ..head
        };
        let bytes = [&version_1[..], b"0123456789abcdef"].concat();
        assert_eq!(version_2.encode(), bytes);
        assert_eq!(Head::decode(&bytes).unwrap().id, Some(id));
    }

    #[test]
    fn a_part_of_a_head_is_none() {
        for head in heads() {
            let bytes = head.encode();
            let without_id = Head { id: None, ..head }.encode().len();
            for end in (0..bytes.len()).filter(|end| *end != without_id) {
                assert!(Head::decode(&bytes[..end]).is_none(), "{end}");
            }
            assert!(Head::decode(&[&bytes[..], &[0]].concat()).is_none());
        }
        let mut unknown = heads()[0].encode();
        unknown[0] = 3;
        assert!(Head::decode(&unknown).is_none());
    }

    #[test]
    fn an_address_has_four_bytes_or_sixteen() {
        let head = |len: u32| {
            let mut bytes = vec![0];
            put(&mut bytes, b"");
            put(&mut bytes, &vec![1; len as usize]);
            bytes.extend([0; 4]);
            Head::decode(&bytes)
        };
        assert!(head(4).is_some() && head(16).is_some());
        assert!(head(3).is_none() && head(17).is_none());
    }
}
