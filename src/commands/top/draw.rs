//! Draws the view.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table, TableState};

use super::tables::{Tab, cores, total};
use super::view::View;

const KEYS: &str = "Enter open  Esc back  / filter  s sort  p pause  q quit";

/// What the profiler itself has to report.
#[derive(Clone, Debug, Default)]
pub struct Health {
    pub lost: u64,
    /// The last log line.
    pub log: Option<String>,
}

pub fn draw(frame: &mut Frame<'_>, view: &View, health: &Health, table_state: &mut TableState) {
    let log = health.log.as_deref();
    let [head, tabs, title, table, logged, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(u16::from(log.is_some())),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(header(view, health)), head);
    frame.render_widget(Paragraph::new(tab_line(view)), tabs);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    frame.render_widget(Paragraph::new(view.title()).style(bold), title);
    draw_table(frame, view, table, table_state);
    frame.render_widget(Paragraph::new(log.unwrap_or_default()), logged);
    frame.render_widget(Paragraph::new(footer(view)), foot);
}

fn header(view: &View, health: &Health) -> String {
    let snapshot = view.snapshot();
    let seconds = snapshot.source.until.saturating_sub(snapshot.source.from) / 1000;
    let mut text = format!(
        "profcol top  {} samples in {seconds} s",
        snapshot.source.samples
    );
    if let Some(cores) = cores(snapshot, total(snapshot)) {
        text += &format!("  CPU {cores:.0}%");
    }
    if health.lost > 0 {
        text += &format!("  lost {}", health.lost);
    }
    if view.is_paused {
        text += "  PAUSED";
    }
    text
}

fn tab_line(view: &View) -> Line<'static> {
    let tabs = Tab::ALL.iter().enumerate().flat_map(|(at, tab)| {
        let style = match *tab == view.tab() {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new(),
        };
        let name = Span::styled(format!(" {} {} ", at + 1, tab.name()), style);
        [name, Span::raw(" ")]
    });
    Line::from(tabs.collect::<Vec<_>>())
}

fn footer(view: &View) -> String {
    match view.filter() {
        Some((filter, true)) => format!("filter: {filter}_   Enter keep  Esc clear"),
        Some((filter, false)) => format!("filter: {filter}   sorted by {}   {KEYS}", view.order()),
        None => format!("sorted by {}   {KEYS}", view.order()),
    }
}

fn draw_table(frame: &mut Frame<'_>, view: &View, area: Rect, table_state: &mut TableState) {
    let rows = view.rows();
    if rows.is_empty() {
        let text = match (view.tab(), view.snapshot().source.samples) {
            (_, 0) => "no samples yet: no profiled process runs on a CPU",
            (Tab::Functions, _) => "no function matches the filter",
            _ => "no process in the window belongs to one, or the filter hides them",
        };
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let percent = |value: Option<f64>| value.map_or_else(String::new, |it| format!("{it:>6.1}"));
    let has_relations = rows.iter().any(|row| !row.relation.is_empty());
    let has_functions = view.has_functions();
    let cells = rows.into_iter().map(|row| {
        let mut cells = Vec::with_capacity(6);
        if has_relations {
            cells.push(row.relation.to_owned());
        }
        if has_functions {
            cells.push(percent(row.own));
        }
        cells.push(percent(Some(row.total)));
        cells.push(percent(row.cores));
        cells.push(row.name);
        cells.push(row.detail);
        Row::new(cells)
    });
    let mut names = Vec::with_capacity(6);
    let mut widths = Vec::with_capacity(6);
    let mut column = |name: &'static str, width| {
        names.push(name);
        widths.push(width);
    };
    if has_relations {
        column("", Constraint::Length(9));
    }
    if has_functions {
        column(" self%", Constraint::Length(6));
        column("total%", Constraint::Length(6));
    } else {
        column("share%", Constraint::Length(6));
    }
    column("  CPU%", Constraint::Length(6));
    let (name, detail) = match view.tab() {
        Tab::Functions => ("function", "binary"),
        Tab::Processes => ("process", "PID"),
        Tab::Units => ("unit", ""),
        Tab::Pods => ("pod", ""),
        Tab::Containers => ("container", ""),
    };
    column(name, Constraint::Fill(4));
    column(detail, Constraint::Fill(1));
    let header = Row::new(names).style(Style::new().add_modifier(Modifier::BOLD));
    let table = Table::new(cells, widths)
        .header(header)
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    table_state.select(Some(view.selected()));
    frame.render_stateful_widget(table, area, table_state);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;

    use super::super::tables::tests::snapshot;
    use super::super::view::tests::press;
    use super::*;

    fn drawn(view: &View, health: Health, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let mut table_state = TableState::default();
        let drawn = terminal.draw(|frame| draw(frame, view, &health, &mut table_state));
        drawn.unwrap();
        let buffer = terminal.backend().buffer().clone();
        let lines = buffer.content.chunks(usize::from(width)).map(|line| {
            let line: String = line.iter().map(|cell| cell.symbol()).collect();
            line.trim_end().to_owned()
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn functions_with_self_and_total_percent() {
        let mut view = View::default();
        view.update(snapshot());
        let expected = "\
profcol top  40 samples in 10 s  CPU 40%  lost 3
 1 functions   2 processes   3 units   4 pods   5 containers
functions
 self% total%   CPU% function                                      binary
  75.0   75.0   30.0 hot\\x1b[31m                                   app
  25.0   25.0   10.0 cold                                          app
   0.0  100.0   40.0 main                                          app

sorted by self   Enter open  Esc back  / filter  s sort  p pause  q quit";
        assert_eq!(drawn(&view, lost(3), 78, 9), expected);
    }

    fn lost(lost: u64) -> Health {
        Health {
            lost,
            ..Health::default()
        }
    }

    #[test]
    fn the_last_log_line_is_above_the_keys() {
        let mut view = View::default();
        view.update(snapshot());
        let health = Health {
            log: Some("WARN No unwind table.".to_owned()),
            ..Health::default()
        };
        let text = drawn(&view, health, 78, 9);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[7], "WARN No unwind table.", "{text}");
        assert!(lines[8].ends_with("q quit"), "{text}");
    }

    #[test]
    fn callers_above_and_callees_below() {
        let mut view = View::default();
        view.update(snapshot());
        press(
            &mut view,
            &[KeyCode::End, KeyCode::Enter, KeyCode::Char('p')],
        );
        let text = drawn(&view, Health::default(), 78, 9);
        assert!(text.contains("PAUSED"), "{text}");
        assert!(text.contains("callers and callees of main"), "{text}");
        assert!(
            text.contains("calls              75.0   30.0 hot"),
            "{text}"
        );
    }

    #[test]
    fn an_idle_host_and_a_tiny_terminal_do_not_panic() {
        let empty = View::default();
        let text = drawn(&empty, Health::default(), 78, 9);
        assert!(text.contains("no samples yet"), "{text}");
        let mut view = View::default();
        view.update(snapshot());
        press(&mut view, &[KeyCode::Char('/'), KeyCode::Char('z')]);
        let text = drawn(&view, Health::default(), 78, 9);
        assert!(text.contains("filter: z_"), "{text}");
        for (width, height) in [(1, 1), (3, 2), (20, 4), (400, 100)] {
            drawn(&view, Health::default(), width, height);
            drawn(&empty, Health::default(), width, height);
        }
    }
}
