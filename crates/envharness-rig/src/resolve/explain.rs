//! Why a resolution failed: what collides, who asks for it, what to try.

use envharness_spec::{Requirement, Spec};

use crate::error::RigError;

/// uv's own sentences about a collision.
pub(super) struct Collision {
    sentences: Vec<String>,
}

/// Finds the explanation in uv's standard error; `None` when it failed for another reason.
pub(super) fn parse(stderr: &str) -> Option<Collision> {
    if !stderr.contains("No solution found") {
        return None;
    }
    let cause = stderr.split_once("cause:").or_else(|| stderr.split_once("╰─▶")).map(|(_, rest)| rest)?;
    let mut text = String::new();
    for line in cause.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with("hint:") {
            break;
        }
        text.push_str(line);
        text.push(' ');
    }
    let hints =
        stderr.split("hint:").skip(1).map(|hint| format!("uv notes: {}", hint.lines().map(str::trim).collect::<Vec<_>>().join(" ").trim()));
    let mut sentences: Vec<String> = split_sentences(&text);
    sentences.extend(hints);
    Some(Collision { sentences })
}

fn split_sentences(text: &str) -> Vec<String> {
    text.replace(". And because", ".\nAnd because")
        .replace(". Because", ".\nBecause")
        .lines()
        .map(|l| l.trim().to_owned())
        .filter(|l| !l.is_empty())
        .collect()
}

/// The requirements of the spec that the explanation names.
pub(super) fn suspects(spec: &Spec, collision: &Collision) -> Vec<Requirement> {
    let text = collision.sentences.join(" ");
    let named = |requirement: &&Requirement| {
        requirement.location.is_none()
            && !requirement.specifiers.is_empty()
            && requirement.name.as_ref().is_some_and(|name| contains_word(&text, name))
    };
    spec.pip.iter().filter(named).cloned().collect()
}

fn contains_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).any(|part| part == word)
}

/// Builds the error. `remedies` are requirements that, with any version allowed, make the rest resolve, and the version
/// that is taken then.
pub(super) fn error(spec: &Spec, python: &str, collision: &Collision, remedies: &[(Requirement, Option<String>)]) -> RigError {
    let mut explanation = collision.sentences.clone();
    for requirement in suspects(spec, collision) {
        let place = spec.place_of(&requirement).unwrap_or("the spec").to_owned();
        explanation.push(format!("`{requirement}` is asked for by {place}"));
    }
    let mut hint = None;
    for (requirement, version) in remedies {
        let name = requirement.name.as_deref().unwrap_or_default();
        let fix = match version {
            Some(version) => format!("`{requirement}` could be `{name}=={version}`"),
            None => format!("it resolves without `{requirement}`"),
        };
        explanation.push(format!("what would work: {fix}"));
        hint.get_or_insert(format!("{fix}; everything else resolves then"));
    }
    let nothing = || "no single pin can be let go to solve it; loosen several, or split the spec in two".to_owned();
    let missing = collision
        .sentences
        .iter()
        .any(|s| s.contains("was not found") || s.contains("no versions of") || s.contains("there is no version"));
    let locked_out = collision.sentences.iter().any(|s| s.contains("authentication credentials") || s.contains("403 Forbidden"));
    if locked_out {
        hint = Some(
            "give the index its credentials: in `~/.netrc`, or as `UV_INDEX_<NAME>_USERNAME` and `UV_INDEX_<NAME>_PASSWORD`".to_owned(),
        );
    }
    let hint = hint.or_else(|| {
        if missing {
            Some("check the name and the version; `exclude-newer` and the index limit what is seen".into())
        } else {
            Some(nothing())
        }
    });
    RigError::Unsolvable { name: spec.name.clone(), python: python.to_owned(), explanation, hint }
}

/// Whether an error says that the Python version stands in the way.
pub(super) fn blames_python(error: &RigError) -> bool {
    match error {
        RigError::Unsolvable { explanation, .. } => explanation
            .iter()
            .any(|line| ["Python", "wheels with a matching", "ABI tag", "no wheels"].iter().any(|sign| line.contains(sign))),
        // A source archive that does not build under this Python.
        RigError::Program { output, .. } => output.contains("Failed to build") || output.contains("build backend"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STDERR: &str = "error: No solution found when resolving dependencies
  cause: Because ray[rllib]==2.5.1 depends on gymnasium==0.26.3 and you require gymnasium==0.29.1, we can conclude that your requirements and ray[rllib]==2.5.1 are incompatible.
         And because you require ray[rllib]==2.5.1, we can conclude that your requirements are unsatisfiable.
";

    #[test]
    fn both_sides_are_named_and_the_remedy_is_the_hint() {
        let spec = Spec {
            name: "rllib".into(),
            pip: ["gymnasium==0.29.1", "ray[rllib]==2.5.1"].map(|r| Requirement::parse(r).unwrap()).into(),
            ..Spec::default()
        };
        let collision = parse(STDERR).unwrap();
        assert_eq!(suspects(&spec, &collision).len(), 2);
        let error = error(&spec, "3.11.7", &collision, &[(spec.pip[0].clone(), Some("0.26.3".into()))]);
        assert!(error.hint().unwrap().contains("gymnasium==0.26.3"));
        assert!(error.details().iter().any(|line| line.contains("`ray[rllib]==2.5.1` is asked for by")));
        assert!(!blames_python(&error));
    }

    #[test]
    fn other_failures_are_not_collisions() {
        assert!(parse("error: Failed to fetch: `https://example.org`").is_none());
    }
}
