//! `ExportProfilesServiceResponse`, in both encodings.
//!
//! ```text
//! ExportProfilesServiceResponse { partial_success = 1 { int64 rejected_profiles = 1; string error_message = 2 } }
//! ```
//!
//! A message without rejected profiles is a warning: no profile was dropped as a whole, but samples
//! of it were.

use bytes::Bytes;
use serde_json::json;

use super::export::Taken;

/// A longer warning is cut; it is for a person to read.
const MAX_WARNING: usize = 1000;

impl Taken {
    pub(super) fn protobuf(&self) -> Bytes {
        let warning = self.short_warning();
        if warning.is_empty() {
            return Bytes::new();
        }
        let mut partial = vec![2 << 3 | 2];
        varint(&mut partial, warning.len());
        partial.extend_from_slice(warning.as_bytes());
        let mut response = vec![1 << 3 | 2];
        varint(&mut response, partial.len());
        response.append(&mut partial);
        response.into()
    }

    pub(super) fn json(&self) -> Bytes {
        let warning = self.short_warning();
        let response = if warning.is_empty() {
            json!({})
        } else {
            json!({ "partialSuccess": { "errorMessage": warning } })
        };
        response.to_string().into()
    }

    fn short_warning(&self) -> &str {
        &self.warning[..self.warning.floor_char_boundary(MAX_WARNING)]
    }
}

fn varint(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_a_partial_success_without_rejected_profiles() {
        let taken = Taken {
            warning: "dropped".to_owned(),
        };
        assert_eq!(&taken.protobuf()[..], b"\x0a\x09\x12\x07dropped");
        assert_eq!(
            &taken.json()[..],
            br#"{"partialSuccess":{"errorMessage":"dropped"}}"#
        );
        let taken = Taken {
            warning: String::new(),
        };
        assert_eq!(
            (&taken.protobuf()[..], &taken.json()[..]),
            (&b""[..], &b"{}"[..])
        );
    }

    #[test]
    fn a_long_warning_is_cut_between_characters() {
        let taken = Taken {
            warning: "ü".repeat(2000),
        };
        assert!(taken.short_warning().len() <= MAX_WARNING);
        assert_eq!(
            taken.protobuf().len(),
            1 + 2 + 1 + 2 + taken.short_warning().len()
        );
    }
}
