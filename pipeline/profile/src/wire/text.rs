//! UTF-8 check, fast for short ASCII names, as most strings are.

#[inline(always)]
pub fn is_text(bytes: &[u8]) -> bool {
    is_short_ascii(bytes) || std::str::from_utf8(bytes).is_ok()
}

#[inline(always)]
fn is_short_ascii(bytes: &[u8]) -> bool {
    /// Above this the standard library is faster.
    const SHORT: usize = 128;

    let mut bits = 0;
    let (words, rest) = bytes.as_chunks::<8>();
    if bytes.len() > SHORT {
        return false;
    }
    for word in words {
        bits |= u64::from_le_bytes(*word);
    }
    // The last eight bytes cover the rest, overlapping.
    match bytes.last_chunk::<8>() {
        Some(last) => bits |= u64::from_le_bytes(*last),
        None => rest.iter().for_each(|&byte| bits |= u64::from(byte)),
    }
    bits & 0x8080_8080_8080_8080 == 0
}

#[cfg(test)]
mod tests {
    use super::is_text;

    #[test]
    fn agrees_with_the_library() {
        for len in 0..200 {
            let ascii = vec![b'a'; len];
            assert!(is_text(&ascii), "{len}");
            for position in 0..len {
                for byte in [0x80, 0xc3, 0xff] {
                    let mut text = ascii.clone();
                    text[position] = byte;
                    if position + 1 < len && byte == 0xc3 {
                        text[position + 1] = 0xa4;
                    }
                    let expected = std::str::from_utf8(&text).is_ok();
                    assert_eq!(is_text(&text), expected, "{len} {position} {byte:#x}");
                }
            }
        }
    }
}
