//! The number of user address bits on this machine: on aarch64 the bits above may hold the signature of a
//! return address.

use std::fs;
use std::io;

/// The auxiliary vector: pairs of words, type and value.
const PATH: &str = "/proc/self/auxv";
const PAIR: usize = 16;

/// `AT_EXECFN`, the address of the executable's path. The path is at the start of the stack, near the end of
/// the address space: in its upper half, even with a randomized stack.
const EXECUTABLE_PATH: u64 = 31;

/// The number of bits in a user address.
///
/// With 52-bit addresses a process must ask for the last four bits, which never happens for code.
pub fn bits() -> io::Result<u64> {
    from_auxiliary_vector(&fs::read(PATH)?).ok_or_else(|| {
        let what = format!("{PATH} has no AT_EXECFN entry");
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

fn from_auxiliary_vector(auxv: &[u8]) -> Option<u64> {
    let (pairs, _) = auxv.as_chunks::<PAIR>();
    let top = pairs.iter().find_map(|pair| {
        let (words, _) = pair.as_chunks();
        match words {
            &[which, what] if u64::from_ne_bytes(which) == EXECUTABLE_PATH => {
                Some(u64::from_ne_bytes(what))
            }
            _ => None,
        }
    })?;
    (top != 0).then(|| u64::MAX >> top.leading_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derives_address_bits_from_a_stack_address() {
        let check = |pairs: &[(u64, u64)], expected: Option<u32>| {
            let auxv: Vec<u8> = pairs
                .iter()
                .flat_map(|&(which, what)| [which, what])
                .flat_map(u64::to_ne_bytes)
                .collect();
            let expected = expected.map(|bits| (1 << bits) - 1);
            assert_eq!(from_auxiliary_vector(&auxv), expected, "{pairs:?}");
        };
        let page = (6, 4096);
        check(&[page, (31, 0xffff_e1d3_2fe8), (0, 0)], Some(48));
        check(&[(31, 0x7f_f1d3_2fe8), page, (0, 0)], Some(39));
        check(&[page, (31, 0), (0, 0)], None);
        check(&[page, (0, 0)], None);
        check(&[], None);
    }

    #[test]
    fn reads_the_auxiliary_vector() {
        let bits = bits().expect("/proc is mounted");
        let here = &raw const bits as u64;
        assert!(
            here & !bits == 0 && here > bits / 2,
            "{here:#x} of {bits:#x}"
        );
    }
}
