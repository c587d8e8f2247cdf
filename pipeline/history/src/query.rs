//! Queries of the history.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use indexmap::IndexMap;
use profcol_flamegraph::{CallTree, FrameId, NodeId, SampleType, Side, Source};
use serde::Serialize;

use crate::chunk::{Chunk, Labels, Row};
use crate::language::{Group, LANGUAGE, LanguageSet, Languages};
use crate::selector::label_name;
use crate::service_name::SERVICE_NAME;
use crate::{History, Selector};

/// Selects samples by type, time and labels.
#[derive(Clone, Debug)]
pub struct Query {
    /// `None` means the first type available.
    pub kind: Option<String>,
    /// Unix time in milliseconds.
    pub from: u64,
    pub until: u64,
    pub selector: Selector,
    /// The outermost functions of the selected stacks; empty selects all.
    pub call_site: Vec<String>,
}

/// The result of a query as a call tree.
#[derive(Default)]
pub struct QueryResult {
    pub tree: CallTree,
    pub source: Source,
}

/// Values over time, by the value of a label.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Timeline {
    pub start: u64,
    pub step: u64,
    pub series: Vec<TimeSeries>,
    pub others: Vec<u64>,
}

#[derive(Debug, Default, PartialEq, Serialize)]
pub struct TimeSeries {
    pub value: String,
    pub points: Vec<u64>,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct LabelValue {
    pub value: String,
    pub total: u64,
}

#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Process {
    pub pid: i64,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub total: u64,
    pub samples: u64,
    /// The languages of all functions on its stacks.
    pub languages: BTreeSet<&'static str>,
    /// Samples by the end of their stacks: `whole`, or the end reason.
    pub ends: BTreeMap<String, u64>,
}

/// Several hosts may use a PID at the same time.
#[derive(PartialEq, Eq, Hash)]
struct ProcessKey {
    host: [String; HOST_LABELS.len()],
    pid: i64,
    name: String,
}

/// Labels that tell hosts apart.
const HOST_LABELS: [&str; 2] = ["host_id", "host_name"];
/// Maximum points of a timeline; more would be invisible.
const MAX_POINTS: u64 = 600;
/// Labels that differ between the threads of a process.
const THREAD_LABELS: [&str; 2] = ["thread_name", "thread_id"];

impl History {
    pub fn call_tree(&self, query: &Query, base: Option<&Query>) -> QueryResult {
        let kind = self.kind(query);
        let mut answer = QueryResult {
            tree: CallTree::default(),
            source: Source {
                sample_type: kind,
                from: query.from,
                until: query.until,
                samples: 0,
                is_comparison: base.is_some(),
            },
        };
        answer.source.samples = self.add_to(&mut answer.tree, query, Side::Current);
        if let Some(base) = base {
            let base = Query {
                kind: Some(answer.source.sample_type.name.clone()),
                ..base.clone()
            };
            self.add_to(&mut answer.tree, &base, Side::Base);
        }
        answer
    }

    fn add_to(&self, tree: &mut CallTree, query: &Query, side: Side) -> u64 {
        let mut samples = 0;
        let query = &self.with_kind(query);
        self.each_chunk(query.from, query.until, |chunk| {
            let mut values = vec![0u64; chunk.nodes.len()];
            // Samples without any frame.
            let mut without_stack = 0u64;
            chunk.visit(query, |row| {
                samples += u64::from(row.samples);
                let value = values
                    .get_mut(row.node as usize)
                    .unwrap_or(&mut without_stack);
                *value = value.saturating_add(row.value);
            });
            tree.add(NodeId::ROOT, side, without_stack);
            add_nodes(tree, chunk, &values, side);
        });
        samples
    }

