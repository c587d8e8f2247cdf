//! Handmade call trees as rows, sandwiches, comparisons, SVG and speedscope, and the totals of arbitrary trees.

use profcol_profile::Interner;
use proptest::prelude::*;

use crate::*;

fn frame(tree: &mut CallTree, name: &str) -> FrameId {
    let frame = Frame {
        name: tree.frames.string(name),
        binary: tree.frames.string("app"),
        language: Language::Native,
        ..Frame::default()
    };
    tree.frames.add(frame)
}

/// `stacks` are outermost first, with functions separated by spaces.
fn tree(stacks: &[(&str, u64)]) -> CallTree {
    let mut tree = CallTree::default();
    for (stack, value) in stacks {
        let frames: Vec<FrameId> = stack.split(' ').map(|it| frame(&mut tree, it)).collect();
        tree.add_stack(frames, Side::Current, *value);
    }
    tree
}

/// Each node as `depth name self/total`.
fn drawn(tree: &CallTree, max_nodes: usize) -> Vec<String> {
    let layout = Layout::new(tree, max_nodes);
    let row = |row: usize| {
        let name = tree.frames.label(layout.frame[row]);
        let (own, total) = (layout.own[row].value, layout.total[row].value);
        format!("{} {name} {own}/{total}", layout.depth[row])
    };
    (0..layout.len()).map(row).collect()
}

#[test]
fn stacks_are_added_up_and_drawn_by_name() {
    let tree = tree(&[("main b", 3), ("main a c", 2), ("main b", 1), ("main", 4)]);
    let expected = ["0 main 4/10", "1 a 0/2", "2 c 2/2", "1 b 4/4"];
    assert_eq!(drawn(&tree, 100), expected);
    assert_eq!(tree.total().value, 10);
}

#[test]
fn omitted_nodes_are_reported_and_keep_the_totals() {
    let tree = tree(&[("main a", 50), ("main b x", 2), ("main c", 3), ("other", 1)]);
    let layout = Layout::new(&tree, 3);
    assert_eq!(drawn(&tree, 3), ["0 main 0/55", "1 a 50/50", "1 c 3/3"]);
    // `b` with its callee `x`, and `other`.
    assert_eq!(layout.cut, Cut { nodes: 3, value: 3 });
}

#[test]
fn nodes_of_equal_weight_fill_the_remaining_places() {
    let tree = tree(&[
        ("main a x", 1),
        ("main b y", 1),
        ("main c z", 1),
        ("main", 7),
    ]);
    assert_eq!(
        drawn(&tree, 4),
        ["0 main 7/10", "1 a 0/1", "2 x 1/1", "1 b 0/1"]
    );
    assert_eq!(Layout::new(&tree, 4).cut, Cut { nodes: 3, value: 2 });
}

#[test]
fn a_tree_converts_back_to_a_profile() {
    let tree = tree(&[("main a", 5), ("main", 2)]);
    let source = Source {
        sample_type: SampleType {
            name: "cpu".to_owned(),
            unit: "nanoseconds".to_owned(),
        },
        ..Source::default()
    };
    let model = to_model(&tree, &source);
    let mut again = CallTree::default();
    add_model(&mut again, &model, &source.sample_type, Side::Current);
    assert_eq!(folded(&again), folded(&tree));
    assert_eq!(sample_types(&model), [source.sample_type]);
}

