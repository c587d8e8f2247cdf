//! Checks that errors return their cause from `source`, as well as in their text: callers print the text, and match on the
//! cause. `thiserror` needs an attribute for that, which is easily forgotten.

use std::fs;

use anyhow::{Context, Result};
use syn::{Attribute, Fields, Item, Type};

use crate::siblings::sources;
use crate::workspace::Workspace;

/// The directories with what runs in the program.
const ROOMS: &[&str] = &["components", "ebpf", "formats", "host", "pipeline", "src"];

pub fn violations(workspace: &Workspace) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for room in ROOMS {
        for file in sources(&workspace.root.join(room))? {
            let text = fs::read_to_string(&file)
                .with_context(|| format!("failed to read {}", file.display()))?;
            if !text.contains("thiserror::Error") {
                continue;
            }
            let name = file.strip_prefix(&workspace.root).unwrap_or(&file);
            let found = of_file(&text).with_context(|| format!("{}", name.display()))?;
            problems.extend(found.map(|problem| format!("{}: {problem}", name.display())));
        }
    }
    Ok(problems)
}

fn of_file(text: &str) -> Result<impl Iterator<Item = String>> {
    let items = syn::parse_file(text)?.items.into_iter();
    Ok(items.flat_map(|item| match item {
        Item::Struct(item) => of_fields(&item.ident.to_string(), &item.attrs, &item.fields),
        Item::Enum(item) => {
            let variants = item.variants.iter().map(|variant| {
                let name = format!("{}::{}", item.ident, variant.ident);
                of_fields(&name, &variant.attrs, &variant.fields)
            });
            variants.flatten().collect()
        }
        _ => Vec::new(),
    }))
}

fn of_fields(name: &str, attributes: &[Attribute], fields: &Fields) -> Vec<String> {
    let mut problems = Vec::new();
    let Some(error) = attributes.iter().find(|it| it.path().is_ident("error")) else {
        return problems;
    };
    let text = error.parse_args::<syn::LitStr>().map(|it| it.value());
    let is_source = |field: &syn::Field| {
        let mut paths = field.attrs.iter().map(Attribute::path);
        paths.any(|path| path.is_ident("from") || path.is_ident("source"))
            || field.ident.as_ref().is_some_and(|name| name == "source")
    };
    let is_transparent = error
        .parse_args::<syn::Ident>()
        .is_ok_and(|word| word == "transparent");
    let has_source = is_transparent || fields.iter().any(is_source);
    if !has_source && fields.iter().any(|field| is_error(&field.ty)) {
        problems.push(format!(
            "`{name}` loses its cause: mark it with #[from] or #[source]"
        ));
    }
    if has_source && text.is_ok_and(|text| ["{0}", "{source}", "{error}"].contains(&&*text)) {
        problems.push(format!(
            "`{name}` adds nothing to its cause: write #[error(transparent)]"
        ));
    }
    problems
}

/// By the name: `io::Error`, `ElfError`.
fn is_error(of: &Type) -> bool {
    let Type::Path(path) = of else { return false };
    let last = path.path.segments.last();
    last.is_some_and(|last| last.ident.to_string().ends_with("Error"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_causes_that_are_lost_or_repeated() {
        for (text, expected) in [
            (
                "enum E { #[error(\"no {0}\")] A(io::Error) }",
                Some("`E::A` loses"),
            ),
            (
                "enum E { #[error(\"no {error}\")] A { at: u64, error: ElfError } }",
                Some("`E::A` loses"),
            ),
            (
                "#[error(\"{path}: {error}\")] struct E { path: P, error: io::Error }",
                Some("`E` loses"),
            ),
            (
                "enum E { #[error(\"{0}\")] A(#[from] io::Error) }",
                Some("`E::A` adds"),
            ),
            (
                "enum E { #[error(\"no {0}\")] A(#[source] io::Error) }",
                None,
            ),
            (
                "enum E { #[error(\"no {source}\")] A { source: io::Error } }",
                None,
            ),
            (
                "enum E { #[error(transparent)] A(#[from] io::Error), #[error(\"{0}\")] B(String) }",
                None,
            ),
            ("enum E { #[error(transparent)] A(io::Error) }", None),
            (
                "enum E { #[error(\"{}\", with_causes(.0))] A(#[from] kube::Error) }",
                None,
            ),
        ] {
            let problems: Vec<String> = of_file(text).unwrap().collect();
            let begin = problems
                .first()
                .map(|problem| problem.starts_with(expected.unwrap_or("?")));
            assert_eq!(begin, expected.map(|_| true), "{text}: {problems:?}");
        }
    }
}
