//! Identifies the processes of a resource for drop feedback.

use profcol_component::SampledProcess;
use profcol_profile::ResourceProfiles;

use profcol_metadata::attributes::{PID, find};

/// The process in each of its profiles; none if the resource has no `process.pid`.
pub(crate) fn sampled_processes(row: &ResourceProfiles) -> impl Iterator<Item = SampledProcess> {
    let resource = row.resource.as_ref();
    let pid = resource.and_then(|resource| find(&resource.attributes, PID)?.as_int());
    let profiles = row.scopes.iter().flat_map(|scope| &scope.profiles);
    profiles.filter_map(move |profile| {
        Some(SampledProcess {
            pid: pid?,
            time: profile.time_unix_nano,
        })
    })
}
