//! What a program says about the work of a thread, as attributes and a link.

use profcol_ebpf_loader::context;
use profcol_profile::Link;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadContext {
    pub goroutine: Option<i64>,
    /// Each key once.
    pub labels: Vec<(String, String)>,
    /// Empty without a trace and a span.
    pub link: Link,
}

/// More than tracing libraries have.
const MAX_ATTRIBUTES: usize = 32;

/// Labels in which tracing libraries keep the IDs, in hexadecimal.
const TRACE_ID: &str = "trace_id";
const SPAN_ID: &str = "span_id";

impl ThreadContext {
    /// `bytes` are those of a sample, `keys` those of its process. Texts are untrusted.
    pub fn read(bytes: &[u8], keys: &[String]) -> Self {
        let Some((context, sampled)) = context(bytes) else {
            return Self::default();
        };
        let mut labels: Vec<(String, String)> = Vec::new();
        let mut add = |key: &str, value: &[u8]| {
            if !key.is_empty() && labels.iter().all(|(known, _)| known != key) {
                labels.push((key.to_owned(), truncated(value)));
            }
        };
        for (key, value) in sampled {
            if key.is_empty() {
                for (number, value) in attributes(value) {
                    add(keys.get(usize::from(number)).map_or("", |key| key), value);
                }
            } else if let Ok(key) = str::from_utf8(key) {
                add(key, value);
            }
        }
        let goroutine = i64::try_from(context.goroutine);
        Self {
            goroutine: goroutine.ok().filter(|&id| id > 0),
            link: match context.span_id {
                0 => link(&labels).unwrap_or_default(),
                span_id => Link {
                    trace_id: trace_id(context.trace_id),
                    span_id: span_id.to_le_bytes(),
                },
            },
            labels,
        }
    }
}

/// The attributes of a record of OpenTelemetry, by the numbers of their keys: each is a number, a size and a value. The last one of
/// several with the same number counts. One that is cut off is ignored.
fn attributes(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut found: Vec<(u8, &[u8])> = Vec::new();
    while let [number, size, rest @ ..] = bytes
        && let Some((value, rest)) = rest.split_at_checked(usize::from(*size))
    {
        if let Some(known) = found.iter_mut().find(|(known, _)| known == number) {
            known.1 = value;
        } else if found.len() < MAX_ATTRIBUTES {
            found.push((*number, value));
        }
        bytes = rest;
    }
    found
}

/// As in the memory of the process.
fn trace_id(words: [u64; 2]) -> [u8; 16] {
    let [low, high] = words.map(u128::from);
    (high << 64 | low).to_le_bytes()
}

/// The text; its last character may be incomplete.
fn truncated(value: &[u8]) -> String {
    match str::from_utf8(value) {
        Ok(text) => text.to_owned(),
        Err(error) if error.error_len().is_none() => {
            let whole = value.get(..error.valid_up_to()).unwrap_or_default();
            String::from_utf8_lossy(whole).into_owned()
        }
        Err(_) => String::from_utf8_lossy(value).into_owned(),
    }
}

/// The link of labels with both IDs.
fn link(labels: &[(String, String)]) -> Option<Link> {
    let find = |name| labels.iter().find(|(key, _)| key == name);
    Some(Link {
        trace_id: id(&find(TRACE_ID)?.1)?,
        span_id: id(&find(SPAN_ID)?.1)?,
    })
}

/// An ID in hexadecimal; zero is none.
fn id<const N: usize>(text: &str) -> Option<[u8; N]> {
    let (digits, rest) = text.as_bytes().as_chunks::<2>();
    if digits.len() != N || !rest.is_empty() {
        return None;
    }
    let mut id = [0; N];
    for (byte, digits) in id.iter_mut().zip(digits) {
        let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
        *byte = (high? << 4 | low?) as u8;
    }
    (id != [0; N]).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(labels: &[(&[u8], &[u8])]) -> ThreadContext {
        let mut bytes = 42u64.to_le_bytes().to_vec();
        bytes.extend([0; 24]);
        for (key, value) in labels {
            bytes.extend((key.len() as u16).to_le_bytes());
            bytes.extend((value.len() as u16).to_le_bytes());
            bytes.extend([0; 4]);
            bytes.extend([*key, *value].concat());
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
        ThreadContext::read(
            &bytes,
            &["route".to_owned(), String::new(), "user".to_owned()],
        )
    }

    #[test]
    fn attributes_have_the_keys_of_the_process() {
        let labels = |bytes: &[u8]| of(&[(b"tenant", b"acme"), (b"", bytes)]).labels;
        let tenant = ("tenant".to_owned(), "acme".to_owned());
        let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let whole = b"\x00\x05/cart\x02\x03bob\x00\x01/";
        let expected = [tenant.clone(), text("route", "/"), text("user", "bob")];
        assert_eq!(labels(whole), expected);
        assert_eq!(
            labels(&whole[..12]),
            [tenant.clone(), text("route", "/cart"), text("user", "bob")]
        );
        // Cut off, or without a key.
        for bytes in [&whole[..6], &b"\x01\x01x\x07\x01x\xff\x00"[..], &[0]] {
            let labels = labels(bytes);
            assert_eq!(labels, std::slice::from_ref(&tenant), "{bytes:?}");
        }
        let many: Vec<u8> = (0..=255).flat_map(|number| [number, 0]).collect();
        assert_eq!(attributes(&many).len(), MAX_ATTRIBUTES);
        assert_eq!(
            of(&[(b"route", b"own"), (b"", whole)]).labels[0],
            text("route", "own")
        );
    }

    #[test]
    fn labels_are_text_and_unique() {
        let found = of(&[
            (b"tenant", b"acme"),
            (b"tenant", b"other"),
            (b"\xff", b"no text"),
            (b"cut", "gr\u{fc}n".as_bytes().get(..3).unwrap_or_default()),
            (b"odd", b"a\xffb"),
        ]);
        assert_eq!(found.goroutine, Some(42));
        let expected = [("tenant", "acme"), ("cut", "gr"), ("odd", "a\u{fffd}b")];
        let labels = found.labels.iter();
        let labels: Vec<(&str, &str)> = labels.map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(labels, expected);
        assert_eq!(found.link, Link::default());
        assert_eq!(ThreadContext::read(&[], &[]), ThreadContext::default());
    }

    #[test]
    fn ids_of_the_thread_are_preferred_to_labels() {
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate().skip(8) {
            *byte = at as u8;
        }
        let link = ThreadContext::read(&bytes, &[]).link;
        assert_eq!(link.trace_id.first_chunk(), Some(&[8, 9, 10]));
        assert_eq!(link.span_id, [24, 25, 26, 27, 28, 29, 30, 31]);
    }

    #[test]
    fn ids_become_a_link() {
        let trace = b"0af7651916cd43dd8448eb211c80319c";
        let span = b"b7ad6b7169203331";
        let linked =
            |trace: &[u8], span: &[u8]| of(&[(b"trace_id", trace), (b"span_id", span)]).link;
        let link = linked(trace, span);
        assert_eq!(link.trace_id.first_chunk(), Some(&[0x0a, 0xf7, 0x65]));
        assert_eq!(link.span_id.last_chunk(), Some(&[0x33, 0x31]));
        for (trace, span) in [
            (&trace[..30], &span[..]),
            (&[b'0'; 32][..], &span[..]),
            (&trace[..], &[b'0'; 16][..]),
            (&trace[..], &b"b7ad6b716920333g"[..]),
            (&trace[..], &b"b7ad6b71692033311"[..]),
        ] {
            assert_eq!(linked(trace, span), Link::default());
        }
    }
}
