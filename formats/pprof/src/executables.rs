//! Of which executable a file is: tools take its first mapping for that.

use profcol_profile::Resource;

/// The first mapping of a file with samples of several.
pub(super) const SEVERAL: &str = "[multiple executables]";

/// The executables of the resources in a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Executables {
    #[default]
    None,
    /// All have this one; `None` where they do not say.
    One(Option<String>),
    Several,
}

impl Executables {
    pub fn add(&mut self, resource: Option<&Resource>) {
        let executable = resource.and_then(executable);
        match self {
            Self::None => *self = Self::One(executable.map(str::to_owned)),
            Self::One(known) if known.as_deref() != executable => *self = Self::Several,
            Self::One(_) | Self::Several => {}
        }
    }
}

/// Its path, or its name where there is none.
fn executable(resource: &Resource) -> Option<&str> {
    let find = |key: &str| {
        let mut attributes = resource.attributes.iter();
        let found = attributes.find(|attribute| &*attribute.key == key)?;
        found.value.as_str().filter(|text| !text.is_empty())
    };
    find("process.executable.path").or_else(|| find("process.executable.name"))
}

/// The mapping of this executable; some profilers say only the name of the file.
pub(super) fn position<'a>(
    executable: &str,
    filenames: impl Iterator<Item = &'a str> + Clone,
) -> Option<usize> {
    let last = |path: &'a str| path.rsplit('/').next().unwrap_or(path);
    let name = executable.rsplit('/').next().unwrap_or(executable);
    filenames
        .clone()
        .position(|filename| filename == executable)
        .or_else(|| {
            filenames
                .clone()
                .position(|filename| last(filename) == name)
        })
}
