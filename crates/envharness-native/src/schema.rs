//! JSON Schemas in the form in which pydantic writes them.

use serde_json::{Map, Value, json};

/// An action: the given properties, all required, and the `metadata` of OpenEnv's actions.
pub(crate) fn action(title: &str, properties: &[(&str, Value)]) -> Value {
    let mut all = object(&[(
        "metadata",
        json!({"additionalProperties": true, "description": "Additional metadata for the action", "title": "Metadata", "type": "object"}),
    )]);
    all.extend(object(properties));
    let required: Vec<&str> = properties.iter().map(|(name, _)| *name).collect();
    json!({"additionalProperties": false, "properties": all, "required": required, "title": title, "type": "object"})
}

/// An observation: `done`, `reward` and `metadata` as OpenEnv has them, and the given properties, all required.
pub(crate) fn observation(title: &str, properties: &[(&str, Value)]) -> Value {
    let mut all = object(&[
        ("done", json!({"default": false, "description": "Whether the episode has terminated", "title": "Done", "type": "boolean"})),
        (
            "reward",
            json!({
                "anyOf": [{"type": "boolean"}, {"type": "integer"}, {"type": "number"}, {"type": "null"}],
                "default": null, "description": "Reward signal from the last action", "title": "Reward"
            }),
        ),
        (
            "metadata",
            json!({
                "additionalProperties": true, "description": "Additional metadata for the observation",
                "title": "Metadata", "type": "object"
            }),
        ),
    ]);
    all.extend(object(properties));
    let required: Vec<&str> = properties.iter().map(|(name, _)| *name).collect();
    json!({"additionalProperties": false, "properties": all, "required": required, "title": title, "type": "object"})
}

/// The state that every environment here has; more keys are allowed, as in OpenEnv.
pub(crate) fn state() -> Value {
    json!({
        "additionalProperties": true,
        "properties": {
            "episode_id": {
                "anyOf": [{"type": "string"}, {"type": "null"}], "default": null,
                "description": "Unique identifier for the current episode", "title": "Episode Id"
            },
            "step_count": {
                "default": 0, "description": "Number of steps taken in the current episode",
                "minimum": 0, "title": "Step Count", "type": "integer"
            }
        },
        "title": "State",
        "type": "object"
    })
}

/// The reset arguments; more keys are allowed and ignored, as in OpenEnv.
pub(crate) fn reset() -> Value {
    json!({
        "additionalProperties": true,
        "properties": {
            "seed": {
                "anyOf": [{"minimum": 0, "type": "integer"}, {"type": "null"}], "default": null,
                "description": "Random seed for reproducible episodes", "title": "Seed"
            },
            "episode_id": {
                "anyOf": [{"maxLength": 255, "type": "string"}, {"type": "null"}], "default": null,
                "description": "Custom episode identifier", "title": "Episode Id"
            }
        },
        "title": "ResetRequest",
        "type": "object"
    })
}

fn object(properties: &[(&str, Value)]) -> Map<String, Value> {
    properties.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect()
}
