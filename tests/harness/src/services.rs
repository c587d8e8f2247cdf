//! Profiles of several services, and several destinations for them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;

use profcol_profile::{KeyValue, Profiles};

use crate::backend::{Destination, Mode};

/// `one` profile of each of these services.
pub fn of_services(one: &Profiles, services: Range<usize>) -> Profiles {
    Profiles::merge(services.map(|number| {
        let mut profiles = one.clone();
        profiles.update_resources(|resource| {
            let name = format!("service-{number}");
            resource.attributes = vec![KeyValue::new("service.name", &*name)];
            true
        });
        profiles
    }))
}

/// The samples that arrived, by service.
pub fn services(destination: &Destination) -> BTreeMap<String, usize> {
    let mut samples = BTreeMap::new();
    for taken in destination.taken() {
        for row in &taken.model().resources {
            let resource = row.resource.clone().unwrap_or_default();
            let name = resource.attributes[0].value.as_str().unwrap_or_default();
            let profiles = row.scopes.iter().flat_map(|scope| &scope.profiles);
            let more: usize = profiles.map(|it| it.samples.len()).sum();
            *samples.entry(name.to_owned()).or_default() += more;
        }
    }
    samples
}

/// Destinations on one port of several addresses.
pub fn side_by_side(count: u8) -> Vec<Destination> {
    let first = Destination::new(Mode::Take);
    let port = first.address.port();
    let others = (2..=count).map(|number| {
        let address = SocketAddr::from(([127, 0, 0, number], port));
        Destination::on(address, Mode::Take)
    });
    std::iter::once(first).chain(others).collect()
}
