//! Which of the alternatives of an `anyOf` or a `oneOf` to report, and under which names.

use serde_json::Value;

use super::wording;

/// What to say of a value that fits none of the alternatives.
pub(super) enum Alternative {
    /// Why each of these branches refused it; a name where there is more than one.
    Branches(Vec<(usize, Option<String>)>),
    /// One problem for all: the key that chooses a branch is missing or unknown.
    Wrong {
        /// Its type.
        kind: &'static str,
        /// Its sentence.
        msg: String,
    },
}

/// Chooses as pydantic does: the branch that a discriminator names, else all but `null`.
pub(super) fn choose(schema: &Value, keyword: &str, input: &Value, count: usize) -> Alternative {
    let branches = schema.pointer(keyword).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let parent = keyword.rsplit_once('/').and_then(|(parent, _)| schema.pointer(parent));
    if let Some(discriminator) = parent.and_then(|parent| parent.get("discriminator"))
        && let Some(chosen) = discriminated(discriminator, branches, input)
    {
        return chosen;
    }
    let is_null = |at: usize| branches.get(at).and_then(|branch| branch.get("type")).is_some_and(|kind| kind == "null");
    let mut shown: Vec<usize> = (0..count).filter(|at| !is_null(*at)).collect();
    if shown.is_empty() {
        shown = (0..count).collect();
    }
    let name = |at: usize| branches.get(at).and_then(label).unwrap_or_else(|| at.to_string());
    match shown.as_slice() {
        [one] => Alternative::Branches(vec![(*one, None)]),
        _ => Alternative::Branches(shown.into_iter().map(|at| (at, Some(name(at)))).collect()),
    }
}

/// `None` where the discriminator does not have the form that pydantic writes.
fn discriminated(discriminator: &Value, branches: &[Value], input: &Value) -> Option<Alternative> {
    let key = discriminator.get("propertyName")?.as_str()?;
    let mapping = discriminator.get("mapping")?.as_object()?;
    let Some(object) = input.as_object() else {
        return Some(Alternative::Wrong { kind: "dict_type", msg: wording::OBJECT.to_owned() });
    };
    let Some(tag) = object.get(key) else {
        let msg = format!("Unable to extract tag using discriminator '{key}'");
        return Some(Alternative::Wrong { kind: "union_tag_not_found", msg });
    };
    let text = tag.as_str().map_or_else(|| tag.to_string(), str::to_owned);
    let Some(target) = mapping.get(&text) else {
        let tags: Vec<String> = mapping.keys().map(|tag| format!("'{tag}'")).collect();
        let msg = format!("Input tag '{text}' found using '{key}' does not match any of the expected tags: {}", tags.join(", "));
        return Some(Alternative::Wrong { kind: "union_tag_invalid", msg });
    };
    let branch = branches.iter().position(|branch| branch.get("$ref") == Some(target))?;
    Some(Alternative::Branches(vec![(branch, Some(text))]))
}

/// The name that pydantic gives a branch: `int`, `list[str]`, `literal['a','b']`, the name of a model.
fn label(branch: &Value) -> Option<String> {
    if let Some(reference) = branch.get("$ref").and_then(Value::as_str) {
        return reference.rsplit('/').next().map(str::to_owned);
    }
    let nested = |key: &str| branch.get(key).and_then(label).unwrap_or_else(|| "any".to_owned());
    if let Some(values) = branch.get("enum").and_then(Value::as_array) {
        let values: Vec<String> = values.iter().map(wording::python).collect();
        return Some(format!("literal[{}]", values.join(",")));
    }
    if let Some(value) = branch.get("const") {
        return Some(format!("literal[{}]", wording::python(value)));
    }
    match branch.get("type")?.as_str()? {
        "integer" => Some("int".to_owned()),
        "number" => Some("float".to_owned()),
        "string" => Some("str".to_owned()),
        "boolean" => Some("bool".to_owned()),
        "null" => Some("none".to_owned()),
        "array" => Some(format!("list[{}]", nested("items"))),
        "object" if branch.get("properties").is_some() => branch.get("title").and_then(Value::as_str).map(str::to_owned),
        "object" => Some(format!("dict[str,{}]", nested("additionalProperties"))),
        _ => None,
    }
}
