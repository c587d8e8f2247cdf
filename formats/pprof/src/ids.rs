//! Maps the ids of a file to rows of the model.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use profcol_profile::Idx;

/// The rows of one kind by id. Most files number them from 1, which needs no hashing.
pub(super) struct Ids<T: ?Sized> {
    dense: Vec<Option<Idx<T>>>,
    sparse: HashMap<u64, Idx<T>, RandomState>,
    len: usize,
}

impl<T: ?Sized> Default for Ids<T> {
    fn default() -> Self {
        Self {
            dense: Vec::new(),
            sparse: HashMap::default(),
            len: 0,
        }
    }
}

impl<T: ?Sized> Ids<T> {
    /// Stores the row of `id`; `false` if the id is taken or 0, which means none.
    #[must_use]
    pub fn insert(&mut self, id: u64, row: Idx<T>) -> bool {
        if id == 0 || self.get(id).is_some() {
            return false;
        }
        self.len += 1;
        // At most twice the number of rows, so that gaps between ids cannot make it large.
        let dense = usize::try_from(id).ok().filter(|&id| id <= 2 * self.len);
        match dense {
            Some(id) => {
                if self.dense.len() <= id {
                    self.dense.resize(id + 1, None);
                }
                self.dense[id] = Some(row);
            }
            None => {
                self.sparse.insert(id, row);
            }
        }
        true
    }

    pub fn get(&self, id: u64) -> Option<Idx<T>> {
        let dense = usize::try_from(id).ok().and_then(|id| self.dense.get(id));
        match dense {
            Some(Some(row)) => Some(*row),
            _ => self.sparse.get(&id).copied(),
        }
    }
}
