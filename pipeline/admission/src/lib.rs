//! Admission control: process-wide limits on the memory and threads of requests.
//!
//! The kernel reports the memory in use, but not memory about to be used. Servers and receivers announce that:
//!
//! ```text
//! resident memory at the last reading, without pages of files
//!   + taken since                    bytes that arrived; included in the next reading
//!   + reserved                       buffers being filled
//!   ≤ the limit, or the request is refused
//! ```
//!
//! A reading costs some tens of microseconds. Requests trigger a new one if the last is old or the sum does not fit;
//! there is no timer. Before a request is refused, freed memory is returned to the kernel, as it would count as
//! resident.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a panic fails the test"))]

mod heap;
mod memory;
#[cfg(test)]
mod tests;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::IntCounter;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::Instant;

pub use self::heap::keep_large_memory_apart;
pub use self::memory::{
    available as available_memory, in_use as memory_in_use, resident as resident_memory,
};

/// Maximum age of a reading: only readings show what processors allocate.
const MAX_AGE: Duration = Duration::from_millis(100);

/// Minimum interval between returns of freed memory, which may take some 10 ms.
const RELEASE_INTERVAL: Duration = Duration::from_millis(250);

/// Admits or refuses work. Clones share the limits.
#[derive(Clone)]
pub struct Admission {
    shared: Arc<Shared>,
    refused: Option<IntCounter>,
}

struct Shared {
    memory: Mutex<Memory>,
    threads: Arc<Semaphore>,
}

/// Reads the process's memory use in bytes.
type ReadMemory = fn() -> Option<u64>;

#[derive(Debug)]
struct Memory {
    read: ReadMemory,
    /// Returns freed memory to the kernel.
    release: fn(),
    released: Option<Instant>,
    limit: u64,
    reading: Option<Reading>,
    /// Taken or reserved since the reading, or reserved at that time.
    unseen: u64,
    reserved: u64,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    bytes: u64,
    at: Instant,
}

/// Memory about to be used. Drop it once the memory is in use or no longer needed.
#[derive(Debug)]
pub struct Reservation {
    admission: Admission,
    bytes: u64,
}

/// Not enough memory left.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "failed to reserve {wanted} bytes of memory: {in_use} of {limit} bytes are in use (see `memory_limiter`)"
)]
pub struct Exhausted {
    pub wanted: u64,
    pub in_use: u64,
    pub limit: u64,
}

impl Exhausted {
    /// Whether the request exceeds the limit itself, so that retrying is pointless.
    pub fn is_final(&self) -> bool {
        self.wanted > self.limit
    }
}

// === impl Admission ===

impl Admission {
    /// Refuses requests that would bring the memory of this process that cannot be reclaimed over `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self::with_memory_reader(memory::in_use, limit)
    }

    /// Sets the limit to four fifths of the memory available to this process.
    pub fn for_available_memory() -> Self {
        Self::new(memory::available().map_or(u64::MAX, |bytes| bytes / 5 * 4))
    }

    /// No limit: for tests, and for work bounded elsewhere.
    pub fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// [`new`](Self::new) with a custom memory reader.
    pub fn with_memory_reader(read: ReadMemory, limit: u64) -> Self {
        Self::with(read, heap::release_free, limit)
    }

    fn with(read: ReadMemory, release: fn(), limit: u64) -> Self {
        let threads = available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            shared: Arc::new(Shared {
                memory: Mutex::new(Memory {
                    read,
                    release,
                    released: None,
                    limit,
                    reading: None,
                    unseen: 0,
                    reserved: 0,
                }),
                threads: Arc::new(Semaphore::new(threads)),
            }),
            refused: None,
        }
    }

    /// The same limits; `refused` counts refusals through this handle.
    #[must_use]
    pub fn counting(&self, refused: IntCounter) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            refused: Some(refused),
        }
    }

    /// Lowers the limit to `bytes`, unless it is lower already.
    pub fn lower_limit(&self, bytes: u64) {
        let mut memory = self.shared.memory.lock();
        memory.limit = memory.limit.min(bytes);
    }

    /// Memory in use by a reading of at most this age; `None` if it cannot be read.
    pub fn memory_in_use(&self, max_age: Duration) -> Option<u64> {
        let mut memory = self.shared.memory.lock();
        if !memory.has_reading(max_age) {
            memory.measure();
        }
        memory.reading.map(|reading| reading.bytes)
    }

    /// Accounts for memory already in use, such as bytes that have arrived.
    pub fn take(&self, bytes: usize) -> Result<(), Exhausted> {
        let admitted = self.shared.memory.lock().admit(bytes as u64);
        self.counted(admitted)
    }

    /// Reserves memory for a buffer to be filled.
    pub fn reserve(&self, bytes: usize) -> Result<Reservation, Exhausted> {
        let mut reservation = self.reservation();
        reservation.resize(bytes)?;
        Ok(reservation)
    }

    /// An empty reservation, for a buffer of unknown size.
    pub fn reservation(&self) -> Reservation {
        Reservation {
            admission: self.clone(),
            bytes: 0,
        }
    }

    /// Runs long work on a blocking thread. Concurrency is limited to the number of CPUs; the rest waits.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let permit = Arc::clone(&self.shared.threads).acquire_owned().await;
        // Abandoned work still runs, so it keeps its permit.
        spawn_blocking(move || {
            let done = work();
            drop(permit);
            done
        })
        .await
    }

    fn counted<T>(&self, result: Result<T, Exhausted>) -> Result<T, Exhausted> {
        if let (Err(_), Some(refused)) = (&result, &self.refused) {
            refused.inc();
        }
        result
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.memory.lock().fmt(f)
    }
}

