//! Processes of this host that profiles can be about.

use std::process::{Child, Command};

use anyhow::{Context, Result};
use bytes::Bytes;
use profcol_processes::{Described, Host, Wanted, timestamp};
use profcol_profile::{KeyValue, Profiles, Resource, Validation};

const PID: &str = "process.pid";
const CREATED: &str = "process.creation.time";

/// They sleep, and end with this.
pub struct Processes(Vec<Child>);

impl Processes {
    pub fn start(number: usize) -> Result<Self> {
        let mut processes = Self(Vec::new());
        for _ in 0..number {
            let child = Command::new("sleep").arg("infinity").spawn();
            processes.0.push(child.context("failed to start `sleep`")?);
        }
        Ok(processes)
    }

    /// The bodies with these processes instead of those that were recorded, in turn.
    pub fn in_place_of_those_of(&self, bodies: Vec<Bytes>) -> Result<Vec<Bytes>> {
        if self.0.is_empty() {
            return Ok(bodies);
        }
        let host = Host::read();
        let attributes = self.0.iter().map(|process| {
            let pid = process.id();
            let described = Described::read(pid, &Wanted::default());
            let created = described.and_then(|it| timestamp(it.created(&host)?));
            Some([
                KeyValue::new(PID, i64::from(pid)),
                KeyValue::new(CREATED, &*created?),
            ])
        });
        let attributes: Option<Vec<_>> = attributes.collect();
        let attributes = attributes.context("a process that was started is gone")?;
        let mut turn = attributes.iter().cycle();
        let mut replace = |resource: &mut Resource| {
            let own = &mut resource.attributes;
            own.retain(|attribute| ![PID, CREATED].contains(&&*attribute.key));
            own.extend(turn.next().into_iter().flatten().cloned());
            true
        };
        let bodies = bodies.into_iter().map(|body| {
            let received = Profiles::from_wire(body, Validation::Reject);
            let mut profiles = received.context("a body is refused")?.profiles;
            profiles.update_resources(&mut replace);
            Ok(profiles.to_wire())
        });
        bodies.collect()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for process in &mut self.0 {
            // Fails only where it has ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
