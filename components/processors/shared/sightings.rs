//! Which process a resource is, for the receiver that samples it.

use profcol_component::Sighting;
use profcol_profile::ResourceProfiles;

const PID: &str = "process.pid";

/// The process in each of its profiles; none where the resource has no `process.pid`.
pub(crate) fn sightings(row: &ResourceProfiles) -> impl Iterator<Item = Sighting> {
    let pid = row.resource.as_ref().and_then(|resource| {
        let attributes = resource.attributes.iter();
        attributes
            .filter(|it| &*it.key == PID)
            .find_map(|it| it.value.as_int())
    });
    let profiles = row.scopes.iter().flat_map(|scope| &scope.profiles);
    profiles.filter_map(move |profile| {
        Some(Sighting {
            pid: pid?,
            time: profile.time_unix_nano,
        })
    })
}
