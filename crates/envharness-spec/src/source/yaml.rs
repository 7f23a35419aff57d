//! YAML 1.2 by `saphyr-parser`'s event stream, so that aliases are counted before they are expanded.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::{Budget, Entries, Key, Node, Position, Value};
use crate::error::SpecError;

/// A collection being read.
struct Open {
    at: Position,
    anchor: usize,
    kind: Kind,
}

enum Kind {
    List(Vec<Node>),
    Map(Entries, Option<Key>),
}

/// Parses one YAML document; an empty one is [`Value::Null`].
pub fn parse_yaml(text: &str, file: &str) -> Result<Node, SpecError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut budget = Budget::new(file, text)?;
    let mut open: Vec<Open> = Vec::new();
    let mut anchors: HashMap<usize, (Node, usize)> = HashMap::new();
    let mut root: Option<Node> = None;
    let mut documents = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| scan_error(file, text, &error))?;
        let at = position(&span);
        match event {
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    return Err(SpecError::new(file, "a second YAML document begins here").at(at, "").hint("keep one document per file"));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                budget.add(1, open.len(), at)?;
                let value = if style == ScalarStyle::Plain && tag.is_none() { plain(&text) } else { Value::String(text.into_owned()) };
                let node = Node { value, at };
                if anchor > 0 {
                    anchors.insert(anchor, (node.clone(), 1));
                }
                place(&mut open, &mut root, node, file)?;
            }
            Event::Alias(anchor) => {
                let Some((node, size)) = anchors.get(&anchor) else {
                    return Err(SpecError::new(file, "an alias to an anchor that is not finished").at(at, ""));
                };
                budget.add(*size, open.len(), at)?;
                let node = node.clone();
                place(&mut open, &mut root, node, file)?;
            }
            Event::SequenceStart(anchor, _) => {
                budget.add(1, open.len(), at)?;
                open.push(Open { at, anchor, kind: Kind::List(Vec::new()) });
            }
            Event::MappingStart(anchor, _) => {
                budget.add(1, open.len(), at)?;
                open.push(Open { at, anchor, kind: Kind::Map(Entries::default(), None) });
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(done) = open.pop() else { continue };
                let value = match done.kind {
                    Kind::List(items) => Value::List(items),
                    Kind::Map(entries, _) => Value::Map(merge(entries.list, file)?),
                };
                let node = Node { value, at: done.at };
                if done.anchor > 0 {
                    let size = count(&node);
                    anchors.insert(done.anchor, (node.clone(), size));
                }
                place(&mut open, &mut root, node, file)?;
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
    }
    Ok(root.unwrap_or(Node { value: Value::Null, at: Position { line: 1, column: 1 } }))
}

fn position(span: &Span) -> Position {
    Position { line: span.start.line(), column: span.start.col() + 1 }
}

fn scan_error(file: &str, text: &str, error: &saphyr_parser::ScanError) -> SpecError {
    let at = Position { line: error.marker().line(), column: error.marker().col() + 1 };
    let wrong = SpecError::new(file, format!("not valid YAML: {}", error.info())).at(at, "");
    let tabbed = text.lines().position(|line| {
        let indent = &line[..line.len() - line.trim_start().len()];
        indent.contains('\t')
    });
    match tabbed {
        Some(line) => wrong.hint(format!("line {} is indented with a tab; YAML wants spaces", line + 1)),
        None => wrong,
    }
}

/// The core schema's reading of a plain scalar; numbers keep their text.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ if is_number(text) => Value::Number(text.to_owned()),
        _ => Value::String(text.to_owned()),
    }
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.bytes().any(|b| b.is_ascii_digit())
        && digits.parse::<f64>().is_ok()
}

fn place(open: &mut [Open], root: &mut Option<Node>, node: Node, file: &str) -> Result<(), SpecError> {
    let Some(parent) = open.last_mut() else {
        *root = Some(node);
        return Ok(());
    };
    match &mut parent.kind {
        Kind::List(items) => items.push(node),
        Kind::Map(entries, pending) => match pending.take() {
            None => {
                let Some(text) = node.scalar() else {
                    let message = format!("a key must be a string, not {}", node.value.kind());
                    return Err(SpecError::new(file, message).at(node.at, ""));
                };
                *pending = Some(Key { text, at: node.at });
            }
            Some(key) if key.text == "<<" => entries.list.push((key, node)),
            Some(key) => entries.insert(key, node, file)?,
        },
    }
    Ok(())
}

/// Applies YAML's merge key `<<`: what is written beside it wins.
fn merge(entries: Vec<(Key, Node)>, file: &str) -> Result<Vec<(Key, Node)>, SpecError> {
    if !entries.iter().any(|(key, _)| key.text == "<<") {
        return Ok(entries);
    }
    let (merged, mut own): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(key, _)| key.text == "<<");
    for (key, node) in merged {
        let parts = match node.value {
            Value::List(items) => items,
            value => vec![Node { value, at: node.at }],
        };
        for part in parts {
            let Value::Map(inherited) = part.value else {
                return Err(SpecError::new(file, "`<<` merges mappings only").at(key.at, "<<"));
            };
            for (key, node) in inherited {
                if !own.iter().any(|(k, _)| k.text == key.text) {
                    own.push((key, node));
                }
            }
        }
    }
    Ok(own)
}

fn count(node: &Node) -> usize {
    match &node.value {
        Value::List(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Map(entries) => 1 + entries.iter().map(|(_, node)| count(node)).sum::<usize>(),
        _ => 1,
    }
}
