//! TOML by the `toml` crate's spanned tree.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Budget, Key, Lines, Node, Position, Value};
use crate::error::SpecError;

/// Parses one TOML document.
pub fn parse_toml(text: &str, file: &str) -> Result<Node, SpecError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut budget = Budget::new(file, text)?;
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or_else(Position::default, |span| Lines::new(text).position(span.start));
        SpecError::new(file, format!("not valid TOML: {}", error.message().trim())).at(at, "")
    })?;
    let value = convert_table(table.get_ref(), &Lines::new(text), 0, &mut budget)?;
    Ok(Node { value, at: Position { line: 1, column: 1 } })
}

fn convert_table(table: &DeTable<'_>, lines: &Lines<'_>, depth: usize, budget: &mut Budget<'_>) -> Result<Value, SpecError> {
    let mut entries = Vec::with_capacity(table.len());
    for (key, value) in table {
        let at = lines.position(key.span().start);
        let node = convert(value, lines, depth + 1, budget)?;
        entries.push((Key { text: key.get_ref().to_string(), at }, node));
    }
    entries.sort_by_key(|(key, _)| (key.at.line, key.at.column));
    Ok(Value::Map(entries))
}

fn convert(value: &Spanned<DeValue<'_>>, lines: &Lines<'_>, depth: usize, budget: &mut Budget<'_>) -> Result<Node, SpecError> {
    let at = lines.position(value.span().start);
    budget.add(1, depth, at)?;
    let value = match value.get_ref() {
        DeValue::String(string) => Value::String(string.to_string()),
        DeValue::Integer(number) => Value::Number(number.to_string()),
        DeValue::Float(number) => Value::Number(number.to_string()),
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Datetime(datetime) => Value::String(datetime.to_string()),
        DeValue::Array(items) => Value::List(items.iter().map(|item| convert(item, lines, depth + 1, budget)).collect::<Result<_, _>>()?),
        DeValue::Table(table) => convert_table(table, lines, depth + 1, budget)?,
    };
    Ok(Node { value, at })
}
