//! View state: table, order, selected row, and how keys change them.

use profcol_history::Snapshot;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::tables::{
    Function, FunctionRow, Tab, cores, functions, groups, neighbours, percent, shown, total,
};

/// The table of functions, or of groups.
#[derive(Default)]
pub struct View {
    snapshot: Snapshot,
    functions: Vec<FunctionRow>,
    tab: Tab,
    order: Order,
    /// Hides rows without this text.
    filter: String,
    is_typing: bool,
    selected: usize,
    pub is_paused: bool,
    /// Restricts functions to one process, unit, pod or container.
    only: Option<GroupFilter>,
    /// The opened functions; the last is shown with its callers and callees.
    path: Vec<Function>,
    /// Callers of the last one in `path`.
    callers: Vec<FunctionRow>,
    callees: Vec<FunctionRow>,
}

/// The group whose functions are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFilter {
    pub label: &'static str,
    pub value: String,
    shown: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    #[default]
    Own,
    Total,
    Name,
}

/// A displayed row. All text is printable.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Relation to the opened function: `called by`, `calls`.
    pub relation: &'static str,
    /// Percent.
    pub own: Option<f64>,
    pub total: f64,
    /// Percent of one core.
    pub cores: Option<f64>,
    pub name: String,
    /// Binary of a function, PID of a process.
    pub detail: String,
    target: Target,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Function(Function),
    Group(GroupFilter),
}

/// What the caller must do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    Nothing,
    /// Fetch a new snapshot.
    Refresh,
    End,
}

/// Rows per page.
const PAGE: usize = 20;

impl View {
    /// Shows a new snapshot unless paused. Keeps the selected row if it still exists.
    pub fn update(&mut self, snapshot: Snapshot) {
        if self.is_paused {
            return;
        }
        self.replace(snapshot);
    }

    /// Replaces the snapshot after a selection change, even while paused.
    pub fn replace(&mut self, snapshot: Snapshot) {
        let chosen = self.chosen();
        self.functions = functions(&snapshot.tree);
        self.snapshot = snapshot;
        self.find_neighbours();
        let same =
            chosen.and_then(|chosen| self.rows().iter().position(|row| row.target == chosen));
        if let Some(same) = same.filter(|_| self.selected > 0) {
            self.selected = same;
        }
        self.clamp_selection();
    }

    pub fn only(&self) -> Option<&GroupFilter> {
        self.only.as_ref()
    }

    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    pub fn tab(&self) -> Tab {
        self.tab
    }

    pub fn selected(&self) -> usize {
        self.selected
    }

    pub fn has_functions(&self) -> bool {
        self.tab == Tab::Functions
    }

    /// Title of the current table.
    pub fn title(&self) -> String {
        let mut title = match self.path.last() {
            Some(function) => format!("callers and callees of {}", shown(&function.name)),
            None => self.tab.name().to_owned(),
        };
        if let Some(only) = self.only.as_ref().filter(|_| self.has_functions()) {
            title += &format!(" of {}", only.shown);
        }
        title
    }

    /// The filter text, and whether it is being typed.
    pub fn filter(&self) -> Option<(String, bool)> {
        let is_there = self.is_typing || !self.filter.is_empty();
        is_there.then(|| {
            (
                profcol_printable::line(&self.filter).into_owned(),
                self.is_typing,
            )
        })
    }

