//! Reports what was skipped on this machine and why, and tests that are flaky. Nothing is skipped silently, and CI skips nothing.

use anyhow::{Result, bail};

pub struct Report {
    skipped: Vec<String>,
    flaky: Vec<String>,
    skips_are_failures: bool,
}

impl Report {
    pub fn from_environment() -> Self {
        Self::new(std::env::var("CI").is_ok_and(|value| value == "true"))
    }

    fn new(skips_are_failures: bool) -> Self {
        Self {
            skipped: Vec::new(),
            flaky: Vec::new(),
            skips_are_failures,
        }
    }

    /// Records that `what` was skipped; `why` says what is missing and how to get it.
    pub fn skip(&mut self, what: &str, why: &str) {
        self.skipped.push(format!("{what}: {why}"));
    }

    /// Records that `test` failed and then passed alone.
    pub fn flaky(&mut self, test: &str) {
        self.flaky.push(test.to_owned());
    }

    /// Prints flaky tests and skipped parts, last so that they are seen; with CI=true skips are failures.
    pub fn finish(self) -> Result<()> {
        for test in &self.flaky {
            println!("flaky: {test} failed, and passed when it ran alone");
        }
        for skip in &self.skipped {
            println!("skipped {skip}");
        }
        if self.skips_are_failures && !self.skipped.is_empty() {
            bail!(
                "CI=true allows no skips, but {} part(s) were skipped",
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
    fn a_skip_fails_only_with_ci() {
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
