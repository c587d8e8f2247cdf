//! Short functions: main calls work, which calls outer, which calls inner, which calls leaf.

use std::hint::black_box;
use std::time::{Duration, Instant};

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn leaf(mut state: u64) -> u64 {
    for _ in 0..8 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    state
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn inner(state: u64) -> u64 {
    let call: extern "C" fn(u64) -> u64 = black_box(leaf);
    let values = black_box([state; 40]);
    call(state) ^ values[state as usize % 40]
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn outer(state: u64) -> u64 {
    let call: extern "C" fn(u64) -> u64 = black_box(inner);
    let dropped = black_box(Some(Box::new(state)));
    call(state) ^ dropped.map_or(0, |value| *value)
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn work(rounds: u64) -> u64 {
    let call: extern "C" fn(u64) -> u64 = black_box(outer);
    (1..rounds).map(|state| call(state)).fold(0, u64::wrapping_add)
}

fn main() {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(300) {
        black_box(work(black_box(10_000)));
    }
}
