//! Attribute lists: valid indices and distinct keys.

use super::Walk;
use crate::wire::invalid::{Fault, Invalid, WithPath};
use crate::{AttributeIdx, StringIdx};

/// Lists up to this length are compared pairwise.
const SHORT: usize = 24;

impl Walk<'_> {
    /// Checks the attributes of the last row.
    #[inline(always)]
    pub(super) fn attribute_list(&mut self) -> Result<(), Invalid> {
        let list = &self.lists.attributes;
        self.attributes.check_list(list, "attribute_indices")?;
        let repeated = match list.as_slice() {
            [] | [_] => None,
            short if short.len() <= 8 => self.repeated_key(short),
            _ => self.repeated_key_of_many(),
        };
        match repeated {
            None => Ok(()),
            Some((first, again)) => {
                let list = "attribute_indices";
                Err(Fault::DuplicateKey { list, first }).item(list, again)
            }
        }
    }

    #[inline(always)]
    fn key(&self, attribute: AttributeIdx) -> StringIdx {
        self.keys.get(attribute.row()).copied().unwrap_or_default()
    }

    #[inline(always)]
    fn repeated_key(&self, list: &[AttributeIdx]) -> Option<(usize, usize)> {
        for (again, &attribute) in list.iter().enumerate() {
            for (first, &before) in list[..again].iter().enumerate() {
                if self.key(attribute) == self.key(before) {
                    return Some((first, again));
                }
            }
        }
        None
    }

    fn repeated_key_of_many(&mut self) -> Option<(usize, usize)> {
        let mut order = std::mem::take(&mut self.key_order);
        order.clear();
        let list = self.lists.attributes.iter().enumerate();
        order.extend(list.map(|(position, &attribute)| (self.key(attribute), position)));
        order.sort_unstable();
        let repeated = order
            .windows(2)
            .find_map(|pair| (pair[0].0 == pair[1].0).then_some((pair[0].1, pair[1].1)));
        self.key_order = order;
        repeated
    }
}

/// Checks that the keys of a resource or scope are distinct.
pub(super) fn distinct_texts(keys: &[&[u8]]) -> Result<(), Invalid> {
    let repeated = if keys.len() <= SHORT {
        let again = (1..keys.len()).find(|&again| keys[..again].contains(&keys[again]));
        again.map(|again| (keys.iter().position(|key| *key == keys[again]), again))
    } else {
        let mut order: Vec<_> = keys.iter().zip(0..).collect();
        order.sort_unstable();
        let mut pairs = order.windows(2);
        let pair = pairs.find(|pair| pair[0].0 == pair[1].0);
        pair.map(|pair| (Some(pair[0].1), pair[1].1))
    };
    match repeated {
        None => Ok(()),
        Some((first, again)) => {
            let list = "attributes";
            let first = first.unwrap_or_default();
            Err(Fault::DuplicateKey { list, first }).item(list, again)
        }
    }
}