#[test]
fn locations_keep_binary_kind_and_language() {
    use FrameKind::{Inlined, Interpreted, Jit, Kernel, Native, Runtime};
    let mut tree = CallTree::default();
    let frames = &mut tree.frames;
    let (name, file) = (frames.string("f"), frames.string("f.x"));
    for (binary, kind, language) in [
        ("app", Native, Language::Native),
        // The command of this name.
        ("go", Native, Language::Go),
        ("", Native, Language::Native),
        ("ext4.ko", Kernel, Language::Kernel),
        ("[jit]", Jit, Language::Unknown),
        ("jvm", Jit, Language::Java),
        ("jvm", Interpreted, Language::Java),
        ("cpython", Runtime, Language::Python),
        ("Order.dll", Native, Language::DotNet),
        ("wasm", Runtime, Language::Unknown),
        // A file of another profiler, which has no types.
        ("", Runtime, Language::Unknown),
    ] {
        let frame = Frame {
            name,
            file,
            line: 3,
            binary: frames.string(binary),
            kind,
            language,
        };
        let id = frames.add(frame);
        let mut rows = Interner::new();
        let location = add_location(&mut rows, frames, &[id]);
        let dictionary = rows.finish();
        let mut again = FrameTable::default();
        let mut adder = FrameAdder::new(&dictionary);
        let [found] = adder.add_to(&mut again, location) else {
            let found = adder.add_to(&mut again, location);
            panic!("{found:?}");
        };
        let code = again.code(again.get(*found).unwrap());
        assert_eq!(code, frames.code(&frame));
    }
    // Inlined ones are of the language that they are inlined in.
    let code = Code {
        binary: "jvm",
        kind: Jit,
        language: Language::Java,
    };
    let line = profcol_profile::NamedLine::default();
    let both = frames.location(code, [line, line].into_iter());
    let of_both = both.iter().filter_map(|&id| frames.get(id));
    let of_both: Vec<_> = of_both.map(|it| (it.kind, it.language)).collect();
    assert_eq!(of_both, [(Jit, Language::Java), (Inlined, Language::Java)]);
}

#[test]
fn a_function_that_calls_itself_counts_once_in_its_total() {
    let tree = tree(&[("main f g f", 5), ("main g", 2), ("f", 1)]);
    let table = function_table(&tree, 10);
    let rows: Vec<(String, u64, u64)> = (0..table.frame.len())
        .map(|row| {
            let name = tree.frames.label(table.frame[row]);
            (name, table.own[row].value, table.total[row].value)
        })
        .collect();
    let row = |name: &str, own, total| (name.to_owned(), own, total);
    assert_eq!(rows, [row("f", 6, 6), row("g", 2, 7), row("main", 0, 7)]);
    assert_eq!(function_table(&tree, 1).function_count, 3);
}

#[test]
fn functions_of_a_name_become_one() {
    let mut tree = tree(&[("main f", 5), ("f", 1)]);
    let [main, f] = ["main", "f"].map(|name| frame(&mut tree, name));
    let moved = Frame {
        line: 9,
        ..*tree.frames.get(f).unwrap()
    };
    let moved = tree.frames.add(moved);
    tree.add_stack([main, f, moved], Side::Base, 2);
    tree.add_stack([], Side::Current, 1);
    let merged = tree.by_name();
    assert_eq!(merged.total(), tree.total());
    let table = function_table(&merged, 10);
    let rows: Vec<_> = (0..table.frame.len())
        .map(|row| {
            let name = merged.frames.label(table.frame[row]);
            (name, table.own[row], table.total[row])
        })
        .collect();
    let values = |value, base| Values { value, base };
    assert_eq!(
        rows,
        [
            ("f".to_owned(), values(6, 2), values(6, 2)),
            ("main".to_owned(), values(0, 0), values(5, 2)),
        ]
    );
}

#[test]
fn a_table_with_few_rows_has_the_heaviest_by_self_and_by_total() {
    // `main` and `run` are on every stack, and never run themselves.
    let tree = tree(&[
        ("main run a", 5),
        ("main run b", 4),
        ("main run c", 3),
        ("main run d", 2),
    ]);
    let names = |max| {
        let table = function_table(&tree, max);
        let names = table.frame.iter().map(|&frame| tree.frames.label(frame));
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(4), "a b main run");
    assert_eq!(names(3), "a b main");
    assert_eq!(names(5), "a b c main run");
    assert_eq!(names(6), "a b c d main run");
}

