//! The files of a package.

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

/// By path, without a leading slash.
#[derive(Clone, Default)]
pub struct Files(BTreeMap<String, File>);

#[derive(Clone)]
pub struct File {
    pub content: Vec<u8>,
    pub mode: u32,
}

pub const CONFIGURATION: &str = "etc/profcol/config.yaml";

/// Path of the trusted CA certificates in the image, where rustls looks for them.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";

impl Files {
    /// The files common to all package formats.
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
            bail!("the unit does not start /usr/local/bin/profcol");
        }
        files.add("usr/lib/systemd/system/profcol.service", 0o644, packaged);
        let configuration = text(&root.join("config-examples/package.yaml"))?;
        // The modeline points editors to a neighbouring file, so drop it.
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

    /// The subset for an image: the binary, licences and CA certificates.
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
            .context("an image needs this machine's CA certificates (Debian: ca-certificates)")?;
        files.add(AUTHORITIES, 0o644, authorities);
        files.add("etc/passwd", 0o644, "root:x:0:0:root:/:/sbin/nologin\n");
        files.add("etc/group", 0o644, "root:x:0:\n");
        Ok(files)
    }

    /// For tests: a changed configuration, as in a later version.
    pub fn with_changed_configuration(&self) -> Result<Self> {
        let mut files = self.clone();
        let configuration = files.0.get_mut(CONFIGURATION);
        let configuration = configuration.context("configuration not found")?;
        configuration.content.extend_from_slice(b"# Changed.\n");
        Ok(files)
    }

    pub fn add(&mut self, place: &str, mode: u32, content: impl Into<Vec<u8>>) {
        let content = content.into();
        self.0.insert(place.to_owned(), File { content, mode });
    }

    /// Adds all files below a directory.
    pub fn add_directory(&mut self, directory: &Path, place: &str) -> Result<()> {
        for path in super::sorted(directory)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let place = format!("{place}/{name}");
            match path.is_dir() {
                true => self.add_directory(&path, &place)?,
                false => self.add(&place, 0o644, read(&path)?),
            }
        }
        Ok(())
    }

    /// Removes what begins with `place`.
    pub fn remove(&mut self, place: &str) {
        self.0.retain(|it, _| !it.starts_with(place));
    }

    pub fn places(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// In kB with each file rounded up, as Debian counts.
    pub fn installed_size(&self) -> usize {
        let sizes = self
            .0
            .values()
            .map(|file| file.content.len().div_ceil(1024));
        sizes.sum()
    }

    /// Writes all files into an empty directory, regardless of the umask.
    pub fn write(&self, directory: &Path) -> Result<()> {
        super::clear(directory)?;
        let allow = |path: &Path, mode: u32| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))
                .with_context(|| format!("failed to set the mode of {}", path.display()))
        };
        allow(directory, 0o755)?;
        for (place, file) in &self.0 {
            let mut below = directory.to_owned();
            let parent = Path::new(place).parent().unwrap_or(Path::new(""));
            for part in parent {
                below.push(part);
                if !below.exists() {
                    fs::create_dir(&below)
                        .with_context(|| format!("failed to create {}", below.display()))?;
                    allow(&below, 0o755)?;
                }
            }
            let path = directory.join(place);
            fs::write(&path, &file.content)
                .with_context(|| format!("failed to write {}", path.display()))?;
            allow(&path, file.mode)?;
        }
        Ok(())
    }
}

/// Archives `what` of a directory: sorted by name, owned by root, with the commit's timestamp.
pub fn archive(directory: &Path, what: &str, target: &Path, release: &Release) -> Result<()> {
    process::run(
        Command::new("tar")
            .args(["--create", "--format=gnu", "--sort=name"])
            .args(["--owner=0", "--group=0", "--numeric-owner"])
            .arg(format!("--mtime=@{}", release.epoch))
            .arg("--file")
            .arg(target)
            .arg("--directory")
            .arg(directory)
            .arg(what),
    )
}

/// Compresses without name and timestamp.
pub fn compressed(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut gzip = Command::new("gzip")
        .args(["--best", "--no-name", "--stdout"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("failed to start gzip")?;
    let mut input = gzip.stdin.take().context("gzip has no stdin")?;
    // Write and read concurrently, as pipe buffers are limited.
    let output = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(bytes));
        gzip.wait_with_output()
    })
    .context("failed to read the output of gzip")?;
    anyhow::ensure!(output.status.success(), "gzip failed");
    Ok(output.stdout)
}

pub fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("failed to read {}", path.display()))
}

/// The licence notices of all linked crates: each text once, below the crates it applies to.
fn notices(root: &Path, release: &Release, linked: &Linked) -> Result<String> {
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut text_of_none = Vec::new();
    for ((name, version), found) in linked {
        if found.directory.starts_with(root) {
            continue;
        }
        let license = found.license.as_deref().unwrap_or("no licence specified");
        let what = format!("{name} {version} ({license})");
        let texts = license_files(&found.directory)?;
        if texts.is_empty() {
            text_of_none.push(what.clone());
        }
        for path in texts {
            let text = String::from_utf8_lossy(&read(&path)?).trim().to_owned();
            by_text.entry(text).or_default().push(what.clone());
        }
    }
    // Part of Rust's standard library, but not in its own list.
    let musl = text(&root.join("deploy/packages/musl-license"))?;
    let name = "musl (MIT)".to_owned();
    by_text
        .entry(musl.trim().to_owned())
        .or_default()
        .push(name);
    let mut notices = format!(
        "profcol {} contains these third-party works.\n\nWithout a licence text of their own: {}\n",
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

fn license_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = super::sorted(directory)?;
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
