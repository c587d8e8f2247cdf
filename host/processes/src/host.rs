//! The identity and boot time of this host.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The initial PID namespace.
const HOST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Ticks per second of the times that the kernel reports: the same on every Linux.
const TICKS: u64 = 100;

#[derive(Clone, Debug, Default)]
pub struct Host {
    pub name: String,
    /// `/etc/machine-id`.
    pub id: Option<String>,
    users: Users,
    /// In milliseconds since the Unix epoch; read once, so that the creation times of processes stay the same.
    started: Option<i64>,
}

impl Host {
    pub fn read() -> Self {
        let line = |path| {
            let text = fs::read_to_string(path).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        Self {
            name: line("/proc/sys/kernel/hostname").unwrap_or_default(),
            id: line("/etc/machine-id"),
            users: Users::read(),
            started: started(),
        }
    }

    /// The machine id, as written by systemd or compatible software.
    pub fn machine_id(&self) -> Option<&str> {
        let id = self.id.as_deref()?;
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        // Before the first boot it may be `uninitialized`.
        (id.len() == 32 && id.bytes().all(is_digit)).then_some(id)
    }

    /// The name of a user, or the uid if unknown.
    pub fn user(&self, number: u32) -> String {
        self.users.name(number)
    }

    /// Boot time in milliseconds since the Unix epoch.
    pub fn started(&self) -> Option<i64> {
        self.started
    }

    /// Converts ticks since boot to milliseconds since the Unix epoch.
    pub fn time_of(&self, ticks: u64) -> Option<i64> {
        let since = i64::try_from(ticks.checked_mul(1000 / TICKS)?).ok()?;
        self.started?.checked_add(since)
    }
}

/// The user names of this host.
#[derive(Clone, Debug, Default)]
pub struct Users(HashMap<u32, String>);

impl Users {
    pub fn read() -> Self {
        Self::of(&fs::read_to_string("/etc/passwd").unwrap_or_default())
    }

    /// The name of a user, or the uid if unknown.
    pub fn name(&self, number: u32) -> String {
        match self.0.get(&number) {
            Some(name) => name.clone(),
            None => number.to_string(),
        }
    }

    fn of(passwd: &str) -> Self {
        let user = |line: &str| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            Some((fields.nth(1)?.parse().ok()?, name.to_owned()))
        };
        Self(passwd.lines().filter_map(user).collect())
    }
}

fn started() -> Option<i64> {
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_ascii_whitespace().next()?.parse().ok()?;
    let uptime = Duration::try_from_secs_f64(uptime).ok()?;
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .ok()?;
    i64::try_from(now.checked_sub(uptime)?.as_millis()).ok()
}

/// Whether this process has its own PID namespace, and does not see the host's processes; `/` is the root except in tests.
pub fn has_own_pid_namespace(root: &Path) -> bool {
    let namespace = fs::read_link(root.join("proc/self/ns/pid"));
    namespace.is_ok_and(|namespace| namespace.as_os_str() != HOST_PID_NAMESPACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_ids_exist_after_the_first_boot() {
        let id = "6c5e1bd2f1d74b3f8a5be1c0b9d8a7f6";
        for (text, expected) in [(id, Some(id)), ("uninitialized", None), ("", None)] {
            let host = Host {
                id: Some(text.to_owned()),
                ..Host::default()
            };
            assert_eq!(host.machine_id(), expected);
        }
    }

    #[test]
    fn users_are_shown_by_name_or_uid() {
        let users = Users::of("root:x:0:0:root:/root:/bin/sh\nbroken\nweb:x:33:33::/:\n");
        for (number, expected) in [(0, "root"), (33, "web"), (7, "7")] {
            assert_eq!(users.name(number), expected);
        }
    }
}
