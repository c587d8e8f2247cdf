//! Attributes of this host.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;

use profcol_processes::Host;
use profcol_profile::{Attributes, KeyValue, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::DetectionError;
use super::network::Network;
use super::switches::{AttributeDefaults, Switches};

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct SystemConfig {
    /// The sources of `host.name`; the first with a result wins.
    pub hostname_sources: Vec<HostnameSource>,
    /// Which attributes to add: `<name>: {enabled: true}`.
    pub resource_attributes: Switches,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-unknown" = "invalid hostname source:"))]
pub enum HostnameSource {
    /// The kernel's host name.
    Os,
    /// The fully qualified name: from `/etc/hosts`, else the canonical name in DNS, else a reverse lookup of the
    /// host's addresses.
    Dns,
    /// The canonical name in DNS.
    Cname,
    /// A reverse lookup of the host's addresses; the first with a name wins.
    Lookup,
}

impl Default for SystemConfig {
    fn default() -> Self {
        Self {
            hostname_sources: vec![HostnameSource::Dns, HostnameSource::Os],
            resource_attributes: Switches::default(),
        }
    }
}

/// The Collector's, and the kernel's release and machine as in `uname`.
pub(super) const ATTRIBUTES: AttributeDefaults = &[
    ("host.name", true),
    ("os.type", true),
    ("host.id", false),
    ("host.arch", false),
    ("host.ip", false),
    ("host.mac", false),
    ("host.interface", false),
    ("host.cpu.vendor.id", false),
    ("host.cpu.family", false),
    ("host.cpu.model.id", false),
    ("host.cpu.model.name", false),
    ("host.cpu.stepping", false),
    (CACHE, false),
    ("os.description", false),
    ("os.name", false),
    ("os.version", false),
    ("os.build.id", false),
    (RELEASE, false),
    (MACHINE, false),
];

/// In bytes, per the semantic conventions.
const CACHE: &str = "host.cpu.cache.l2.size";
const RELEASE: &str = "os.kernel.release";
const MACHINE: &str = "os.kernel.machine";

/// May query DNS, so it must not run on a runtime thread.
pub(super) fn detect(config: &SystemConfig) -> Result<Attributes, DetectionError> {
    let host = Host::read();
    let kernel = |name| read(&format!("/proc/sys/kernel/{name}"));
    let release = kernel("osrelease");
    let distribution = Distribution::read();
    let mut attributes = Attributes::new();
    let mut add = |key: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            attributes.push(KeyValue::new(key, Value::from(value.as_str())));
        }
    };
    add("host.name", host_name(&config.hostname_sources, &host.name));
    add("host.id", host.id.clone());
    add("host.arch", Some(architecture().to_owned()));
    add("os.type", Some("linux".to_owned()));
    add(
        "os.description",
        Some(format!(
            "{} (Linux {} {} {})",
            distribution
                .get("PRETTY_NAME")
                .unwrap_or("Linux".to_owned()),
            release.as_deref().unwrap_or_default(),
            kernel("version").unwrap_or_default(),
            std::env::consts::ARCH,
        )),
    );
    add("os.name", distribution.get("NAME"));
    add("os.version", distribution.get("VERSION_ID"));
    add("os.build.id", distribution.get("BUILD_ID"));
    add(RELEASE, release);
    add(MACHINE, Some(std::env::consts::ARCH.to_owned()));
    let processor = processor(&read("/proc/cpuinfo").unwrap_or_default());
    for (key, value) in processor {
        add(key, Some(value));
    }
    let cache = second_cache(Path::new("/sys/devices/system/cpu/cpu0/cache"));
    attributes.extend(cache.map(|size| KeyValue::new(CACHE, Value::from(size))));
    attributes.extend(Network::read().attributes());
    match attributes.iter().any(|it| &*it.key == "host.name") {
        true => Ok(attributes),
        false => Err(DetectionError::NoHostName),
    }
}

