//! The container that a process runs in.
//!
//! The cgroup path contains the container id. Runtimes are queried for names, images and labels in the background.

mod api;
mod containerd;
mod cri;
mod description;
mod directory;
mod docker;
mod messages;
mod runtime;
mod settings;
mod watch;

use std::path::Path;

use futures_util::future::join_all;
use profcol_component::Meter;
use profcol_processes::{Container, parents_and_names};
use profcol_profile::{Attributes, Value};

pub use self::api::{Key, MAX_CONTAINERS, RuntimeError};
pub use self::description::LabelFilter;
pub use self::directory::Directory;
pub use self::runtime::{Protocol, Socket};
pub use self::settings::{ContainerSettings, SocketsConfig, whole};
pub use self::watch::Watch;
use crate::attributes::{CGROUP, add_missing, text_of};

/// The name of a cgroup's container to query, if the runtimes have not reported all about it.
pub fn unknown_container(cgroup: &str, directory: &Directory) -> Option<String> {
    let container = profcol_processes::container(cgroup);
    if container.is_some_and(|it| !has_api(it)) {
        return None;
    }
    let id = container.map(|it| it.id);
    let name = id.or_else(|| parents_and_names(cgroup).next())?;
    (!directory.is_known(id, cgroup)).then(|| name.to_owned())
}

/// Whether a runtime can provide more than the path.
fn has_api(container: Container<'_>) -> bool {
    !matches!(container.runtime, Some("lxc" | "buildkit"))
}

/// Adds missing attributes; returns whether anything was added.
pub fn add_container(attributes: &mut Attributes, directory: &Directory) -> bool {
    let Some(cgroup) = text_of(attributes, CGROUP) else {
        return false;
    };
    let container = profcol_processes::container(&cgroup);
    let id = container.map(|container| container.id);
    let runtime = container.and_then(|container| container.runtime);
    // LXC's names are chosen by users, and there is no API to query.
    let name = id.filter(|_| runtime == Some("lxc"));
    let attributes_of_path = [
        ("container.id", id.map(Value::from)),
        ("container.runtime.name", runtime.map(Value::from)),
        ("container.name", name.map(Value::from)),
    ];
    let is_changed = add_missing(attributes, attributes_of_path);
    let Some(container) = directory.find(id, &cgroup) else {
        return is_changed;
    };
    let described = container
        .iter()
        .map(|it| (&*it.key, Some(it.value.clone())));
    add_missing(attributes, described) | is_changed
}

/// Adds container attributes to processes of this host, once. Returns the existing sockets that gave no answer in time.
pub async fn add_containers(
    settings: &ContainerSettings,
    processes: &mut [Attributes],
) -> Vec<(Socket, RuntimeError)> {
    let sockets = Socket::all(&settings.sockets);
    let labels = LabelFilter::new(&settings.labels);
    let answers = join_all(sockets.iter().map(|socket| socket.list(&labels))).await;
    let dropped = Meter::default().counter("dropped", "Not exported.", &[]);
    let directory = Directory::new(&sockets, dropped);
    let mut failed = Vec::new();
    for ((source, socket), answer) in sockets.iter().enumerate().zip(answers) {
        match answer {
            Ok(containers) => directory.replace(source, containers),
            Err(error) if Path::new(&socket.path).exists() => failed.push((socket.clone(), error)),
            Err(_) => {}
        }
    }
    for attributes in processes {
        add_container(attributes, &directory);
    }
    failed
}
