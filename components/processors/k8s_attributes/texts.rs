//! Interns strings that many objects share.

use std::collections::HashSet;
use std::sync::Arc;

/// Fewer strings are not worth a sweep.
const FIRST_SWEEP: usize = 1024;

#[derive(Debug)]
pub(super) struct Texts {
    kept: HashSet<Arc<str>>,
    /// Number of strings at which unused ones are removed.
    sweep_at: usize,
}

impl Default for Texts {
    fn default() -> Self {
        Self {
            kept: HashSet::new(),
            sweep_at: FIRST_SWEEP,
        }
    }
}

impl Texts {
    pub fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(kept) = self.kept.get(text) {
            return Arc::clone(kept);
        }
        if self.kept.len() >= self.sweep_at {
            self.kept.retain(|text| Arc::strong_count(text) > 1);
            self.sweep_at = (self.kept.len() * 2).max(FIRST_SWEEP);
        }
        let text: Arc<str> = text.into();
        self.kept.insert(Arc::clone(&text));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interns_strings_and_removes_unused_ones() {
        let mut texts = Texts::default();
        let kept = texts.share("kept");
        assert!(Arc::ptr_eq(&kept, &texts.share("kept")));
        for number in 0..10 * FIRST_SWEEP {
            texts.share(&number.to_string());
        }
        assert!(texts.kept.len() <= FIRST_SWEEP);
        assert!(Arc::ptr_eq(&kept, &texts.share("kept")));
    }
}
