//! What is in the file of settings and is none.

use super::ConfigError;
use super::file::{File, Node, Value};
use super::table::{FIELDS, Field, Kind, field};
use super::variables::nearest;

/// Notes each of them.
pub(super) fn unknown_fields(file: &File, mistakes: &mut Vec<ConfigError>) {
    let top: Vec<&str> = FIELDS
        .iter()
        .map(|field| field.place().0.unwrap_or(field.path))
        .collect();
    for (name, node) in &file.root {
        let tables: Vec<&Field> = FIELDS
            .iter()
            .filter(|field| field.place().0 == Some(name))
            .collect();
        if !top.contains(&&**name) {
            mistakes.push(unknown(file, node, name, name, &top));
        } else if !tables.is_empty() {
            let known: Vec<&str> = tables.iter().map(|field| field.place().1).collect();
            match &node.value {
                Value::Table(fields) => {
                    for (field, inner) in fields.iter().filter(|(it, _)| !known.contains(&&**it)) {
                        let path = format!("{name}.{field}");
                        mistakes.push(unknown(file, inner, &path, field, &known));
                    }
                }
                Value::Nothing => {}
                other => mistakes.push(ConfigError::Syntax {
                    path: file.path.clone(),
                    place: format!("line {}: field {name}: ", node.line),
                    message: format!(
                        "{}: it is a table; write its fields below {name}",
                        other.noun()
                    ),
                }),
            }
        } else if let Some(Kind::Tables(inner)) = field(name).map(|field| field.kind)
            && let Value::List(items) = &node.value
        {
            let known: Vec<&str> = inner.iter().map(|field| field.path).collect();
            for (number, item) in items.iter().enumerate() {
                let Value::Table(fields) = &item.value else {
                    continue;
                };
                for (field, inner) in fields.iter().filter(|(it, _)| !known.contains(&&**it)) {
                    let path = format!("{name}[{number}].{field}");
                    mistakes.push(unknown(file, inner, &path, field, &known));
                }
            }
        }
    }
}

fn unknown(file: &File, node: &Node, path: &str, name: &str, known: &[&str]) -> ConfigError {
    let known: Vec<String> = known.iter().map(|&name| name.to_owned()).collect();
    let fix = match nearest(name, &known) {
        Some(nearest) => format!("there is no such field; did you mean {nearest}?"),
        None => "there is no such field; take it out. tollgate config schema has all".into(),
    };
    ConfigError::Syntax {
        path: file.path.clone(),
        place: format!("line {}: field {path}: ", node.line),
        message: fix,
    }
}
