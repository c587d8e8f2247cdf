//! A binary search that starts where the last one ended: the addresses of a batch are sorted, and nearby rows are in
//! the CPU caches.

use std::cell::Cell;

#[derive(Default)]
pub struct SearchHint(Cell<usize>);

impl SearchHint {
    /// Like `slice::partition_point`.
    pub fn partition_point<T>(&self, rows: &[T], is_before: impl Fn(&T) -> bool) -> usize {
        let start = self.0.get().min(rows.len());
        let (behind, ahead) = rows.split_at_checked(start).unwrap_or((rows, &[]));
        let index = match behind.last() {
            Some(last) if !is_before(last) => {
                let far = reach(behind.len(), |step| {
                    behind
                        .get(behind.len() - step)
                        .is_some_and(|row| !is_before(row))
                });
                let from = behind.len() - far;
                let rest = behind.get(from..).unwrap_or_default();
                from + rest.partition_point(is_before)
            }
            _ => {
                let far = reach(ahead.len(), |step| {
                    ahead.get(step - 1).is_some_and(&is_before)
                });
                let rest = ahead.get(..far).unwrap_or_default();
                start + rest.partition_point(is_before)
            }
        };
        self.0.set(index);
        index
    }
}

/// The number of rows to search, by exponential search.
fn reach(most: usize, is_short: impl Fn(usize) -> bool) -> usize {
    let mut step = 1;
    while step < most && is_short(step) {
        step *= 4;
    }
    step.min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_plain_binary_search() {
        let hint = SearchHint::default();
        let mut seed = 1u32;
        for length in [0, 1, 2, 3, 5, 64, 1000] {
            let rows: Vec<u32> = (0..length).map(|it| it / 3 * 2).collect();
            for _ in 0..2000 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let target = (seed >> 16) % (length + 2);
                let is_before = |row: &u32| *row <= target;
                let index = hint.partition_point(&rows, is_before);
                assert_eq!(
                    index,
                    rows.partition_point(is_before),
                    "{target} of {length}"
                );
            }
        }
    }
}