#[test]
fn a_sandwich_has_callers_and_callees() {
    let tree = tree(&[
        ("main f x", 5),
        ("main g f", 2),
        ("main g", 9),
        ("f y f z", 3),
    ]);
    let function = tree.find("f", "app").unwrap();
    let (callers, callees) = tree.sandwich(function);
    assert_eq!(callers.total().value, 10);
    assert_eq!(callees.total().value, 10);
    assert_eq!(
        drawn(&callees, 9),
        ["0 f 2/10", "1 x 5/5", "1 y 0/3", "2 f 0/3", "3 z 3/3"]
    );
    let expected = [
        "0 f 0/10",
        "1 g 0/2",
        "2 main 2/2",
        "1 main 5/5",
        "1 y 0/3",
        "2 f 3/3",
    ];
    assert_eq!(drawn(&callers, 9), expected);
    assert!(tree.find("f", "other").is_none());
}

#[test]
fn a_comparison_has_both_values_and_keeps_functions_of_the_baseline() {
    let mut tree = tree(&[("main a", 5)]);
    let (main, gone) = (frame(&mut tree, "main"), frame(&mut tree, "gone"));
    tree.add_stack([main, gone], Side::Base, 7);
    let source = Source {
        sample_type: SampleType {
            name: "cpu".to_owned(),
            unit: "nanoseconds".to_owned(),
        },
        is_comparison: true,
        ..Source::default()
    };
    let json = serde_json::to_value(Document::new(&tree, &source, 100)).unwrap();
    assert_eq!(json["total"], 5);
    assert_eq!(json["base_total"], 7);
    assert_eq!(json["nodes"]["total"], serde_json::json!([5, 5, 0]));
    assert_eq!(json["nodes"]["base_total"], serde_json::json!([7, 0, 7]));
    assert_eq!(json["nodes"]["depth"], serde_json::json!([0, 1, 1]));
    assert!(json.get("difference").is_none());
    let by_value = Document::new(&tree, &source, 100).compared_by(Relation::Value);
    let by_value = serde_json::to_value(by_value).unwrap();
    assert_eq!(by_value["difference"], "absolute");
    assert_eq!(
        json["strings"][json["frames"]["name"][0].as_u64().unwrap() as usize],
        "main"
    );
}

#[test]
fn the_svg_of_a_difference_shows_both_values_and_which_is_larger() {
    let mut tree = tree(&[("main same", 5), ("main grown", 5)]);
    let main = frame(&mut tree, "main");
    for (name, before) in [("same", 10), ("gone", 10)] {
        let function = frame(&mut tree, name);
        tree.add_stack([main, function], Side::Base, before);
    }
    let source = Source::default();
    let width_and_color = |svg: &str, function: &str| {
        let frame = svg
            .split("<g>")
            .find(|it| it.contains(&format!("<title>{function} [app]\n")));
        let frame = frame.unwrap_or_else(|| panic!("no {function} in {svg}"));
        let attribute = |name: &str| {
            let (_, rest) = frame.split_once(&format!("{name}=\"")).unwrap();
            rest.split('"').next().unwrap().to_owned()
        };
        (attribute("width"), attribute("fill"))
    };
    let shares = difference_svg(&tree, &source, "", Relation::Share);
    let values = difference_svg(&tree, &source, "", Relation::Value);
    assert!(
        shares.contains("same [app]\n10 before (50.00%), 5 after (50.00%)"),
        "{shares}"
    );
    assert!(
        shares.contains("gone [app]\n10 before (50.00%), 0 after (0.00%)"),
        "{shares}"
    );
    // Half of each profile, a quarter of both, and only one of them.
    let unchanged = ("599.6".to_owned(), "hsl(28 0% 92%)".to_owned());
    assert_eq!(width_and_color(&shares, "same"), unchanged);
    assert_eq!(
        width_and_color(&shares, "grown"),
        ("299.6".to_owned(), "hsl(28 85% 68%)".to_owned())
    );
    assert_eq!(
        width_and_color(&shares, "gone"),
        ("299.6".to_owned(), "hsl(213 85% 68%)".to_owned())
    );
    // 15 of 30; a third less than before.
    assert_eq!(
        width_and_color(&values, "same"),
        ("599.6".to_owned(), "hsl(213 49% 78%)".to_owned())
    );
    assert_eq!(width_and_color(&values, "grown").0, "199.6");
}

