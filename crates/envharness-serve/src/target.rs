//! What can be served, by name.

use std::path::{Path, PathBuf};

use crate::error::ServeError;

/// A target as it was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetName {
    /// The folder of an env package.
    Folder(PathBuf),
    /// `module:name`.
    Module(String),
    /// `gym:ID`.
    Gym(String),
    /// `native:name`.
    Native(String),
}

impl TargetName {
    /// Reads a target; `base` is the current directory.
    ///
    /// # Errors
    /// [`ServeError::Target`] with what a target is.
    pub fn parse(text: &str, base: &Path) -> Result<Self, ServeError> {
        if let Some(name) = text.strip_prefix("native:") {
            return Ok(Self::Native(name.to_owned()));
        }
        if text.strip_prefix("gym:").is_some_and(|id| !id.is_empty()) {
            return Ok(Self::Gym(text.to_owned()));
        }
        let path = base.join(text);
        if path.is_dir() {
            return Ok(Self::Folder(path.canonicalize().unwrap_or(path)));
        }
        let bad = |reason: String, hint: &str| ServeError::Target { reason, hint: Some(hint.to_owned()) };
        let forms = "a target is a folder, `module:name`, `gym:ID` or `native:name`";
        if path.is_file() {
            return Err(bad(format!("`{text}` is a file"), "name the folder of the env package, or `module:name` without `.py`"));
        }
        match text.split_once(':') {
            Some((module, name)) => {
                let dotted = |text: &str| !text.is_empty() && text.split('.').all(is_identifier);
                if dotted(module) && dotted(name) {
                    return Ok(Self::Module(text.to_owned()));
                }
                Err(bad(format!("`{text}` is no target: `{module}:{name}` is not `module:name`"), forms))
            }
            None => Err(bad(format!("there is no folder `{text}`"), forms)),
        }
    }
}

fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_') && chars.all(|c| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let base = Path::new("/");
        assert_eq!(TargetName::parse("server.app:app", base).unwrap(), TargetName::Module("server.app:app".into()));
        assert_eq!(TargetName::parse("gym:CartPole-v1", base).unwrap(), TargetName::Gym("gym:CartPole-v1".into()));
        assert_eq!(TargetName::parse("native:echo", base).unwrap(), TargetName::Native("echo".into()));
        assert!(matches!(TargetName::parse("tmp", base).unwrap(), TargetName::Folder(_)));
        for bad in ["no-such-folder", "a b:c", ":", "a:", "1:x", "gym:", "a..b:c"] {
            let error = TargetName::parse(bad, base).unwrap_err();
            assert!(error.hint().is_some(), "{bad}");
        }
    }
}
