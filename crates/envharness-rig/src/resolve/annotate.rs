//! `uv pip compile`'s annotated requirements: versions, who asks, and from which index.

use super::Annotations;

/// What stands below a requirement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Annotation {
    /// The version; none for a path or URL.
    pub version: Option<String>,
    /// Who asks for it; the spec in angle brackets.
    pub via: Vec<String>,
    /// The address of the index.
    pub index: Option<String>,
}

/// Reads the text; `name` is the spec's.
pub(super) fn parse(text: &str, name: &str) -> Annotations {
    let mut out = Annotations::new();
    let mut current: Option<String> = None;
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(comment) = trimmed.strip_prefix('#') {
            let Some(annotation) = current.as_ref().and_then(|current| out.get_mut(current)) else { continue };
            let comment = comment.trim();
            if let Some(index) = comment.strip_prefix("from ") {
                annotation.index = Some(index.trim().to_owned());
            } else {
                let who = comment.strip_prefix("via").unwrap_or(comment).trim();
                if !who.is_empty() {
                    annotation.via.push(if who.starts_with("-r ") || who.starts_with("-c ") {
                        format!("<{name}>")
                    } else {
                        who.to_owned()
                    });
                }
            }
        } else if !trimmed.is_empty() && !line.starts_with([' ', '\t']) {
            let requirement = trimmed.split([';', ' ']).next().unwrap_or_default();
            let (package, version) = match requirement.split_once("==") {
                Some((package, version)) => (package, Some(version.to_owned())),
                None => (requirement, None),
            };
            let package = package.split('[').next().unwrap_or(package).to_owned();
            out.insert(package.clone(), Annotation { version, ..Annotation::default() });
            current = Some(package);
        }
    }
    for annotation in out.values_mut() {
        annotation.via.sort();
        annotation.via.dedup();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_askers_and_indexes_are_read() {
        let text = "numpy==1.26.4\n    # via\n    #   -r requirements.in\n    #   pandas\n    # from https://example.org/simple\nsix==1.17.0 ; python_version < '4'\n    # via python-dateutil\n";
        let parsed = parse(text, "demo");
        assert_eq!(parsed["numpy"].via, ["<demo>", "pandas"]);
        assert_eq!(parsed["numpy"].index.as_deref(), Some("https://example.org/simple"));
        assert_eq!(parsed["six"].version.as_deref(), Some("1.17.0"));
        assert_eq!(parsed["six"].via, ["python-dateutil"]);
    }
}
