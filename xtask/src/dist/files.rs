//! The files of a package, and how they get into a folder.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::Release;
use super::dependencies::Linked;
use crate::process;
use crate::workspace::Workspace;

/// By their paths, which begin with no slash.
#[derive(Clone, Default)]
pub struct Files(BTreeMap<String, File>);

#[derive(Clone)]
pub struct File {
    pub content: Vec<u8>,
    pub mode: u32,
}

pub const CONFIGURATION: &str = "etc/profcol/config.yaml";

/// Where the image has the authorities that it trusts; rustls looks there.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";

impl Files {
    /// What packages have in common, whatever their format.
    pub fn of(
        workspace: &Workspace,
        binary: &Path,
        release: &Release,
        linked: &Linked,
    ) -> Result<Self> {
        let root = &workspace.root;
        let mut files = Self::default();
        files.add("usr/bin/profcol", 0o755, read(binary)?);
        let unit = text(&root.join("deploy/systemd/profcol.service"))?;
        let packaged = unit.replace("/usr/local/bin/", "/usr/bin/");
        if packaged == unit {
            bail!("the unit does not start /usr/local/bin/profcol any more");
        }
        files.add("usr/lib/systemd/system/profcol.service", 0o644, packaged);
        let configuration = text(&root.join("config-examples/package.yaml"))?;
        // It leads an editor to a file beside it.
        let (modeline, configuration) = configuration
            .split_once('\n')
            .context("package.yaml is empty")?;
        anyhow::ensure!(modeline.contains("$schema"), "package.yaml has no modeline");
        files.add(CONFIGURATION, 0o644, configuration);
        for (place, generated) in [
            (
                "usr/share/bash-completion/completions/profcol",
                "profcol.bash",
            ),
            (
                "usr/share/fish/vendor_completions.d/profcol.fish",
                "profcol.fish",
            ),
        ] {
            let script = read(&root.join("docs/generated").join(generated))?;
            files.add(place, 0o644, script);
        }
        for page in super::sorted(&root.join("docs/generated/man"))? {
            let name = page.file_name().unwrap_or_default().to_string_lossy();
            let place = format!("usr/share/man/man1/{name}.gz");
            files.add(&place, 0o644, compressed(&read(&page)?)?);
        }
        for example in super::sorted(&root.join("config-examples"))? {
            let name = example.file_name().unwrap_or_default().to_string_lossy();
            let place = format!("usr/share/doc/profcol/examples/{name}");
            files.add(&place, 0o644, read(&example)?);
        }
        let notices = notices(root, release, linked)?;
        files.add(
            "usr/share/doc/profcol/third-party-licenses.txt.gz",
            0o644,
            compressed(notices.as_bytes())?,
        );
        let sysroot = process::output(Command::new("rustc").args(["--print", "sysroot"]))?;
        let library = Path::new(sysroot.trim()).join("share/doc/rust/COPYRIGHT-library.html");
        files.add(
            "usr/share/doc/profcol/rust-standard-library.html.gz",
            0o644,
            compressed(&read(&library)?)?,
        );
        Ok(files)
    }

    /// What an image needs of them: the program, its licences, and whom to trust.
    pub fn for_image(&self) -> Result<Self> {
        let mut files = self.clone();
        let kept = [
            "usr/bin/",
            "usr/share/doc/profcol/third-party-licenses",
            "usr/share/doc/profcol/rust-standard-library",
        ];
        files
            .0
            .retain(|place, _| kept.iter().any(|it| place.starts_with(it)));
        let authorities = read(&Path::new("/").join(AUTHORITIES))
            .context("an image needs the certificates of this machine (Debian: ca-certificates)")?;
        files.add(AUTHORITIES, 0o644, authorities);
        files.add("etc/passwd", 0o644, "root:x:0:0:root:/:/sbin/nologin\n");
        files.add("etc/group", 0o644, "root:x:0:\n");
        Ok(files)
    }

