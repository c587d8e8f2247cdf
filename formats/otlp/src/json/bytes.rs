//! Bytes as text: hexadecimal for ids, base64 for everything else.

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Reads an id of `N` bytes; empty text means unset.
pub(super) fn id_from_hex<const N: usize>(text: &str) -> Result<Option<[u8; N]>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let mut id = [0; N];
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !odd.is_empty() {
        return Err(format!(
            "expected an id of {} hexadecimal digits, found {} characters",
            2 * N,
            text.len()
        ));
    }
    for (byte, [high, low]) in id.iter_mut().zip(pairs) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let (Some(high), Some(low)) = (digit(*high), digit(*low)) else {
            return Err("expected an id in hexadecimal digits".to_owned());
        };
        *byte = (high << 4 | low) as u8;
    }
    Ok(Some(id))
}

/// Appends `bytes` in lower case hexadecimal.
pub fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// Reads base64 in either alphabet, with or without padding.
pub(super) fn from_base64(text: &str) -> Result<Vec<u8>, String> {
    let decoded = if text.contains(['-', '_']) {
        LENIENT.decode(text.replace('-', "+").replace('_', "/"))
    } else {
        LENIENT.decode(text)
    };
    decoded.map_err(|error| format!("expected base64: {error}"))
}

pub fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}
