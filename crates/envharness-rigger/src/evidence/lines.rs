//! Requirements in lines that are meant for a shell: `pip install ...` in a Dockerfile, a CI file, a README, a notebook.

/// Words after which the next one is no requirement.
const WITH_VALUE: [&str; 22] = [
    "-r",
    "--requirement",
    "-c",
    "--constraint",
    "-i",
    "--index-url",
    "--extra-index-url",
    "-f",
    "--find-links",
    "--python",
    "-t",
    "--target",
    "--prefix",
    "--root",
    "--proxy",
    "--timeout",
    "--cache-dir",
    "--platform",
    "--no-binary",
    "--only-binary",
    "-p",
    "--default-timeout",
];
/// Tools that a recipe installs for itself.
const TOOLS: [&str; 12] =
    ["pip", "setuptools", "wheel", "build", "twine", "tox", "nox", "virtualenv", "pre-commit", "uv", "poetry", "pipenv"];

/// The requirements of every `pip install` in a line, and the requirement files it names.
pub fn pip_install(line: &str) -> (Vec<String>, Vec<String>) {
    let (mut requirements, mut files) = (Vec::new(), Vec::new());
    let line = line.trim().trim_start_matches(['$', '>', '#', '-', ' ', '`']).trim_end_matches('`');
    for part in line.split("&&").flat_map(|part| part.split(';')).flat_map(|part| part.split("||")) {
        let Some(words) = shlex::split(part) else { continue };
        let Some(at) = words.windows(2).position(|pair| is_pip(&pair[0]) && pair[1] == "install") else { continue };
        let mut skip = None;
        for word in &words[at + 2..] {
            match skip.take() {
                Some("-r" | "--requirement") => files.push(word.clone()),
                Some(_) => {}
                None if WITH_VALUE.contains(&word.as_str()) => skip = WITH_VALUE.iter().find(|known| *known == word).copied(),
                None if word.starts_with("-r") && word.len() > 2 && !word.starts_with("-re") => files.push(word[2..].to_owned()),
                None if word.starts_with('-') => {}
                None if is_requirement(word) => requirements.push(word.clone()),
                None => {}
            }
        }
    }
    (requirements, files)
}

fn is_pip(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    name == "pip" || name.strip_prefix("pip").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
}

/// A name with what may follow it; no path, no address, no variable.
fn is_requirement(word: &str) -> bool {
    let name: String = word.chars().take_while(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).collect();
    let plain = !name.is_empty() && word.starts_with(|c: char| c.is_ascii_alphanumeric()) && !word.contains(['/', '$', '{', '<', '\\']);
    let bounded = word.contains("<=") || (word.contains('<') && !word.contains('/') && word.chars().any(|c| c.is_ascii_digit()));
    let plain = plain || (bounded && word.starts_with(|c: char| c.is_ascii_alphanumeric()) && !word.contains(['/', '$', '{', '\\']));
    plain && !TOOLS.contains(&name.to_lowercase().as_str()) && envharness_spec::Requirement::parse(word).is_ok()
}

/// Packages of `apt-get install` in a line.
pub fn apt_install(line: &str) -> Vec<String> {
    let mut out = Vec::new();
    for part in line.split("&&").flat_map(|part| part.split(';')) {
        let words: Vec<&str> = part.split_whitespace().collect();
        let Some(at) = words.windows(2).position(|pair| matches!(pair[0], "apt-get" | "apt")) else { continue };
        let Some(install) = words[at..].iter().position(|word| *word == "install") else { continue };
        let names = words[at + install + 1..].iter().filter(|word| {
            word.starts_with(|c: char| c.is_ascii_alphanumeric()) && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"+.-".contains(&b))
        });
        out.extend(names.map(|name| (*name).to_owned()));
    }
    out
}

/// Joins lines that end with a backslash; each with the number of its first.
pub fn joined(text: &str) -> Vec<(usize, String)> {
    let mut out: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (number, line) in text.lines().enumerate() {
        let (body, goes_on) = match line.trim_end().strip_suffix('\\') {
            Some(body) => (body, true),
            None => (line, false),
        };
        match out.last_mut().filter(|_| open) {
            Some((_, last)) => {
                last.push(' ');
                last.push_str(body.trim());
            }
            None => out.push((number + 1, body.to_owned())),
        }
        open = goes_on;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pip_is_told_to_install() {
        let (found, files) =
            pip_install("RUN python -m pip install --no-cache-dir -U numpy==1.24 'scipy>=1,<2' \"gym[atari]\" && pip3 install torch");
        assert_eq!(found, ["numpy==1.24", "scipy>=1,<2", "gym[atari]", "torch"]);
        assert!(files.is_empty());
        let (found, files) =
            pip_install("$ pip install -r requirements.txt --extra-index-url https://example.org/simple -e . ./local $NAME");
        assert!(found.is_empty(), "{found:?}");
        assert_eq!(files, ["requirements.txt"]);
        assert!(pip_install("pip install --upgrade pip setuptools wheel").0.is_empty());
        assert!(pip_install("apt-get install pip").0.is_empty());
        assert_eq!(pip_install("`pip install requests`").0, ["requests"]);
    }

    #[test]
    fn what_apt_is_told_to_install() {
        let text = "RUN apt-get update && \\\n  apt-get install -y --no-install-recommends libgl1 ffmpeg && rm -rf /var/lib/apt";
        let lines = joined(text);
        assert_eq!(lines.len(), 1);
        assert_eq!(apt_install(&lines[0].1), ["libgl1", "ffmpeg"]);
    }
}
