//! Memory used by and available to this process.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of resident memory.
pub fn resident() -> Option<u64> {
    kib_field(&status()?, "VmRSS:")
}

/// Bytes of memory that the kernel cannot take back by itself. Pages of files, such as those of the program, are not
/// counted: the kernel reclaims them when memory is short, before it kills anything.
pub fn in_use() -> Option<u64> {
    unreclaimable(&status()?)
}

fn status() -> Option<String> {
    fs::read_to_string("/proc/self/status").ok()
}

fn unreclaimable(status: &str) -> Option<u64> {
    let [anonymous, shared] = ["RssAnon:", "RssShmem:"].map(|name| kib_field(status, name));
    match (anonymous, shared) {
        (Some(anonymous), Some(shared)) => Some(anonymous + shared),
        // Kernels before 4.5, and sandboxes that imitate one, have only the sum.
        _ => kib_field(status, "VmRSS:"),
    }
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
        let used = in_use().unwrap();
        let (resident, available) = (resident().unwrap(), available().unwrap());
        assert!(used > 100_000, "{used}");
        assert!(
            used < resident && resident < available,
            "{used} of {resident} of {available}"
        );
    }

    /// `/proc/self/status` of an idle gateway, with one page of shared memory.
    const STATUS: &str = "\
Name:\tprofcol
VmHWM:\t   18668 kB
VmRSS:\t   18668 kB
RssAnon:\t    1860 kB
RssFile:\t   16804 kB
RssShmem:\t       4 kB
";

    #[test]
    fn pages_of_files_are_not_in_use() {
        assert_eq!(unreclaimable(STATUS), Some((1860 + 4) << 10));
        // Where there is only the sum.
        let whole: String = STATUS
            .lines()
            .filter(|line| !line.starts_with("Rss"))
            .flat_map(|line| [line, "\n"])
            .collect();
        assert_eq!(unreclaimable(&whole), Some(18_668 << 10));
        assert_eq!(unreclaimable("Name:\tprofcol\n"), None);
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
