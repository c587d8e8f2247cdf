//! Chooses an endpoint by the attributes of a resource.
//!
//! By rendezvous hashing: the endpoint with the highest hash of itself and the key gets the resource. If an
//! endpoint goes, only its keys move; a new one takes its share from all others. All senders with the same endpoints
//! choose alike, so hashes depend neither on the machine nor on the version.

use profcol_profile::{Attributes, Value};
use twox_hash::XxHash3_64;

use super::config::{LoadBalancingConfig, RoutingKey};
use crate::shared::attribute_bytes;

const SERVICE_NAME: &str = "service.name";

/// The attributes by which resources are routed.
#[derive(Clone, Debug)]
pub(super) enum Key {
    /// All attributes.
    Resource,
    /// The values of these.
    Attributes(Vec<String>),
}

/// The endpoints to choose from.
#[derive(Debug)]
pub(super) struct Chooser {
    key: Key,
    /// The hash of each.
    endpoints: Vec<u64>,
}

// === impl Key ===

impl Key {
    pub(super) fn of(config: &LoadBalancingConfig) -> Self {
        match config.routing_key {
            RoutingKey::Service => Self::Attributes(vec![SERVICE_NAME.to_owned()]),
            RoutingKey::Resource => Self::Resource,
            RoutingKey::Attributes => Self::Attributes(config.routing_attributes.clone()),
        }
    }

    /// A missing attribute is part of the key, too.
    fn hash(&self, attributes: &Attributes) -> u64 {
        let bytes = match self {
            Self::Resource => attribute_bytes::of_all(attributes),
            Self::Attributes(keys) => {
                let mut bytes = Vec::new();
                for key in keys {
                    let found = attributes.iter().find(|it| *it.key == **key);
                    let value = found.map_or(&Value::Empty, |it| &it.value);
                    attribute_bytes::add(&mut bytes, value);
                }
                bytes
            }
        };
        XxHash3_64::oneshot(&bytes)
    }
}

// === impl Chooser ===

impl Chooser {
    pub(super) fn new<'a>(key: Key, endpoints: impl IntoIterator<Item = &'a str>) -> Self {
        let endpoints = endpoints.into_iter();
        Self {
            key,
            endpoints: endpoints
                .map(|it| XxHash3_64::oneshot(it.as_bytes()))
                .collect(),
        }
    }

    /// The position of the endpoint for a resource; 0 without endpoints.
    pub(super) fn choose(&self, attributes: &Attributes) -> usize {
        let key = self.key.hash(attributes).to_le_bytes();
        let endpoints = self.endpoints.iter().enumerate();
        let highest =
            endpoints.max_by_key(|(_, endpoint)| XxHash3_64::oneshot_with_seed(**endpoint, &key));
        highest.map_or(0, |(position, _)| position)
    }
}

#[cfg(test)]
mod tests {
    use profcol_profile::KeyValue;

    use super::*;

    fn service(name: &str) -> Attributes {
        vec![
            KeyValue::new("process.pid", 7),
            KeyValue::new(SERVICE_NAME, name),
        ]
    }

    fn by_service() -> Key {
        Key::Attributes(vec![SERVICE_NAME.to_owned()])
    }

    fn chooser(endpoints: &[String]) -> Chooser {
        Chooser::new(by_service(), endpoints.iter().map(String::as_str))
    }

    const KEYS: usize = 10_000;

    fn chosen(endpoints: &[String]) -> Vec<&str> {
        let chooser = chooser(endpoints);
        let keys = (0..KEYS).map(|number| service(&format!("service-{number}")));
        keys.map(|key| &*endpoints[chooser.choose(&key)]).collect()
    }

    fn endpoints(count: usize) -> Vec<String> {
        (0..count).map(|it| format!("10.0.0.{it}:4317")).collect()
    }

    #[test]
    fn only_keys_of_a_removed_endpoint_move() {
        let all = endpoints(10);
        let fewer: Vec<_> = all
            .iter()
            .filter(|it| !it.contains(".3:"))
            .cloned()
            .collect();
        let (before, after) = (chosen(&all), chosen(&fewer));
        for (before, after) in before.iter().zip(&after) {
            assert!(
                before == after || before.contains(".3:"),
                "{before} {after}"
            );
        }
        let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count();
        assert!((900..1100).contains(&moved), "{moved}");
    }

    #[test]
    fn endpoints_get_equal_shares() {
        let all = endpoints(10);
        let chosen = chosen(&all);
        for endpoint in &all {
            let share = chosen.iter().filter(|it| *it == endpoint).count();
            assert!((900..1100).contains(&share), "{endpoint}: {share}");
        }
    }

    /// Another version of profcol, or another machine, must choose alike.
    #[test]
    fn the_choice_is_fixed() {
        let all = endpoints(10);
        let chooser = chooser(&all);
        let names = ["", "checkout", "a-much-longer-name-of-a-service-than-most"];
        let chosen = names.map(|name| chooser.choose(&service(name)));
        assert_eq!(chosen, [5, 5, 0]);
    }

    #[test]
    fn equal_keys_have_equal_hashes() {
        let one = vec![KeyValue::new("a", "x"), KeyValue::new("b", 1)];
        let other = vec![KeyValue::new("b", 1), KeyValue::new("a", "x")];
        let missing = vec![KeyValue::new("b", 1)];
        assert_eq!(Key::Resource.hash(&one), Key::Resource.hash(&other));
        assert_ne!(Key::Resource.hash(&one), Key::Resource.hash(&missing));
        let process = Key::Attributes(vec!["host.id".to_owned(), "process.pid".to_owned()]);
        let process_of = |host: &str, pid: i64| {
            process.hash(&vec![
                KeyValue::new("process.pid", pid),
                KeyValue::new("host.id", host),
            ])
        };
        assert_eq!(process_of("a", 1), process_of("a", 1));
        assert_ne!(process_of("a", 1), process_of("a", 2));
        assert_ne!(process_of("a", 1), process_of("b", 1));
        assert_ne!(process_of("a", 1), by_service().hash(&one));
    }
}
