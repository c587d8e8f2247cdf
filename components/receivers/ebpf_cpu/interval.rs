//! What was seen during one interval: each stack once, and who was in it when.

use std::collections::HashMap;

use profcol_ebpf_loader::{Frames, ProcessKey, Sample, SampleKey};

use super::{Timestamps, now};

#[derive(Default)]
pub struct Interval {
    /// Not later than any of its samples.
    pub start: Timestamps,
    stacks: HashMap<Box<[u8]>, u32>,
    stack_bytes: usize,
    /// The number of kernel frames of each stack, whose bytes are the key above.
    kernel_frames: Vec<u32>,
    seen: HashMap<Observation, Seen>,
    /// Those that the kernel counts after it sent them.
    counted: HashMap<SampleKey, Observation>,
}

/// How often something was seen, and when.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub count: u64,
    /// Since boot; none where samples are counted.
    pub times: Vec<u64>,
}

/// What samples have in common that differ in time alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Observation {
    pub process: ProcessKey,
    pub thread: u32,
    pub thread_name: [u8; 16],
    pub cpu: u32,
    /// Why the user's stack ends where it ends.
    pub end: u32,
    pub stack: u32,
}

/// A stack, innermost frame first.
#[derive(Clone, Copy, Debug)]
pub struct SeenStack<'a> {
    pub kernel: Frames<'a>,
    pub user: Frames<'a>,
}

/// Bytes of stacks, and observations, with which an interval ends before its time: at 99 samples a
/// second it takes a hundred busy CPUs and minutes to get there.
const MAX_STACK_BYTES: usize = 64 << 20;
const MAX_OBSERVATIONS: usize = 1 << 18;

impl Interval {
    pub fn starting_at(start: Timestamps) -> Self {
        Self {
            start,
            ..Self::default()
        }
    }

    /// `sample_key` is how the kernel will speak of samples that are equal.
    pub fn add(
        &mut self,
        sample: &Sample,
        sample_key: Option<SampleKey>,
        kernel: Frames<'_>,
        user: Frames<'_>,
    ) {
        // It was taken after the last interval was read and before this one began. Who checks times would
        // refuse the whole batch for it.
        let early = self.start.since_boot.saturating_sub(sample.time);
        self.start.since_boot -= early;
        self.start.unix = self.start.unix.saturating_sub(early);
        let stack = self.stack(kernel, user);
        let observation = Observation {
            process: sample.process,
            thread: sample.thread,
            thread_name: sample.thread_name,
            cpu: sample.cpu,
            end: sample.end,
            stack,
        };
        let seen = self.seen.entry(observation).or_default();
        seen.count += 1;
        match sample_key {
            Some(sample_key) => {
                self.counted.insert(sample_key, observation);
            }
            None => seen.times.push(sample.time),
        }
    }

    pub fn is_full(&self) -> bool {
        self.stack_bytes > MAX_STACK_BYTES || self.seen.len() > MAX_OBSERVATIONS
    }

    /// Adds samples that were counted. False where none like them was sent.
    pub fn add_count(&mut self, key: &SampleKey, count: u64) -> bool {
        let observation = self.counted.get(key);
        match observation.and_then(|observation| self.seen.get_mut(observation)) {
            Some(seen) => {
                seen.count += count;
                true
            }
            None => count == 0,
        }
    }

    fn stack(&mut self, kernel: Frames<'_>, user: Frames<'_>) -> u32 {
        // The number of kernel frames is part of what a stack is.
        let split = kernel.len() as u32;
        let mut key = Vec::with_capacity(4 + kernel.bytes().len() + user.bytes().len());
        key.extend(split.to_le_bytes());
        key.extend(kernel.bytes());
        key.extend(user.bytes());
        if let Some(&known) = self.stacks.get(key.as_slice()) {
            return known;
        }
        let number = self.kernel_frames.len() as u32;
        self.stack_bytes += key.len();
        self.stacks.insert(key.into_boxed_slice(), number);
        self.kernel_frames.push(split);
        number
    }

    /// All stacks, by their numbers.
    pub fn stacks(&self) -> Vec<SeenStack<'_>> {
        let mut stacks = vec![None; self.kernel_frames.len()];
        for (key, &number) in &self.stacks {
            let kernel_frames = self
                .kernel_frames
                .get(number as usize)
                .copied()
                .unwrap_or(0);
            if let Some((_, frames)) = key.split_at_checked(4)
                && let Some((kernel, user)) = frames.split_at_checked(kernel_frames as usize * 8)
                && let Some(place) = stacks.get_mut(number as usize)
            {
                *place = Some(SeenStack {
                    kernel: Frames::new(kernel),
                    user: Frames::new(user),
                });
            }
        }
        stacks.into_iter().flatten().collect()
    }

    /// Of each sample, hence some more than once.
    pub fn processes(&self) -> impl Iterator<Item = ProcessKey> {
        self.seen.keys().map(|seen| seen.process)
    }

    /// What was seen, processes together.
    pub fn observations(&self) -> Vec<(&Observation, &Seen)> {
        let mut all: Vec<_> = self.seen.iter().collect();
        all.sort_unstable_by_key(|(seen, _)| {
            let process = seen.process;
            (
                process.pid,
                process.started,
                process.exec,
                seen.stack,
                seen.thread,
                seen.cpu,
            )
        });
        all
    }

    /// The time of the world at which a sample was taken.
    pub fn unix_time(&self, since_boot: u64) -> u64 {
        self.start
            .unix
            .wrapping_add(since_boot)
            .wrapping_sub(self.start.since_boot)
    }

    pub fn duration(&self) -> u64 {
        now().since_boot.saturating_sub(self.start.since_boot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sample_was_taken_before_its_interval_began() {
        let start = Timestamps {
            since_boot: 1_000,
            unix: 51_000,
        };
        let check = |times: &[u64], expected: u64| {
            let mut interval = Interval::starting_at(start);
            for &time in times {
                let sample = Sample {
                    time,
                    ..Sample::default()
                };
                interval.add(&sample, None, Frames::new(&[]), Frames::new(&[]));
            }
            assert_eq!(interval.start.unix, expected, "{times:?}");
            // The clocks still tell the same time.
            assert_eq!(interval.unix_time(2_000), 52_000, "{times:?}");
        };
        check(&[], 51_000);
        check(&[1_000, 1_500], 51_000);
        check(&[1_200, 990, 1_100, 995], 50_990);
    }
}