    pub fn order(&self) -> &'static str {
        match (self.order, self.has_functions()) {
            (Order::Own, true) => "self",
            (Order::Name, _) => "name",
            (Order::Own | Order::Total, _) => "total",
        }
    }

    pub fn rows(&self) -> Vec<Row> {
        let mut rows = match (self.tab, self.path.last()) {
            (Tab::Functions, Some(function)) => return self.rows_around(function),
            (Tab::Functions, None) => {
                let rows = self.functions.iter();
                rows.map(|row| self.function_row(row, "")).collect()
            }
            (tab, _) => self.group_rows(tab),
        };
        rows.retain(|row| self.matches_filter(row));
        match self.order {
            // Already in this order.
            Order::Own => {}
            Order::Total => rows.sort_by(|left, right| right.total.total_cmp(&left.total)),
            Order::Name => rows.sort_by(|left, right| left.name.cmp(&right.name)),
        }
        rows
    }

    pub fn key(&mut self, key: KeyEvent) -> Reaction {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && key.code == KeyCode::Char('c') {
            return Reaction::End;
        }
        if self.is_typing {
            self.type_filter(key.code);
            return Reaction::Nothing;
        }
        let last = self.rows().len().saturating_sub(1);
        match key.code {
            KeyCode::Char('q') => return Reaction::End,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('s') => self.order = self.order.next(self.has_functions()),
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char(digit @ '1'..='5') => {
                let index = digit as usize - '1' as usize;
                return self.open(Tab::ALL.get(index).copied().unwrap_or_default());
            }
            KeyCode::Tab | KeyCode::Right => return self.open(self.neighbour(1)),
            KeyCode::BackTab | KeyCode::Left => {
                return self.open(self.neighbour(Tab::ALL.len() - 1));
            }
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.selected = (self.selected + 1).min(last),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(PAGE),
            KeyCode::PageDown => self.selected = (self.selected + PAGE).min(last),
            KeyCode::Home | KeyCode::Char('g') => self.selected = 0,
            KeyCode::End | KeyCode::Char('G') => self.selected = last,
            KeyCode::Enter => return self.open_selected(),
            KeyCode::Esc | KeyCode::Backspace => return self.back(),
            _ => {}
        }
        Reaction::Nothing
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char(character) => self.filter.push(character),
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            _ => {}
        }
        self.selected = 0;
    }

    fn neighbour(&self, steps: usize) -> Tab {
        let here = Tab::ALL.iter().position(|tab| *tab == self.tab);
        let there = (here.unwrap_or_default() + steps) % Tab::ALL.len();
        Tab::ALL.get(there).copied().unwrap_or_default()
    }

    fn open(&mut self, tab: Tab) -> Reaction {
        self.tab = tab;
        self.path.clear();
        self.find_neighbours();
        self.selected = 0;
        // A table of groups is unrestricted.
        match self.only.take() {
            Some(only) if tab == Tab::Functions => {
                self.only = Some(only);
                Reaction::Nothing
            }
            Some(_) => Reaction::Refresh,
            None => Reaction::Nothing,
        }
    }

    fn open_selected(&mut self) -> Reaction {
        match self.chosen() {
            Some(Target::Function(function)) => {
                if self.path.last() != Some(&function) {
                    self.path.push(function);
                    self.find_neighbours();
                    self.selected = self.row_of_function();
                }
                Reaction::Nothing
            }
            Some(Target::Group(only)) => {
                self.only = Some(only);
                self.tab = Tab::Functions;
                self.filter.clear();
                self.selected = 0;
                Reaction::Refresh
            }
            None => Reaction::Nothing,
        }
    }

    fn back(&mut self) -> Reaction {
        self.selected = 0;
        if self.path.pop().is_some() {
            self.find_neighbours();
            self.selected = self.row_of_function();
            return Reaction::Nothing;
        }
        if !self.filter.is_empty() {
            self.filter.clear();
            return Reaction::Nothing;
        }
        match self.only.take() {
            Some(only) => {
                let tabs = Tab::ALL.into_iter();
                let mut tabs = tabs.filter(|tab| tab.label() == only.label);
                self.tab = tabs.next().unwrap_or_default();
                Reaction::Refresh
            }
            None => Reaction::Nothing,
        }
    }

    /// Cached, because it walks the tree and each key redraws.
    fn find_neighbours(&mut self) {
        let function = self.path.last();
        let found = function.map(|function| neighbours(&self.snapshot.tree, function));
        (self.callers, self.callees) = found.unwrap_or_default();
    }

    /// Row between the callers and the callees.
    fn row_of_function(&self) -> usize {
        match self.path.is_empty() {
            true => 0,
            false => self
                .rows()
                .iter()
                .position(|row| row.relation.is_empty())
                .unwrap_or(0),
        }
    }

    fn chosen(&self) -> Option<Target> {
        self.rows().get(self.selected).map(|row| row.target.clone())
    }

    fn clamp_selection(&mut self) {
        self.selected = self.selected.min(self.rows().len().saturating_sub(1));
    }

    fn matches_filter(&self, row: &Row) -> bool {
        let needle = self.filter.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&needle);
        needle.is_empty() || has(&row.name) || has(&row.detail)
    }

    /// Callers, largest first, the function, then its callees.
    fn rows_around(&self, function: &Function) -> Vec<Row> {
        let own = self.functions.iter().find(|row| row.function == *function);
        let own = own.cloned().unwrap_or_else(|| FunctionRow {
            function: function.clone(),
            own: 0,
            total: 0,
        });
        let callers = self
            .callers
            .iter()
            .map(|row| self.neighbour_row(row, "called by"));
        let callees = self
            .callees
            .iter()
            .map(|row| self.neighbour_row(row, "calls"));
        let own = self.function_row(&own, "");
        callers.chain([own]).chain(callees).collect()
    }

    /// A neighbour's self value covers other calls too, so it is not shown.
    fn neighbour_row(&self, row: &FunctionRow, relation: &'static str) -> Row {
        Row {
            own: None,
            ..self.function_row(row, relation)
        }
    }

    fn function_row(&self, row: &FunctionRow, relation: &'static str) -> Row {
        let all = self.snapshot.tree.total().value;
        Row {
            relation,
            own: Some(percent(row.own, all)),
            total: percent(row.total, all),
            cores: cores(&self.snapshot, row.total),
            name: shown(&row.function.name),
            detail: profcol_printable::line(&row.function.binary).into_owned(),
            target: Target::Function(row.function.clone()),
        }
    }

    fn group_rows(&self, tab: Tab) -> Vec<Row> {
        let all = total(&self.snapshot);
        let rows = groups(&self.snapshot, tab).into_iter().map(|row| {
            let name = shown(&row.name);
            let detail = match tab {
                Tab::Processes => profcol_printable::line(&row.value).into_owned(),
                _ => String::new(),
            };
            let whose = match tab {
                Tab::Processes => format!("{name} ({detail})"),
                _ => name.clone(),
            };
            Row {
                relation: "",
                own: None,
                total: percent(row.total, all),
                cores: cores(&self.snapshot, row.total),
                name,
                detail,
                target: Target::Group(GroupFilter {
                    label: tab.label(),
                    value: row.value,
                    shown: whose,
                }),
            }
        });
        rows.collect()
    }
}

