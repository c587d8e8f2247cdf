//! Lists in `docs/architecture.md` of the places that have something, and nothing else may: compared with the sources.

use crate::layers::PAGE;

/// A list in [`PAGE`].
pub struct List {
    /// How it begins.
    pub begin: &'static str,
    /// What the places have.
    pub of: &'static str,
}

impl List {
    /// Compares the list of `page` with the files that have it.
    pub fn compare(&self, page: &str, files: &[String]) -> Vec<String> {
        let Self { of, .. } = self;
        let stated = self.stated(page);
        let is_in = |file: &str, place: &str| {
            let rest = file.strip_prefix(place);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let outside = files
            .iter()
            .filter(|file| !stated.iter().any(|place| is_in(file, place)))
            .map(|file| format!("{file} has {of}, but {PAGE} does not list it"));
        let without = stated
            .iter()
            .filter(|place| !files.iter().any(|file| is_in(file, place)))
            .map(|place| format!("{PAGE} lists {of} in `{place}`, which has none"));
        outside.chain(without).collect()
    }

    /// The places in the list.
    fn stated<'a>(&self, page: &'a str) -> Vec<&'a str> {
        let Some((_, list)) = page.split_once(self.begin) else {
            return Vec::new();
        };
        let list = list.split("\n* ").next().unwrap_or_default();
        let quoted = list.split('`').skip(1).step_by(2);
        quoted.filter(|name| name.contains('/')).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_the_list_with_the_sources() {
        let list = List {
            begin: "* Unsafe code is in ",
            of: "unsafe code",
        };
        let page =
            "* Unsafe code is in `a/b`, and in `c/d.rs` (calls). `check` looks.\n* Other `e/f`\n";
        let problems = |files: &[&str]| {
            let files: Vec<String> = files.iter().map(|&file| file.to_owned()).collect();
            list.compare(page, &files)
        };
        assert_eq!(problems(&["a/b/c.rs", "c/d.rs"]), [""; 0]);
        let outside = problems(&["a/b/c.rs", "c/d.rs", "a/bc.rs", "e/f"]);
        assert_eq!(outside.len(), 2, "{outside:?}");
        let without = problems(&["a/b/c.rs"]);
        assert!(
            without[0].contains("`c/d.rs`, which has none"),
            "{without:?}"
        );
    }
}
