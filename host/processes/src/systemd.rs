//! Finds systemd units in a cgroup path by systemd's own rules: slices come first, then the unit; what follows is
//! private to the unit, unless it is a user manager, which has units of its own.

/// The units in a path; all fields are absent outside of units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Units<'a> {
    /// The service, scope or other unit of the system manager.
    pub unit: Option<&'a str>,
    /// The innermost slice of the unit.
    pub slice: Option<&'a str>,
    /// The unit of the user manager.
    pub user_unit: Option<&'a str>,
    pub user_slice: Option<&'a str>,
    /// The login session: the `3` of `session-3.scope`.
    pub session: Option<&'a str>,
    /// The uid of the user slice's owner.
    pub owner: Option<u32>,
    /// The registered scope of a container or virtual machine: `machine-web.scope`.
    pub machine: Option<&'a str>,
    /// Whether the path starts with the units, that is, they belong to the host's own systemd.
    pub is_outermost: bool,
}

/// systemd's limit of name lengths.
const MAX_NAME: usize = 255;

const KINDS: &[&str] = &[
    ".service",
    ".socket",
    ".device",
    ".mount",
    ".automount",
    ".swap",
    ".target",
    ".path",
    ".timer",
    ".slice",
    ".scope",
];

impl<'a> Units<'a> {
    pub fn of(cgroup: &'a str) -> Self {
        // The path above the first unit is the cgroup of a container that runs systemd, or the way up out of the
        // caller's cgroup namespace.
        let components: Vec<&str> = cgroup.split('/').filter_map(|it| component(it)).collect();
        let start = components.iter().position(|it| is_unit(it));
        let Some(components) = start.and_then(|start| components.get(start..)) else {
            return Self::default();
        };
        let (slice, unit, below) = cut(components);
        let session = unit.and_then(|unit| between(unit, "session-", ".scope"));
        let is_user = unit.is_some_and(|unit| between(unit, "user@", ".service").is_some());
        let slices = components.iter().take_while(|it| is_slice(it));
        let owners = slices.filter_map(|slice| between(slice, "user-", ".slice"));
        let (user_slice, user_unit) = match is_user || session.is_some() {
            true => {
                let (slice, unit, _) = cut(below);
                (slice, unit)
            }
            false => (None, None),
        };
        let is_machine = |unit: &&str| {
            unit.starts_with("machine-") && unit.ends_with(".scope")
                || unit.starts_with("systemd-nspawn@")
        };
        Self {
            unit,
            slice,
            user_unit,
            user_slice,
            session,
            owner: owners.filter_map(|owner| owner.parse().ok()).last(),
            machine: unit.filter(is_machine),
            is_outermost: start == Some(0),
        }
    }
}

/// The innermost of the leading slices, the unit after them, and the rest.
fn cut<'a, 'c>(components: &'c [&'a str]) -> (Option<&'a str>, Option<&'a str>, &'c [&'a str]) {
    let slices = components.iter().take_while(|it| is_slice(it)).count();
    let (slices, rest) = components.split_at(slices);
    let unit = rest.first().copied().filter(|it| is_unit(it));
    (
        slices.last().copied(),
        unit,
        rest.get(1..).unwrap_or_default(),
    )
}

/// Removes the escape that systemd adds to names that would clash with kernel files.
fn component(text: &str) -> Option<&str> {
    let name = text.strip_prefix('_').unwrap_or(text);
    (!name.is_empty()).then_some(name)
}

fn is_slice(name: &str) -> bool {
    name.ends_with(".slice") && is_unit(name)
}

