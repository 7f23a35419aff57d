//! Names of images: `[REGISTRY/]PATH[:TAG]`.

use std::fmt;

use crate::error::ImageError;

/// A name with its tag, and the registry where it says one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// The registry's host and port, when the name has one.
    pub registry: Option<String>,
    /// The repository's path.
    pub path: String,
    /// The tag.
    pub tag: String,
}

impl Reference {
    /// Reads a name. As with docker, its first part is a registry when it has a dot or a colon, or is `localhost`; the
    /// tag is `latest` where there is none.
    ///
    /// # Errors
    /// [`ImageError::Name`] says which part is wrong.
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        let wrong = |reason: &str| ImageError::Name { name: text.to_owned(), reason: reason.to_owned() };
        if text.contains('@') {
            return Err(wrong("names by digest are not taken here"));
        }
        let (registry, rest) = match text.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (Some(first.to_owned()), rest),
            _ => (None, text),
        };
        let (path, tag) = match rest.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, tag),
            _ => (rest, "latest"),
        };
        if let Some(registry) = &registry {
            let (host, port) = registry.rsplit_once(':').unwrap_or((registry, "443"));
            let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '[' | ']' | ':');
            if !host.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[')
                || !host.chars().all(known)
                || port.parse::<u16>().is_err()
            {
                return Err(wrong("its registry is not HOST or HOST:PORT"));
            }
        }
        if path.is_empty() {
            return Err(wrong("it has no path"));
        }
        let part_fits = |part: &str| {
            let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            part.starts_with(edge) && part.ends_with(edge) && part.chars().all(|c| edge(c) || matches!(c, '.' | '_' | '-'))
        };
        if path.len() > 200 || !path.split('/').all(part_fits) {
            return Err(wrong("its path has lower-case letters, digits and `.`, `_`, `-` between them"));
        }
        let tag_fits = tag.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
        if tag.is_empty() || tag.len() > 128 || tag.starts_with(['.', '-']) || !tag_fits {
            return Err(wrong("its tag has letters, digits and `.`, `_`, `-`, at most 128 of them"));
        }
        Ok(Self { registry, path: path.to_owned(), tag: tag.to_owned() })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(registry) = &self.registry {
            write!(f, "{registry}/")?;
        }
        write!(f, "{}:{}", self.path, self.tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_docker_reads_them() {
        let read = |text: &str| Reference::parse(text).map(|r| (r.registry, r.path, r.tag)).ok();
        let some = |registry: Option<&str>, path: &str, tag: &str| Some((registry.map(str::to_owned), path.to_owned(), tag.to_owned()));
        assert_eq!(read("a"), some(None, "a", "latest"));
        assert_eq!(read("team/a:1.0"), some(None, "team/a", "1.0"));
        assert_eq!(read("localhost:5000/a"), some(Some("localhost:5000"), "a", "latest"));
        assert_eq!(read("r.example.org/x/y:v_1"), some(Some("r.example.org"), "x/y", "v_1"));
        for bad in ["", ":1", "A:1", "a:", "a:-1", "a//b", "a:b c", "../a:1", "a@sha256:00", "h:port/a", "-a:1"] {
            assert!(Reference::parse(bad).is_err(), "{bad}");
        }
    }
}
