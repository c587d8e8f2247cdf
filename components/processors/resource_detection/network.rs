//! The network interfaces of this host that are up, without the loopback.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use profcol_profile::{Attributes, KeyValue, Value};

/// A Kubernetes node has an interface for each of its pods.
const MAX_ADDRESSES: usize = 256;

/// Ordered by interface index.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Network {
    pub interfaces: Vec<String>,
    pub macs: Vec<String>,
    pub addresses: Vec<String>,
}

impl Network {
    pub fn read() -> Self {
        let known = if_addrs::get_if_addrs().unwrap_or_default();
        let known = known.into_iter().map(|it| (it.ip(), it.name));
        Self::read_in(Path::new("/sys/class/net"), known.collect())
    }

    pub(super) fn read_in(directory: &Path, known: Vec<(IpAddr, String)>) -> Self {
        let entries = fs::read_dir(directory).into_iter().flatten();
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let interfaces = paths.filter_map(|path| Interface::read(&path));
        let mut interfaces: Vec<Interface> = interfaces.filter(Interface::leads_out).collect();
        interfaces.sort_unstable_by_key(|interface| interface.number);
        interfaces.truncate(MAX_ADDRESSES);
        let mut network = Self::default();
        for Interface { name, mac, .. } in interfaces {
            let own = known.iter().filter(|(_, owner)| *owner == name);
            let own = own.filter(|(address, _)| !address.is_loopback());
            let own = own.map(|(address, _)| address.to_string());
            network.addresses.extend(own);
            // `00-11-22-AA-BB-CC`, OpenTelemetry's format.
            network
                .macs
                .extend(mac.map(|mac| mac.to_uppercase().replace(':', "-")));
            network.interfaces.push(name);
        }
        network.addresses.truncate(MAX_ADDRESSES);
        network
    }

    pub fn attributes(self) -> Attributes {
        let lists = [
            ("host.ip", self.addresses),
            ("host.mac", self.macs),
            ("host.interface", self.interfaces),
        ];
        let filled = lists.into_iter().filter(|(_, list)| !list.is_empty());
        let attribute = |(key, list): (&str, Vec<String>)| {
            let values: Vec<Value> = list.iter().map(|it| Value::from(it.as_str())).collect();
            KeyValue::new(key, Value::Array(values.into()))
        };
        filled.map(attribute).collect()
    }
}

struct Interface {
    name: String,
    number: u32,
    flags: u32,
    mac: Option<String>,
}

impl Interface {
    fn read(directory: &Path) -> Option<Self> {
        let line = |name: &str| {
            let text = fs::read_to_string(directory.join(name)).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let flags = line("flags")?;
        Some(Self {
            name: directory.file_name()?.to_str()?.to_owned(),
            number: line("ifindex")?.parse().ok()?,
            flags: u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok()?,
            mac: line("address"),
        })
    }

    fn leads_out(&self) -> bool {
        let has = |flag: i32| self.flags & flag as u32 != 0;
        has(libc::IFF_UP) && !has(libc::IFF_LOOPBACK)
    }
}
