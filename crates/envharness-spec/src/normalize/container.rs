//! The keys of containers.

use super::Reader;
use crate::container::{Access, ContainerOptions, PROJECT, SpecMount};
use crate::error::SpecError;
use crate::source::{Node, Value};
use crate::spec::Spec;

impl Reader<'_> {
    /// `image` and `base` are one: packages are put on it either way.
    pub(super) fn image(&self, spec: &mut Spec, node: &Node, path: &str) -> Result<(), SpecError> {
        let name = self.text(node, path)?;
        if name.is_empty() || name.starts_with('-') || name.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(self.error(node, path, format!("`{name}` is not an image")).hint("write NAME:TAG or NAME@sha256:DIGEST"));
        }
        if let Some(other) = spec.image.replace(name).filter(|other| Some(other) != spec.image.as_ref()) {
            return Err(self.error(node, path, format!("the spec has the image `{other}` already")).hint("keep one of `image` and `base`"));
        }
        Ok(())
    }

    /// A name that an engine gives to something.
    pub(super) fn word_of_engine(&self, node: &Node, path: &str, what: &str) -> Result<String, SpecError> {
        let word = self.text(node, path)?;
        let letters = word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
        if letters && word.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return Ok(word);
        }
        Err(self.error(node, path, format!("`{word}` does not name {what}")).hint("a name has letters, digits, `_`, `.` and `-`"))
    }

    /// `{project: ro, /data: "/srv/data:ro"}`, or a list of `/srv/data:/data:ro` as Docker has it.
    pub(super) fn mounts(&self, out: &mut ContainerOptions, node: &Node, path: &str) -> Result<(), SpecError> {
        if let Value::Map(entries) = &node.value {
            for (key, value) in entries {
                let path = format!("{path}.{}", key.text);
                let text = self.text(value, &path)?;
                if key.text == PROJECT {
                    let hint = format!("one of {}", Access::WORDS.join(", "));
                    out.project =
                        Access::parse(&text).ok_or_else(|| self.error(value, &path, format!("`{text}` is no access")).hint(hint))?;
                } else {
                    self.mount(out, &text, &key.text, value, &path)?;
                }
            }
            return Ok(());
        }
        for (text, item) in self.texts(node, path)? {
            let (bare, mode) = mode_of(&text);
            let Some((source, target)) = bare.split_once(':') else {
                return Err(self.error(item, path, format!("`{text}` is not a mount")).hint("write SOURCE:TARGET:ro"));
            };
            self.mount(out, &format!("{source}:{}", if mode { "rw" } else { "ro" }), target, item, path)?;
        }
        Ok(())
    }

    fn mount(&self, out: &mut ContainerOptions, source: &str, target: &str, node: &Node, path: &str) -> Result<(), SpecError> {
        let (source, write) = mode_of(source);
        let fail = |message: String, hint: &str| Err(self.error(node, path, message).hint(hint));
        let parts = target.split('/').filter(|part| !part.is_empty()).count();
        if !target.starts_with('/') || parts == 0 || target.split('/').any(|part| part == "..") || target.contains(['\0', ':']) {
            return fail(format!("`{target}` is no path inside a container"), "the path inside is absolute and not `/`");
        }
        if source.is_empty() || source.contains(['\0', ':']) {
            return fail(format!("`{source}` is no path"), "write the path of this machine, with `:rw` behind it to write there");
        }
        if ["docker.sock", "podman.sock", "containerd.sock"].iter().any(|socket| source.ends_with(socket)) {
            return fail(format!("`{source}` would give the container the whole machine"), "what needs an engine runs outside");
        }
        let target = format!("/{}", target.split('/').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/"));
        out.mounts.insert(target, SpecMount { source: source.to_owned(), write });
        Ok(())
    }
}

/// A path without its `:ro` or `:rw`, and whether it may be written to.
fn mode_of(text: &str) -> (&str, bool) {
    match text.rsplit_once(':') {
        Some((path, "rw")) => (path, true),
        Some((path, "ro")) => (path, false),
        _ => (text, false),
    }
}
