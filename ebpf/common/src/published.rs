//! Executable mappings published by the loader, for kernels whose VMA tree cannot be read.
//!
//! The loader follows perf's MMAP2 events and writes the executable areas of each process image to a
//! range of an array map, sorted by address. A range is immutable: each change publishes a new one.

use crate::file::FileId;
use crate::mappings::MappingError;

/// One process image, as far as perf events identify it. [`ImageAreas::alive_at`] detects a reused
/// PID.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct ProcessImage {
    pub pid: u32,
    /// Counts the execs of the thread group.
    pub exec: u32,
}

/// The range of the area array that belongs to an image.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ImageAreas {
    pub first: u32,
    pub count: u32,
    /// A time at which the process existed, in nanoseconds since boot: a process that started later
    /// reuses its PID.
    pub alive_at: u64,
}

/// An executable mapping.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Area {
    pub start: u64,
    pub end: u64,
    /// Offset in the file.
    pub offset: u64,
    /// All zero if there is no file.
    pub id: FileId,
}

/// Maximum number of areas per image, as a power of two.
pub const MAX_AREAS_SHIFT: u32 = 12;

/// Reads the area array.
pub trait Areas {
    fn area(&self, index: u32) -> Option<Area>;
}

/// The area that contains `address`.
#[inline(always)]
pub fn search(areas: &impl Areas, image: &ImageAreas, address: u64) -> Result<Area, MappingError> {
    // The last area that starts at or before the address.
    let (mut low, mut length) = (image.first, image.count);
    for _ in 0..=MAX_AREAS_SHIFT {
        if length <= 1 {
            break;
        }
        let half = length >> 1;
        let middle = areas
            .area(low.wrapping_add(half))
            .ok_or(MappingError::Unreadable)?;
        let is_behind = crate::barrier_var(address.wrapping_sub(middle.start) >> 63) as u32;
        low = low.wrapping_add(half & is_behind.wrapping_sub(1));
        length -= half;
    }
    if length == 0 {
        return Err(MappingError::NotMapped);
    }
    let area = areas.area(low).ok_or(MappingError::Unreadable)?;
    if address < area.start || address >= area.end {
        return Err(MappingError::NotMapped);
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
            let image = ImageAreas { first: before as u32, count: own.len() as u32, alive_at: 0 };
            let scanned = own.iter().find(|area| area.start <= address && address < area.end);
            prop_assert_eq!(search(&all, &image, address).ok(), scanned.copied());
        }
    }

    #[test]
    fn finds_the_last_of_as_many_areas_as_there_may_be() {
        let all: Vec<Area> = (0..1u64 << MAX_AREAS_SHIFT)
            .map(|at| Area {
                start: at * 2,
                end: at * 2 + 1,
                ..Area::default()
            })
            .collect();
        let image = ImageAreas {
            first: 0,
            count: all.len() as u32,
            alive_at: 0,
        };
        let last = all.len() as u64 * 2 - 2;
        assert_eq!(search(&all, &image, last), Ok(all[all.len() - 1]));
        assert_eq!(search(&all, &image, last + 1), Err(MappingError::NotMapped));
    }
}
