//! `UNSIGNED5`: integers of one to five bytes.

/// Bytes from this value on are followed by another byte.
const LOW: u32 = 192;
const MAX_BYTES: u32 = 5;

/// Reads consecutive integers.
#[derive(Clone, Copy, Debug)]
pub struct Unsigned5<'a> {
    rest: &'a [u8],
    excludes_zero: bool,
}

impl<'a> Unsigned5<'a> {
    /// Since JDK 20, no byte of an integer is 0.
    pub fn new(bytes: &'a [u8], excludes_zero: bool) -> Self {
        Self {
            rest: bytes,
            excludes_zero,
        }
    }

    pub fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    pub fn unsigned(&mut self) -> Option<u32> {
        let mut value = 0u32;
        for position in 0..MAX_BYTES {
            let byte = u32::from(self.byte()?);
            let digit = byte.checked_sub(u32::from(self.excludes_zero))?;
            value = value.wrapping_add(digit << (6 * position));
            if byte < LOW {
                break;
            }
        }
        Some(value)
    }

    pub fn signed(&mut self) -> Option<i32> {
        let value = self.unsigned()?;
        Some((value >> 1) as i32 ^ -((value & 1) as i32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_encodings() {
        let read = |bytes: &[u8], excludes_zero| {
            let mut reader = Unsigned5::new(bytes, excludes_zero);
            (reader.unsigned(), reader.rest.len())
        };
        assert_eq!(read(&[0, 9], false), (Some(0), 1));
        assert_eq!(read(&[191], false), (Some(191), 0));
        assert_eq!(read(&[192, 0], false), (Some(192), 0));
        assert_eq!(read(&[193, 2], false), (Some(193 + 128), 0));
        assert_eq!(read(&[1], true), (Some(0), 0));
        assert_eq!(read(&[191], true), (Some(190), 0));
        assert_eq!(read(&[192, 1], true), (Some(191), 0));
        assert_eq!(read(&[0], true), (None, 0));
        assert_eq!(read(&[255; 9], false).1, 4);
        assert_eq!(read(&[200], false), (None, 0));
    }

    #[test]
    fn reads_signs() {
        let read = |byte| Unsigned5::new(&[byte], false).signed();
        assert_eq!([0, 1, 2, 3].map(read), [0, -1, 1, -2].map(Some));
    }
}