#[test]
fn hostile_names_are_escaped() {
    let tree = tree(&[("a;b <script>&\"\n\u{1b}", 2), ("a", 1)]);
    assert_eq!(folded(&tree), "a 1\na:b;<script>&\"   2\n");
    let svg = svg(&tree, &Source::default(), "</text><script>");
    assert!(!svg.contains("<script"), "{svg}");
    assert!(svg.contains("&lt;/text&gt;&lt;script&gt;"));
}

#[test]
fn speedscope_has_each_stack_with_its_weight() {
    let tree = tree(&[("main a", 5), ("main", 2)]);
    let file = speedscope(&tree, &Source::default(), "host");
    let file: serde_json::Value = serde_json::from_str(&file).unwrap();
    assert_eq!(
        file["profiles"][0]["samples"],
        serde_json::json!([[0], [0, 1]])
    );
    assert_eq!(file["profiles"][0]["weights"], serde_json::json!([2, 5]));
    assert_eq!(file["shared"]["frames"][1]["name"], "a");
}

#[test]
fn names_are_truncated() {
    let mut table = FrameTable::default();
    let index = table.string(&"x".repeat(1 << 20));
    assert_eq!(table.text(index).len(), 4096);
}

#[test]
fn a_stack_of_any_depth_is_drawn() {
    let mut tree = CallTree::default();
    let f = frame(&mut tree, "f");
    tree.add_stack(std::iter::repeat_n(f, 100_000), Side::Current, 1);
    assert_eq!(Layout::new(&tree, 1_000_000).len(), 100_000);
    assert_eq!(function_table(&tree, 10).total[0].value, 1);
    let (callers, callees) = tree.sandwich(f);
    assert_eq!((callers.total().value, callees.total().value), (1, 1));
    assert!(svg(&tree, &Source::default(), "").len() < 1 << 20);
}

proptest! {
    /// No value is lost or counted twice.
    #[test]
    fn totals_add_up(stacks in prop::collection::vec((prop::collection::vec(0..6u8, 1..8), 1..100u64), 0..40), max in 1..50usize) {
        let mut tree = CallTree::default();
        for (stack, value) in &stacks {
            let frames: Vec<FrameId> = stack.iter().map(|it| frame(&mut tree, &it.to_string())).collect();
            tree.add_stack(frames, Side::Current, *value);
        }
        let sum: u64 = stacks.iter().map(|(_, value)| value).sum();
        prop_assert_eq!(tree.total().value, sum);
        let layout = Layout::new(&tree, max);
        prop_assert!(layout.len() <= max);
        prop_assert_eq!(layout.len() + layout.cut.nodes, tree.node_count());
        let own: u64 = layout.own.iter().map(|it| it.value).sum();
        prop_assert_eq!(own + layout.cut.value, sum);
        let table = function_table(&tree, usize::MAX);
        prop_assert_eq!(table.own.iter().map(|it| it.value).sum::<u64>(), sum);
        for (row, &function) in table.frame.iter().enumerate() {
            let (callers, callees) = tree.sandwich(function);
            prop_assert_eq!(callers.total().value, table.total[row].value);
            prop_assert_eq!(callees.total().value, table.total[row].value);
        }
    }
}

#[test]
fn the_second_level_lists_callees_of_the_outermost_functions() {
    let mut tree = tree(&[("main b", 3), ("main a c", 5), ("main", 4), ("other b", 1)]);
    let name = |tree: &CallTree, frame: FrameId| tree.frames.label(frame).to_string();
    let second = tree.second_level();
    let second: Vec<_> = second
        .iter()
        .map(|&(id, own, total)| (name(&tree, id), own.value, total.value))
        .collect();
    assert_eq!(
        second,
        [
            ("a".to_owned(), 0, 5),
            ("b".to_owned(), 3, 3),
            ("b".to_owned(), 1, 1)
        ]
    );
    let callee = frame(&mut tree, "a");
    let (callers, callees) = tree.sandwich(callee);
    assert_eq!(name(&callers, callers.second_level()[0].0), "main");
    assert_eq!(name(&callees, callees.second_level()[0].0), "c");
}
