//! Debug information of native code: at which IL offset the code at a native offset belongs.
//!
//! ```text
//! JIT up to .NET 10    flags (1 byte), information on patchpoints (if flagged), on inlining (if flagged)
//! header               sizes of the parts, in nibbles
//! bounds               their number, then native offset, IL offset and kind of each
//! variables            not read
//! ```
//!
//! Integers take as many nibbles as they need: three bits each, highest first, and a bit that says that another follows.
//! Up to .NET 9 the bounds are such integers, too; since then they have a fixed number of bits.

use crate::DotNetError;
use crate::bytes::Bytes;
use crate::error::{damaged, unsupported};

/// IL offsets are stored with this added, since three special ones are negative.
const BIAS: u32 = 3;
/// Code before the first IL instruction.
const PROLOG: u32 = 2_u32.wrapping_neg();
/// The special offsets, of code without an IL instruction of its own, and this one are the highest.
const FIRST_SPECIAL: u32 = 3_u32.wrapping_neg();

const PATCHPOINTS: u8 = 1;
const INLINING: u8 = 2;

/// In place of the size of the bounds: two sizes follow, of those of instrumented IL and of the original.
const INSTRUMENTED: u32 = u32::MAX;
/// The same since .NET 11, with six sizes.
const FAT: u32 = 0;

/// Entries of the methods with the most code stay below.
const MAX_BOUNDS: u32 = 1 << 18;

/// Who wrote the debug information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugInfoFormat {
    /// For a ReadyToRun image, with this major version.
    ReadyToRun(u16),
    /// The JIT of a runtime with this major version, from 6 to 10.
    Jit(u32),
}

impl DebugInfoFormat {
    fn is_packed(self) -> bool {
        match self {
            Self::ReadyToRun(version) => version >= 16,
            Self::Jit(version) => version >= 10,
        }
    }

    fn kind_bits(self) -> u32 {
        if self.has_fat_header() { 3 } else { 2 }
    }

    fn has_fat_header(self) -> bool {
        matches!(self, Self::ReadyToRun(17..))
    }

    /// Skips what precedes the header.
    fn skip_front(self, bytes: &mut Bytes<'_>) -> Result<Option<()>, DotNetError> {
        // Size of the information on patchpoints without that of each local, and where the number of locals is.
        let (size, locals) = match self {
            Self::ReadyToRun(_) => return Ok(Some(())),
            Self::Jit(6) => (20, 0),
            Self::Jit(7..=9) => (32, 8),
            Self::Jit(10) => (40, 16),
            Self::Jit(_) => return Err(unsupported("debug information of an unknown runtime")),
        };
        let mut skip = || {
            let flags = bytes.u8()?;
            if flags & PATCHPOINTS != 0 {
                let count = Bytes(bytes.0.get(locals..)?).u32()?;
                bytes.take(
                    usize::try_from(count)
                        .ok()?
                        .checked_mul(4)?
                        .checked_add(size)?,
                )?;
            }
            if flags & INLINING != 0 {
                let size = bytes.u32()?;
                bytes.take(size.try_into().ok()?)?;
            }
            Some(flags)
        };
        match skip() {
            Some(flags) if flags & !(PATCHPOINTS | INLINING) != 0 => {
                Err(damaged("the flags of debug information"))
            }
            flags => Ok(flags.map(|_| ())),
        }
    }
}

/// Native offsets of a method and the IL offsets to which they belong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IlMap {
    /// Sorted by native offset.
    bounds: Box<[(u32, u32)]>,
}

impl IlMap {
    /// The number of bytes from the start of the debug information that [`IlMap::read`] needs. `None` if it takes more
    /// of them to tell.
    pub fn size(bytes: &[u8], format: DebugInfoFormat) -> Result<Option<u64>, DotNetError> {
        let mut rest = Bytes(bytes);
        let Some(()) = format.skip_front(&mut rest)? else {
            return Ok(None);
        };
        Ok(header(&mut rest, format).map(|parts| {
            let front = (bytes.len() - rest.0.len()) as u64;
            front + parts.before + parts.bounds
        }))
    }

    pub fn read(bytes: &[u8], format: DebugInfoFormat) -> Result<Self, DotNetError> {
        let damage = || damaged("debug information");
        let mut rest = Bytes(bytes);
        format.skip_front(&mut rest)?.ok_or_else(damage)?;
        let parts = header(&mut rest, format).ok_or_else(damage)?;
        let skipped = usize::try_from(parts.before).ok();
        skipped
            .and_then(|size| rest.take(size))
            .ok_or_else(damage)?;
        let size = usize::try_from(parts.bounds).ok();
        let bounds = size.and_then(|size| rest.take(size)).ok_or_else(damage)?;
        if bounds.is_empty() {
            return Ok(Self::default());
        }
        let read = match format.is_packed() {
            true => packed_bounds(bounds, format.kind_bits()),
            false => nibble_bounds(bounds),
        };
        let bounds = read.ok_or_else(damage)?.into();
        Ok(Self { bounds })
    }