    pub fn timeline(&self, query: &Query, label: &str, limit: usize) -> Timeline {
        let resolution = self.limits.resolution.as_millis() as u64;
        let span = query.until.saturating_sub(query.from);
        let step = span.div_ceil(MAX_POINTS).div_ceil(resolution).max(1) * resolution;
        let start = query.from / step * step;
        let points =
            (query.until.saturating_sub(start).div_ceil(step)).min(MAX_POINTS + 1) as usize;
        let label = &label_name(label);
        let mut by_value: HashMap<String, Vec<u64>> = HashMap::new();
        let query = &self.with_kind(query);
        self.each_chunk(query.from, query.until, |chunk| {
            let mut of_group: HashMap<(Group, usize), u64> = HashMap::new();
            chunk.visit_groups(query, label == LANGUAGE, |time, group, row| {
                let point = (time.saturating_sub(start) / step) as usize;
                let sum = of_group.entry((group, point)).or_default();
                *sum = sum.saturating_add(row.value);
            });
            for ((group, point), value) in of_group {
                let text = chunk.label(group, label).to_owned();
                let line = by_value.entry(text).or_insert_with(|| vec![0; points]);
                if let Some(sum) = line.get_mut(point) {
                    *sum = sum.saturating_add(value);
                }
            }
        });
        let mut lines: Vec<TimeSeries> = by_value
            .into_iter()
            .map(|(value, points)| TimeSeries { value, points })
            .collect();
        let total = |line: &TimeSeries| line.points.iter().sum::<u64>();
        lines.sort_by(|left, right| (total(right), &left.value).cmp(&(total(left), &right.value)));
        let mut others = vec![0; points];
        for line in lines.drain(limit.min(lines.len())..) {
            for (sum, value) in others.iter_mut().zip(line.points) {
                *sum += value;
            }
        }
        Timeline {
            start,
            step,
            series: lines,
            others,
        }
    }

    pub fn label_names(&self, query: &Query) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let query = &self.with_kind(query);
        self.each_chunk(query.from, query.until, |chunk| {
            for group in chunk.sums(query, true).into_keys() {
                names.extend(chunk.label_names(group));
            }
        });
        names
    }

    /// Sorted by value, descending.
    pub fn label_values(&self, query: &Query, label: &str, limit: usize) -> Vec<LabelValue> {
        let label = &label_name(label);
        let mut totals: HashMap<String, u64> = HashMap::new();
        let query = &self.with_kind(query);
        self.each_chunk(query.from, query.until, |chunk| {
            for (group, value) in chunk.sums(query, label == LANGUAGE) {
                let text = chunk.label(group, label);
                if !text.is_empty() {
                    *totals.entry(text.to_owned()).or_default() += value;
                }
            }
        });
        let mut values: Vec<LabelValue> = totals
            .into_iter()
            .map(|(value, total)| LabelValue { value, total })
            .collect();
        values.sort_by(|left, right| (right.total, &left.value).cmp(&(left.total, &right.value)));
        values.truncate(limit);
        values
    }

    /// Sorted by value, descending.
    pub fn processes(&self, query: &Query, limit: usize) -> Vec<Process> {
        let mut processes: IndexMap<ProcessKey, (Process, LanguageSet)> = IndexMap::new();
        let query = &self.with_kind(query);
        self.each_chunk(query.from, query.until, |chunk| {
            let languages = chunk.languages_on_stacks();
            let mut of_series: HashMap<u32, usize> = HashMap::new();
            let mut of_node: HashMap<u32, String> = HashMap::new();
            chunk.visit(query, |row| {
                let number = *of_series.entry(row.series).or_insert_with(|| {
                    let entry = processes.entry(chunk.process_key(row.series));
                    let number = entry.index();
                    entry.or_insert_with_key(|key| {
                        let process = Process {
                            pid: key.pid,
                            name: key.name.clone(),
                            labels: chunk.labels_of_process(row.series),
                            ..Process::default()
                        };
                        (process, LanguageSet::default())
                    });
                    number
                });
                let Some((_, (process, on_stacks))) = processes.get_index_mut(number) else {
                    return;
                };
                process.total = process.total.saturating_add(row.value);
                process.samples += u64::from(row.samples);
                let of_stack = languages.get(row.node as usize).copied();
                *on_stacks = on_stacks.with(of_stack.unwrap_or_default());
                let end = of_node
                    .entry(row.node)
                    .or_insert_with(|| chunk.stack_end(row.node));
                *process.ends.entry(end.clone()).or_default() += u64::from(row.samples);
            });
        });
        let processes = processes.into_values().map(|(process, languages)| Process {
            languages: languages.names().collect(),
            ..process
        });
        let mut processes: Vec<Process> = processes.collect();
        processes.sort_by(|left, right| {
            (right.total, left.pid, &left.labels).cmp(&(left.total, right.pid, &right.labels))
        });
        processes.truncate(limit);
        processes
    }

    /// The sample type of a query.
    fn kind(&self, query: &Query) -> SampleType {
        let mut types = self.types(0, u64::MAX).into_iter();
        let requested = query.kind.as_deref();
        let found = types.find(|kind| requested.is_none_or(|requested| kind.name == requested));
        found.unwrap_or_else(|| SampleType {
            name: requested.unwrap_or_default().to_owned(),
            unit: String::new(),
        })
    }

    /// The query with the type that it means.
    pub(super) fn with_kind(&self, query: &Query) -> Query {
        Query {
            kind: Some(self.kind(query).name),
            ..query.clone()
        }
    }
}

