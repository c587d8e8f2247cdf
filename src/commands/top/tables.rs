//! Recent samples as table rows: functions, and groups of processes.

use profcol_flamegraph::{CallTree, FrameId, function_table};
use profcol_history::Snapshot;
use profcol_printable::line;
use serde_json::{Value, json};

/// The labels by which processes are grouped, in the order of [`Snapshot::groups`].
pub const LABELS: [&str; 3] = ["systemd_unit", "k8s_pod_name", "container_name"];
/// Groups by process.
pub const PID: &str = "process_pid";
/// More than any screen shows.
const MAX_FUNCTIONS: usize = 10_000;

/// The outermost frame of stacks that end at a file whose unwind table is being built.
const TABLE_PENDING: &str = "[stack ends: table_pending]";

/// The tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tab {
    #[default]
    Functions,
    Processes,
    Units,
    Pods,
    Containers,
}

impl Tab {
    pub const ALL: [Self; 5] = [
        Self::Functions,
        Self::Processes,
        Self::Units,
        Self::Pods,
        Self::Containers,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Functions => "functions",
            Self::Processes => "processes",
            Self::Units => "units",
            Self::Pods => "pods",
            Self::Containers => "containers",
        }
    }

    /// The label that groups its rows.
    pub fn label(self) -> &'static str {
        let [unit, pod, container] = LABELS;
        match self {
            Self::Functions => "",
            Self::Processes => PID,
            Self::Units => unit,
            Self::Pods => pod,
            Self::Containers => container,
        }
    }
}

/// A function, identified by its displayed fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    pub binary: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionRow {
    pub function: Function,
    pub own: u64,
    pub total: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRow {
    /// The value of the label.
    pub value: String,
    pub name: String,
    pub total: u64,
}

/// Functions by self value, largest first.
pub fn functions(tree: &CallTree) -> Vec<FunctionRow> {
    let table = function_table(tree, MAX_FUNCTIONS);
    let values = table.own.iter().zip(&table.total);
    let rows = table.frame.iter().zip(values);
    rows.filter_map(|(&frame, (own, total))| {
        Some(FunctionRow {
            function: function(tree, frame)?,
            own: own.value,
            total: total.value,
        })
    })
    .collect()
}

/// Whether more than a tenth of the stacks is cut off because unwind tables are still being built.
pub fn are_cut_off(snapshot: &Snapshot) -> bool {
    let rows = functions(&snapshot.tree);
    let pending = rows.iter().find(|row| row.function.name == TABLE_PENDING);
    pending.is_some_and(|row| row.total > snapshot.tree.total().value / 10)
}

/// Callers and callees of a function, largest first.
pub fn neighbours(tree: &CallTree, of: &Function) -> (Vec<FunctionRow>, Vec<FunctionRow>) {
    let Some(frame) = tree.find(&of.name, &of.binary) else {
        return Default::default();
    };
    let (callers, callees) = tree.sandwich(frame);
    let rows = |tree: &CallTree| {
        let level = tree.second_level().into_iter();
        let rows = level.filter_map(|(frame, own, total)| {
            Some(FunctionRow {
                function: function(tree, frame)?,
                own: own.value,
                total: total.value,
            })
        });
        rows.collect()
    };
    (rows(&callers), rows(&callees))
}

fn function(tree: &CallTree, frame: FrameId) -> Option<Function> {
    let frame = tree.frames.get(frame)?;
    Some(Function {
        name: tree.frames.text(frame.name).to_owned(),
        binary: tree.frames.text(frame.binary).to_owned(),
    })
}

/// The rows of every table except functions.
pub fn groups(snapshot: &Snapshot, tab: Tab) -> Vec<GroupRow> {
    if tab == Tab::Processes {
        let rows = snapshot.processes.iter().map(|it| GroupRow {
            value: it.pid.to_string(),
            name: it.name.clone(),
            total: it.total,
        });
        return rows.collect();
    }
    let index = LABELS.iter().position(|label| *label == tab.label());
    let groups = index.and_then(|index| snapshot.groups.get(index));
    let rows = groups.into_iter().flatten().map(|it| GroupRow {
        value: it.value.clone(),
        name: it.value.clone(),
        total: it.total,
    });
    rows.collect()
}

