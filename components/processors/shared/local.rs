//! Whether a profile is of this host: numbers of processes and names of units mean nothing elsewhere.

use profcol_processes::Host;
use profcol_profile::Attributes;

use super::lookup::text_of;

/// By the host that the resource names; `None` where it names none.
pub(crate) fn is_of(host: &Host, attributes: &Attributes) -> Option<bool> {
    let id = text_of(attributes, "host.id");
    match (&id, &host.id, text_of(attributes, "host.name")) {
        (Some(id), Some(own), _) => Some(**id == **own),
        (_, _, Some(name)) => Some(*name == *host.name),
        (Some(_), None, None) => Some(false),
        (None, _, None) => None,
    }
}
