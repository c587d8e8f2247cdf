//! The head of a record: a batch's source, client, compression and metadata.

use std::net::IpAddr;

use profcol_component::{Metadata, Source};

#[derive(Clone, Debug)]
pub struct Head {
    pub source: Source,
    /// The compression of the body; empty for none.
    pub encoding: String,
    /// The address of the client.
    pub peer: Option<IpAddr>,
    pub metadata: Metadata,
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
        fields.0.is_empty().then_some(Self {
            source,
            encoding,
            peer,
            metadata,
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
            (Source::Replayable, "", None, Metadata::default()),
            (Source::Recorded, "zstd", Some(v4), metadata.clone()),
            (Source::Live, "gzip", Some(v6), metadata),
        ]
        .map(|(source, encoding, peer, metadata)| Head {
            source,
            encoding: encoding.to_owned(),
            peer,
            metadata,
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
                (read.source, &read.encoding, read.peer, entries(&read)),
                (head.source, &head.encoding, head.peer, entries(&head))
            );
        }
    }

    #[test]
    fn a_part_of_a_head_is_none() {
        for head in heads() {
            let bytes = head.encode();
            for end in 0..bytes.len() {
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
