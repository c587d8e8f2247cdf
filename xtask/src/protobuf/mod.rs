//! Messages declared by hand with prost's derives: each field must have the number, name, type and cardinality that it has
//! in the project that defines it, according to the descriptors in [`LIST`].
//!
//! The documentation of a declaration begins with the messages that it stands for, such as `google.protobuf.Any`. A
//! declaration may leave out fields. Test code is not compared.

mod declared;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use self::declared::{Content, Declaration, Declarations, Kind, Label, Member};
use crate::siblings::sources;
use crate::workspace::Workspace;

/// The descriptors as text, and the program that wrote it.
const LIST: &str = "tests/golden/protobuf/fields.txt";
const PROGRAM: &str = "tests/golden/protobuf/main.go";

/// The directories with code that is not only for tests.
const ROOMS: &[&str] = &["components", "ebpf", "formats", "host", "pipeline", "src"];

/// Messages that no other project defines: processes of one version of this program exchange them.
const INTERNAL: &[&str] = &["ebpf/reader/src/messages.rs", "host/reader/src/messages.rs"];

/// What makes a file worth parsing.
const MARK: &str = "#[prost(";

/// Messages and packages that the list lacks, with the reason.
const NOT_LISTED: &[(&str, &str)] = &[
    (
        "opentelemetry.proto.common.v1.ProcessContext",
        "no release of OpenTelemetry's Go module has it; its `Resource` is listed",
    ),
    (
        "parca.debuginfo.v1alpha1",
        "Parca's Go module could not be downloaded; `tests/golden/parca/debuginfo` has a real exchange",
    ),
];

/// Names that differ: declaration, field, the real field.
const RENAMED: &[(&str, &str, &str)] = &[
    // A oneof and its variants are named after what they hold.
    ("AnyValue", "scalar", "value"),
    ("Scalar", "Text", "string_value"),
    ("Scalar", "Bool", "bool_value"),
    ("Scalar", "Int", "int_value"),
    ("Scalar", "Double", "double_value"),
    // `type` is a keyword.
    ("ValueType", "kind", "type"),
];

pub fn violations(workspace: &Workspace) -> Result<Vec<String>> {
    let list = workspace.root.join(LIST);
    let list =
        fs::read_to_string(&list).with_context(|| format!("failed to read {}", list.display()))?;
    let descriptors = Descriptors::parse(&list)?;
    let mut problems = Vec::new();
    let mut compared = BTreeSet::new();
    for room in ROOMS {
        for file in sources(&workspace.root.join(room))? {
            let name = file.strip_prefix(&workspace.root).unwrap_or(&file);
            let text = fs::read_to_string(&file)
                .with_context(|| format!("failed to read {}", file.display()))?;
            let is_internal = INTERNAL.iter().any(|it| name == Path::new(it));
            if is_test(name) || is_internal || !text.contains(MARK) {
                continue;
            }
            let declared = Declarations::parse(&text)
                .with_context(|| format!("failed to understand {}", file.display()))?;
            let found = declared.compare(&descriptors).into_iter();
            problems.extend(found.map(|problem| format!("{}: {problem}", name.display())));
            compared.extend(declared.stands_for());
        }
    }
    let without = descriptors.names().filter(|name| !compared.contains(*name));
    problems.extend(without.map(|name| format!("no declaration stands for `{name}` of {LIST}")));
    Ok(problems)
}

fn is_test(file: &Path) -> bool {
    let mut parts = file.iter().filter_map(|part| part.to_str());
    parts.any(|part| matches!(part, "tests" | "tests.rs"))
}

/// What the projects define.
#[derive(Default)]
struct Descriptors {
    /// The fields of messages by number.
    messages: BTreeMap<String, BTreeMap<u32, Defined>>,
    /// The values of enumerations by number.
    enumerations: BTreeMap<String, BTreeMap<i32, String>>,
}

/// A field as it is defined.
struct Defined {
    name: String,
    kind: String,
    cardinality: String,
}

