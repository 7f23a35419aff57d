//! What failed, as rules and advisors see it.

use serde::Serialize;

/// How far an attempt came; later is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Versions are looked for.
    Lock,
    /// Packages are built and installed.
    Install,
    /// The imports are tried.
    Imports,
    /// The check runs.
    Check,
    /// All of it passed.
    Passed,
}

impl Stage {
    /// For a person.
    pub fn text(self) -> &'static str {
        match self {
            Self::Lock => "no versions fit",
            Self::Install => "packages cannot be installed",
            Self::Imports => "imports fail",
            Self::Check => "the check fails",
            Self::Passed => "passed",
        }
    }
}

/// One thing that failed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Problem {
    /// When.
    pub stage: Stage,
    /// The module, or the dotted name, that was tried.
    pub subject: Option<String>,
    /// Where the task uses it.
    pub place: Option<String>,
    /// All that was said: the end of a program's output, a traceback, an explanation.
    pub text: String,
    /// The exit code of the check.
    pub exit_code: Option<i32>,
}

impl Problem {
    /// The line that says it.
    pub fn line(&self) -> String {
        let lines: Vec<&str> = self.text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let telling = lines.iter().rev().find(|line| is_exception(line)).or(lines.last()).copied().unwrap_or("no output");
        let first = lines.first().copied().unwrap_or("no output");
        let signs = ["Failed to build", "there is no version of", "was not found", "Because ", "error: "];
        let built = || signs.iter().find_map(|sign| lines.iter().find(|line| line.contains(sign))).copied();
        let line = if self.stage <= Stage::Install { built().unwrap_or(first) } else { telling };
        let line = line.trim_start_matches(['×', '╰', '─', '▶', '├', ' ']);
        let mut line = line.to_owned();
        if line.len() > 200 {
            line.truncate(line.floor_char_boundary(200));
            line.push('…');
        }
        match (self.exit_code, lines.is_empty()) {
            (Some(code), true) => format!("exit code {code} without output"),
            _ => line,
        }
    }
}

/// `SomeError: what`, at the start of a line.
fn is_exception(line: &str) -> bool {
    let Some((name, _)) = line.split_once(':') else { return line.ends_with("Error") && !line.contains(' ') };
    let last = name.rsplit('.').next().unwrap_or(name);
    !name.contains(' ')
        && last.starts_with(|c: char| c.is_ascii_uppercase())
        && ["Error", "Exception", "Warning", "Exit", "Found"].iter().any(|e| last.ends_with(e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_tells() {
        let problem = |text: &str, stage| Problem { stage, subject: None, place: None, text: text.into(), exit_code: Some(1) };
        let text = "Traceback (most recent call last):\n  File \"x.py\"\nModuleNotFoundError: No module named 'a'\nbye\n";
        assert_eq!(problem(text, Stage::Check).line(), "ModuleNotFoundError: No module named 'a'");
        assert_eq!(problem("", Stage::Check).line(), "exit code 1 without output");
        assert_eq!(problem("no versions satisfy `x`\nBecause a", Stage::Lock).line(), "Because a");
        assert_eq!(problem("uv failed to install `x`\n  × Failed to build `a==1`", Stage::Install).line(), "Failed to build `a==1`");
    }
}
