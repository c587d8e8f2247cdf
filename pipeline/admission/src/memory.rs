//! Memory used by and available to this process.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of resident memory, as the kernel's out-of-memory killer counts them.
pub fn in_use() -> Option<u64> {
    kib_field(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// The lowest memory limit of this process's cgroups, or the host's memory.
pub fn available() -> Option<u64> {
    let host = kib_field(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Some(cgroup_limit(&groups, Path::new("/sys/fs/cgroup")).map_or(host, |limit| limit.min(host)))
}

/// Checks each group and its ancestors: any of them may set the limit.
fn cgroup_limit(groups: &str, root: &Path) -> Option<u64> {
    let files = groups
        .lines()
        .filter_map(|line| limit_files(line, root))
        .flatten();
    files
        .filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok())
        .min()
}

fn limit_files(line: &str, root: &Path) -> Option<Vec<PathBuf>> {
    let (_hierarchy, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    let (roots, file) = if controllers.is_empty() {
        (vec![root.to_owned(), root.join("unified")], "memory.max")
    } else if controllers
        .split(',')
        .any(|controller| controller == "memory")
    {
        (vec![root.join("memory")], "memory.limit_in_bytes")
    } else {
        return None;
    };
    let path = Path::new(path.trim_start_matches('/'));
    let nested = |root: PathBuf| {
        path.ancestors()
            .map(move |group| root.join(group).join(file))
    };
    Some(roots.into_iter().flat_map(nested).collect())
}

fn kib_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_memory_in_use_and_available() {
        let (used, available) = (in_use().unwrap(), available().unwrap());
        assert!(used > 100_000 && used < available, "{used} of {available}");
    }

    #[test]
    fn the_lowest_limit_up_to_the_root_counts() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("system.slice/profcol.service");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("memory.max"), "max\n").unwrap();
        fs::write(root.path().join("system.slice/memory.max"), "104857600\n").unwrap();
        let limit = |groups| cgroup_limit(groups, root.path());
        assert_eq!(
            limit("0::/system.slice/profcol.service\n"),
            Some(104_857_600)
        );
        assert_eq!(limit("0::/elsewhere\n"), None);

        let v1 = root.path().join("memory/docker/abc");
        fs::create_dir_all(&v1).unwrap();
        fs::write(v1.join("memory.limit_in_bytes"), "52428800\n").unwrap();
        assert_eq!(
            limit("5:cpu:/x\n4:memory,hugetlb:/docker/abc\n0::/"),
            Some(52_428_800)
        );
    }
}
