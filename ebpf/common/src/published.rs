//! Mappings as the loader publishes them, for kernels whose own tree cannot be read.
//!
//! The loader learns from the kernel's events which code each process maps, and writes it down per
//! image of a process: a stretch of areas, by address. What was written once is never changed; with
//! each change the image gets another stretch.

use crate::file::FileId;
use crate::mappings::Miss;

/// One image of one process, as events can tell it. A process number that is used again is told from
/// the one before by [`Stretch::born`].
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Image {
    pub pid: u32,
    /// Counts the execs of the thread group.
    pub exec: u32,
}

/// Where the areas of an image are.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Stretch {
    pub first: u32,
    pub count: u32,
    /// When the process was certainly there, in nanoseconds since boot: one that started later has
    /// the same number and is another.
    pub born: u64,
}

/// A stretch of memory with code.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Area {
    pub start: u64,
    pub end: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// All zero where there is no file.
    pub id: FileId,
}

/// Areas of one image at most, as a power of two.
pub const MOST_AREAS_SHIFT: u32 = 12;

/// Where areas are.
pub trait Areas {
    fn area(&self, index: u32) -> Option<Area>;
}

/// The area that holds `address`.
#[inline(always)]
pub fn search(areas: &impl Areas, stretch: &Stretch, address: u64) -> Result<Area, Miss> {
    // The last one that begins at or before the address.
    let (mut low, mut length) = (stretch.first, stretch.count);
    for _ in 0..=MOST_AREAS_SHIFT {
        if length <= 1 {
            break;
        }
        let half = length >> 1;
        let middle = areas.area(low.wrapping_add(half)).ok_or(Miss::Unreadable)?;
        let is_behind = crate::hide(address.wrapping_sub(middle.start) >> 63) as u32;
        low = low.wrapping_add(half & is_behind.wrapping_sub(1));
        length -= half;
    }
    if length == 0 {
        return Err(Miss::None);
    }
    let area = areas.area(low).ok_or(Miss::Unreadable)?;
    if address < area.start || address >= area.end {
        return Err(Miss::None);
    }
    Ok(area)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    impl Areas for Vec<Area> {
        fn area(&self, index: u32) -> Option<Area> {
            self.get(index as usize).copied()
        }
    }

    proptest! {
        #[test]
        fn finds_the_area_that_a_scan_finds(
            bounds in proptest::collection::btree_set(0u64..1000, 0..100),
            before in 0usize..5,
            address in 0u64..1100,
        ) {
            let bounds: Vec<u64> = bounds.into_iter().collect();
            let own: Vec<Area> = bounds
                .chunks_exact(2)
                .map(|pair| Area { start: pair[0], end: pair[1], offset: pair[0] * 3, ..Area::default() })
                .collect();
            let mut all = Vec::from_iter((0..before).map(|_| Area { end: u64::MAX, ..Area::default() }));
            all.extend(&own);
            all.push(Area { end: u64::MAX, ..Area::default() });
            let stretch = Stretch { first: before as u32, count: own.len() as u32, born: 0 };
            let scanned = own.iter().find(|area| area.start <= address && address < area.end);
            prop_assert_eq!(search(&all, &stretch, address).ok(), scanned.copied());
        }
    }

    #[test]
    fn finds_the_last_of_as_many_areas_as_there_may_be() {
        let all: Vec<Area> = (0..1u64 << MOST_AREAS_SHIFT)
            .map(|at| Area {
                start: at * 2,
                end: at * 2 + 1,
                ..Area::default()
            })
            .collect();
        let stretch = Stretch {
            first: 0,
            count: all.len() as u32,
            born: 0,
        };
        let last = all.len() as u64 * 2 - 2;
        assert_eq!(search(&all, &stretch, last), Ok(all[all.len() - 1]));
        assert_eq!(search(&all, &stretch, last + 1), Err(Miss::None));
    }
}
