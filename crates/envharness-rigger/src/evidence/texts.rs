//! What the files beside the sources say: recipes, CI files, READMEs, projects of other tools. Pure: text in, evidence out.

use std::sync::LazyLock;

use regex::Regex;

use super::{Declared, Evidence, PythonBound, Weight, lines};

#[expect(clippy::expect_used, reason = "the patterns are constants, compiled by every test")]
pub(crate) fn pattern(text: &'static str) -> Regex {
    Regex::new(text).expect("a constant pattern compiles")
}

static FROM_PYTHON: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)^\s*FROM\s+(?:\S+/)?python:(3\.\d+)"));
static CI_PYTHON: LazyLock<Regex> = LazyLock::new(|| pattern(r#"(?i)python[-_]?(?:version|versions)?\s*[:=]\s*\[?\s*['"]?(3\.\d+)"#));
static CLASSIFIER: LazyLock<Regex> = LazyLock::new(|| pattern(r"Programming Language :: Python :: (3\.\d+)"));
static README_COMMAND: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\s*[$>]?\s*(python3?\s+\S.*)$"));
static POETRY_PIN: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\s*(?:\^|~)?\s*(\d+)(?:\.(\d+))?(?:\.(\d+))?\s*$"));

/// A Dockerfile.
pub fn dockerfile(text: &str, file: &str, evidence: &mut Evidence) {
    for (number, line) in lines::joined(text) {
        let place = format!("{file}:{number}");
        if let Some(found) = FROM_PYTHON.captures(&line) {
            let why = format!("{place} starts from it");
            evidence.pythons.push(PythonBound { specifier: format!("=={}.*", &found[1]), why, firm: false });
        }
        mentioned(&line, &place, Weight::Declared, evidence);
        evidence.system.extend(lines::apt_install(&line));
    }
}

/// A CI file or a script of shell lines.
pub fn recipe(text: &str, file: &str, evidence: &mut Evidence) {
    let mut pythons: Vec<String> = Vec::new();
    for (number, line) in lines::joined(text) {
        let place = format!("{file}:{number}");
        if let Some(found) = CI_PYTHON.captures(&line)
            && !pythons.contains(&found[1].to_owned())
        {
            pythons.push(found[1].to_owned());
            let why = format!("{place} tests with it");
            evidence.pythons.push(PythonBound { specifier: format!("=={}.*", &found[1]), why, firm: false });
        }
        mentioned(line.trim().trim_start_matches("run:"), &place, Weight::Mentioned, evidence);
        evidence.system.extend(lines::apt_install(&line));
    }
}

/// A README: what it installs is a hint, what it runs is kept for a person, or for `--trust`.
pub fn readme(text: &str, file: &str, evidence: &mut Evidence) {
    let mut fenced = false;
    for (number, line) in lines::joined(text) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        mentioned(&line, &format!("{file}:{number}"), Weight::Mentioned, evidence);
        let indented = line.starts_with("    ");
        if let Some(found) = README_COMMAND.captures(&line).filter(|_| fenced || indented || line.trim_start().starts_with('$')) {
            let command = found[1].trim();
            // What installs or tests is no program of the task.
            let aside = ["setup.py", "-m pip", "-m venv", "-m pytest", "-m unittest", "-m build"];
            if !aside.iter().any(|word| command.split_once(' ').is_some_and(|(_, rest)| rest.starts_with(word))) {
                evidence.commands.push(command.to_owned());
            }
        }
    }
}

/// Shell lines of a notebook.
pub fn shell_lines(shell: &[String], file: &str, evidence: &mut Evidence) {
    for line in shell {
        mentioned(line, file, Weight::Declared, evidence);
    }
}

fn mentioned(line: &str, place: &str, weight: Weight, evidence: &mut Evidence) {
    let (requirements, _) = lines::pip_install(line);
    evidence.declared.extend(requirements.into_iter().map(|text| Declared { text, place: place.to_owned(), weight }));
}

/// `setup.cfg`: `install_requires` and `python_requires`.
pub fn setup_cfg(text: &str, file: &str, evidence: &mut Evidence) {
    let (mut section, mut key) = (String::new(), String::new());
    for (number, line) in text.lines().enumerate() {
        let place = format!("{file}:{}", number + 1);
        if let Some(name) = line.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.to_owned();
            key.clear();
            continue;
        }
        let value = if line.starts_with([' ', '\t']) {
            line.trim()
        } else {
            let (name, value) = line.split_once('=').unwrap_or(("", ""));
            key = name.trim().to_owned();
            value.trim()
        };
        if section != "options" || value.is_empty() || value.starts_with('#') {
            continue;
        }
        match key.as_str() {
            "install_requires" => {
                evidence.declared.push(Declared { text: value.to_owned(), place, weight: Weight::Declared });
            }
            "python_requires" => {
                let why = format!("{place} asks for it");
                evidence.pythons.push(PythonBound { specifier: value.to_owned(), why, firm: true });
            }
            _ => {}
        }
    }
}

