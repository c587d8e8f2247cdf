//! Function names of an image that exists only in memory: the vDSO, which cannot be uploaded to a backend.

use object::{Object, ObjectSymbol, SymbolKind};

/// Sorted by address.
#[derive(Clone, Debug, Default)]
pub struct Functions(Vec<Function>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    start: u64,
    end: u64,
    name: String,
}

impl Functions {
    /// Empty if the image has no readable symbols.
    pub fn of(image: &[u8]) -> Self {
        // Not by `profcol_elf`, which reads bounded pieces of files that anyone can write: this image is the kernel's, small, and in
        // memory as a whole.
        let Ok(file) = object::File::parse(image) else {
            return Self::default();
        };
        let functions = file.symbols().chain(file.dynamic_symbols());
        // Handwritten assembly may not mark its symbols as functions.
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
        // Prefers the alias with leading underscores, which identifies the vDSO.
        functions.dedup_by_key(|function| function.start);
        Self(functions)
    }

    /// The name of the function that contains this address.
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
    fn finds_each_vdso_function_by_all_its_addresses() {
        let functions = Functions::of(&read_vdso().expect("this process has one"));
        let named = functions.0.iter();
        let clock = named
            .clone()
            .find(|known| known.name.contains("clock_gettime"));
        let clock = clock.expect("each vDSO has clock_gettime");
        assert!(clock.name.starts_with("__"), "{functions:?}");
        for known in named {
            assert_eq!(functions.find(known.start), Some(&*known.name));
            assert_eq!(functions.find(known.end - 1), Some(&*known.name));
            assert_ne!(functions.find(known.end), Some(&*known.name));
        }
        assert_eq!(functions.find(0), None);
    }

    #[test]
    fn garbage_has_no_functions() {
        assert!(Functions::of(b"no image").0.is_empty());
    }
}