/// The sum over all processes.
pub fn total(snapshot: &Snapshot) -> u64 {
    snapshot.processes.iter().map(|it| it.total).sum()
}

/// `value` as a percentage of `of`; 0 if `of` is 0.
#[expect(clippy::cast_precision_loss, reason = "displayed with one decimal")]
pub fn percent(value: u64, of: u64) -> f64 {
    match of {
        0 => 0.0,
        of => value as f64 * 100.0 / of as f64,
    }
}

/// Percent of one core, for time values.
pub fn cores(snapshot: &Snapshot, value: u64) -> Option<f64> {
    let nanoseconds = snapshot.source.until.saturating_sub(snapshot.source.from) * 1_000_000;
    (snapshot.source.sample_type.unit == "nanoseconds" && nanoseconds > 0)
        .then(|| percent(value, nanoseconds))
}

/// One JSON object for scripts. Its keys are stable.
pub fn as_json(snapshot: &Snapshot, rows: usize) -> Value {
    let groups = |tab| -> Vec<Value> {
        let groups = groups(snapshot, tab).into_iter().take(rows);
        groups
            .map(|it| json!({"name": it.name, "value": it.total}))
            .collect()
    };
    let processes = snapshot.processes.iter().take(rows);
    let processes: Vec<Value> = processes
        .map(|it| json!({"pid": it.pid, "name": it.name, "value": it.total}))
        .collect();
    let functions = functions(&snapshot.tree).into_iter().take(rows);
    let functions: Vec<Value> = functions
        .map(|it| {
            let Function { name, binary } = it.function;
            json!({"name": name, "binary": binary, "self": it.own, "total": it.total})
        })
        .collect();
    json!({
        "from": snapshot.source.from,
        "until": snapshot.source.until,
        "unit": snapshot.source.sample_type.unit,
        "samples": snapshot.source.samples,
        "total": snapshot.tree.total().value,
        "functions": functions,
        "processes": processes,
        "units": groups(Tab::Units),
        "pods": groups(Tab::Pods),
        "containers": groups(Tab::Containers),
    })
}

/// The same as text; empty tables are omitted.
pub fn as_text(snapshot: &Snapshot, rows: usize) -> String {
    let seconds = snapshot.source.until.saturating_sub(snapshot.source.from) / 1000;
    let mut text = format!("{} samples in {seconds} s\n", snapshot.source.samples);
    let all = snapshot.tree.total().value;
    let functions = functions(&snapshot.tree);
    if !functions.is_empty() {
        text += "  self%  total%  function\n";
    }
    for row in functions.iter().take(rows) {
        let name = shown(&row.function.name);
        let (own, total) = (percent(row.own, all), percent(row.total, all));
        text += &format!("{own:>6.1}  {total:>6.1}  {name}");
        if !row.function.binary.is_empty() {
            text += &format!(" ({})", line(&row.function.binary));
        }
        text.push('\n');
    }
    let all = total(snapshot);
    for tab in &Tab::ALL[1..] {
        let groups = groups(snapshot, *tab);
        if groups.is_empty() {
            continue;
        }
        text += &format!(" share%  {}\n", tab.name());
        for row in groups.iter().take(rows) {
            let name = line(&row.name);
            text += &format!("{:>6.1}  {name}", percent(row.total, all));
            if *tab == Tab::Processes {
                text += &format!(" ({})", line(&row.value));
            }
            text.push('\n');
        }
    }
    text.push('\n');
    text
}

/// The displayed name, with a placeholder if empty.
pub fn shown(name: &str) -> String {
    match name {
        "" => "(no symbol)".to_owned(),
        name => line(name).into_owned(),
    }
}

#[cfg(test)]
pub mod tests {
    use profcol_flamegraph::{Frame, SampleType, Side, Source};
    use profcol_history::{Group, ProcessGroup};

    use super::*;