    /// For a test: another configuration, as a later version may bring it.
    pub fn with_changed_configuration(&self) -> Result<Self> {
        let mut files = self.clone();
        let configuration = files.0.get_mut(CONFIGURATION);
        let configuration = configuration.context("there is no configuration")?;
        configuration.content.extend_from_slice(b"# Changed.\n");
        Ok(files)
    }

    pub fn add(&mut self, place: &str, mode: u32, content: impl Into<Vec<u8>>) {
        let content = content.into();
        self.0.insert(place.to_owned(), File { content, mode });
    }

    pub fn places(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// In kB, as Debian counts: each file is rounded up.
    pub fn installed_size(&self) -> usize {
        let sizes = self
            .0
            .values()
            .map(|file| file.content.len().div_ceil(1024));
        sizes.sum()
    }

    /// Into an empty folder, whatever this process' umask is.
    pub fn write(&self, folder: &Path) -> Result<()> {
        super::clear(folder)?;
        let allow = |path: &Path, mode: u32| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))
                .with_context(|| format!("failed to set the mode of {}", path.display()))
        };
        allow(folder, 0o755)?;
        for (place, file) in &self.0 {
            let mut below = folder.to_owned();
            let parent = Path::new(place).parent().unwrap_or(Path::new(""));
            for part in parent {
                below.push(part);
                if !below.exists() {
                    fs::create_dir(&below)
                        .with_context(|| format!("failed to make {}", below.display()))?;
                    allow(&below, 0o755)?;
                }
            }
            let path = folder.join(place);
            fs::write(&path, &file.content)
                .with_context(|| format!("failed to write {}", path.display()))?;
            allow(&path, file.mode)?;
        }
        Ok(())
    }
}

/// Without a name and a time in it.
pub fn compressed(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut gzip = Command::new("gzip")
        .args(["--best", "--no-name", "--stdout"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("failed to start gzip")?;
    let mut input = gzip.stdin.take().context("gzip has no input")?;
    // Beside reading, since neither pipe holds everything.
    let output = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(bytes));
        gzip.wait_with_output()
    })
    .context("failed to read what gzip writes")?;
    anyhow::ensure!(output.status.success(), "gzip failed");
    Ok(output.stdout)
}

pub fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("failed to read {}", path.display()))
}

/// The licences of all that is linked, as they ask for: each text once, below the crates that come with it.
fn notices(root: &Path, release: &Release, linked: &Linked) -> Result<String> {
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut text_of_none = Vec::new();
    for ((name, version), found) in linked {
        if found.folder.starts_with(root) {
            continue;
        }
        let license = found.license.as_deref().unwrap_or("no licence named");
        let what = format!("{name} {version} ({license})");
        let texts = license_files(&found.folder)?;
        if texts.is_empty() {
            text_of_none.push(what.clone());
        }
        for path in texts {
            let text = String::from_utf8_lossy(&read(&path)?).trim().to_owned();
            by_text.entry(text).or_default().push(what.clone());
        }
    }
    // Comes with Rust's standard library, whose own list does not name it.
    let musl = text(&root.join("deploy/packages/musl-license"))?;
    let name = "musl (MIT)".to_owned();
    by_text
        .entry(musl.trim().to_owned())
        .or_default()
        .push(name);
    let mut notices = format!(
        "profcol {} contains these works of others.\n\nWithout a text of their own: {}\n",
        release.version,
        text_of_none.join(", ")
    );
    let mut parts: Vec<_> = by_text.into_iter().collect();
    parts.sort_by(|(_, one), (_, other)| one.cmp(other));
    for (text, crates) in parts {
        let line = "-".repeat(78);
        notices.push_str(&format!("\n{line}\n{}\n\n{text}\n", crates.join("\n")));
    }
    Ok(notices)
}

fn license_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = super::sorted(folder)?;
    files.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_uppercase();
        let is_text = [
            "LICENSE",
            "LICENCE",
            "COPYING",
            "COPYRIGHT",
            "NOTICE",
            "UNLICENSE",
        ];
        path.is_file() && is_text.iter().any(|it| name.starts_with(it))
    });
    Ok(files)
}
