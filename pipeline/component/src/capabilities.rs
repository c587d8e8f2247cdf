//! Linux capabilities a component needs.
//!
//! A process started as root keeps only the capabilities its configuration needs; each component declares its own. The
//! engine adds `DAC_OVERRIDE` if the configuration writes files.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

use crate::files;

/// A set of capabilities, with the kernel's bit numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u64);

/// The capabilities that profcol uses, and their names.
const NAMES: [(Capabilities, &str); 10] = [
    (Capabilities::CHOWN, "CAP_CHOWN"),
    (Capabilities::DAC_OVERRIDE, "CAP_DAC_OVERRIDE"),
    (Capabilities::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
    (Capabilities::NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE"),
    (Capabilities::SYS_PTRACE, "CAP_SYS_PTRACE"),
    (Capabilities::SYS_ADMIN, "CAP_SYS_ADMIN"),
    (Capabilities::SYSLOG, "CAP_SYSLOG"),
    (Capabilities::PERFMON, "CAP_PERFMON"),
    (Capabilities::BPF, "CAP_BPF"),
    (Capabilities::CHECKPOINT_RESTORE, "CAP_CHECKPOINT_RESTORE"),
];

impl Capabilities {
    pub const NONE: Self = Self(0);
    /// Change the owner of files.
    pub const CHOWN: Self = Self(1);
    /// Write to other users' files, directories and Unix sockets.
    pub const DAC_OVERRIDE: Self = Self(1 << 1);
    /// Read other users' files.
    pub const DAC_READ_SEARCH: Self = Self(1 << 2);
    /// Listen on ports below 1024.
    pub const NET_BIND_SERVICE: Self = Self(1 << 10);
    /// Inspect other users' processes: executables, mappings and files.
    pub const SYS_PTRACE: Self = Self(1 << 19);
    pub const SYS_ADMIN: Self = Self(1 << 21);
    /// Read kernel symbol addresses.
    pub const SYSLOG: Self = Self(1 << 34);
    pub const PERFMON: Self = Self(1 << 38);
    pub const BPF: Self = Self(1 << 39);
    /// Open executables deleted or replaced while running.
    pub const CHECKPOINT_RESTORE: Self = Self(1 << 40);

    /// Needed to listen on `endpoint`: `host:port`, or the path of a Unix socket.
    pub fn to_listen(endpoint: &str) -> Self {
        let port = endpoint.rsplit_once(':').map(|(_, port)| port.parse());
        match port {
            Some(Ok(1..1024u16)) => Self::NET_BIND_SERVICE,
            _ if files::is_unix_socket(endpoint) => Self::DAC_OVERRIDE,
            _ => Self::NONE,
        }
    }

    /// Needed to connect to `endpoint`, whose Unix socket may belong to another user.
    pub fn to_connect(endpoint: &str) -> Self {
        match endpoint.starts_with("unix:") {
            true => Self::DAC_OVERRIDE,
            false => Self::NONE,
        }
    }

    /// The capability with this number.
    pub const fn from_number(number: u32) -> Self {
        Self(1 << number)
    }

    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub const fn bits(self) -> u64 {
        self.0
    }

    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Capabilities {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Capabilities {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

/// The names, as in `CAP_SYSLOG, CAP_BPF`.
impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let names = NAMES.iter().filter(|(one, _)| self.contains(*one));
        let names: Vec<&str> = names.map(|(_, name)| *name).collect();
        f.write_str(&names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_ports_and_unix_sockets_need_capabilities() {
        for (endpoint, expected) in [
            ("localhost:4317", "none"),
            ("0.0.0.0:0", "none"),
            ("[::1]:1024", "none"),
            (":443", "CAP_NET_BIND_SERVICE"),
            ("[::]:1023", "CAP_NET_BIND_SERVICE"),
            ("/run/otlp.sock", "CAP_DAC_OVERRIDE"),
            ("unix:///run/otlp.sock", "CAP_DAC_OVERRIDE"),
        ] {
            let needed = Capabilities::to_listen(endpoint);
            assert_eq!(needed.to_string(), expected, "{endpoint}");
        }
        assert!(Capabilities::to_connect("gateway:443").is_empty());
        assert!(!Capabilities::to_connect("unix:///run/otlp.sock").is_empty());
    }

    #[test]
    fn displays_names() {
        let set = Capabilities::BPF | Capabilities::SYSLOG;
        assert_eq!(set.to_string(), "CAP_SYSLOG, CAP_BPF");
        assert!(set.contains(Capabilities::BPF) && !set.contains(Capabilities::PERFMON));
    }
}