    /// The IL offset at a native offset from the start of the method; of a caller, that of the call, not of the return
    /// address. `None` in code without one, such as the epilog.
    pub fn il_offset(&self, native: u32) -> Option<u32> {
        let after = self.bounds.partition_point(|&(start, _)| start <= native);
        let &(start, il) = self.bounds.get(after.checked_sub(1)?)?;
        match il {
            // Exception handlers have one, too.
            PROLOG if start == 0 => Some(0),
            FIRST_SPECIAL.. => None,
            _ => Some(il),
        }
    }

    /// Pairs of native and IL offsets; special IL offsets are the highest.
    pub fn bounds(&self) -> &[(u32, u32)] {
        &self.bounds
    }
}

struct Parts {
    /// Bytes between the header and the bounds.
    before: u64,
    bounds: u64,
}

/// Takes the header.
fn header(bytes: &mut Bytes<'_>, format: DebugInfoFormat) -> Option<Parts> {
    let mut nibbles = Nibbles::new(bytes.0);
    let first = nibbles.u32()?;
    let parts = if format.has_fat_header() && first == FAT {
        let sizes = [(); 6].map(|()| nibbles.u32().map(u64::from));
        let [
            Some(bounds),
            Some(variables),
            Some(original),
            Some(_),
            Some(_),
            Some(_),
        ] = sizes
        else {
            return None;
        };
        match original {
            0 => Parts { before: 0, bounds },
            _ => Parts {
                before: bounds + variables,
                bounds: original,
            },
        }
    } else if first == INSTRUMENTED {
        let (bounds, original) = (nibbles.u32()?.into(), nibbles.u32()?.into());
        nibbles.u32()?;
        match original {
            0 => Parts { before: 0, bounds },
            _ => Parts {
                before: bounds,
                bounds: original,
            },
        }
    } else {
        nibbles.u32()?;
        Parts {
            before: 0,
            bounds: first.into(),
        }
    };
    bytes.0 = nibbles.rest()?;
    Some(parts)
}

fn nibble_bounds(bytes: &[u8]) -> Option<Vec<(u32, u32)>> {
    let mut nibbles = Nibbles::new(bytes);
    let count = nibbles.u32().filter(|&count| count <= MAX_BOUNDS)?;
    let mut native = 0_u32;
    let mut bounds = Vec::new();
    for _ in 0..count {
        native = native.checked_add(nibbles.u32()?)?;
        let il = nibbles.u32()?.wrapping_sub(BIAS);
        // What kind of point it is.
        nibbles.u32()?;
        bounds.push((native, il));
    }
    Some(bounds)
}

fn packed_bounds(bytes: &[u8], kind_bits: u32) -> Option<Vec<(u32, u32)>> {
    let mut nibbles = Nibbles::new(bytes);
    let count = nibbles.u32().filter(|&count| count <= MAX_BOUNDS)?;
    let native_bits = nibbles.u32()?.checked_add(1)?;
    let il_bits = nibbles.u32()?.checked_add(1)?;
    if native_bits > 32 || il_bits > 32 {
        return None;
    }
    let mut bits = Bits::new(nibbles.rest()?);
    let mut native = 0_u32;
    let mut bounds = Vec::new();
    for _ in 0..count {
        bits.take(kind_bits)?;
        native = native.checked_add(bits.take(native_bits)?)?;
        bounds.push((native, bits.take(il_bits)?.wrapping_sub(BIAS)));
    }
    Some(bounds)
}

/// The lower nibble of a byte comes first.
struct Nibbles<'b> {
    bytes: &'b [u8],
    position: usize,
}

impl<'b> Nibbles<'b> {
    fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    fn u32(&mut self) -> Option<u32> {
        let mut value = 0_u32;
        loop {
            let byte = *self.bytes.get(self.position / 2)?;
            let nibble = match self.position % 2 {
                0 => byte & 0xf,
                _ => byte >> 4,
            };
            self.position += 1;
            // No more than 32 bits.
            if value > u32::MAX >> 3 {
                return None;
            }
            value = value << 3 | u32::from(nibble & 7);
            if nibble & 8 == 0 {
                return Some(value);
            }
        }
    }

    /// The bytes behind the one in use.
    fn rest(&self) -> Option<&'b [u8]> {
        self.bytes.get(self.position.div_ceil(2)..)
    }
}

/// The lowest bit of a byte comes first.
struct Bits<'b> {
    bytes: std::slice::Iter<'b, u8>,
    value: u64,
    count: u32,
}

impl<'b> Bits<'b> {
    fn new(bytes: &'b [u8]) -> Self {
        Self {
            bytes: bytes.iter(),
            value: 0,
            count: 0,
        }
    }

    /// Up to 32 bits.
    fn take(&mut self, count: u32) -> Option<u32> {
        while self.count < count {
            self.value |= u64::from(*self.bytes.next()?) << self.count;
            self.count += 8;
        }
        let taken = self.value & ((1 << count) - 1);
        self.value >>= count;
        self.count -= count;
        Some(taken as u32)
    }
}
