//! A language runtime that is installed: on this machine, or, of another release, in a file system of its own.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::process::Command;

use crate::support::{root, target};

/// Enters the file system `$0` with this machine's processes and devices, the directories `$1` and `$2`, and the program that follows.
const ENTER: &str = r#"
for directory in /proc /dev "$1" "$2"; do
    mkdir -p "$0$directory" && mount --rbind "$directory" "$0$directory" || exit
done
shift 2
exec chroot "$0" "$@"
"#;

#[derive(Clone, Debug)]
pub struct Installation {
    /// `None` for this machine's.
    root: Option<PathBuf>,
    /// Below the root.
    program: PathBuf,
}

impl Installation {
    pub fn of_this_machine(program: impl Into<PathBuf>) -> Self {
        Self {
            root: None,
            program: program.into(),
        }
    }

    /// One that `cargo xtask runtimes` unpacked.
    pub fn unpacked(name: &str, program: impl Into<PathBuf>) -> Self {
        let root = target().join("runtimes").join(name);
        assert!(root.exists(), "{} is missing", root.display());
        Self {
            root: Some(root),
            program: program.into(),
        }
    }

    pub fn is_of_this_machine(&self) -> bool {
        self.root.is_none()
    }

    /// The host's path of a file of the installation.
    pub fn path_of(&self, file: &str) -> PathBuf {
        let root = self.root.clone().unwrap_or_else(|| "/".into());
        root.join(file.trim_start_matches('/'))
    }

    /// Becomes the program, which sees the repository and temporary files where they are.
    pub fn command(&self) -> Command {
        let Some(file_system) = &self.root else {
            return Command::new(&self.program);
        };
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", ENTER])
            .arg(file_system)
            .arg(root())
            .arg(std::env::temp_dir())
            .arg(&self.program);
        command
    }
}

impl Display for Installation {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match &self.root {
            Some(_) => write!(
                formatter,
                "{}",
                self.path_of(&self.program.to_string_lossy()).display()
            ),
            None => write!(formatter, "{}", self.program.display()),
        }
    }
}
