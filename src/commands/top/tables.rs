//! What was sampled lately, as the rows of tables: functions, and groups of processes.

use profcol_exporters::live_view::Look;
use profcol_flamegraph::{CallTree, FrameId, function_table};
use profcol_printable::line;
use serde_json::{Value, json};

/// The labels by which processes are grouped, in the order of [`Look::groups`].
pub const LABELS: [&str; 3] = ["systemd_unit", "k8s_pod_name", "container_name"];
/// Of processes.
pub const PID: &str = "process_pid";
/// More functions are on no screen.
const MAX_FUNCTIONS: usize = 10_000;

/// Which table.
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

    /// By which label its rows are told apart.
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

/// A function, by what is shown of it.
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

/// Those with the most in themselves first.
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

/// Who calls a function, and what it calls, the most first.
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

/// The rows of all tables but that of functions.
pub fn groups(look: &Look, tab: Tab) -> Vec<GroupRow> {
    if tab == Tab::Processes {
        let rows = look.processes.iter().map(|it| GroupRow {
            value: it.pid.to_string(),
            name: it.name.clone(),
            total: it.total,
        });
        return rows.collect();
    }
    let place = LABELS.iter().position(|label| *label == tab.label());
    let groups = place.and_then(|place| look.groups.get(place));
    let rows = groups.into_iter().flatten().map(|it| GroupRow {
        value: it.value.clone(),
        name: it.value.clone(),
        total: it.total,
    });
    rows.collect()
}

/// What all processes have together.
pub fn total(look: &Look) -> u64 {
    look.processes.iter().map(|it| it.total).sum()
}

/// A number of percent; of nothing everything is nothing.
#[expect(clippy::cast_precision_loss, reason = "it is shown to a tenth")]
pub fn percent(value: u64, of: u64) -> f64 {
    match of {
        0 => 0.0,
        of => value as f64 * 100.0 / of as f64,
    }
}

/// Percent of one core, where time is counted.
pub fn cores(look: &Look, value: u64) -> Option<f64> {
    let nanoseconds = look.source.until.saturating_sub(look.source.from) * 1_000_000;
    (look.source.sample_type.unit == "nanoseconds" && nanoseconds > 0)
        .then(|| percent(value, nanoseconds))
}

/// One object for scripts. Its keys stay.
pub fn as_json(look: &Look, rows: usize) -> Value {
    let groups = |tab| -> Vec<Value> {
        let groups = groups(look, tab).into_iter().take(rows);
        groups
            .map(|it| json!({"name": it.name, "value": it.total}))
            .collect()
    };
    let processes = look.processes.iter().take(rows);
    let processes: Vec<Value> = processes
        .map(|it| json!({"pid": it.pid, "name": it.name, "value": it.total}))
        .collect();
    let functions = functions(&look.tree).into_iter().take(rows);
    let functions: Vec<Value> = functions
        .map(|it| {
            let Function { name, binary } = it.function;
            json!({"name": name, "binary": binary, "self": it.own, "total": it.total})
        })
        .collect();
    json!({
        "from": look.source.from,
        "until": look.source.until,
        "unit": look.source.sample_type.unit,
        "samples": look.source.samples,
        "total": look.tree.total().value,
        "functions": functions,
        "processes": processes,
        "units": groups(Tab::Units),
        "pods": groups(Tab::Pods),
        "containers": groups(Tab::Containers),
    })
}

/// The same for people, as far as there is anything.
pub fn as_text(look: &Look, rows: usize) -> String {
    let seconds = look.source.until.saturating_sub(look.source.from) / 1000;
    let mut text = format!("{} samples in {seconds} s\n", look.source.samples);
    let all = look.tree.total().value;
    let functions = functions(&look.tree);
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
    let all = total(look);
    for tab in &Tab::ALL[1..] {
        let groups = groups(look, *tab);
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

/// A name as it is shown, also of what has none.
pub fn shown(name: &str) -> String {
    match name {
        "" => "[no name]".to_owned(),
        name => line(name).into_owned(),
    }
}

#[cfg(test)]
pub mod tests {
    use profcol_exporters::live_view::{Group, ProcessGroup};
    use profcol_flamegraph::{Frame, FrameKind, SampleType, Side, Source};

    use super::*;

    /// `main` calls `hot` (3 s) and `cold` (1 s), in ten seconds.
    pub fn look() -> Look {
        let mut tree = CallTree::default();
        let binary = tree.frames.string("app");
        let mut frame = |name: &str| {
            let name = tree.frames.string(name);
            tree.frames.add(Frame {
                name,
                file: 0,
                line: 0,
                binary,
                kind: FrameKind::Native,
            })
        };
        let (main, hot, cold) = (frame("main"), frame("hot\u{1b}[31m"), frame("cold"));
        tree.add_stack([main, hot], Side::Current, 3_000_000_000);
        tree.add_stack([main, cold], Side::Current, 1_000_000_000);
        let group = |value: &str, total| Group {
            value: value.to_owned(),
            total,
        };
        Look {
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
    fn tables_for_people_show_no_escape_sequence() {
        let text = as_text(&look(), 2);
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
        assert_eq!(as_text(&Look::default(), 20), "0 samples in 0 s\n\n");
    }

    #[test]
    fn objects_for_scripts_have_all_keys_also_when_nothing_runs() {
        let json = as_json(&look(), 20);
        assert_eq!(json["functions"][0]["self"], 3_000_000_000_u64);
        assert_eq!(json["functions"][2]["name"], "main");
        assert_eq!(json["processes"][1]["pid"], 9);
        assert_eq!(json["units"][0]["name"], "app.service");
        let empty = as_json(&Look::default(), 20);
        let keys =
            |json: &Value| -> Vec<String> { json.as_object().unwrap().keys().cloned().collect() };
        assert_eq!(keys(&json), keys(&empty));
        assert_eq!(empty["pods"], json!([]));
    }

    #[test]
    fn a_function_has_callers_and_callees() {
        let look = look();
        let function = |name: &str| Function {
            name: name.to_owned(),
            binary: "app".to_owned(),
        };
        let (callers, callees) = neighbours(&look.tree, &function("main"));
        assert_eq!(callers, []);
        let called: Vec<_> = callees
            .iter()
            .map(|it| (it.function.name.as_str(), it.total))
            .collect();
        assert_eq!(
            called,
            [("hot\u{1b}[31m", 3_000_000_000), ("cold", 1_000_000_000)]
        );
        let (callers, callees) = neighbours(&look.tree, &function("cold"));
        assert_eq!((callers.len(), callees.len()), (1, 0));
        assert_eq!(callers[0].function.name, "main");
        assert_eq!(neighbours(&look.tree, &function("gone")), (vec![], vec![]));
    }

    #[test]
    fn cores_are_told_of_time_alone() {
        let mut look = look();
        assert_eq!(cores(&look, 5_000_000_000), Some(50.0));
        look.source.sample_type.unit = "count".to_owned();
        assert_eq!(cores(&look, 5), None);
    }
}
