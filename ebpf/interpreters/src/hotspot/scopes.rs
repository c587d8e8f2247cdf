//! The functions at an instruction of compiled code: the compiled one, and those inlined there.

use crate::FunctionError;
use std::collections::HashMap;

use super::unsigned5::Unsigned5;

/// The compilers stop at 15 by default.
const MAX_DEPTH: usize = 64;
/// Maximum number of methods in one nmethod.
const MAX_METHODS: u32 = 1 << 12;

const PC_DESC_BYTES: usize = 16;

/// The debug information of an nmethod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes {
    /// Sorted code offsets, each with the scope of the code up to it.
    places: Vec<(i32, u32)>,
    /// By offset in the data of the nmethod.
    scopes: HashMap<u32, Scope>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The scope that it is inlined into; 0 for the compiled function.
    sender: u32,
    /// The number of its method in the nmethod, starting at 1.
    pub method: u32,
    /// None at the entry of the function.
    pub bci: Option<u32>,
}

impl Scopes {
    /// Parses `PcDesc`s and the data that they refer to.
    pub fn parse(
        descriptors: &[u8],
        data: &[u8],
        excludes_zero: bool,
    ) -> Result<Self, FunctionError> {
        let mut scopes = Self::default();
        let (descriptors, _) = descriptors.as_chunks::<PC_DESC_BYTES>();
        let number = |bytes: &[u8; PC_DESC_BYTES], at: usize| {
            let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
            bytes.map_or(0, |bytes| i32::from_le_bytes(*bytes))
        };
        for descriptor in descriptors {
            let scope = u32::try_from(number(descriptor, 4)).unwrap_or(0);
            scopes.add(scope, data, excludes_zero)?;
            scopes.places.push((number(descriptor, 0), scope));
        }
        if scopes.places.is_sorted_by_key(|(offset, _)| *offset) {
            Ok(scopes)
        } else {
            Err(FunctionError::Invalid("the order of compiled code"))
        }
    }

    /// Adds the scope and those that it is inlined into.
    fn add(&mut self, mut at: u32, data: &[u8], excludes_zero: bool) -> Result<(), FunctionError> {
        while at != 0 && !self.scopes.contains_key(&at) {
            let bytes = data.get(at as usize..).unwrap_or_default();
            let mut reader = Unsigned5::new(bytes, excludes_zero);
            let mut next = || {
                let integer = reader.unsigned();
                integer.ok_or(FunctionError::Invalid("a scope of compiled code"))
            };
            let (sender, method, bci) = (next()?, next()?, next()?);
            // A scope comes after the one that it is inlined into.
            if sender >= at || method == 0 || method > MAX_METHODS {
                return Err(FunctionError::Invalid("a scope of compiled code"));
            }
            let scope = Scope {
                sender,
                method,
                bci: bci.checked_sub(1),
            };
            self.scopes.insert(at, scope);
            at = sender;
        }
        Ok(())
    }

    /// The numbers of all methods.
    pub fn methods(&self) -> impl Iterator<Item = u32> {
        self.scopes.values().map(|scope| scope.method)
    }

    /// The scopes at a code offset, innermost first. Descriptors are at positions where the code may stop, so the
    /// first one at or after the offset applies.
    pub fn at(&self, offset: u32) -> impl Iterator<Item = Scope> {
        let offset = i32::try_from(offset).unwrap_or(i32::MAX);
        let first = self.places.partition_point(|(place, _)| *place < offset);
        let mut scope = self.places.get(first).map_or(0, |(_, scope)| *scope);
        let chain = std::iter::from_fn(move || {
            let found = *self.scopes.get(&scope)?;
            scope = found.sender;
            Some(found)
        });
        chain.take(MAX_DEPTH)
    }

    pub fn bytes(&self) -> usize {
        size_of_val(self.places.as_slice()) + self.scopes.len() * size_of::<(u32, Scope)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptors(places: &[(i32, i32)]) -> Vec<u8> {
        let numbers = places.iter().flat_map(|(pc, scope)| [*pc, *scope, 0, 0]);
        numbers.flat_map(i32::to_le_bytes).collect()
    }

    /// Method 1 at 1; method 2, inlined there, at 4.
    const DATA: [u8; 7] = [0, 0, 1, 6, 1, 2, 0];

    #[test]
    fn uses_the_descriptor_at_or_after_the_offset() {
        let table = descriptors(&[(-1, 0), (10, 1), (20, 4), (i32::MAX, 0)]);
        let scopes = Scopes::parse(&table, &DATA, false).unwrap();
        let methods = |offset| -> Vec<u32> { scopes.at(offset).map(|it| it.method).collect() };
        assert_eq!(methods(0), [1]);
        assert_eq!(methods(10), [1]);
        assert_eq!(methods(11), [2, 1]);
        assert_eq!(methods(20), [2, 1]);
        assert!(methods(21).is_empty());
        let bcis: Vec<_> = scopes.at(20).map(|scope| scope.bci).collect();
        assert_eq!(bcis, [None, Some(5)]);
    }

    #[test]
    fn rejects_invalid_scopes() {
        let parse = |places: &[(i32, i32)], data: &[u8]| {
            Scopes::parse(&descriptors(places), data, false).map(|_| ())
        };
        for (places, data) in [
            // Unsorted; truncated; past the end; inlined into itself; without a method.
            (&[(20, 1), (10, 1)], &DATA[..]),
            (&[(10, 1), (20, 4)], &DATA[..5]),
            (&[(10, 1), (20, 400)], &DATA),
            (&[(10, 1), (20, 1)], &[0, 1, 1, 1]),
            (&[(10, 1), (20, 1)], &[0, 0, 0, 1]),
        ] {
            assert!(parse(places, data).is_err(), "{places:?} {data:?}");
        }
        assert!(parse(&[], &[]).is_ok());
    }
}
