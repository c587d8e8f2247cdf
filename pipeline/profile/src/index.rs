//! Typed indices: a `StackIdx` cannot be used to look up a string.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

/// The position of a row in the table of `T`; 0 means "not set".
pub struct Idx<T: ?Sized>(u32, PhantomData<fn(&T)>);

pub type StringIdx = Idx<str>;

impl<T: ?Sized> Idx<T> {
    /// Row 0 of every table: "not set".
    pub const UNSET: Self = Self::new(0);

    pub const fn new(row: u32) -> Self {
        Self(row, PhantomData)
    }

    pub const fn get(self) -> u32 {
        self.0
    }

    pub const fn row(self) -> usize {
        self.0 as usize
    }

    pub const fn is_set(self) -> bool {
        self.0 != 0
    }
}

impl<T: ?Sized> From<u32> for Idx<T> {
    fn from(row: u32) -> Self {
        Self::new(row)
    }
}

impl<T: ?Sized> Clone for Idx<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Idx<T> {}

impl<T: ?Sized> Default for Idx<T> {
    fn default() -> Self {
        Self::UNSET
    }
}

impl<T: ?Sized> PartialEq for Idx<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T: ?Sized> Eq for Idx<T> {}

impl<T: ?Sized> PartialOrd for Idx<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: ?Sized> Ord for Idx<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

impl<T: ?Sized> Hash for Idx<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<T: ?Sized> fmt::Debug for Idx<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}
