//! Texts that many objects have in common, each kept once.

use std::collections::HashSet;
use std::sync::Arc;

/// Fewer are not worth the sweeping.
const FIRST_SWEEP: usize = 1024;

#[derive(Debug)]
pub(super) struct Texts {
    kept: HashSet<Arc<str>>,
    /// With so many, those that nobody has any more are let go.
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
    fn keeps_one_of_each_and_lets_go_what_nobody_has() {
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
