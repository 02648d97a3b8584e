//! The file given by `--config`, TOML or YAML, with the line of everything in it.

use std::fmt;
use std::path::{Path, PathBuf};

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::ConfigError;

/// A value, and where it is.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
}

/// What a file holds.
#[derive(Clone)]
pub(super) enum Value {
    /// A text, a number, a boolean: as it would be written in a flag.
    Scalar(String),
    List(Vec<Node>),
    Table(Vec<(String, Node)>),
    /// YAML's `null`, and a key with nothing behind it.
    Nothing,
}

/// A file that was read.
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) root: Vec<(String, Node)>,
}

impl File {
    /// Reads a file, as far as that is possible.
    pub(super) fn read(path: &Path, mistakes: &mut Vec<ConfigError>) -> Self {
        let mut file = Self {
            path: path.into(),
            root: Vec::new(),
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(cause) => {
                mistakes.push(ConfigError::Unreadable {
                    path: path.into(),
                    cause,
                });
                return file;
            }
        };
        let extension = path.extension().and_then(|extension| extension.to_str());
        let root = match extension {
            Some("yaml" | "yml") => yaml(path, &text, mistakes),
            _ => toml(path, &text, mistakes),
        };
        match root.value {
            Value::Table(table) => file.root = table,
            Value::Nothing => {}
            _ => mistakes.push(ConfigError::Syntax {
                path: path.into(),
                place: format!("line {}: ", root.line.max(1)),
                message: "there are no fields; write one a line, such as listen".into(),
            }),
        }
        file
    }
}

fn toml(path: &Path, text: &str, mistakes: &mut Vec<ConfigError>) -> Node {
    let (root, errors) = DeTable::parse_recoverable(text);
    let places = errors.iter().filter_map(|error| Some(error.span()?.start));
    let toml = Toml {
        text,
        broken: places.collect(),
    };
    let mut last = None;
    for error in errors {
        let number = error.span().map(|span| line_of(text, span.start));
        if number.is_some() && number == last {
            // What the parser makes of the rest of a line that it could not read.
            continue;
        }
        last = number;
        // The parser's own text would show the line, which may hold a password: only its place and
        // its field are told.
        let place = number.map_or_else(String::new, |number| {
            let line = text.lines().nth(number - 1).unwrap_or_default();
            match line.split_once('=') {
                Some((field, _)) if is_field(field.trim()) => {
                    format!("line {number}: field {}: ", field.trim())
                }
                _ => format!("line {number}: "),
            }
        });
        mistakes.push(ConfigError::Syntax {
            path: path.into(),
            place,
            message: error.message().trim().replace('\n', " "),
        });
    }
    Node {
        line: 1,
        value: Value::Table(toml.table(root.get_ref())),
    }
}

/// A file of TOML, and where it is none.
struct Toml<'a> {
    text: &'a str,
    broken: Vec<usize>,
}

impl Toml<'_> {
    fn table(&self, table: &DeTable<'_>) -> Vec<(String, Node)> {
        let mut fields: Vec<_> = table
            .iter()
            .map(|(name, value)| {
                let node = self.node(line_of(self.text, name.span().start), value);
                (name.get_ref().to_string(), node)
            })
            .collect();
        fields.sort_by_key(|(_, node)| node.line);
        fields
    }

    fn node(&self, line: usize, value: &Spanned<DeValue<'_>>) -> Node {
        let span = value.span();
        let in_it = |place: &usize| (span.start..=span.end).contains(place);
        let is_table = matches!(value.get_ref(), DeValue::Table(_));
        let value = match value.get_ref() {
            // A guess of the parser's, which was told already.
            _ if !is_table && self.broken.iter().any(in_it) => Value::Nothing,
            DeValue::String(text) => Value::Scalar(text.to_string()),
            DeValue::Integer(number) => Value::Scalar(number.to_string()),
            DeValue::Float(number) => Value::Scalar(number.to_string()),
            DeValue::Boolean(flag) => Value::Scalar(flag.to_string()),
            DeValue::Datetime(time) => Value::Scalar(time.to_string()),
            DeValue::Array(items) => Value::List(
                items
                    .iter()
                    .map(|item| self.node(line_of(self.text, item.span().start), item))
                    .collect(),
            ),
            DeValue::Table(table) => Value::Table(self.table(table)),
        };
        Node { line, value }
    }
}