    /// `main` calls `hot` (3 s) and `cold` (1 s), in ten seconds.
    pub fn snapshot() -> Snapshot {
        let mut tree = CallTree::default();
        let binary = tree.frames.string("app");
        let mut frame = |name: &str| {
            let name = tree.frames.string(name);
            tree.frames.add(Frame {
                name,
                binary,
                ..Frame::default()
            })
        };
        let (main, hot, cold) = (frame("main"), frame("hot\u{1b}[31m"), frame("cold"));
        tree.add_stack([main, hot], Side::Current, 3_000_000_000);
        tree.add_stack([main, cold], Side::Current, 1_000_000_000);
        let group = |value: &str, total| Group {
            value: value.to_owned(),
            total,
        };
        Snapshot {
            tree,
            source: Source {
                sample_type: SampleType {
                    name: "cpu".to_owned(),
                    unit: "nanoseconds".to_owned(),
                },
                from: 0,
                until: 10_000,
                samples: 40,
                is_comparison: false,
            },
            groups: vec![
                vec![group("app.service", 3_000_000_000)],
                Vec::new(),
                Vec::new(),
            ],
            processes: vec![
                ProcessGroup {
                    pid: 7,
                    name: "app".to_owned(),
                    total: 3_000_000_000,
                },
                ProcessGroup {
                    pid: 9,
                    name: "other".to_owned(),
                    total: 1_000_000_000,
                },
            ],
        }
    }

    #[test]
    fn stacks_are_cut_off_by_more_than_a_tenth() {
        let mut snapshot = snapshot();
        assert!(!are_cut_off(&snapshot));
        let name = snapshot.tree.frames.string(TABLE_PENDING);
        let pending = snapshot.tree.frames.add(Frame {
            name,
            ..Frame::default()
        });
        let mut cut_off = |value| {
            snapshot.tree.add_stack([pending], Side::Current, value);
            are_cut_off(&snapshot)
        };
        assert!(!cut_off(400_000_000));
        assert!(cut_off(100_000_000));
    }

    #[test]
    fn text_tables_escape_control_sequences() {
        let text = as_text(&snapshot(), 2);
        let expected = "\
40 samples in 10 s
  self%  total%  function
  75.0    75.0  hot\\x1b[31m (app)
  25.0    25.0  cold (app)
 share%  processes
  75.0  app (7)
  25.0  other (9)
 share%  units
  75.0  app.service

";
        assert_eq!(text, expected);
        assert_eq!(as_text(&Snapshot::default(), 20), "0 samples in 0 s\n\n");
    }

    #[test]
    fn json_has_all_keys_on_an_idle_host() {
        let json = as_json(&snapshot(), 20);
        assert_eq!(json["functions"][0]["self"], 3_000_000_000_u64);
        assert_eq!(json["functions"][2]["name"], "main");
        assert_eq!(json["processes"][1]["pid"], 9);
        assert_eq!(json["units"][0]["name"], "app.service");
        let empty = as_json(&Snapshot::default(), 20);
        let keys =
            |json: &Value| -> Vec<String> { json.as_object().unwrap().keys().cloned().collect() };
        assert_eq!(keys(&json), keys(&empty));
        assert_eq!(empty["pods"], json!([]));
    }

    #[test]
    fn a_function_has_callers_and_callees() {
        let snapshot = snapshot();
        let function = |name: &str| Function {
            name: name.to_owned(),
            binary: "app".to_owned(),
        };
        let (callers, callees) = neighbours(&snapshot.tree, &function("main"));
        assert_eq!(callers, []);
        let called: Vec<_> = callees
            .iter()
            .map(|it| (it.function.name.as_str(), it.total))
            .collect();
        assert_eq!(
            called,
            [("hot\u{1b}[31m", 3_000_000_000), ("cold", 1_000_000_000)]
        );
        let (callers, callees) = neighbours(&snapshot.tree, &function("cold"));
        assert_eq!((callers.len(), callees.len()), (1, 0));
        assert_eq!(callers[0].function.name, "main");
        assert_eq!(
            neighbours(&snapshot.tree, &function("gone")),
            (vec![], vec![])
        );
    }

    #[test]
    fn cores_are_shown_for_time_values_only() {
        let mut snapshot = snapshot();
        assert_eq!(cores(&snapshot, 5_000_000_000), Some(50.0));
        snapshot.source.sample_type.unit = "count".to_owned();
        assert_eq!(cores(&snapshot, 5), None);
    }
}
