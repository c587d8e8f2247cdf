//! Offsets that depend on the release.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Array of functions, at the end of a module's header.
    pub functions: u64,
    /// The process that a scheduler runs.
    pub scheduler_process: u32,
}

impl Layout {
    /// The supported releases.
    pub fn releases() -> Vec<String> {
        let releases = (0..100).map(|release: u32| release.to_string());
        releases
            .filter(|release| Self::of_release(release).is_ok())
            .collect()
    }

    /// The layout of a release such as `25`.
    pub fn of_release(release: &str) -> Result<Self, &'static str> {
        let functions = match release {
            "25" => 96,
            "27" => 136,
            _ => return Err("this version of profcol supports OTP 25 and 27"),
        };
        Ok(Self {
            functions,
            scheduler_process: 168,
        })
    }
}