fn line_of(text: &str, position: usize) -> usize {
    let before = text.get(..position).unwrap_or(text);
    before.matches('\n').count() + 1
}

/// Whether this can be the name of a field; a line inside a longer text may be anything.
fn is_field(text: &str) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
}

fn yaml(path: &Path, text: &str, mistakes: &mut Vec<ConfigError>) -> Node {
    let nothing = Node {
        line: 1,
        value: Value::Nothing,
    };
    match MarkedYaml::load_from_str(text) {
        // Of several documents the first is the file, as it is for others.
        Ok(documents) => documents.first().map_or(nothing, yaml_node),
        Err(error) => {
            mistakes.push(ConfigError::Syntax {
                path: path.into(),
                place: format!("line {}: ", error.marker().line()),
                // The parser's words are of YAML only, never of what stands there.
                message: format!("this is no YAML: {}", error.info()),
            });
            nothing
        }
    }
}

fn yaml_node(node: &MarkedYaml<'_>) -> Node {
    let value = match &node.data {
        YamlData::Value(Scalar::Null) => Value::Nothing,
        YamlData::Value(Scalar::Boolean(flag)) => Value::Scalar(flag.to_string()),
        YamlData::Value(Scalar::Integer(number)) => Value::Scalar(number.to_string()),
        YamlData::Value(Scalar::FloatingPoint(number)) => Value::Scalar(number.to_string()),
        YamlData::Value(Scalar::String(text)) => Value::Scalar(text.to_string()),
        YamlData::Representation(text, ..) => Value::Scalar(text.to_string()),
        YamlData::Sequence(items) => Value::List(items.iter().map(yaml_node).collect()),
        YamlData::Mapping(fields) => Value::Table(
            fields
                .iter()
                .map(|(name, value)| {
                    let text = match &name.data {
                        YamlData::Value(Scalar::String(text)) => text.to_string(),
                        YamlData::Value(Scalar::Integer(number)) => number.to_string(),
                        _ => String::new(),
                    };
                    // A table is where its name is.
                    let mut node = yaml_node(value);
                    node.line = name.span.start.line();
                    (text, node)
                })
                .collect(),
        ),
        YamlData::Tagged(_, inner) => return yaml_node(inner),
        YamlData::Alias(_) | YamlData::BadValue => Value::Nothing,
    };
    Node {
        line: node.span.start.line(),
        value,
    }
}

/// A value of JSON, as variables hold lists and tables.
pub(super) fn json(text: &str) -> Result<Value, String> {
    let read: serde_json::Value = serde_json::from_str(text).map_err(|error| {
        let column = error.column();
        format!("it is no JSON (column {column}); write a list such as [\"a\", \"b\"]")
    })?;
    Ok(from_json(read))
}

fn from_json(read: serde_json::Value) -> Value {
    let node = |value| Node {
        line: 0,
        value: from_json(value),
    };
    match read {
        serde_json::Value::Null => Value::Nothing,
        serde_json::Value::Bool(flag) => Value::Scalar(flag.to_string()),
        serde_json::Value::Number(number) => Value::Scalar(number.to_string()),
        serde_json::Value::String(text) => Value::Scalar(text),
        serde_json::Value::Array(items) => Value::List(items.into_iter().map(node).collect()),
        serde_json::Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, node(value)));
            Value::Table(fields.collect())
        }
    }
}

/// Fields may hold a password.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.noun())
    }
}

impl Value {
    pub(super) const fn noun(&self) -> &'static str {
        match self {
            Self::Scalar(_) => "a value",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
            Self::Nothing => "nothing",
        }
    }
}
