//! `requirements.txt`: requirements, `-r` and `-c` includes, index options, hashes, continuations.

use crate::error::SpecError;
use crate::import::Files;
use crate::requirement::{Requirement, refuse_credentials};
use crate::source::Position;
use crate::spec::{Index, Spec};

/// Includes deeper than this are a loop.
const MAX_INCLUDES: usize = 16;

pub(super) fn read(text: &str, file: &str, name: &str, files: &dyn Files) -> Result<Spec, SpecError> {
    let mut spec = Spec { name: name.to_owned(), ..Spec::default() };
    read_into(&mut spec, text, file, "", files, Target::Install(0))?;
    Ok(spec)
}

/// Where the lines of a file go, and how deep the file lies in includes.
#[derive(Clone, Copy)]
enum Target {
    Install(usize),
    Constrain(usize),
}

impl Target {
    fn depth(self) -> usize {
        match self {
            Self::Install(depth) | Self::Constrain(depth) => depth,
        }
    }
}

/// An option that stands in a pip list of a spec, such as `-r requirements.txt`.
pub(crate) fn option_line(spec: &mut Spec, line: &str, file: &str, at: Position, files: &dyn Files) -> Result<(), SpecError> {
    option(spec, line, file, at, ("", files), Target::Install(0))
}

fn read_into(spec: &mut Spec, text: &str, file: &str, folder: &str, files: &dyn Files, target: Target) -> Result<(), SpecError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let mut line = line.trim_end_matches('\r').to_owned();
        while line.ends_with('\\') {
            line.pop();
            let Some((_, next)) = lines.next() else { break };
            line.push_str(next.trim_end_matches('\r'));
        }
        let line = strip_comment(&line);
        let at = Position { line: number + 1, column: 1 };
        if line.is_empty() {
            continue;
        }
        let editable = line.starts_with("-e ") || line.starts_with("--editable ");
        if line.starts_with('-') && !editable {
            option(spec, line, file, at, (folder, files), target)?;
            continue;
        }
        let requirement = Requirement::parse(line).map_err(|(message, hint)| {
            let error = SpecError::new(file, message).at(at, "");
            match hint {
                Some(hint) => error.hint(hint),
                None => error,
            }
        })?;
        match target {
            Target::Constrain(_) => spec.constraints.push(requirement),
            Target::Install(_) => {
                spec.lines.entry(requirement.to_string()).or_insert_with(|| format!("{file}:{}", at.line));
                spec.pip.push(requirement);
            }
        }
    }
    Ok(())
}

fn strip_comment(line: &str) -> &str {
    let end = if line.trim_start().starts_with('#') { 0 } else { line.find(" #").unwrap_or(line.len()) };
    line[..end].trim()
}

fn option(
    spec: &mut Spec,
    line: &str,
    file: &str,
    at: Position,
    (folder, files): (&str, &dyn Files),
    target: Target,
) -> Result<(), SpecError> {
    let (word, value) = match line.find(['=', ' ']) {
        Some(split) => (&line[..split], line[split + 1..].trim().trim_matches(['"', '\''])),
        // `-rfile`; what is no letter is no option, and may be longer than a byte.
        None if !line.starts_with("--") => line.split_at_checked(2).unwrap_or((line, "")),
        None => (line, ""),
    };
    let error = |message: String| SpecError::new(file, message).at(at, "");
    let url = |value: &str| refuse_credentials(value).map_err(|(m, h)| error(m).hint(h.unwrap_or_default()));
    match word {
        "-r" | "--requirement" | "-c" | "--constraint" => {
            let depth = target.depth() + 1;
            if depth > MAX_INCLUDES {
                return Err(error(format!("includes go round in a circle at `{value}`")));
            }
            let path = if folder.is_empty() || value.starts_with('/') { value.to_owned() } else { format!("{folder}/{value}") };
            let text = files.read(&path).map_err(error)?;
            let inner = path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
            let constrain = word.starts_with("-c") || word == "--constraint" || matches!(target, Target::Constrain(_));
            let target = if constrain { Target::Constrain(depth) } else { Target::Install(depth) };
            read_into(spec, &text, &path, &inner, files, target)?;
        }
        "-i" | "--index-url" => {
            url(value)?;
            spec.indexes.retain(|index| !index.default);
            spec.indexes.push(Index { name: "default".into(), url: value.to_owned(), default: true });
        }
        "--extra-index-url" => {
            url(value)?;
            if !spec.indexes.iter().any(|index| index.url == value) {
                let name = format!("extra-{}", spec.indexes.iter().filter(|i| !i.default).count() + 1);
                spec.indexes.push(Index { name, url: value.to_owned(), default: false });
            }
        }
        "-f" | "--find-links" => {
            url(value)?;
            spec.find_links.push(value.to_owned());
        }
        "--pre" => spec.prerelease = true,
        "--only-binary" if value == ":all:" => spec.no_build = true,
        "--no-index" | "--require-hashes" | "--prefer-binary" | "--trusted-host" | "--use-feature" | "--only-binary" | "--no-binary" => {
            return Err(error(format!("`{word}` is not supported in a spec")).hint(match word {
                "--no-index" => "leave it out and run with `--offline`, or give an index",
                "--require-hashes" => "leave it out: every lock has hashes, and a hash given here must match",
                "--trusted-host" => "set `allow_insecure_host` in envharness.yaml",
                _ => "leave it out",
            }));
        }
        _ => {
            return Err(
                error(format!("unknown option `{word}`")).hint("known: -r, -c, -e, -i, --extra-index-url, -f, --pre, --only-binary :all:")
            );
        }
    }
    Ok(())
}
