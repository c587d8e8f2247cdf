//! Lists of attributes: their indices, and that no key stands in one twice.

use super::Walk;
use crate::wire::invalid::{At, Fault, Invalid};
use crate::{AttributeIdx, StringIdx};

impl Walk {
    /// The attributes of the row that was read last.
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
                Err(Fault::DuplicateKey { first }).item("attribute_indices", again)
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
