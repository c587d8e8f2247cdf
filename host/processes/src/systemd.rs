//! Finds systemd's units in the path of a cgroup, by systemd's own rules: the slices come first, the
//! unit is the component behind them, and what is below is the unit's own business, unless it is a
//! user's manager, which has units of its own.

/// What a path tells; all of it is absent outside of units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Units<'a> {
    /// The service, scope or other unit of the system's manager.
    pub unit: Option<&'a str>,
    /// The innermost slice that the unit is in.
    pub slice: Option<&'a str>,
    /// The unit of the user's manager.
    pub user_unit: Option<&'a str>,
    pub user_slice: Option<&'a str>,
    /// Of a login: the `3` of `session-3.scope`.
    pub session: Option<&'a str>,
    /// The number of the user whose slice it is.
    pub owner: Option<u32>,
    /// The scope of a container or virtual machine, as it is registered: `machine-web.scope`.
    pub machine: Option<&'a str>,
    /// Nothing stands above them in the path: they are those of the systemd that all of it belongs to.
    pub is_outermost: bool,
}

/// systemd has no longer names.
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
        // Above the first unit stand the cgroup of a container in which systemd runs, or the way up
        // out of the namespace that asks.
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

/// The innermost of the leading slices, the unit behind them, and what is below it.
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

/// A name as it was before systemd escaped it so that it is no file of the kernel's.
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
            // A subtree that was handed to the unit.
            (
                "/system.slice/nginx.service/a/b.service",
                unit("system.slice", "nginx.service"),
            ),
            (
                "/system.slice/system-getty.slice/getty@tty1.service",
                unit("system-getty.slice", "getty@tty1.service"),
            ),
            // Names that would be files of the kernel's are escaped by a line below.
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
            // systemd in a container: of the host's units the container is one.
            (
                &format!("/system.slice/{docker}/system.slice/cron.service"),
                unit("system.slice", &docker),
            ),
            // Where the host has no unit for it, that of the container's systemd.
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
            let found = Units {
                is_outermost: false,
                ..Units::of(path)
            };
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn knows_whose_units_they_are() {
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
