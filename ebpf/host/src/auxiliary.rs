//! What the kernel told this process when it started: how large pages are, and how high addresses go.

use std::fs;
use std::io;

const PATH: &str = "/proc/self/auxv";

/// How the kernel numbers what it tells.
const PAGE_SIZE: u64 = 6;
const EXECUTABLE_PATH: u64 = 31;

/// In pairs of words: which, and what.
const PAIR: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auxiliary {
    /// Bytes; a power of two.
    pub page_size: u64,
    /// The bits that a user's address may have. On aarch64 those above may sign a return address.
    pub address_bits: u64,
}

impl Auxiliary {
    pub fn read() -> io::Result<Self> {
        let told = fs::read(PATH)?;
        Self::parse(&told).ok_or_else(|| {
            let what = format!("{PATH} says neither how large pages are nor where the stack is");
            io::Error::new(io::ErrorKind::InvalidData, what)
        })
    }

    fn parse(told: &[u8]) -> Option<Self> {
        let find = |wanted: u64| {
            told.chunks_exact(PAIR).find_map(|pair| {
                let (which, what) = pair.split_at(PAIR / 2);
                let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_ne_bytes);
                (number(which) == Some(wanted)).then(|| number(what))?
            })
        };
        let page_size = find(PAGE_SIZE).filter(|size| size.is_power_of_two())?;
        // The path lies where the stack begins, which is the end of what a process can have: by less
        // than its half, wherever the stack was put.
        let top = find(EXECUTABLE_PATH).filter(|&address| address != 0)?;
        Some(Self {
            page_size,
            address_bits: u64::MAX >> top.leading_zeros(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_size_of_pages_and_the_end_of_addresses() {
        let check = |pairs: &[(u64, u64)], expected: Option<(u64, u64)>| {
            let told: Vec<u8> = pairs
                .iter()
                .flat_map(|&(which, what)| [which, what])
                .flat_map(u64::to_ne_bytes)
                .collect();
            let found = Auxiliary::parse(&told).map(|told| (told.page_size, told.address_bits));
            assert_eq!(found, expected, "{pairs:?}");
        };
        let end = (0, 0);
        let path = (31, 0xffff_e1d3_2fe8);
        check(
            &[(16, 1), (6, 4096), path, end],
            Some((4096, (1 << 48) - 1)),
        );
        check(
            &[(31, 0x7f_f1d3_2fe8), (6, 1 << 16), end],
            Some((1 << 16, (1 << 39) - 1)),
        );
        check(&[path, end], None);
        check(&[(6, 4096), end], None);
        check(&[(6, 4097), path, end], None);
        check(&[(6, 4096), (31, 0), end], None);
        check(&[], None);
    }

    #[test]
    fn the_kernel_says_it() {
        let told = Auxiliary::read().expect("/proc is mounted");
        let here = &raw const told as u64;
        assert_eq!(here & !told.address_bits, 0);
        assert!(here > told.address_bits / 2, "{here:#x} of {told:x?}");
    }
}
