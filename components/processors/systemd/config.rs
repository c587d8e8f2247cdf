//! The options of `systemd`.

use profcol_config::{Config, Duration, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A batch waits no longer, whatever is asked for.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Adds the systemd unit that a process belongs to.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct SystemdConfig {
    /// Take profiles that do not say which host they come from for this host's, whose units and machine id they get.
    pub assume_local: bool,
    /// D-Bus queries for unit descriptions and past invocations.
    pub dbus: DbusConfig,
    /// How long a batch may wait for what systemd is asked for, up to `1m`; `0s` does not. Keep it below the
    /// interval at which batches come, or they pile up.
    pub wait_for: Duration,
}

/// The sockets by which systemd is asked. Those that do not exist are looked for again.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct DbusConfig {
    /// If false, use only the cgroup path and systemd's files.
    pub enabled: bool,
    /// Socket of the system bus.
    pub socket: String,
    /// systemd's private socket, for root only, used if the bus does not answer; empty disables it.
    pub private_socket: String,
    /// Timeout of a request.
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
        if dbus.timeout <= Duration::ZERO || dbus.timeout > MAX_WAIT {
            problems.add("dbus::timeout", "must be above 0s and at most 1m");
        }
        if self.wait_for.is_negative() || self.wait_for > MAX_WAIT {
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
