//! What could not be run on this machine, and why. Nothing is skipped without a line here, and CI skips nothing.

use anyhow::{Result, bail};

pub struct Report {
    skipped: Vec<String>,
    skips_are_failures: bool,
}

impl Report {
    pub fn from_environment() -> Self {
        Self::new(std::env::var("CI").is_ok_and(|value| value == "true"))
    }

    fn new(skips_are_failures: bool) -> Self {
        Self {
            skipped: Vec::new(),
            skips_are_failures,
        }
    }

    /// Notes that `what` was left out; `why` says what is missing and how to get it.
    pub fn skip(&mut self, what: &str, why: &str) {
        self.skipped.push(format!("{what}: {why}"));
    }

    /// Prints the skips, last so that they are read, and fails on them where CI asks for everything.
    pub fn finish(self) -> Result<()> {
        for skip in &self.skipped {
            println!("skipped {skip}");
        }
        if self.skips_are_failures && !self.skipped.is_empty() {
            bail!(
                "CI=true asks for everything, but {} part(s) were skipped",
                self.skipped.len()
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_fails_only_where_ci_asks_for_everything() {
        for (ci, skips, passes) in [
            (false, 0, true),
            (false, 1, true),
            (true, 0, true),
            (true, 1, false),
        ] {
            let mut report = Report::new(ci);
            for _ in 0..skips {
                report.skip("a peer", "not built");
            }
            assert_eq!(report.finish().is_ok(), passes, "CI={ci}, {skips} skips");
        }
    }
}