/// `Pipfile`, and Poetry's tables in `pyproject.toml`.
pub fn other_tools(text: &str, file: &str, evidence: &mut Evidence) {
    let Ok(root) = text.parse::<toml::Table>() else {
        evidence.notes.push(format!("{file} is not TOML and was left out"));
        return;
    };
    let poetry = root.get("tool").and_then(|tool| tool.get("poetry")).and_then(|poetry| poetry.get("dependencies"));
    let tables = [poetry, root.get("packages").filter(|_| file.ends_with("Pipfile"))];
    for (name, value) in tables.into_iter().flatten().filter_map(toml::Value::as_table).flatten() {
        let version = value.as_str().or_else(|| value.get("version").and_then(toml::Value::as_str));
        let optional = value.get("optional").and_then(toml::Value::as_bool).unwrap_or(false);
        if optional || (version.is_none() && value.is_table() && !value.get("extras").is_some_and(toml::Value::is_array)) {
            continue;
        }
        let specifier = poetry_specifier(version.unwrap_or("*"));
        if name == "python" {
            let why = format!("{file} asks for it");
            evidence.pythons.push(PythonBound { specifier, why, firm: true });
            continue;
        }
        let extras: Vec<&str> =
            value.get("extras").and_then(toml::Value::as_array).into_iter().flatten().filter_map(toml::Value::as_str).collect();
        let extras = if extras.is_empty() { String::new() } else { format!("[{}]", extras.join(",")) };
        evidence.declared.push(Declared { text: format!("{name}{extras}{specifier}"), place: file.to_owned(), weight: Weight::Declared });
    }
    if let Some(python) = root.get("requires").and_then(|r| r.get("python_version")).and_then(toml::Value::as_str) {
        let why = format!("{file} asks for it");
        evidence.pythons.push(PythonBound { specifier: format!("=={python}.*"), why, firm: true });
    }
    let day = root.get("tool").and_then(|tool| tool.get("uv")).and_then(|uv| uv.get("exclude-newer")).and_then(toml::Value::as_str);
    if let Some(day) = day.and_then(|day| day.get(..10)) {
        evidence.dates.push(super::Dated { day: day.to_owned(), why: format!("{file} has it as exclude-newer"), firm: true });
    }
    for found in CLASSIFIER.captures_iter(text) {
        let why = format!("{file} has it among its classifiers");
        evidence.pythons.push(PythonBound { specifier: format!("=={}.*", &found[1]), why, firm: false });
    }
}

/// Poetry's `^1.2` and `~1.2` as PEP 440 has it.
fn poetry_specifier(text: &str) -> String {
    let text = text.trim();
    if text == "*" || text.is_empty() {
        return String::new();
    }
    let parts: Vec<String> = text.split(',').map(|part| one_specifier(part.trim())).filter(|part| !part.is_empty()).collect();
    parts.join(",")
}

fn one_specifier(text: &str) -> String {
    let sign = text.chars().next().unwrap_or_default();
    let Some(found) = POETRY_PIN.captures(text).filter(|_| sign == '^' || sign == '~' || sign.is_ascii_digit()) else {
        return text.to_owned();
    };
    let number = |index: usize| found.get(index).and_then(|m| m.as_str().parse::<u64>().ok());
    let (major, minor) = (number(1).unwrap_or(0), number(2));
    let base = text.trim_start_matches(['^', '~']).trim();
    match sign {
        '^' if major > 0 || minor.is_none() => format!(">={base},<{}", major + 1),
        '^' => format!(">={base},<0.{}", minor.unwrap_or(0) + 1),
        '~' => match minor {
            Some(minor) => format!(">={base},<{major}.{}", minor + 1),
            None => format!(">={base},<{}", major + 1),
        },
        _ => format!("=={base}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Kind;

    fn empty() -> Evidence {
        Evidence::new(Kind::Folder, "x", "/x".into())
    }

    #[test]
    fn recipes_say_python_and_packages() {
        let mut evidence = empty();
        dockerfile("FROM python:3.9-slim\nRUN apt-get install -y libgl1 \\\n && pip install numpy==1.21\n", "Dockerfile", &mut evidence);
        assert_eq!(evidence.pythons[0].specifier, "==3.9.*");
        assert_eq!((evidence.declared[0].text.as_str(), evidence.declared[0].place.as_str()), ("numpy==1.21", "Dockerfile:2"));
        assert_eq!(evidence.system, ["libgl1"]);
        let mut evidence = empty();
        recipe("  python-version: ['3.8', '3.9']\n      - run: pip install 'gym<0.22'\n", ".github/workflows/ci.yml", &mut evidence);
        assert_eq!(evidence.pythons[0].specifier, "==3.8.*");
        assert_eq!((evidence.declared[0].text.as_str(), evidence.declared[0].weight), ("gym<0.22", Weight::Mentioned));
    }

    #[test]
    fn a_readme_is_read_and_its_commands_are_only_kept() {
        let mut evidence = empty();
        readme(
            "# X\n\n```\npip install torch==1.8\npython setup.py install\npython train.py --epochs 1\n```\npython is fun\n",
            "README.md",
            &mut evidence,
        );
        assert_eq!(evidence.declared[0].text, "torch==1.8");
        assert_eq!(evidence.commands, ["python train.py --epochs 1"]);
    }

    #[test]
    fn projects_of_other_tools() {
        let mut evidence = empty();
        other_tools(
            "[tool.poetry.dependencies]\npython = '^3.8'\nnumpy = '^1.21.2'\nrich = '~0.3'\nold = {version='1.0', optional=true}\nplain='*'\nx={extras=['a'],version='^0.2.1'}\n",
            "pyproject.toml",
            &mut evidence,
        );
        let texts: Vec<&str> = evidence.declared.iter().map(|d| d.text.as_str()).collect();
        assert_eq!(texts, ["numpy>=1.21.2,<2", "plain", "rich>=0.3,<0.4", "x[a]>=0.2.1,<0.3"]);
        assert_eq!(evidence.pythons[0].specifier, ">=3.8,<4");
        let mut evidence = empty();
        setup_cfg(
            "[options]\npython_requires = >=3.7\ninstall_requires =\n    numpy\n    scipy<2\n[other]\nx = 1\n",
            "setup.cfg",
            &mut evidence,
        );
        assert_eq!(evidence.declared.iter().map(|d| d.text.as_str()).collect::<Vec<_>>(), ["numpy", "scipy<2"]);
        assert!(evidence.pythons[0].firm);
    }
}
