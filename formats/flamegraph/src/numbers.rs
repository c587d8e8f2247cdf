//! Numbers that the rows of a batch's table have elsewhere.

/// Each is found once.
pub struct Numbers(Vec<u32>);

const NOT_YET: u32 = u32::MAX;

impl Numbers {
    pub fn new(rows: usize) -> Self {
        Self(vec![NOT_YET; rows])
    }

    pub fn get(&self, row: usize) -> Option<u32> {
        let number = self.0.get(row).copied();
        number.filter(|number| *number != NOT_YET)
    }

    /// Sets the number of a row; rows that are not in the table are ignored.
    pub fn set(&mut self, row: usize, number: u32) {
        if let Some(slot) = self.0.get_mut(row) {
            *slot = number;
        }
    }

    pub fn get_or_insert_with(&mut self, row: usize, find: impl FnOnce() -> u32) -> u32 {
        self.get(row).unwrap_or_else(|| {
            let number = find();
            self.set(row, number);
            number
        })
    }
}
