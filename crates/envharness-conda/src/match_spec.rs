//! Match specs and versions, as conda has them.

use std::cmp::Ordering;
use std::str::FromStr as _;

use rattler_conda_types::{MatchSpec, ParseMatchSpecOptions, Version};

use crate::CondaError;

/// Reads a match spec: `numpy`, `numpy 1.26.*`, `numpy>=1.22,<2`, `channel::name=1=build`, `name[version=..., build=...]`, with
/// what newer channels know: `[extras=[...]]`, `[flags=[...]]`, `[when="..."]`.
pub(crate) fn parse(text: &str) -> Result<MatchSpec, CondaError> {
    let options = ParseMatchSpecOptions::lenient().with_extras(true).with_flags(true).with_conditionals(true);
    MatchSpec::from_str(text, options).map_err(|error| CondaError::MatchSpec { spec: text.to_owned(), reason: error.to_string() })
}

/// The canonical text of a match spec.
///
/// # Errors
/// [`CondaError::MatchSpec`].
pub fn normalize(text: &str) -> Result<String, CondaError> {
    Ok(parse(text)?.to_string())
}

/// The package that a match spec names.
///
/// # Errors
/// [`CondaError::MatchSpec`].
pub fn name_of(text: &str) -> Result<String, CondaError> {
    let spec = parse(text)?;
    let name = spec.name.as_exact().map(|name| name.as_normalized().to_owned());
    name.ok_or_else(|| CondaError::MatchSpec { spec: text.to_owned(), reason: "it names no single package".into() })
}

/// How two versions compare in conda's order; `None` where one is no version.
pub fn version_order(left: &str, right: &str) -> Option<Ordering> {
    Some(Version::from_str(left).ok()?.cmp(&Version::from_str(right).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_every_form() {
        for text in [
            "numpy",
            "numpy>=1.22,<2",
            "numpy 1.26.*",
            "conda-forge::numpy=1.26=py311*",
            "numpy[version='>=1', build=py*]",
            "NumPy",
            "numpy[extras=[blas]]",
            "numpy[when=\"python >=3.9\"]",
            "numpy[flags=[cuda]]",
        ] {
            assert_eq!(name_of(text).unwrap(), "numpy", "{text}");
        }
        assert!(name_of("numpy >=").is_err());
    }

    #[test]
    fn versions_have_conda_s_order() {
        for (left, right) in [("1.0a1", "1.0"), ("1.0", "1.0.1"), ("1.1dev1", "1.1a1"), ("0.9", "1!0.1"), ("1.0", "1.0post1")] {
            assert_eq!(version_order(left, right), Some(Ordering::Less), "{left} {right}");
        }
        assert_eq!(version_order("1.0", "1.0.0"), Some(Ordering::Equal));
    }
}
