//! Admission control: how much memory and how many threads requests may take, process-wide.
//!
//! The kernel says how much memory the process uses; it cannot say what is about to be used. So
//! servers and receivers announce what they are about to use:
//!
//! ```text
//! resident memory at the last reading
//!   + what was taken since           bytes that arrived; the next reading has them
//!   + what is reserved               buffers that are being filled
//!   ≤ the limit, or the request is refused
//! ```
//!
//! A reading costs some tens of microseconds. There is a new one where the last is old or the sum
//! does not fit, so that it comes with requests and never on a timer. Before a request is refused,
//! memory that was freed is given back to the kernel, in which it would count.

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        reason = "what is unwrapped wrongly fails the test, as it should"
    )
)]

mod heap;
mod memory;
#[cfg(test)]
mod tests;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use prometheus::IntCounter;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

pub use self::heap::keep_large_memory_apart;
pub use self::memory::{available as available_memory, in_use as resident_memory};

/// How old a reading may be: what processors allocate shows in no other way.
const MAX_AGE: Duration = Duration::from_millis(100);

/// How often memory is given back while there is not enough of it: that may take some 10 ms.
const RELEASE_INTERVAL: Duration = Duration::from_millis(250);

/// Decides what is taken on. Clones share the limits.
#[derive(Clone)]
pub struct Admission {
    shared: Arc<Shared>,
    refused: Option<IntCounter>,
}

struct Shared {
    memory: Mutex<Memory>,
    threads: Arc<Semaphore>,
}

/// Reads how many bytes of memory the process uses.
type ReadMemory = fn() -> Option<u64>;

#[derive(Debug)]
struct Memory {
    read: ReadMemory,
    /// Gives back what was freed.
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

/// Memory that is about to be used. Once it is used, or will not be, this is to be dropped.
#[derive(Debug)]
pub struct Reservation {
    admission: Admission,
    bytes: u64,
}

/// There is not enough memory left.
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
    /// Whether it would not fit into a process that uses no memory, so that trying again is in vain.
    pub fn is_final(&self) -> bool {
        self.wanted > self.limit
    }
}

// === impl Admission ===

impl Admission {
    /// Refuses what would bring the resident memory of this process over `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self::with_memory_reader(memory::in_use, limit)
    }

    /// With four fifths of the memory that there is for this process as the limit.
    pub fn for_available_memory() -> Self {
        Self::new(memory::available().map_or(u64::MAX, |bytes| bytes / 5 * 4))
    }

    /// For what is bounded otherwise, and for tests.
    pub fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// [`new`](Self::new), with another way to learn how much memory is in use.
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

    /// The same limits; `refused` counts what is refused through this handle.
    #[must_use]
    pub fn counting(&self, refused: IntCounter) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            refused: Some(refused),
        }
    }

    /// Lowers the limit to `bytes`; a lower one stays.
    pub fn lower_limit(&self, bytes: u64) {
        let mut memory = self.memory();
        memory.limit = memory.limit.min(bytes);
    }

    /// Bytes that are in use as of a reading of at most this age; none where it cannot be read.
    pub fn memory_in_use(&self, max_age: Duration) -> Option<u64> {
        let mut memory = self.memory();
        if !memory.has_reading(max_age) {
            memory.measure();
        }
        memory.reading.map(|reading| reading.bytes)
    }

    /// Takes memory that is in use already, such as that of bytes that have arrived.
    pub fn take(&self, bytes: usize) -> Result<(), Exhausted> {
        let admitted = self.memory().admit(bytes as u64);
        self.counted(admitted)
    }

    /// Sets memory aside for a buffer that is going to be filled.
    pub fn reserve(&self, bytes: usize) -> Result<Reservation, Exhausted> {
        let mut reservation = self.reservation();
        reservation.resize(bytes)?;
        Ok(reservation)
    }

    /// A reservation of nothing, for a buffer whose size is not known yet.
    pub fn reservation(&self) -> Reservation {
        Reservation {
            admission: self.clone(),
            bytes: 0,
        }
    }

    /// Does work that takes long on a thread of its own. As much goes on at a time as there are
    /// CPUs; the rest waits.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let permit = Arc::clone(&self.shared.threads).acquire_owned().await;
        // The work goes on where nobody waits for it any more, and so keeps its place.
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

    fn memory(&self) -> MutexGuard<'_, Memory> {
        let memory = self.shared.memory.lock();
        memory.unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.memory().fmt(f)
    }
}

// === impl Reservation ===

impl Reservation {
    /// Sets aside so many bytes instead of as many as before. Where there is no room for more, it
    /// stays as it is.
    pub fn resize(&mut self, bytes: usize) -> Result<(), Exhausted> {
        self.resize_between(bytes, bytes)
    }

    /// Sets aside `wanted` bytes, or `least` where there is no room for more and nothing else is set aside:
    /// of a crowd that sends again and again, one request at a time goes on.
    pub fn resize_between(&mut self, least: usize, wanted: usize) -> Result<(), Exhausted> {
        let mut memory = self.admission.memory();
        let mut admitted = memory.resize(&mut self.bytes, wanted as u64);
        if admitted.is_err() && memory.reserved == self.bytes {
            admitted = memory.resize(&mut self.bytes, least as u64);
        }
        drop(memory);
        self.admission.counted(admitted)
    }

    /// So many bytes of it are in use now: the next reading has them, so they are set aside no more.
    pub fn spend(&mut self, bytes: usize) {
        let spent = self.bytes.min(bytes as u64);
        self.admission.memory().reserved -= spent;
        self.bytes -= spent;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.admission.memory().reserved -= self.bytes;
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

    /// Makes a reservation that large, or leaves it as it is.
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

    /// What was taken before is in the new reading. What is reserved may be or not.
    fn measure(&mut self) {
        self.reading = (self.read)().map(|bytes| Reading {
            bytes,
            at: Instant::now(),
        });
        self.unseen = self.reserved;
    }
}