/// The nodes selected by a query.
enum Nodes {
    All,
    Some(Vec<bool>),
}

impl Nodes {
    fn contains(&self, node: u32) -> bool {
        match self {
            Self::All => true,
            Self::Some(nodes) => nodes.get(node as usize).is_some_and(|it| *it),
        }
    }
}

impl Chunk {
    /// The value of each group.
    fn sums(&self, query: &Query, by_language: bool) -> HashMap<Group, u64> {
        let mut sums: HashMap<Group, u64> = HashMap::new();
        self.visit_groups(query, by_language, |_, group, row| {
            let value = sums.entry(group).or_default();
            *value = value.saturating_add(row.value);
        });
        sums
    }

    fn visit(&self, query: &Query, mut found: impl FnMut(&Row)) {
        self.visit_groups(query, false, |_, _, row| found(row));
    }

    /// Calls `found` for the rows that a query [with its kind](History::with_kind) selects. Their groups have a language
    /// only if that was asked for, or the query selects by it.
    pub(super) fn visit_groups(
        &self,
        query: &Query,
        by_language: bool,
        mut found: impl FnMut(u64, Group, &Row),
    ) {
        let kind = query.kind.as_deref().unwrap_or_default();
        let Some(kind) = self.kind_number(kind) else {
            return;
        };
        let matches = self.matches(&query.selector);
        let languages = match by_language || query.selector.names(LANGUAGE) {
            true => self.languages(),
            false => Languages::default(),
        };
        let is_called = self.below(&query.call_site);
        for (time, rows) in self.rows(query.from, query.until) {
            for row in rows.iter().filter(|row| row.kind == kind) {
                let group = Group {
                    series: row.series,
                    language: languages.of(row.node),
                };
                if matches.contains(group) && is_called.contains(row.node) {
                    found(time, group, row);
                }
            }
        }
    }