impl Descriptors {
    fn parse(list: &str) -> Result<Self> {
        let mut parsed = Self::default();
        for line in list.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let malformed = || format!("failed to understand this line of {LIST}: {line}");
            match *words {
                [message, name, number, kind, cardinality] => {
                    let fields = parsed.messages.entry(message.to_owned()).or_default();
                    let [name, kind, cardinality] = [name, kind, cardinality].map(str::to_owned);
                    let field = Defined {
                        name,
                        kind,
                        cardinality,
                    };
                    fields.insert(number.parse().with_context(malformed)?, field);
                }
                [enumeration, name, number] => {
                    let values = parsed.enumerations.entry(enumeration.to_owned());
                    let number = number.parse().with_context(malformed)?;
                    values.or_default().insert(number, name.to_owned());
                }
                _ => bail!(malformed()),
            }
        }
        Ok(parsed)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.messages.keys().chain(self.enumerations.keys());
        names.map(String::as_str)
    }
}

impl Declarations {
    fn stands_for(&self) -> impl Iterator<Item = String> {
        let found = self.found.iter();
        found.flat_map(|declaration| declaration.stands_for.iter().cloned())
    }

    /// The declaration of this name in the same module.
    fn sibling(&self, other: &Declaration, name: &str) -> Option<&Declaration> {
        let mut found = self.found.iter();
        found.find(|it| it.module == other.module && it.name == name)
    }

    fn is_of_kind(&self, declaration: &Declaration, member: &Member, defined: &str) -> bool {
        let stands_for = |name: &str, defined: &str| {
            let found = self.sibling(declaration, name);
            found.is_some_and(|found| found.stands_for.iter().any(|it| it == defined))
        };
        match &member.kind {
            // Enumerations are encoded like int32.
            Kind::Scalar(kind) => {
                kind == defined || (kind == "int32" && defined.starts_with("enum:"))
            }
            Kind::Map(kind) => kind == defined,
            Kind::Message(name) => {
                let message = defined.strip_prefix("message:");
                message.is_some_and(|message| stands_for(name, message))
            }
            Kind::Enumeration(name) => {
                let enumeration = defined.strip_prefix("enum:");
                enumeration.is_some_and(|enumeration| stands_for(name, enumeration))
            }
            Kind::Oneof(_) => false,
        }
    }

    /// What differs from the definitions.
    fn compare(&self, descriptors: &Descriptors) -> Vec<String> {
        let mut problems = Vec::new();
        for declaration in &self.found {
            let name = &declaration.name;
            let is_oneof = matches!(declaration.content, Content::Oneof(_));
            if declaration.stands_for.is_empty() && !is_oneof {
                problems.push(format!(
                    "the documentation of `{name}` does not begin with what it stands for, such as `google.protobuf.Any`"
                ));
            }
            for defined in &declaration.stands_for {
                let differences = match &declaration.content {
                    Content::Message(members) => descriptors.messages.get(defined).map(|fields| {
                        let pair = Pair {
                            declared: self,
                            declaration,
                            defined,
                            fields,
                        };
                        members.iter().flat_map(|it| pair.compare(it)).collect()
                    }),
                    Content::Enumeration(values) => {
                        let enumeration = descriptors.enumerations.get(defined);
                        enumeration.map(|it| compare_values(name, values, defined, it))
                    }
                    Content::Oneof(_) => None,
                };
                match differences {
                    Some(differences) => problems.extend(differences),
                    None if may_be_missing(defined) => {}
                    None => problems.push(format!(
                        "`{name}` stands for `{defined}`, which is not in {LIST}: add it to {PROGRAM}, and run that \
                         as tests/golden/README.md says"
                    )),
                }
            }
        }
        problems
    }
}

/// A declaration, and one message that it stands for.
#[derive(Clone, Copy)]
struct Pair<'a> {
    declared: &'a Declarations,
    declaration: &'a Declaration,
    defined: &'a str,
    fields: &'a BTreeMap<u32, Defined>,
}

