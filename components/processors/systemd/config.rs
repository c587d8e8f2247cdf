//! The options of `systemd`.

use profcol_config::{Config, Duration, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A batch waits no longer, whatever is asked for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Says to which of systemd's units a process belongs.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct SystemdConfig {
    /// Take profiles that do not say which host they come from for this host's, whose units and machine id they get.
    pub assume_local: bool,
    /// How systemd is asked for descriptions of units, and for runs of theirs that ended.
    pub dbus: DbusConfig,
    /// How long a batch may wait for what systemd is asked for, up to `1m`; `0s` does not. Keep it below the
    /// interval at which batches come, or they pile up.
    pub wait_for: Duration,
}

/// The sockets by which systemd is asked. Those that do not exist are looked for again.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct DbusConfig {
    /// Off: what the path of the cgroup and systemd's files tell is all.
    pub enabled: bool,
    /// That of the system's bus.
    pub socket: String,
    /// systemd's own, for root alone, where the bus does not answer; empty asks only the bus.
    pub private_socket: String,
    /// How long an answer may take.
    pub timeout: Duration,
}

impl Default for DbusConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            socket: "/run/dbus/system_bus_socket".to_owned(),
            private_socket: "/run/systemd/private".to_owned(),
            timeout: Duration::from_secs(5),
        }
    }
}

impl Config for SystemdConfig {
    fn validate(&self, problems: &mut Problems) {
        let dbus = &self.dbus;
        let may_be_empty = |path: &str| path.is_empty() || path.starts_with('/');
        for (key, path, is_good) in [
            ("dbus::socket", &dbus.socket, dbus.socket.starts_with('/')),
            (
                "dbus::private_socket",
                &dbus.private_socket,
                may_be_empty(&dbus.private_socket),
            ),
        ] {
            if !is_good {
                problems.add(
                    key,
                    format!("{path:?} is not the whole path of a Unix socket"),
                );
            }
        }
        if dbus.timeout <= Duration::ZERO || dbus.timeout > LONGEST_WAIT {
            problems.add("dbus::timeout", "must be above 0s and at most 1m");
        }
        if self.wait_for.is_negative() || self.wait_for > LONGEST_WAIT {
            problems.add("wait_for", "must be between 0s and 1m");
        }
        if !dbus.enabled && self.wait_for > Duration::ZERO {
            problems.add(
                "wait_for",
                "nobody is asked without dbus: leave it out, or enable dbus",
            );
        }
    }
}
