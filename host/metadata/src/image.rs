//! Container image references.

/// `name[:tag][@digest]`
#[derive(Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// Including the registry, which may have a port.
    pub name: &'a str,
    pub tag: Option<&'a str>,
    pub digest: Option<&'a str>,
}

impl<'a> Image<'a> {
    pub fn parse(image: &'a str) -> Self {
        let (rest, digest) = match image.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (image, None),
        };
        let (name, tag) = match rest.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (rest, None),
        };
        Self { name, tag, digest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_names_tags_and_digests() {
        for (text, name, tag, digest) in [
            ("nginx", "nginx", None, None),
            ("nginx:1.25", "nginx", Some("1.25"), None),
            ("localhost:5000/a/b", "localhost:5000/a/b", None, None),
            (
                "localhost:5000/a/b:x",
                "localhost:5000/a/b",
                Some("x"),
                None,
            ),
            ("a/b@sha256:12", "a/b", None, Some("sha256:12")),
            ("a/b:1@sha256:12", "a/b", Some("1"), Some("sha256:12")),
            ("", "", None, None),
        ] {
            assert_eq!(Image::parse(text), Image { name, tag, digest }, "{text}");
        }
    }
}
