//! The resolver `k8s`: watches the EndpointSlices of a service.
//!
//! The list of slices is complete before any of it is used, so a new list moves no keys back and forth.

#[cfg(test)]
mod watch_tests;

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use profcol_component::{BuildContext, Check, IntCounter, StartError};
use profcol_kubernetes::{
    Change, CheckImpact, ClientError, Counters, Follower, Health, Meta, Object, Query, Resource,
    Selection, Server, check_rights, or_default,
};
use serde::Deserialize;
use tokio::sync::{Mutex as AsyncMutex, watch};

use crate::load_balancing::config::{K8sConfig, is_label};
use crate::load_balancing::endpoint;

const ENDPOINT_SLICES: Resource = Resource {
    group: "discovery.k8s.io",
    plural: "endpointslices",
    is_namespaced: true,
    is_metadata_enough: false,
};

/// The label of a slice that names its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

const IMPACT: CheckImpact = CheckImpact {
    lost: "the endpoints of the service are not known; profiles wait in the queue and are dropped when it is full",
    late: "the endpoints are found later",
};

/// Hosts of all slices together; more are left out. Only the first [`endpoint::MAX`] are used: the others replace hosts that
/// disappear.
const MAX_HOSTS: usize = 10 * endpoint::MAX;

/// How long until endpoints that could not be used are tried again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Why there are no endpoints.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoEndpoint {
    #[error("the endpoints of the service are not known yet")]
    Unknown,
    #[error("the service {0} has no ready endpoint")]
    NotReady(String),
}

/// Follows the endpoints of one service.
pub(super) struct ServiceWatch {
    config: K8sConfig,
    server: Arc<Server>,
    health: Arc<Health>,
    failures: IntCounter,
    unusable: IntCounter,
    /// Set between start and `run`.
    following: Mutex<Option<Following>>,
    /// `None` until the service was listed.
    found: watch::Sender<Option<BTreeSet<String>>>,
    news: AsyncMutex<watch::Receiver<Option<BTreeSet<String>>>>,
}

struct Following {
    follower: Follower,
    service: Service,
}

/// What is known of a service.
struct Service {
    naming: Naming,
    ports: Vec<u16>,
    known: BTreeMap<String, Slice>,
    /// While the slices are listed: those of the new list so far.
    listed: Option<BTreeMap<String, Slice>>,
    unusable: IntCounter,
    is_logged: bool,
}

/// How the endpoints of a service are named.
#[derive(Clone, Debug)]
enum Naming {
    Addresses,
    Names { domain: String },
}

/// The ready endpoints of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Slice {
    family: Family,
    hosts: BTreeSet<String>,
}