/// OpenTelemetry's name of the architecture.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn host_name(sources: &[HostnameSource], name: &str) -> Option<String> {
    let find = |source: &HostnameSource| match source {
        HostnameSource::Os => Some(name.to_owned()),
        HostnameSource::Dns => in_hosts(&read("/etc/hosts").unwrap_or_default(), name)
            .or_else(|| canonical(name))
            .or_else(|| by_address(name)),
        HostnameSource::Cname => canonical(name),
        HostnameSource::Lookup => by_address(name),
    };
    let mut found = sources.iter().filter_map(find);
    found.find(|found| !found.is_empty())
}

/// The first name in the line with this name is the fully qualified one.
pub(super) fn in_hosts(hosts: &str, name: &str) -> Option<String> {
    hosts.lines().find_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let mut names = line.split_ascii_whitespace();
        let address: IpAddr = names.next()?.parse().ok()?;
        let names: Vec<&str> = names.collect();
        let full = names.iter().find(|name| name.contains('.'))?;
        let is_it = names.contains(&name) && !(address.is_loopback() && *full == "localhost");
        is_it.then(|| (*full).to_owned())
    })
}

fn canonical(name: &str) -> Option<String> {
    let hints = dns_lookup::AddrInfoHints {
        flags: libc::AI_CANONNAME,
        ..dns_lookup::AddrInfoHints::default()
    };
    let found = dns_lookup::getaddrinfo(Some(name), None, Some(hints)).ok()?;
    let mut names = found.filter_map(|found| found.ok()?.canonname);
    full(names.next()?)
}

fn by_address(name: &str) -> Option<String> {
    let addresses = (name, 0).to_socket_addrs().ok()?;
    let addresses = addresses.map(|address| address.ip());
    let mut names = addresses.filter_map(|address| dns_lookup::lookup_addr(&address).ok());
    names.find_map(full)
}

fn full(name: String) -> Option<String> {
    let name = name.trim_end_matches('.');
    let is_full = name.contains('.') && name.parse::<IpAddr>().is_err();
    is_full.then(|| name.to_owned())
}

/// `/etc/os-release`.
struct Distribution(HashMap<String, String>);

impl Distribution {
    fn read() -> Self {
        let text = read("/etc/os-release").or_else(|| read("/usr/lib/os-release"));
        let text = text.unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        let plain = |value: &str| value.trim_matches(['"', '\'']).replace("\\\"", "\"");
        Self(
            pairs
                .map(|(key, value)| (key.to_owned(), plain(value)))
                .collect(),
        )
    }

    fn get(&self, key: &str) -> Option<String> {
        self.0.get(key).cloned()
    }
}

/// The first processor in `/proc/cpuinfo`; aarch64 has other keys.
pub(super) fn processor(cpuinfo: &str) -> Vec<(&'static str, String)> {
    let first = cpuinfo.split("\n\n").next().unwrap_or_default();
    let lines = first.lines().filter_map(|line| line.split_once(':'));
    let known = |(name, value): (&str, &str)| {
        let key = match name.trim() {
            "vendor_id" | "CPU implementer" => "host.cpu.vendor.id",
            "cpu family" | "CPU architecture" => "host.cpu.family",
            "model" | "CPU part" => "host.cpu.model.id",
            "model name" => "host.cpu.model.name",
            "stepping" | "CPU revision" => "host.cpu.stepping",
            _ => return None,
        };
        Some((key, value.trim().to_owned()))
    };
    lines.filter_map(known).collect()
}

/// The size of a processor's L2 cache.
pub(super) fn second_cache(caches: &Path) -> Option<i64> {
    let entries = fs::read_dir(caches).ok()?;
    let mut directories = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let line = |directory: &Path, name| read(directory.join(name).to_str()?);
    let second = directories.find(|directory| line(directory, "level").as_deref() == Some("2"))?;
    // The kernel always prints kibibytes.
    let size: i64 = line(&second, "size")?.strip_suffix('K')?.parse().ok()?;
    size.checked_mul(1024)
}

fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}
