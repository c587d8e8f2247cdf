//! Publishes the code mappings of processes to the programs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aya::maps::{HashMap, MapData};
use profcol_ebpf_common::published::{ImageAreas, ProcessImage};

use super::lease::{Lease, Returned};
use super::processes::Process;
use crate::areas::AreaMemory;
use crate::arena::{Allocation, FreeList};

/// Longer than any program runs that may still read a freed allocation.
const REUSE_DELAY: Duration = Duration::from_secs(1);

pub struct Publisher {
    image_areas: HashMap<MapData, ProcessImage, ImageAreas>,
    areas: AreaMemory,
    free: FreeList,
    returned: Returned,
    quarantined: VecDeque<(Instant, Allocation)>,
}

impl Publisher {
    pub fn new(image_areas: HashMap<MapData, ProcessImage, ImageAreas>, areas: AreaMemory) -> Self {
        Self {
            image_areas,
            free: FreeList::new(0, areas.count()),
            areas,
            returned: Returned::default(),
            quarantined: VecDeque::new(),
        }
    }

    /// Publishes the current state of the process under this key. If there is no room, unpublishes it and returns
    /// false.
    pub fn publish(&mut self, image: ProcessImage, process: &Process) -> bool {
        if let Some(before) = process.published
            && before != image
        {
            self.unpublish(&before);
        }
        let Some(first) = self.place(process) else {
            self.unpublish(&image);
            return false;
        };
        let areas_of_image = ImageAreas {
            first,
            count: process.code.areas().len() as u32,
            alive_at: process.alive_at,
        };
        if let Err(error) = self.image_areas.insert(image, areas_of_image, 0) {
            tracing::debug!(pid = image.pid, %error, "failed to publish mappings");
            self.unpublish(&image);
            return false;
        }
        true
    }

    pub fn unpublish(&mut self, image: &ProcessImage) {
        if let Err(error) = self.image_areas.remove(image) {
            tracing::trace!(pid = image.pid, %error, "mappings were not in the map");
        }
    }

    /// The index of the process's areas, written on first use.
    fn place(&mut self, process: &Process) -> Option<u32> {
        let code = &process.code;
        if let Some(lease) = code.lease.get() {
            return Some(lease.allocation.start);
        }
        let count = code.areas().len() as u32;
        if count == 0 {
            return Some(0);
        }
        let allocation = Allocation {
            start: self.take(count)?,
            words: count,
        };
        let areas: &AreaMemory = &self.areas;
        for (index, area) in (allocation.start..).zip(code.areas()) {
            areas.write(index, area);
        }
        let returned = Arc::clone(&self.returned);
        let lease = code.lease.get_or_init(|| Lease {
            allocation,
            returned,
        });
        Some(lease.allocation.start)
    }

    fn take(&mut self, count: u32) -> Option<u32> {
        let now = Instant::now();
        let mut returned = self.returned.lock();
        self.quarantined
            .extend(returned.drain(..).map(|allocation| (now, allocation)));
        drop(returned);
        while let Some((since, allocation)) = self.quarantined.front()
            && now.duration_since(*since) >= REUSE_DELAY
        {
            self.free.give(*allocation);
            self.quarantined.pop_front();
        }
        self.free.take(count)
    }
}