    /// The nodes of stacks that start with these functions.
    fn below(&self, call_site: &[String]) -> Nodes {
        if call_site.is_empty() {
            return Nodes::All;
        }
        // How many of the functions a node and its callers match; `None` after a mismatch.
        let mut found: Vec<Option<usize>> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let above = match found.get(node.parent as usize) {
                Some(above) => *above,
                None => Some(0),
            };
            let mut frames = self.functions(*node).iter();
            let matched = frames.try_fold(above, |matched, &frame| match call_site.get(matched?) {
                None => Some(matched),
                Some(name) if self.frames.label(frame) == *name => Some(matched.map(|it| it + 1)),
                Some(_) => None,
            });
            found.push(matched.flatten());
        }
        let whole = Some(call_site.len());
        Nodes::Some(found.into_iter().map(|it| it == whole).collect())
    }

    /// The value of a label; empty if the group does not have it.
    pub fn label(&self, group: Group, name: &str) -> &str {
        match name {
            SERVICE_NAME => self.service_name(group.series),
            LANGUAGE => match self.attribute(group.series, LANGUAGE) {
                "" => group.language.name(),
                own => own,
            },
            name => self.attribute(group.series, name),
        }
    }

    /// The value of a label that came with the samples.
    pub(super) fn attribute(&self, series: u32, name: &str) -> &str {
        let Some(labels) = self.series.get_index(series as usize) else {
            return "";
        };
        let Some(number) = self.texts.get_index_of(name) else {
            return "";
        };
        let found = labels.iter().find(|(name, _)| *name as usize == number);
        found.map_or("", |&(_, value)| self.text(value))
    }

    fn process_key(&self, series: u32) -> ProcessKey {
        let pid = self.attribute(series, "process_pid").parse();
        ProcessKey {
            host: HOST_LABELS.map(|it| self.attribute(series, it).to_owned()),
            pid: pid.unwrap_or(0),
            name: self.attribute(series, "process_executable_name").to_owned(),
        }
    }

    fn labels_of_process(&self, series: u32) -> BTreeMap<String, String> {
        let labels: Option<&Labels> = self.series.get_index(series as usize);
        let labels = labels.into_iter().flat_map(|labels| labels.iter());
        labels
            .map(|&(name, value)| (self.text(name).to_owned(), self.text(value).to_owned()))
            .filter(|(name, _)| !THREAD_LABELS.contains(&name.as_str()))
            .collect()
    }

    fn stack_end(&self, node: u32) -> String {
        let mut outermost = node;
        while let Some(node) = self.nodes.get(outermost as usize) {
            match self.nodes.get(node.parent as usize) {
                Some(_) => outermost = node.parent,
                None => break,
            }
        }
        let first = self.nodes.get(outermost as usize);
        let frame = first.and_then(|&node| self.functions(node).first());
        let name = frame
            .and_then(|&frame| self.frames.get(frame))
            .map_or("", |frame| self.frames.text(frame.name));
        let reason = name.strip_prefix("[stack ends: ");
        let reason = reason.and_then(|reason| reason.strip_suffix(']'));
        reason.unwrap_or("whole").to_owned()
    }
}

fn add_nodes(tree: &mut CallTree, chunk: &Chunk, values: &[u64], side: Side) {
    // Parents come before their children, so one backward pass finds the nodes with a value below them.
    let mut is_needed: Vec<bool> = values.iter().map(|&value| value > 0).collect();
    for (row, node) in chunk.nodes.iter().enumerate().rev() {
        if is_needed[row]
            && let Some(parent) = is_needed.get_mut(node.parent as usize)
        {
            *parent = true;
        }
    }
    let mut frames: HashMap<FrameId, FrameId> = HashMap::new();
    let mut tree_nodes: Vec<NodeId> = Vec::with_capacity(chunk.nodes.len());
    for (row, node) in chunk.nodes.iter().enumerate() {
        let parent = tree_nodes.get(node.parent as usize).copied();
        let mut tree_node = parent.unwrap_or(NodeId::ROOT);
        if is_needed[row] {
            for &frame in chunk.functions(*node) {
                let Some(known) = chunk.frames.get(frame) else {
                    continue;
                };
                let own = frames
                    .entry(frame)
                    .or_insert_with(|| tree.frames.adopt(known, &chunk.frames));
                tree_node = tree.child(tree_node, *own);
            }
            if values[row] > 0 {
                tree.add(tree_node, side, values[row]);
            }
        }
        tree_nodes.push(tree_node);
    }
}
