//! The executable of a file, which tools take from its first mapping.

use profcol_profile::Resource;

/// The first mapping of a file with samples of several executables.
pub(super) const SEVERAL: &str = "[multiple executables]";

/// The executables of a file's resources.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Executables {
    #[default]
    None,
    /// All resources have this one; `None` if they do not state any.
    One(Option<String>),
    Several,
}

impl Executables {
    pub fn add(&mut self, resource: Option<&Resource>) {
        let executable = resource.and_then(executable);
        match self {
            Self::None => *self = Self::One(executable.map(str::to_owned)),
            Self::One(current) if current.as_deref() != executable => *self = Self::Several,
            Self::One(_) | Self::Several => {}
        }
    }
}

/// The path, otherwise the name.
fn executable(resource: &Resource) -> Option<&str> {
    let find = |key: &str| {
        let mut attributes = resource.attributes.iter();
        let attribute = attributes.find(|it| &*it.key == key)?;
        attribute.value.as_str().filter(|text| !text.is_empty())
    };
    find("process.executable.path").or_else(|| find("process.executable.name"))
}

/// The mapping of this executable; some profilers only give the file name.
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
