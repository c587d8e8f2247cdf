//! The names of functions in an image that is in memory alone: that of the vDSO, of which no backend
//! could ever be given the file.

use object::{Object, ObjectSymbol, SymbolKind};

/// In the order of their addresses.
#[derive(Clone, Debug, Default)]
pub struct Functions(Vec<Function>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    start: u64,
    end: u64,
    name: String,
}

impl Functions {
    /// None where the image has no symbols that can be read.
    pub fn of(image: &[u8]) -> Self {
        let Ok(file) = object::File::parse(image) else {
            return Self::default();
        };
        let functions = file.symbols().chain(file.dynamic_symbols());
        // What is written by hand may not say that it is a function.
        let kinds = [SymbolKind::Text, SymbolKind::Unknown];
        let functions = functions.filter(|symbol| kinds.contains(&symbol.kind()));
        let functions = functions.filter(|symbol| symbol.section_index().is_some());
        let functions = functions.filter_map(|symbol| {
            let start = symbol.address();
            let end = start.checked_add(symbol.size())?;
            let name = symbol.name().ok()?.to_owned();
            Some(Function { start, end, name })
        });
        let mut functions: Vec<Function> = functions.collect();
        functions.sort_unstable();
        // Of several names the one with underscores in front, which says where it is.
        functions.dedup_by_key(|function| function.start);
        Self(functions)
    }

    /// The name of the function that has this address.
    pub fn find(&self, address: u64) -> Option<&str> {
        let after = self.0.partition_point(|known| known.start <= address);
        let known = self.0.get(after.checked_sub(1)?)?;
        (address < known.end).then_some(&*known.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opener::read_vdso;

    #[test]
    fn of_the_vdso_each_function_is_found_by_all_its_addresses() {
        let functions = Functions::of(&read_vdso().expect("this process has one"));
        let named = functions.0.iter();
        let clock = named
            .clone()
            .find(|known| known.name.contains("clock_gettime"));
        let clock = clock.expect("each vDSO tells the time");
        assert!(clock.name.starts_with("__"), "{functions:?}");
        for known in named {
            assert_eq!(functions.find(known.start), Some(&*known.name));
            assert_eq!(functions.find(known.end - 1), Some(&*known.name));
            assert_ne!(functions.find(known.end), Some(&*known.name));
        }
        assert_eq!(functions.find(0), None);
    }

    #[test]
    fn of_garbage_there_are_none() {
        assert!(Functions::of(b"no image").0.is_empty());
    }
}