impl Pair<'_> {
    fn compare(self, field: &Member) -> Vec<String> {
        let owner = &self.declaration.name;
        let Kind::Oneof(oneof) = &field.kind else {
            return self.compare_member(owner, field, None);
        };
        let found = self.declared.sibling(self.declaration, oneof);
        let Some(Content::Oneof(variants)) = found.map(|it| &it.content) else {
            return vec![format!("`{oneof}` is not declared next to `{owner}`")];
        };
        let tags: Vec<u32> = variants.iter().flat_map(|it| it.tags.clone()).collect();
        if tags != field.tags {
            let name = &field.name;
            let stated = &field.tags;
            return vec![format!(
                "`{owner}::{name}` has the tags {stated:?}, but the variants of `{oneof}` have {tags:?}"
            )];
        }
        let group = defined_name(owner, &field.name);
        let variants = variants.iter();
        let differences = variants.flat_map(|it| self.compare_member(oneof, it, Some(group)));
        differences.collect()
    }

    /// `owner` is the struct or the enum with this member; `oneof` is the name of the enum's oneof.
    fn compare_member(self, owner: &str, member: &Member, oneof: Option<&str>) -> Vec<String> {
        let Self {
            declaration,
            defined,
            ..
        } = self;
        let name = &member.name;
        let mut differences = Vec::new();
        let [tag] = *member.tags else {
            return vec![format!("`{owner}::{name}` does not have one tag")];
        };
        let Some(field) = self.fields.get(&tag) else {
            return vec![format!(
                "`{owner}::{name}` has the tag {tag}, but `{defined}` has no such field"
            )];
        };
        let mut differs = |what: &str, there: &str, here: &str| {
            differences.push(format!(
                "`{owner}::{name}` has the {what} `{here}`, but field {tag} of `{defined}` has `{there}`"
            ));
        };
        if plain(defined_name(owner, name)) != plain(&field.name) {
            differs("name", &field.name, name);
        }
        if !self.declared.is_of_kind(declaration, member, &field.kind) {
            differs("type", &field.kind, member.kind.name());
        }
        let oneof = oneof.map(|oneof| format!("oneof:{oneof}"));
        let cardinality = match (&oneof, member.label, &member.kind) {
            (Some(oneof), ..) => &[oneof.as_str()][..],
            (None, Label::Repeated, _) | (None, _, Kind::Map(_)) => &["repeated"],
            // Messages always have presence.
            (None, _, Kind::Message(_)) => &["singular", "optional"],
            (None, Label::Optional, _) => &["optional"],
            (None, Label::None, _) => &["singular"],
        };
        if !cardinality.contains(&field.cardinality.as_str()) {
            let here = cardinality.join("` or `");
            differs("cardinality", &field.cardinality, &here);
        }
        differences
    }
}

fn compare_values(
    owner: &str,
    values: &[(String, i32)],
    defined: &str,
    enumeration: &BTreeMap<i32, String>,
) -> Vec<String> {
    let differs = |(name, number): &(String, i32)| match enumeration.get(number) {
        // Real names have a prefix or a suffix, which differs between enumerations.
        Some(real) if plain(real).contains(&plain(name)) => None,
        Some(real) => Some(format!(
            "`{owner}::{name}` is {number}, but `{defined}` has `{real}` there"
        )),
        None => Some(format!(
            "`{owner}::{name}` is {number}, but `{defined}` has no such value"
        )),
    };
    values.iter().filter_map(differs).collect()
}

fn may_be_missing(defined: &str) -> bool {
    NOT_LISTED.iter().any(|(name, _)| {
        let rest = defined.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

fn defined_name<'a>(owner: &str, name: &'a str) -> &'a str {
    let mut renamed = RENAMED.iter();
    let row = renamed.find(|(of, ours, _)| *of == owner && *ours == name);
    row.map_or(name, |(_, _, real)| real)
}

/// A name without what differs between languages.
fn plain(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}
