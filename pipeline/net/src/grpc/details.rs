//! `google.rpc.Status` in protobuf, by hand: three messages of a few fields each.
//!
//! ```text
//! Status    { 1: int32 code, 2: string message, 3: repeated Any details }
//! Any       { 1: string type_url, 2: bytes value }
//! RetryInfo { 1: Duration retry_delay }     Duration { 1: int64 seconds, 2: int32 nanos }
//! ```
//!
//! It travels base64-coded in the trailer `grpc-status-details-bin`, and as the body of every
//! OTLP/HTTP error. What arrives is untrusted: anything malformed is refused as a whole.

use std::time::Duration;

const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";
/// More details than this in one status is no status of an honest server.
const MAX_DETAILS: usize = 64;

/// One `google.protobuf.Any` of a status that is not a `RetryInfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    pub type_url: String,
    pub value: Vec<u8>,
}

/// What a `google.rpc.Status` says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RpcStatus {
    pub code: i32,
    pub message: String,
    pub retry_delay: Option<Duration>,
    pub details: Vec<Detail>,
}

/// Why bytes are no `google.rpc.Status`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("malformed google.rpc.Status")]
pub struct MalformedStatus;

impl RpcStatus {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.message.len() + 64);
        if self.code != 0 {
            put_varint(&mut out, 1 << 3);
            put_varint(&mut out, i64::from(self.code).cast_unsigned());
        }
        if !self.message.is_empty() {
            put_bytes(&mut out, 2, self.message.as_bytes());
        }
        if let Some(delay) = self.retry_delay {
            put_bytes(&mut out, 3, &any(RETRY_INFO, &retry_info(delay)));
        }
        for detail in &self.details {
            put_bytes(&mut out, 3, &any(&detail.type_url, &detail.value));
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<RpcStatus, MalformedStatus> {
        let mut status = RpcStatus::default();
        let mut seen = 0;
        for field in Fields(bytes) {
            match field? {
                (1, Value::Varint(code)) => status.code = code as i32,
                (2, Value::Bytes(message)) => status.message = text(message)?,
                (3, Value::Bytes(any)) => {
                    seen += 1;
                    if seen > MAX_DETAILS {
                        return Err(MalformedStatus);
                    }
                    status.take_detail(any)?;
                }
                _ => {}
            }
        }
        Ok(status)
    }

    fn take_detail(&mut self, any: &[u8]) -> Result<(), MalformedStatus> {
        let (mut type_url, mut value) = (&[][..], &[][..]);
        for field in Fields(any) {
            match field? {
                (1, Value::Bytes(bytes)) => type_url = bytes,
                (2, Value::Bytes(bytes)) => value = bytes,
                _ => {}
            }
        }
        let type_url = text(type_url)?;
        if type_url.rsplit('/').next() == Some("google.rpc.RetryInfo") {
            self.retry_delay = read_retry_info(value)?;
        } else {
            let value = value.to_vec();
            self.details.push(Detail { type_url, value });
        }
        Ok(())
    }
}

fn any(type_url: &str, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(type_url.len() + value.len() + 8);
    put_bytes(&mut out, 1, type_url.as_bytes());
    put_bytes(&mut out, 2, value);
    out
}

fn retry_info(delay: Duration) -> Vec<u8> {
    let mut duration = Vec::with_capacity(16);
    put_varint(&mut duration, 1 << 3);
    put_varint(&mut duration, delay.as_secs());
    put_varint(&mut duration, 2 << 3);
    put_varint(&mut duration, u64::from(delay.subsec_nanos()));
    let mut out = Vec::with_capacity(18);
    put_bytes(&mut out, 1, &duration);
    out
}

/// A negative delay means "now"; a `RetryInfo` without a delay says nothing.
fn read_retry_info(bytes: &[u8]) -> Result<Option<Duration>, MalformedStatus> {
    let mut delay = None;
    for field in Fields(bytes) {
        if let (1, Value::Bytes(duration)) = field? {
            let (mut seconds, mut nanos) = (0i64, 0i32);
            for field in Fields(duration) {
                match field? {
                    (1, Value::Varint(value)) => seconds = value.cast_signed(),
                    (2, Value::Varint(value)) => nanos = value as i32,
                    _ => {}
                }
            }
            let nanos = u32::try_from(nanos).unwrap_or(0).min(999_999_999);
            delay = Some(match u64::try_from(seconds) {
                Ok(seconds) => Duration::new(seconds, nanos),
                Err(_) => Duration::ZERO,
            });
        }
    }
    Ok(delay)
}

fn text(bytes: &[u8]) -> Result<String, MalformedStatus> {
    String::from_utf8(bytes.to_vec()).map_err(|_| MalformedStatus)
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed,
}

/// The fields of a protobuf message, in the order they come; ends after the first fault.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), MalformedStatus>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field().ok_or(MalformedStatus);
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let len = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.take(len)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return None,
        };
        Some((key >> 3, value))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_the_bytes_another_implementation_wrote() {
        // protoc --encode=google.rpc.Status: code 14, message "busy", RetryInfo 1.5 s
        let mut bytes =
            b"\x08\x0e\x12\x04busy\x1a\x36\x0a\x28type.googleapis.com/google.rpc.RetryInfo"
                .to_vec();
        bytes.extend_from_slice(b"\x12\x0a\x0a\x08\x08\x01\x10\x80\xca\xb5\xee\x01");
        let status = RpcStatus {
            code: 14,
            message: "busy".into(),
            retry_delay: Some(Duration::from_millis(1500)),
            details: vec![],
        };
        assert_eq!(RpcStatus::decode(&bytes).as_ref(), Ok(&status));
        assert_eq!(status.encode(), bytes);
    }

    #[test]
    fn a_negative_delay_means_now() {
        let mut duration = vec![8];
        put_varint(&mut duration, (-5i64).cast_unsigned());
        let mut info = Vec::new();
        put_bytes(&mut info, 1, &duration);
        assert_eq!(read_retry_info(&info), Ok(Some(Duration::ZERO)));
    }

    #[test]
    fn malformed_bytes_are_refused() {
        for bytes in [
            &b"\x12\x05ab"[..],
            b"\x08",
            b"\x0b",
            b"\x12\x02\xff\xfe",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            assert_eq!(RpcStatus::decode(bytes), Err(MalformedStatus), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read_back(code in 0i32..17, message in ".{0,20}", millis in proptest::option::of(0u64..1_000_000), url in "[a-z/.]{0,20}", value: Vec<u8>) {
            let status = RpcStatus {
                code,
                message,
                retry_delay: millis.map(Duration::from_millis),
                details: vec![Detail { type_url: url, value }],
            };
            prop_assert_eq!(RpcStatus::decode(&status.encode()), Ok(status));
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = RpcStatus::decode(&bytes);
        }
    }
}
