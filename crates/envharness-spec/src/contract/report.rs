//! From what the validator found to a list of problems.

use std::collections::HashSet;

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use serde_json::Value;

use super::alternatives::{self, Alternative};
use super::problem::{Loc, Problem};
use super::wording;

/// Names of alternatives and the depth at which they stand in a location, outermost first.
pub(super) type Labels = Vec<(usize, String)>;

/// How many problems are listed of one value; the rest of a long list helps nobody.
const MOST: usize = 100;

/// About how many bytes of input a problem repeats.
const REPEATED: usize = 64 * 1024;

/// What the validator found, in pydantic's words and order: keys that should not be there come last.
pub(super) fn problems<'e>(schema: &Value, root: &Value, errors: impl Iterator<Item = ValidationError<'e>>) -> Vec<Problem> {
    let mut report = Report { schema, root, out: Vec::new() };
    for error in errors {
        report.add(&error, &Labels::new());
        if report.out.len() >= MOST {
            break;
        }
    }
    let mut problems = report.out;
    // A choice that is not among those allowed is not told its type as well.
    let choices: HashSet<Vec<Loc>> = problems.iter().filter(|p| p.kind == "literal_error").map(|p| p.loc.clone()).collect();
    problems.retain(|p| !(p.kind.ends_with("_type") || p.kind == "int_from_float") || !choices.contains(&p.loc));
    problems.sort_by_key(|problem| problem.kind == "extra_forbidden");
    problems.truncate(MOST);
    problems
}

struct Report<'a> {
    schema: &'a Value,
    root: &'a Value,
    out: Vec<Problem>,
}

impl Report<'_> {
    fn push(&mut self, kind: &str, loc: Vec<Loc>, msg: impl Into<String>, input: &Value) {
        let mut budget = REPEATED;
        let input = if fits(input, &mut budget) { input.clone() } else { Value::String("<too large to repeat>".to_owned()) };
        self.out.push(Problem::new(kind, loc, msg, input));
    }

    fn add(&mut self, error: &ValidationError<'_>, labels: &Labels) {
        let input: &Value = error.instance();
        let loc = self.loc(error, labels);
        match error.kind() {
            Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
                for key in unexpected.iter().take(MOST) {
                    let mut loc = loc.clone();
                    loc.push(Loc::Key(key.clone()));
                    self.push("extra_forbidden", loc, "Extra inputs are not permitted", input.get(key).unwrap_or(&Value::Null));
                }
            }
            Kind::Required { property } => {
                let mut loc = loc;
                loc.extend(property.as_str().map(Loc::from));
                self.push("missing", loc, "Field required", input);
            }
            Kind::AnyOf { context } | Kind::OneOfNotValid { context } => self.add_alternatives(error, context, labels),
            kind => {
                let (kind, msg) = self.wording(kind, error, input);
                self.push(kind, loc, msg, input);
            }
        }
    }

    fn add_alternatives(&mut self, error: &ValidationError<'_>, context: &[Vec<ValidationError<'static>>], labels: &Labels) {
        let depth = segments(error.instance_path().as_str()).count();
        match alternatives::choose(self.schema, error.schema_path().as_str(), error.instance(), context.len()) {
            Alternative::Wrong { kind, msg } => {
                let loc = self.loc(error, labels);
                self.push(kind, loc, msg, error.instance());
            }
            Alternative::Branches(branches) => {
                for (branch, label) in branches {
                    let mut labels = labels.clone();
                    labels.extend(label.map(|label| (depth, label)));
                    for error in context.get(branch).into_iter().flatten() {
                        self.add(error, &labels);
                    }
                }
            }
        }
    }

    fn wording(&self, kind: &Kind, error: &ValidationError<'_>, input: &Value) -> (&'static str, String) {
        match kind {
            Kind::Type { kind: TypeKind::Single(kind) } => wording::of_type(*kind, input, self.is_model(error)),
            Kind::Enum { options } => ("literal_error", wording::one_of(options.as_array().map_or(&[], Vec::as_slice))),
            Kind::Constant { expected_value } => ("literal_error", wording::one_of(std::slice::from_ref(&**expected_value))),
            kind => wording::of_limit(kind, input).unwrap_or_else(|| ("json_schema", error.to_string())),
        }
    }

    /// Whether the schema that wants an object describes its properties, which makes it a model and no free dictionary.
    fn is_model(&self, error: &ValidationError<'_>) -> bool {
        let parent = error.schema_path().as_str().rsplit_once('/').map_or("", |(parent, _)| parent);
        self.schema.pointer(parent).is_some_and(|schema| schema.get("properties").is_some())
    }

    fn loc(&self, error: &ValidationError<'_>, labels: &Labels) -> Vec<Loc> {
        let mut loc = Vec::new();
        let mut labels = labels.iter().peekable();
        let mut value = Some(self.root);
        let path = error.instance_path();
        for (depth, key) in segments(path.as_str()).enumerate() {
            while let Some((_, label)) = labels.next_if(|(at, _)| *at <= depth) {
                loc.push(Loc::Key(label.clone()));
            }
            // Only the value itself tells the key `0` of an object from the index 0.
            let index = key.parse::<usize>().ok().filter(|_| value.is_some_and(Value::is_array));
            value = value.and_then(|value| index.map_or_else(|| value.get(&key), |index| value.get(index)));
            loc.push(index.map_or(Loc::Key(key), Loc::Index));
        }
        loc.extend(labels.map(|(_, label)| Loc::Key(label.clone())));
        loc
    }
}

/// The keys of a JSON Pointer.
fn segments(pointer: &str) -> impl Iterator<Item = String> + '_ {
    pointer.split('/').skip(1).map(|key| key.replace("~1", "/").replace("~0", "~"))
}

/// Whether the text of a value stays within about so many bytes.
fn fits(value: &Value, budget: &mut usize) -> bool {
    let own = match value {
        Value::String(text) => text.len(),
        Value::Object(map) => map.keys().map(String::len).sum(),
        _ => 0,
    };
    match budget.checked_sub(own + 8) {
        None => false,
        Some(rest) => {
            *budget = rest;
            match value {
                Value::Array(items) => items.iter().all(|item| fits(item, budget)),
                Value::Object(map) => map.values().all(|item| fits(item, budget)),
                _ => true,
            }
        }
    }
}
