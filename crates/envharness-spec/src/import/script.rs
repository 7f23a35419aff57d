//! PEP 723: the `# /// script` block at the head of a Python script.

use crate::error::SpecError;
use crate::import::{Files, pyproject};
use crate::source::{Node, Value, parse_toml};
use crate::spec::Spec;

pub(super) fn read(text: &str, file: &str, name: &str, files: &dyn Files) -> Result<Spec, SpecError> {
    let (block, first_line) = block(text, file)?;
    let mut root = parse_toml(&block, file).map_err(|mut error| {
        if let Some(at) = &mut error.position {
            at.line += first_line;
            at.column += 2;
        }
        error
    })?;
    shift(&mut root, first_line);
    let tool = root.get("tool").and_then(|tool| tool.get("envharness")).cloned();
    pyproject::read_tables(Some(&root), tool.as_ref(), file, name, files)
}

/// Moves positions in the block to positions in the script.
fn shift(node: &mut Node, lines: usize) {
    node.at.line += lines;
    node.at.column += 2;
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| shift(item, lines)),
        Value::Map(entries) => entries.iter_mut().for_each(|(key, node)| {
            key.at.line += lines;
            shift(node, lines);
        }),
        _ => {}
    }
}

/// The TOML of the block and the number of lines before it.
fn block(text: &str, file: &str) -> Result<(String, usize), SpecError> {
    let lines: Vec<&str> = text.lines().map(|line| line.trim_end_matches('\r')).collect();
    let starts: Vec<usize> = (0..lines.len()).filter(|i| lines[*i].trim_end() == "# /// script").collect();
    let &[start] = starts.as_slice() else {
        let message = if starts.is_empty() { "has no PEP 723 `# /// script` block" } else { "has two `# /// script` blocks" };
        return Err(SpecError::new(file, message).hint("begin the script with `# /// script`, `# dependencies = [...]`, `# ///`"));
    };
    let body: Vec<&str> = lines[start + 1..].iter().take_while(|l| **l == "#" || l.starts_with("# ")).copied().collect();
    let Some(end) = body.iter().rposition(|line| line.trim_end() == "# ///") else {
        return Err(SpecError::new(file, format!("the block on line {} does not end with `# ///`", start + 1)));
    };
    let toml: Vec<&str> = body[..end].iter().map(|line| line.strip_prefix("# ").unwrap_or("")).collect();
    Ok((toml.join("\n"), start + 1))
}
