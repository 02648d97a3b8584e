//! A JSON schema of the file of settings.

use serde_json::{Map, Value, json};

use super::table::{FIELDS, Field, Kind};

/// The schema (draft 2020-12), for editors and for checks.
#[must_use]
pub fn schema() -> Value {
    let mut root = object(FIELDS.iter().filter(|field| field.place().0.is_none()));
    let properties = root["properties"].as_object_mut();
    let properties = properties.expect("an object was just made");
    for field in FIELDS {
        let Some(table) = field.place().0 else {
            continue;
        };
        if !properties.contains_key(table) {
            let inner = FIELDS.iter().filter(|it| it.place().0 == Some(table));
            properties.insert(table.into(), object(inner));
        }
    }
    root["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    root["title"] = "Settings of tollgate serve".into();
    root
}

fn object<'a>(fields: impl Iterator<Item = &'a Field>) -> Value {
    let properties: Map<String, Value> = fields
        .map(|field| (field.place().1.to_owned(), property(field)))
        .collect();
    json!({"type": "object", "additionalProperties": false, "properties": properties})
}

fn property(field: &Field) -> Value {
    let mut property = match field.kind {
        Kind::Text => json!({"type": "string"}),
        Kind::Bool => json!({"enum": [true, false, "true", "false"]}),
        Kind::Number => json!({"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+$"}),
        Kind::Duration => json!({
            "anyOf": [{"type": "string", "pattern": "^(0|[0-9]+(us|ms|s|m|h))$"}, {"const": 0}]
        }),
        Kind::Size => json!({
            "type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+(KiB|MiB|GiB)?$"
        }),
        Kind::Ratio => json!({
            "type": ["number", "string"], "minimum": 0, "maximum": 1, "pattern": "^[0-9.]+$"
        }),
        Kind::Choice(words) => json!({"enum": words}),
        Kind::List => json!({
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
        }),
        Kind::Proxies => json!({
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}},
                {"type": "integer", "minimum": 1, "maximum": 16}
            ]
        }),
        Kind::Tables(known) => json!({"type": "array", "items": object(known.iter())}),
    };
    property["description"] = field.help.into();
    if let Some(default) = field.default {
        property["default"] = match field.kind {
            Kind::Bool | Kind::Number | Kind::Ratio => {
                serde_json::from_str(default).unwrap_or_else(|_| default.into())
            }
            _ => default.into(),
        };
    }
    property
}
