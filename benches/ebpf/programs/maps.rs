//! Maps, strings and sorting, called through recursion.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

#[inline(never)]
fn descend(depth: u64, seed: u64) -> u64 {
    if depth == 0 {
        return work(seed);
    }
    descend(depth - 1, seed).wrapping_add(depth)
}

#[inline(never)]
fn work(seed: u64) -> u64 {
    let numbers = (0..300).map(|i| (i * 7919 + seed) % 1009);
    let by_name: HashMap<String, u64> = numbers.map(|n| (format!("name-{n}"), n)).collect();
    let sorted: BTreeMap<&str, u64> = by_name.iter().map(|(name, &n)| (name.as_str(), n)).collect();
    sorted.values().sum()
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let mut seed = 0;
    while Instant::now() < until {
        seed = descend(seed % 20, seed + 1) % 100_000;
    }
}
