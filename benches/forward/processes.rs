//! Local processes for profiles to refer to.

use std::process::{Child, Command};

use anyhow::{Context, Result};
use bytes::Bytes;
use profcol_processes::{Host, ProcessDescription, ReadOptions, timestamp};
use profcol_profile::{KeyValue, Profiles, Resource, Validation};

const PID: &str = "process.pid";
const CREATED: &str = "process.creation.time";

/// They sleep, and are killed on drop.
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

    /// Replaces the recorded processes of the bodies by these, in turn.
    pub fn in_place_of_those_of(&self, bodies: Vec<Bytes>) -> Result<Vec<Bytes>> {
        if self.0.is_empty() {
            return Ok(bodies);
        }
        let host = Host::read();
        let attributes = self.0.iter().map(|process| {
            let pid = process.id();
            let described = ProcessDescription::read(pid, &ReadOptions::default());
            let created = described.and_then(|it| timestamp(it.created(&host)?));
            Some([
                KeyValue::new(PID, i64::from(pid)),
                KeyValue::new(CREATED, &*created?),
            ])
        });
        let attributes: Option<Vec<_>> = attributes.collect();
        let attributes = attributes.context("a started process has exited")?;
        let mut turn = attributes.iter().cycle();
        let mut replace = |resource: &mut Resource| {
            let own = &mut resource.attributes;
            own.retain(|attribute| ![PID, CREATED].contains(&&*attribute.key));
            own.extend(turn.next().into_iter().flatten().cloned());
            true
        };
        let bodies = bodies.into_iter().map(|body| {
            let received = Profiles::from_wire(body, Validation::Reject);
            let mut profiles = received.context("invalid body")?.profiles;
            profiles.update_resources(&mut replace);
            Ok(profiles.to_wire())
        });
        bodies.collect()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for process in &mut self.0 {
            // Only fails if it has already exited.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
