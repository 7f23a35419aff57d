//! "Did you mean": the nearest known word.

/// Returns the known word nearest to `word`, when it is near enough to be a likely slip.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_lowercase().replace('-', "_");
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&word, &candidate.replace('-', "_")), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len().max(word.len()) / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_is_found_and_a_stranger_is_not() {
        let known = ["dependencies", "description", "env_vars", "python"];
        assert_eq!(nearest("dependancies", known), Some("dependencies"));
        assert_eq!(nearest("env-var", known), Some("env_vars"));
        assert_eq!(nearest("pyhton", known), Some("python"));
        assert_eq!(nearest("script_path", known), None);
    }
}