impl Order {
    fn next(self, has_own: bool) -> Self {
        match self {
            Self::Own if has_own => Self::Total,
            Self::Own | Self::Total => Self::Name,
            Self::Name => Self::Own,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::tables::tests::snapshot;
    use super::*;

    pub fn press(view: &mut View, keys: &[KeyCode]) -> Reaction {
        let mut reaction = Reaction::Nothing;
        for key in keys {
            reaction = view.key(KeyEvent::new(*key, KeyModifiers::NONE));
        }
        reaction
    }

    fn view() -> View {
        let mut view = View::default();
        view.update(snapshot());
        view
    }

    fn names(view: &View) -> Vec<String> {
        view.rows().into_iter().map(|row| row.name).collect()
    }

    const HOT: &str = "hot\\x1b[31m";

    #[test]
    fn s_switches_the_sort_order() {
        let mut view = view();
        assert_eq!(names(&view), [HOT, "cold", "main"]);
        press(&mut view, &[KeyCode::Char('s')]);
        assert_eq!(
            (names(&view), view.order()),
            (vec!["main".into(), HOT.into(), "cold".into()], "total")
        );
        press(&mut view, &[KeyCode::Char('s')]);
        assert_eq!(names(&view), ["cold", HOT, "main"]);
        press(&mut view, &[KeyCode::Char('s')]);
        assert_eq!(view.order(), "self");
    }

    #[test]
    fn a_filter_hides_other_rows_and_accepts_the_letter_q() {
        let mut view = view();
        let keys = ['/', 'C', 'O', 'q'].map(KeyCode::Char);
        assert_eq!(press(&mut view, &keys), Reaction::Nothing);
        assert_eq!(names(&view), [""; 0]);
        press(&mut view, &[KeyCode::Backspace, KeyCode::Enter]);
        assert_eq!(names(&view), ["cold"]);
        assert_eq!(view.filter(), Some(("CO".to_owned(), false)));
        press(&mut view, &[KeyCode::Esc]);
        assert_eq!((names(&view).len(), view.filter()), (3, None));
    }

    #[test]
    fn enter_opens_callers_and_callees_and_escape_goes_back() {
        let mut view = view();
        press(&mut view, &[KeyCode::End, KeyCode::Enter]);
        assert_eq!(view.title(), "callers and callees of main");
        let relations: Vec<_> = view.rows().iter().map(|row| row.relation).collect();
        assert_eq!(relations, ["", "calls", "calls"]);
        press(&mut view, &[KeyCode::Down, KeyCode::Enter]);
        let rows = view.rows();
        assert_eq!(
            (rows[0].relation, rows[0].name.as_str()),
            ("called by", "main")
        );
        assert_eq!((rows[1].relation, rows[1].name.as_str()), ("", HOT));
        assert_eq!(view.selected(), 1);
        press(&mut view, &[KeyCode::Esc]);
        assert_eq!(view.title(), "callers and callees of main");
        press(&mut view, &[KeyCode::Esc]);
        assert_eq!(view.title(), "functions");
    }

    #[test]
    fn enter_on_a_process_shows_its_functions_alone() {
        let mut view = view();
        press(&mut view, &[KeyCode::Char('2')]);
        assert_eq!(names(&view), ["app", "other"]);
        let reaction = press(&mut view, &[KeyCode::Down, KeyCode::Enter]);
        assert_eq!(reaction, Reaction::Refresh);
        let only = view.only().unwrap();
        assert_eq!((only.label, only.value.as_str()), ("process_pid", "9"));
        assert_eq!(view.title(), "functions of other (9)");
        assert_eq!(press(&mut view, &[KeyCode::Esc]), Reaction::Refresh);
        assert_eq!((view.only(), view.tab()), (None, Tab::Processes));
        press(&mut view, &[KeyCode::Char('3')]);
        assert_eq!(names(&view), ["app.service"]);
    }

    #[test]
    fn tabs_wrap_around() {
        let mut view = view();
        press(&mut view, &[KeyCode::BackTab]);
        assert_eq!(view.tab(), Tab::Containers);
        press(&mut view, &[KeyCode::Tab]);
        assert_eq!(view.tab(), Tab::Functions);
    }

    #[test]
    fn pause_keeps_the_snapshot_and_the_selected_row() {
        let mut view = view();
        press(&mut view, &[KeyCode::Down, KeyCode::Char('p')]);
        view.update(Snapshot::default());
        assert_eq!(names(&view).len(), 3);
        press(&mut view, &[KeyCode::Char('p')]);
        // The same functions in a different order.
        let mut changed = snapshot();
        let cold = changed.tree.find("cold", "app").unwrap();
        changed
            .tree
            .add_stack([cold], profcol_flamegraph::Side::Current, 9_000_000_000);
        view.update(changed);
        assert_eq!(names(&view)[view.selected()], "cold");
        view.update(Snapshot::default());
        assert_eq!(view.selected(), 0);
        press(
            &mut view,
            &[KeyCode::Down, KeyCode::Enter, KeyCode::End, KeyCode::PageUp],
        );
        assert_eq!(view.selected(), 0);
    }

    #[test]
    fn control_c_quits_while_typing() {
        let mut view = view();
        press(&mut view, &[KeyCode::Char('/')]);
        let end = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(view.key(end), Reaction::End);
        press(&mut view, &[KeyCode::Esc]);
        assert_eq!(press(&mut view, &[KeyCode::Char('q')]), Reaction::End);
    }
}
