//! The counts of all components since the start, including those that a reload has replaced or removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use profcol_component::{InstanceId, ReceiverTotals};

use super::balance::{Balance, ReceiverBalance};
use crate::graph::{ConnectorNode, Stage};
use crate::sender::{ExporterProgress, Sender};

/// Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Ledger(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    receivers: BTreeMap<InstanceId, (String, Arc<ReceiverTotals>)>,
    processors: BTreeMap<InstanceId, (String, Arc<Stage>)>,
    connectors: BTreeMap<InstanceId, (String, Arc<ConnectorNode>)>,
    exporters: BTreeMap<InstanceId, Arc<Sender>>,
    /// The balance of components that have ended; one entry per id.
    ended: Balance,
}

impl Ledger {
    pub(super) fn add_receiver(&self, instance: InstanceId, id: &str, totals: Arc<ReceiverTotals>) {
        let entry = (id.to_owned(), totals);
        self.0.lock().receivers.insert(instance, entry);
    }

    pub(super) fn add_processor(&self, instance: InstanceId, label: &str, stage: Arc<Stage>) {
        let entry = (label.to_owned(), stage);
        self.0.lock().processors.insert(instance, entry);
    }

    pub(super) fn add_connector(
        &self,
        instance: InstanceId,
        label: &str,
        node: Arc<ConnectorNode>,
    ) {
        let entry = (label.to_owned(), node);
        self.0.lock().connectors.insert(instance, entry);
    }

    pub(super) fn add_exporter(&self, instance: InstanceId, sender: Arc<Sender>) {
        self.0.lock().exporters.insert(instance, sender);
    }

    /// The component has ended: writes off the samples that it still holds, and keeps only its counts.
    pub(super) fn close(&self, instance: InstanceId) {
        let mut entries = self.0.lock();
        if let Some((id, totals)) = entries.receivers.remove(&instance) {
            entries
                .ended
                .add_receiver(ReceiverBalance::of(&id, &totals));
        }
        if let Some((label, stage)) = entries.processors.remove(&instance) {
            entries.ended.add_processor(stage.balance(&label));
        }
        if let Some((label, node)) = entries.connectors.remove(&instance) {
            entries.ended.add_processor(node.balance(&label));
        }
        if let Some(sender) = entries.exporters.remove(&instance) {
            entries.ended.add_exporter(sender.balance());
        }
    }

    /// The component never got a batch.
    pub(super) fn forget(&self, instance: InstanceId) {
        let mut entries = self.0.lock();
        entries.receivers.remove(&instance);
        entries.processors.remove(&instance);
        entries.connectors.remove(&instance);
        entries.exporters.remove(&instance);
    }

    /// Closes all entries.
    pub(super) fn balance(&self) -> Balance {
        let instances: Vec<InstanceId> = {
            let entries = self.0.lock();
            let receivers = entries.receivers.keys();
            let others = entries.processors.keys().chain(entries.exporters.keys());
            let connectors = entries.connectors.keys();
            (receivers.chain(connectors).chain(others))
                .copied()
                .collect()
        };
        for instance in instances {
            self.close(instance);
        }
        std::mem::take(&mut self.0.lock().ended)
    }

    /// Samples passed on so far, by receiver.
    pub(super) fn passed_on(&self) -> Vec<(String, u64)> {
        let entries = self.0.lock();
        let mut receivers: Vec<(String, u64)> = Vec::new();
        let ended = entries.ended.receivers.iter();
        let ended = ended.map(|balance| (&balance.receiver, balance.passed_on));
        let running = entries.receivers.values();
        let running = running.map(|(id, totals)| (id, totals.passed_on()));
        for (id, samples) in ended.chain(running) {
            match receivers.iter_mut().find(|(known, _)| known == id) {
                Some((_, sum)) => *sum += samples,
                None => receivers.push((id.clone(), samples)),
            }
        }
        receivers
    }

    /// The outcomes so far, by running exporter.
    pub(super) fn exporters(&self) -> Vec<ExporterProgress> {
        let senders: Vec<Arc<Sender>> = self.0.lock().exporters.values().cloned().collect();
        let mut exporters: Vec<ExporterProgress> = Vec::new();
        for progress in senders.iter().map(|sender| sender.progress()) {
            match exporters
                .iter_mut()
                .find(|known| known.exporter == progress.exporter)
            {
                // The other counts are those of all instances already.
                Some(known) => known.waiting += progress.waiting,
                None => exporters.push(progress),
            }
        }
        exporters
    }
}