fn is_unit(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
    let stem = KINDS.iter().find_map(|kind| name.strip_suffix(kind));
    let is_named = stem.is_some_and(|stem| !stem.is_empty() && !stem.starts_with('@'));
    is_named && name.len() <= MAX_NAME && name.bytes().all(fits)
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let inner = text.strip_prefix(start)?.strip_suffix(end)?;
    (!inner.is_empty()).then_some(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_paths_as_systemd_does() {
        let none = Units::default();
        let unit = |slice, unit| Units {
            slice: Some(slice),
            unit: Some(unit),
            ..none
        };
        let id = "0123456789abcdef".repeat(4);
        let docker = format!("docker-{id}.scope");
        let user = Units {
            owner: Some(1000),
            ..unit("user-1000.slice", "user@1000.service")
        };
        for (path, expected) in [
            ("", none),
            ("/", none),
            ("/kubepods/besteffort/pod1/abc", none),
            (
                "/init.scope",
                Units {
                    unit: Some("init.scope"),
                    ..none
                },
            ),
            (
                "/system.slice",
                Units {
                    slice: Some("system.slice"),
                    ..none
                },
            ),
            (
                "/system.slice/nginx.service",
                unit("system.slice", "nginx.service"),
            ),
            // A subtree delegated to the unit.
            (
                "/system.slice/nginx.service/a/b.service",
                unit("system.slice", "nginx.service"),
            ),
            (
                "/system.slice/system-getty.slice/getty@tty1.service",
                unit("system-getty.slice", "getty@tty1.service"),
            ),
            // An underscore escapes names that would clash with kernel files.
            (
                "/system.slice/_cpu.service",
                unit("system.slice", "cpu.service"),
            ),
            (
                "/_cgroup.slice/a.service",
                unit("cgroup.slice", "a.service"),
            ),
            (
                "/system.slice/system-serial\\x2dgetty.slice/serial-getty@ttyS0.service",
                unit(
                    "system-serial\\x2dgetty.slice",
                    "serial-getty@ttyS0.service",
                ),
            ),
            (
                "/system.slice/dev-disk-by\\x2duuid-1.swap",
                unit("system.slice", "dev-disk-by\\x2duuid-1.swap"),
            ),
            (
                "/system.slice/not a unit.service",
                Units {
                    slice: Some("system.slice"),
                    ..none
                },
            ),
            (
                "/system.slice/@.service",
                Units {
                    slice: Some("system.slice"),
                    ..none
                },
            ),
            (
                "/user.slice/user-1000.slice/session-3.scope",
                Units {
                    session: Some("3"),
                    owner: Some(1000),
                    ..unit("user-1000.slice", "session-3.scope")
                },
            ),
            (
                "/user.slice/user-1000.slice/session-c1.scope/x",
                Units {
                    session: Some("c1"),
                    owner: Some(1000),
                    ..unit("user-1000.slice", "session-c1.scope")
                },
            ),
            ("/user.slice/user-1000.slice/user@1000.service", user),
            (
                "/user.slice/user-1000.slice/user@1000.service/init.scope",
                Units {
                    user_unit: Some("init.scope"),
                    ..user
                },
            ),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-1.scope",
                Units {
                    user_unit: Some("vte-spawn-1.scope"),
                    user_slice: Some("app.slice"),
                    ..user
                },
            ),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/app-org.gnome.Terminal.slice/t.service/x",
                Units {
                    user_unit: Some("t.service"),
                    user_slice: Some("app-org.gnome.Terminal.slice"),
                    ..user
                },
            ),
            (
                &format!("/system.slice/{docker}"),
                unit("system.slice", &docker),
            ),
            // systemd in a container: the container is one of the host's units.
            (
                &format!("/system.slice/{docker}/system.slice/cron.service"),
                unit("system.slice", &docker),
            ),
            // If the host has no unit for it, the unit of the container's systemd.
            (
                &format!("/docker/{id}/system.slice/cron.service"),
                unit("system.slice", "cron.service"),
            ),
            (
                "/lxc.payload.web/system.slice/cron.service",
                unit("system.slice", "cron.service"),
            ),
            (
                "/../../system.slice/cron.service",
                unit("system.slice", "cron.service"),
            ),
            (
                "/machine.slice/machine-qemu\\x2d1\\x2dvm.scope/libvirt/emulator",
                Units {
                    machine: Some("machine-qemu\\x2d1\\x2dvm.scope"),
                    ..unit("machine.slice", "machine-qemu\\x2d1\\x2dvm.scope")
                },
            ),
            (
                "/machine.slice/systemd-nspawn@web.service/payload/system.slice/a.service",
                Units {
                    machine: Some("systemd-nspawn@web.service"),
                    ..unit("machine.slice", "systemd-nspawn@web.service")
                },
            ),
        ] {
            let units = Units {
                is_outermost: false,
                ..Units::of(path)
            };
            assert_eq!(units, expected, "{path}");
        }
    }

    #[test]
    fn detects_whether_units_are_of_the_outermost_systemd() {
        for (path, is_outermost) in [
            ("/system.slice/cron.service", true),
            ("/init.scope", true),
            // Of a systemd in a container, or of one above this cgroup namespace.
            ("/docker/0123/system.slice/cron.service", false),
            ("/lxc.payload.web/system.slice/cron.service", false),
            ("/../../system.slice/cron.service", false),
            ("/kubepods/pod1", false),
        ] {
            assert_eq!(Units::of(path).is_outermost, is_outermost, "{path}");
        }
    }
}