// === impl Reservation ===

impl Reservation {
    /// Changes the reservation to `bytes`. Leaves it unchanged if that does not fit.
    pub fn resize(&mut self, bytes: usize) -> Result<(), Exhausted> {
        self.resize_between(bytes, bytes)
    }

    /// Reserves `wanted` bytes, or `least` if that does not fit and nothing else is reserved: under constant overload,
    /// one request at a time still proceeds.
    pub fn resize_between(&mut self, least: usize, wanted: usize) -> Result<(), Exhausted> {
        let mut memory = self.admission.shared.memory.lock();
        let mut admitted = memory.resize(&mut self.bytes, wanted as u64);
        if admitted.is_err() && memory.reserved == self.bytes {
            admitted = memory.resize(&mut self.bytes, least as u64);
        }
        drop(memory);
        self.admission.counted(admitted)
    }

    /// Releases `bytes` that are in use now: the next reading includes them.
    pub fn spend(&mut self, bytes: usize) {
        let spent = self.bytes.min(bytes as u64);
        self.admission.shared.memory.lock().reserved -= spent;
        self.bytes -= spent;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.admission.shared.memory.lock().reserved -= self.bytes;
    }
}

// === impl Memory ===

impl Memory {
    fn admit(&mut self, bytes: u64) -> Result<(), Exhausted> {
        if self.limit == u64::MAX || bytes == 0 {
            return Ok(());
        }
        if !(self.has_reading(MAX_AGE) && self.fits(bytes)) {
            self.measure();
        }
        if !self.fits(bytes) {
            self.release();
        }
        if !self.fits(bytes) {
            return Err(Exhausted {
                wanted: bytes,
                in_use: self.in_use(),
                limit: self.limit,
            });
        }
        self.unseen += bytes;
        Ok(())
    }

    /// Changes a reservation to `bytes`, or leaves it unchanged.
    fn resize(&mut self, reservation: &mut u64, bytes: u64) -> Result<(), Exhausted> {
        self.admit(bytes.saturating_sub(*reservation))?;
        self.reserved = self.reserved - *reservation + bytes;
        *reservation = bytes;
        Ok(())
    }

    fn fits(&self, bytes: u64) -> bool {
        self.in_use().saturating_add(bytes) <= self.limit
    }

    fn in_use(&self) -> u64 {
        let read = self.reading.map_or(0, |reading| reading.bytes);
        read.saturating_add(self.unseen)
    }

    fn has_reading(&self, max_age: Duration) -> bool {
        self.reading
            .is_some_and(|reading| reading.at.elapsed() <= max_age)
    }

    fn release(&mut self) {
        let is_due = |released: Instant| released.elapsed() >= RELEASE_INTERVAL;
        if self.released.is_none_or(is_due) {
            (self.release)();
            self.released = Some(Instant::now());
            self.measure();
        }
    }

    /// The new reading includes memory taken before, but not necessarily reserved memory.
    fn measure(&mut self) {
        self.reading = (self.read)().map(|bytes| Reading {
            bytes,
            at: Instant::now(),
        });
        self.unseen = self.reserved;
    }
}
