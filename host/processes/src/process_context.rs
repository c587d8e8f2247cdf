//! The process context of OpenTelemetry (OTEP 4719): what an SDK publishes about its process, in a memory mapping with a
//! known name.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use profcol_elf::{Mapping, mappings};
use prost::{DecodeError, Message};

const MAX_PAYLOAD_BYTES: u32 = 64 << 10;
const VERSION: u32 = 2;
/// The process may be writing it just now.
const ATTEMPTS: usize = 3;

#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    #[error("failed to read the memory of the process: {0}")]
    Read(#[from] io::Error),
    #[error("the mapping does not start with \"OTEL_CTX\"")]
    Signature,
    #[error("version {0} is not supported; this profcol reads version {VERSION}")]
    Version(u32),
    #[error("{0} bytes exceed the limit of {MAX_PAYLOAD_BYTES}")]
    Size(u32),
    #[error("the process changed it during each of {ATTEMPTS} attempts to read it")]
    Busy,
}

/// The 32 bytes at the start of the mapping.
struct Header {
    /// 0 while the process changes the context.
    published_at: u64,
    payload: Range<u64>,
}

/// The encoded context; `None` if the process publishes none.
pub fn process_context(proc: &Path, pid: u32) -> Result<Option<Vec<u8>>, ContextError> {
    let process = proc.join(pid.to_string());
    let Some(address) = find(mappings(&process)?)? else {
        return Ok(None);
    };
    let memory = File::open(process.join("mem"))?;
    for _ in 0..ATTEMPTS {
        let header = Header::read(&memory, address)?;
        if header.published_at == 0 {
            continue;
        }
        let Range { start, end } = header.payload;
        let mut payload = vec![0; (end - start) as usize];
        memory.read_exact_at(&mut payload, start)?;
        if Header::read(&memory, address)?.published_at == header.published_at {
            return Ok(Some(payload));
        }
    }
    Err(ContextError::Busy)
}

impl Header {
    fn read(memory: &File, address: u64) -> Result<Self, ContextError> {
        let mut bytes = [0; 32];
        memory.read_exact_at(&mut bytes, address)?;
        let [signature, sizes, published_at, payload] = [0, 8, 16, 24]
            .map(|at| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte])));
        if signature.to_ne_bytes() != *b"OTEL_CTX" {
            return Err(ContextError::Signature);
        }
        let [version, size] = halves(sizes);
        if version != VERSION {
            return Err(ContextError::Version(version));
        }
        if size > MAX_PAYLOAD_BYTES {
            return Err(ContextError::Size(size));
        }
        Ok(Self {
            published_at,
            payload: payload..payload.saturating_add(size.into()),
        })
    }
}

/// Two neighbours in memory, in the byte order of this machine.
fn halves(both: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = both.to_ne_bytes();
    [[a, b, c, d], [e, f, g, h]].map(u32::from_ne_bytes)
}

/// The address of the mapping.
fn find(mappings: impl Iterator<Item = io::Result<Mapping>>) -> io::Result<Option<u64>> {
    const NAMES: [&str; 3] = [
        "/memfd:OTEL_CTX",
        "[anon_shmem:OTEL_CTX]",
        "[anon:OTEL_CTX]",
    ];
    for mapping in mappings {
        let Mapping { path, range, .. } = mapping?;
        if NAMES.iter().any(|name| path == Path::new(name)) {
            return Ok(Some(range.start));
        }
    }
    Ok(None)
}

/// The attribute with the keys of the attributes of threads (OTEP 4947), which refer to them by their number.
const ATTRIBUTE_KEYS: &str = "threadlocal.attribute_key_map";
/// There are no larger numbers.
const MAX_ATTRIBUTE_KEYS: usize = 256;

/// `opentelemetry.proto.common.v1.ProcessContext`, as far as it is used here.
#[derive(Clone, PartialEq, Message)]
struct ProcessContext {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    attributes: Vec<Attribute>,
}