/// The kind of a slice's addresses. A service with several has a slice of each with the same pods; the first of these is
/// used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    Ipv4,
    Ipv6,
    #[default]
    Name,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct EndpointSlice {
    metadata: Meta,
    address_type: String,
    #[serde(deserialize_with = "or_default")]
    endpoints: Vec<Endpoint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Endpoint {
    /// Addresses of the same pod; the first is enough.
    #[serde(deserialize_with = "or_default")]
    addresses: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    conditions: Conditions,
    #[serde(deserialize_with = "or_default")]
    hostname: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Conditions {
    /// Unknown means ready.
    ready: Option<bool>,
}

impl Object for EndpointSlice {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

// === impl ServiceWatch ===

impl ServiceWatch {
    /// `failures` counts failed requests.
    pub(super) fn new(config: &K8sConfig, context: &BuildContext, failures: IntCounter) -> Self {
        let id = context.id.to_string();
        let found = watch::Sender::new(None);
        Self {
            server: Arc::new(Server::new(config.access())),
            config: config.clone(),
            health: Arc::new(Health::new(context.status.clone())),
            failures,
            unusable: context.meter.counter(
                "profcol_load_balancing_unusable",
                "EndpointSlices, and endpoints in them, that were skipped because they could not be used.",
                &[("exporter", &id)],
            ),
            following: Mutex::default(),
            news: AsyncMutex::new(found.subscribe()),
            found,
        }
    }

    /// The endpoints at the moment.
    pub(super) fn endpoints(&self) -> Result<BTreeSet<String>, NoEndpoint> {
        let found = self.found.borrow();
        let endpoints = found.as_ref().ok_or(NoEndpoint::Unknown)?;
        match endpoints.is_empty() {
            true => Err(self.no_endpoint()),
            false => Ok(endpoints.clone()),
        }
    }

    /// Waits for other endpoints, or a while if those that were found are not in use.
    pub(super) async fn changed(&self, is_unused: bool) {
        let mut news = self.news.lock().await;
        let retry = async {
            match is_unused {
                true => tokio::time::sleep(RETRY_AFTER).await,
                false => pending().await,
            }
        };
        tokio::select! {
            // The sender is in here.
            _ = news.changed() => {}
            () = retry => {}
        }
    }

    /// Lists the endpoints once. A server that does not answer is asked again later.
    pub(super) async fn start(&self) -> Result<(), StartError> {
        self.server.client().await.map_err(StartError::new)?;
        let mut following = self.follow().await.map_err(StartError::new)?;
        let Following { follower, service } = &mut following;
        let mut on = |change| self.note(service, change);
        if let Err(error) = follower.list(&mut on).await {
            follower.report(&error);
        }
        *self.following.lock() = Some(following);
        self.news.lock().await.mark_unchanged();
        Ok(())
    }

    /// Follows changes until cancelled.
    pub(super) async fn run(&self) {
        let following = self.following.lock().take();
        if let Some(Following {
            follower,
            mut service,
        }) = following
        {
            follower.run(|change| self.note(&mut service, change)).await;
        }
    }

    /// Whether the server answers; then the endpoints, too.
    pub(super) async fn check(&self) -> Result<BTreeSet<String>, Vec<Check>> {
        let query = match self.query().await {
            Ok(query) => vec![query],
            // The check says that there is no client.
            Err(_) => Vec::new(),
        };
        let checks = check_rights(&self.server, query, IMPACT).await;
        if checks.iter().any(|it| it.problem.is_some()) {
            return Err(checks);
        }
        let no_endpoint = |why: String| {
            let check = Check::new("resolver", why);
            vec![check.fail(
                IMPACT.lost,
                "check that the service exists and that its pods are ready",
            )]
        };
        let mut following = self
            .follow()
            .await
            .map_err(|error| no_endpoint(error.to_string()))?;
        let Following { follower, service } = &mut following;
        let mut on = |change| {
            service.change(change);
        };
        if let Err(error) = follower.list(&mut on).await {
            return Err(no_endpoint(follower.explain(&error)));
        }
        let endpoints = service.endpoints();
        match endpoints.is_empty() {
            true => Err(no_endpoint(self.no_endpoint().to_string())),
            false => Ok(endpoints),
        }
    }

    fn no_endpoint(&self) -> NoEndpoint {
        NoEndpoint::NotReady(self.config.service.clone())
    }

    async fn follow(&self) -> Result<Following, ClientError> {
        let (name, _) = self.config.service();
        let counters = Counters {
            failures: self.failures.clone(),
            unreadable: self.unusable.clone(),
        };
        let query = self.query().await?;
        let (server, health) = (Arc::clone(&self.server), Arc::clone(&self.health));
        let follower = Follower::new(server, query, counters, health);
        let naming = match self.config.return_hostnames {
            true => Naming::Names {
                domain: format!("{name}.{}", self.namespace().await?),
            },
            false => Naming::Addresses,
        };
        Ok(Following {
            follower: follower.with_timeout(self.config.timeout.into()),
            service: Service {
                naming,
                ports: self.config.ports.clone(),
                known: BTreeMap::new(),
                listed: None,
                unusable: self.unusable.clone(),
                is_logged: false,
            },
        })
    }

    async fn query(&self) -> Result<Query, ClientError> {
        let (name, _) = self.config.service();
        let selection = Selection {
            namespace: self.namespace().await?,
            labels: vec![format!("{SERVICE_NAME}={name}")],
            ..Selection::default()
        };
        Ok(Query::new(ENDPOINT_SLICES, selection))
    }

    async fn namespace(&self) -> Result<String, ClientError> {
        match self.config.service() {
            (_, Some(namespace)) => Ok(namespace.to_owned()),
            (_, None) => self.server.namespace().await,
        }
    }

    fn note(&self, service: &mut Service, change: Change<EndpointSlice>) {
        if service.change(change) {
            let endpoints = Some(service.endpoints());
            self.found.send_if_modified(|found| {
                let is_changed = *found != endpoints;
                *found = endpoints;
                is_changed
            });
        }
    }
}

// === impl Service ===

impl Service {
    /// Returns whether the endpoints may have changed.
    fn change(&mut self, change: Change<EndpointSlice>) -> bool {
        match change {
            Change::Begin => {
                self.listed = Some(BTreeMap::new());
                false
            }
            Change::Put(slice) => {
                let read = self.read(&slice);
                let slices = self.listed.as_mut().unwrap_or(&mut self.known);
                slices.insert(slice.metadata.name, read);
                self.listed.is_none()
            }
            Change::Gone(slice) => {
                self.known.remove(&slice.metadata.name);
                true
            }
            Change::Complete => {
                self.known = self.listed.take().unwrap_or_default();
                true
            }
        }
    }

    fn endpoints(&self) -> BTreeSet<String> {
        let family = self.known.values().map(|it| it.family).min();
        let slices = self.known.values();
        let used = slices.filter(|it| Some(it.family) == family);
        let hosts = used.flat_map(|it| &it.hosts);
        let endpoints = hosts.flat_map(|host| {
            let ports = self.ports.iter();
            ports.map(|port| endpoint::at_port(host, *port))
        });
        endpoints.collect()
    }

    fn read(&mut self, slice: &EndpointSlice) -> Slice {
        let slices = self.listed.as_ref().unwrap_or(&self.known).iter();
        let others = slices.filter(|(name, _)| **name != slice.metadata.name);
        let held: usize = others.map(|(_, it)| it.hosts.len()).sum();
        let mut hosts = BTreeSet::new();
        let ready = slice.endpoints.iter();
        let ready = ready.filter(|it| it.conditions.ready != Some(false));
        for found in ready {
            match self.naming.host(found) {
                Ok(_) if held + hosts.len() >= MAX_HOSTS => self.skip("too many endpoints"),
                Ok(host) => {
                    hosts.insert(host);
                }
                Err(reason) => self.skip(reason),
            }
        }
        Slice {
            family: Family::of(&slice.address_type),
            hosts,
        }
    }

    fn skip(&mut self, reason: &'static str) {
        self.unusable.inc();
        if !self.is_logged {
            tracing::warn!(reason, "Skipping unusable endpoints of the service.");
            self.is_logged = true;
        }
    }
}

// === impl Naming ===

impl Naming {
    fn host(&self, endpoint: &Endpoint) -> Result<String, &'static str> {
        match self {
            Self::Addresses => {
                let address = endpoint.addresses.first().filter(|it| is_host(it));
                address.cloned().ok_or("its address is invalid")
            }
            Self::Names { domain } => match is_label(&endpoint.hostname) {
                true => Ok(format!("{}.{domain}", endpoint.hostname)),
                false => Err(
                    "it has no host name; `return_hostnames` needs the headless service of a StatefulSet",
                ),
            },
        }
    }
}

fn is_host(text: &str) -> bool {
    let is_name = text.len() <= 253 && text.split('.').all(is_label);
    is_name || text.parse::<IpAddr>().is_ok()
}

// === impl Family ===

impl Family {
    fn of(address_type: &str) -> Self {
        match address_type {
            "IPv4" => Self::Ipv4,
            "IPv6" => Self::Ipv6,
            _ => Self::Name,
        }
    }
}

#[cfg(test)]
mod tests {
    use profcol_component::Meter;
    use serde_json::{Value, json};

    use super::*;

    fn service(naming: Naming, ports: &[u16]) -> Service {
        Service {
            naming,
            ports: ports.to_vec(),
            known: BTreeMap::new(),
            listed: None,
            unusable: Meter::default().counter("unusable", "Skipped.", &[]),
            is_logged: false,
        }
    }

    fn slice(name: &str, family: &str, endpoints: &Value) -> EndpointSlice {
        let slice =
            json!({"metadata": {"name": name}, "addressType": family, "endpoints": endpoints});
        serde_json::from_value(slice).unwrap()
    }

    fn ready(addresses: &[&str]) -> Value {
        let endpoints = addresses.iter();
        endpoints.map(|it| json!({"addresses": [it]})).collect()
    }

    fn endpoints(service: &Service) -> Vec<String> {
        service.endpoints().into_iter().collect()
    }

    #[test]
    fn ready_endpoints_of_all_slices_are_used_at_each_port() {
        let mut service = service(Naming::Addresses, &[4317, 4318]);
        let first = json!([
            {"addresses": ["10.0.0.1", "10.0.0.9"], "conditions": {"ready": true}},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": false, "terminating": true}},
            {"addresses": ["10.0.0.3"], "conditions": {"ready": null}},
            {"addresses": null},
        ]);
        assert!(service.change(Change::Put(slice("a", "IPv4", &first))));
        assert!(service.change(Change::Put(slice("b", "IPv4", &ready(&["10.0.0.3"])))));
        let expected = [
            "10.0.0.1:4317",
            "10.0.0.1:4318",
            "10.0.0.3:4317",
            "10.0.0.3:4318",
        ];
        assert_eq!(endpoints(&service), expected);
        assert_eq!(service.unusable.get(), 1);
        assert!(service.change(Change::Gone(slice("a", "IPv4", &Value::Null))));
        assert_eq!(endpoints(&service), ["10.0.0.3:4317", "10.0.0.3:4318"]);
    }

    /// Otherwise each pod of a service with two families would get two shares.
    #[test]
    fn one_family_of_addresses_is_used() {
        let mut service = service(Naming::Addresses, &[4317]);
        service.change(Change::Put(slice("six", "IPv6", &ready(&["fd00::1"]))));
        assert_eq!(endpoints(&service), ["[fd00::1]:4317"]);
        service.change(Change::Put(slice("four", "IPv4", &ready(&["10.0.0.1"]))));
        assert_eq!(endpoints(&service), ["10.0.0.1:4317"]);
        service.change(Change::Put(slice("four", "IPv4", &ready(&[]))));
        assert!(endpoints(&service).is_empty());
        service.change(Change::Gone(slice("four", "IPv4", &Value::Null)));
        assert_eq!(endpoints(&service), ["[fd00::1]:4317"]);
    }

    #[test]
    fn a_new_list_replaces_the_old_one_when_it_is_complete() {
        let mut service = service(Naming::Addresses, &[4317]);
        service.change(Change::Put(slice("a", "IPv4", &ready(&["10.0.0.1"]))));
        assert!(!service.change(Change::Begin));
        assert!(!service.change(Change::Put(slice("b", "IPv4", &ready(&["10.0.0.2"])))));
        assert_eq!(endpoints(&service), ["10.0.0.1:4317"]);
        // It failed, and begins again.
        assert!(!service.change(Change::Begin));
        assert!(!service.change(Change::Put(slice("c", "IPv4", &ready(&["10.0.0.3"])))));
        assert!(service.change(Change::Complete));
        assert_eq!(endpoints(&service), ["10.0.0.3:4317"]);
    }

    #[test]
    fn host_names_are_those_of_a_stateful_set() {
        let domain = "gateway.shop".to_owned();
        let mut service = service(Naming::Names { domain }, &[4317]);
        let found = json!([
            {"addresses": ["10.0.0.1"], "hostname": "gateway-0"},
            {"addresses": ["10.0.0.2"]},
            {"addresses": ["10.0.0.3"], "hostname": "x/y"},
        ]);
        service.change(Change::Put(slice("a", "IPv4", &found)));
        assert_eq!(endpoints(&service), ["gateway-0.gateway.shop:4317"]);
        assert_eq!(service.unusable.get(), 2);
    }

    #[test]
    fn addresses_that_are_none_are_skipped() {
        let mut service = service(Naming::Addresses, &[4317]);
        let odd = ready(&[
            "unix:///run/x",
            "a b",
            "",
            "http://x",
            "10.0.0.1:1",
            "db.example",
        ]);
        service.change(Change::Put(slice("a", "FQDN", &odd)));
        assert_eq!(endpoints(&service), ["db.example:4317"]);
        assert_eq!(service.unusable.get(), 5);
    }

    #[test]
    fn the_number_of_hosts_is_bounded() {
        let mut service = service(Naming::Addresses, &[4317]);
        let hosts = |from: usize, to: usize| -> Value {
            let names = (from..to).map(|it| json!({"addresses": [format!("h{it}")]}));
            names.collect()
        };
        service.change(Change::Put(slice("a", "FQDN", &hosts(0, MAX_HOSTS - 1))));
        let second = slice("b", "FQDN", &hosts(MAX_HOSTS, MAX_HOSTS + 3));
        service.change(Change::Put(second.clone()));
        assert_eq!(endpoints(&service).len(), MAX_HOSTS);
        assert_eq!(service.unusable.get(), 2);
        // The same slice again counts once.
        service.change(Change::Put(second));
        assert_eq!(endpoints(&service).len(), MAX_HOSTS);
    }
}
