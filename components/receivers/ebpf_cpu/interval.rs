//! The samples of one interval: each stack once, with its observations.

use std::collections::HashMap;

use profcol_ebpf_loader::{ProcessKey, Sample, SampleKey, StackFrames};

use super::{Timestamps, now};

#[derive(Default)]
pub struct Interval {
    /// The start of the interval, not later than any of its samples.
    pub start: Timestamps,
    stacks: HashMap<Box<[u8]>, u32>,
    stack_bytes: usize,
    /// The number of kernel frames of each stack; the map's key has its bytes.
    kernel_frames: Vec<u32>,
    /// Contexts of threads by number, from 1 on.
    contexts: HashMap<Box<[u8]>, u32>,
    seen: HashMap<Observation, Seen>,
    /// Samples that the kernel counts after sending them once.
    counted: HashMap<SampleKey, Observation>,
}

/// How often an observation was made, and when.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub count: u64,
    /// Times of the samples, since boot; empty if samples are counted.
    pub times: Vec<u64>,
}

/// The fields shared by samples that differ only in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Observation {
    pub process: ProcessKey,
    pub thread: u32,
    pub thread_name: [u8; 16],
    pub cpu: u32,
    /// The end reason of the user stack.
    pub end: u32,
    pub stack: u32,
    /// The number of the thread's context; 0 is none.
    pub context: u32,
}

/// A stack, innermost frame first.
#[derive(Clone, Copy, Debug)]
pub struct SeenStack<'a> {
    pub kernel: StackFrames<'a>,
    pub user: StackFrames<'a>,
}

/// Limits for bytes of stacks and contexts, and for observations, at which an interval ends early. At 99 Hz, a hundred busy CPUs take
/// minutes to reach them.
const MAX_STACK_BYTES: usize = 64 << 20;
const MAX_OBSERVATIONS: usize = 1 << 18;

impl Interval {
    pub fn starting_at(start: Timestamps) -> Self {
        Self {
            start,
            ..Self::default()
        }
    }

    /// `sample_key` is the kernel's key for equal samples.
    pub fn add(
        &mut self,
        sample: &Sample,
        sample_key: Option<SampleKey>,
        kernel: StackFrames<'_>,
        user: StackFrames<'_>,
        context: &[u8],
    ) {
        // The sample was taken after the last interval was read and before this one began. A validating backend
        // would refuse the whole batch for it.
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
            context: self.context(context),
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

    /// Adds counted samples. Returns false if no such sample was sent.
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

    fn stack(&mut self, kernel: StackFrames<'_>, user: StackFrames<'_>) -> u32 {
        // The number of kernel frames is part of the stack's identity.
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

    fn context(&mut self, context: &[u8]) -> u32 {
        if context.is_empty() {
            return 0;
        }
        if let Some(&known) = self.contexts.get(context) {
            return known;
        }
        let number = self.contexts.len() as u32 + 1;
        self.stack_bytes += context.len();
        self.contexts.insert(context.into(), number);
        number
    }

    /// All contexts, by number.
    pub fn contexts(&self) -> HashMap<u32, &[u8]> {
        let contexts = self.contexts.iter();
        contexts
            .map(|(bytes, &number)| (number, &**bytes))
            .collect()
    }

    /// All stacks, by index.
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
                && let Some(slot) = stacks.get_mut(number as usize)
            {
                *slot = Some(SeenStack {
                    kernel: StackFrames::new(kernel),
                    user: StackFrames::new(user),
                });
            }
        }
        stacks.into_iter().flatten().collect()
    }

    /// The process of each observation, with repetitions.
    pub fn processes(&self) -> impl Iterator<Item = ProcessKey> {
        self.seen.keys().map(|seen| seen.process)
    }

    /// All observations, grouped by process.
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
                seen.context,
            )
        });
        all
    }

    /// The Unix time of a sample.
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
    fn an_interval_starts_no_later_than_its_samples() {
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
                interval.add(
                    &sample,
                    None,
                    StackFrames::new(&[]),
                    StackFrames::new(&[]),
                    &[],
                );
            }
            assert_eq!(interval.start.unix, expected, "{times:?}");
            // Both clocks still agree.
            assert_eq!(interval.unix_time(2_000), 52_000, "{times:?}");
        };
        check(&[], 51_000);
        check(&[1_000, 1_500], 51_000);
        check(&[1_200, 990, 1_100, 995], 50_990);
    }
}