/// `opentelemetry.proto.resource.v1.Resource`
#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<Attribute>,
}

/// `opentelemetry.proto.common.v1.KeyValue`
#[derive(Clone, PartialEq, Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

/// `opentelemetry.proto.common.v1.AnyValue`, if it is a string or an array.
#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 5")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Value {
    #[prost(string, tag = "1")]
    StringValue(String),
    #[prost(message, tag = "5")]
    ArrayValue(ArrayValue),
}

/// `opentelemetry.proto.common.v1.ArrayValue`
#[derive(Clone, PartialEq, Message)]
struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    values: Vec<AnyValue>,
}

/// The keys of the attributes of the process's threads, by number, in the encoded context. Some programs have them among the attributes of
/// the resource.
pub fn attribute_keys(context: &[u8]) -> Result<Vec<String>, DecodeError> {
    let context = ProcessContext::decode(context)?;
    let resource = context.resource.unwrap_or_default();
    let mut attributes = context.attributes.into_iter().chain(resource.attributes);
    let found = attributes.find(|attribute| attribute.key == ATTRIBUTE_KEYS);
    let Some(Value::ArrayValue(keys)) = found.and_then(|it| it.value?.value) else {
        return Ok(Vec::new());
    };
    let keys = keys.values.into_iter().map(|key| match key.value {
        Some(Value::StringValue(key)) => key,
        // It keeps its number.
        Some(Value::ArrayValue(_)) | None => String::new(),
    });
    Ok(keys.take(MAX_ATTRIBUTE_KEYS).collect())
}

#[cfg(test)]
mod tests {
    use profcol_elf::Mappings;

    use super::*;

    /// A field of a message.
    fn field(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, u8::try_from(content.len()).unwrap()], content].concat()
    }

    #[test]
    fn keys_of_attributes_are_in_either_place() {
        let keys = ["http.route", "user"].map(|key| field(0x0a, &field(0x0a, key.as_bytes())));
        let attribute = |key: &str| {
            let value = field(0x12, &field(0x2a, &keys.concat()));
            [field(0x0a, key.as_bytes()), value].concat()
        };
        let version = [
            field(0x0a, b"threadlocal.schema_version"),
            field(0x12, &field(0x0a, b"tlsdesc_v1_dev")),
        ];
        let version = field(0x12, &version.concat());
        let found = |payload: &[u8]| attribute_keys(payload).unwrap();
        let expected = ["http.route", "user"];
        let own = field(0x12, &attribute(ATTRIBUTE_KEYS));
        assert_eq!(found(&[version, own.clone()].concat()), expected);
        let of_resource = field(0x0a, &field(0x0a, &attribute(ATTRIBUTE_KEYS)));
        assert_eq!(found(&of_resource), expected);
        assert!(found(&field(0x12, &attribute("threadlocal.other"))).is_empty());
        assert!(found(&[]).is_empty());
        attribute_keys(&own[..own.len() - 1]).unwrap_err();
    }

    #[test]
    fn finds_the_mapping_by_each_of_its_names() {
        let maps = |name: &str| {
            format!(
                "1000-2000 r-xp 00000000 08:01 7 /usr/bin/OTEL_CTX\n\
                 nonsense\n\
                 3000-4000 rw-p 00000000 00:00 0 \n\
                 7f01000-7f02000 rw-s 00000000 00:01 9                          {name}\n"
            )
        };
        for (name, is_found) in [
            ("/memfd:OTEL_CTX (deleted)", true),
            ("/memfd:OTEL_CTX", true),
            ("[anon_shmem:OTEL_CTX]", true),
            ("[anon:OTEL_CTX]", true),
            ("[anon:OTEL_CTX_2]", false),
            ("/tmp/memfd:OTEL_CTX", false),
        ] {
            let found = find(Mappings::new(maps(name).as_bytes())).unwrap();
            assert_eq!(found, is_found.then_some(0x7f0_1000), "{name}");
        }
    }
}
