//! What is wrong with a rule: every fault of it, each with its field, its value and what to write.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// The longest value that is shown.
const SHOWN: usize = 80;

/// The most faults that are told of at once.
const MOST: usize = 100;

/// One fault.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Fault {
    /// The path of the field, such as `config.limit` or `quotas[1].window_seconds`; empty for the
    /// whole document.
    pub field: String,
    /// What was given there, as JSON; shortened, and absent where nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// What is wrong, and what to write instead.
    pub problem: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        if let Some(value) = &self.value {
            write!(f, "{value} ")?;
        }
        f.write_str(&self.problem)
    }
}

/// All faults of a document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// One fault, of something that was given or of something that was not.
    #[must_use]
    pub fn one(field: &str, value: Option<&Value>, problem: impl Into<String>) -> Self {
        let mut faults = Self::default();
        faults.add(field.into(), value, problem);
        faults
    }

    /// Another one.
    pub fn add(&mut self, field: String, value: Option<&Value>, problem: impl Into<String>) {
        if self.0.len() < MOST {
            self.0.push(Fault {
                field,
                value: value.map(shown),
                problem: problem.into(),
            });
        }
    }

    /// Those of another document, below this field.
    pub fn extend(&mut self, below: &str, other: Self) {
        for mut fault in other.0 {
            if self.0.len() < MOST {
                fault.field = join(below, &fault.field);
                self.0.push(fault);
            }
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them.
    #[must_use]
    pub fn all(&self) -> &[Fault] {
        &self.0
    }
}

/// All of them in one line.
impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            fmt::Display::fmt(fault, f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

fn join(path: &str, field: &str) -> String {
    match (path, field) {
        ("", field) => field.into(),
        (path, "") => path.into(),
        (path, field) if field.starts_with('[') => format!("{path}{field}"),
        (path, field) => format!("{path}.{field}"),
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}

/// The fields of an object, while they are read.
pub(crate) struct Fields<'a> {
    path: String,
    map: &'a Map<String, Value>,
    known: Vec<&'static str>,
    pub(crate) faults: &'a mut Faults,
}

impl<'a> Fields<'a> {
    /// Of an object; what is none is a fault.
    pub(crate) fn of(value: &'a Value, path: &str, faults: &'a mut Faults) -> Option<Self> {
        match value {
            Value::Object(map) => Some(Self {
                path: path.into(),
                map,
                known: Vec::new(),
                faults,
            }),
            _ => {
                faults.add(
                    path.into(),
                    Some(value),
                    "is no object; write {\"field\": value, ..}",
                );
                None
            }
        }
    }

    /// The path of a field.
    pub(crate) fn path(&self, field: &str) -> String {
        join(&self.path, field)
    }

    /// What was given for a field; `null` is nothing.
    pub(crate) fn find(&mut self, field: &'static str) -> Option<&'a Value> {
        if !self.known.contains(&field) {
            self.known.push(field);
        }
        self.map.get(field).filter(|value| !value.is_null())
    }

    /// Whether `null` was given for a field, where that says something.
    pub(crate) fn is_null(&self, field: &str) -> bool {
        self.map.get(field).is_some_and(Value::is_null)
    }

    /// The same, and it must be there.
    pub(crate) fn need(&mut self, field: &'static str, fix: &str) -> Option<&'a Value> {
        let found = self.find(field);
        if found.is_none() {
            let problem = format!("is missing; {fix}");
            self.faults.add(self.path(field), None, problem);
        }
        found
    }

    /// A fault of a field.
    pub(crate) fn wrong(&mut self, field: &str, value: &Value, problem: impl Into<String>) {
        self.faults.add(self.path(field), Some(value), problem);
    }

    /// What a field holds, read by a function that says what is wrong.
    pub(crate) fn read<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.find(field)?;
        self.take(field, value, read)
    }

    /// The same, and it must be there.
    pub(crate) fn read_needed<T>(
        &mut self,
        field: &'static str,
        fix: &str,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.need(field, fix)?;
        self.take(field, value, read)
    }

    fn take<T>(
        &mut self,
        field: &'static str,
        value: &Value,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        match read(value) {
            Ok(read) => Some(read),
            Err(problem) => {
                self.wrong(field, value, problem);
                None
            }
        }
    }

    /// Everything that was not asked for is a fault.
    pub(crate) fn end(self) {
        for (field, value) in self.map {
            if !self.known.contains(&field.as_str()) {
                let fields = self.known.join(", ");
                self.faults.add(
                    join(&self.path, field),
                    Some(value),
                    format!("is not known here; the fields are {fields}"),
                );
            }
        }
    }
}

/// The JSON of a body.
pub(crate) fn json(bytes: &[u8]) -> Result<Value, Faults> {
    serde_json::from_slice(bytes).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let problem = match error.classify() {
            serde_json::error::Category::Eof => "breaks off",
            _ => "is wrong",
        };
        let problem = format!("is no JSON: line {line}, column {column} {problem}");
        Faults::one("", None, problem)
    })
}

/// Text of a field.
pub(crate) fn text(value: &Value) -> Result<&str, String> {
    value
        .as_str()
        .ok_or_else(|| "is no text; put it in quotes".into())
}

/// `true` or `false`.
pub(crate) fn flag(value: &Value) -> Result<bool, String> {
    value
        .as_bool()
        .ok_or_else(|| "is neither true nor false".into())
}

/// A whole number in a range.
pub(crate) fn whole(value: &Value, least: u64, most: u64) -> Result<u64, String> {
    // 5.0 is a whole number too.
    let number = value.as_u64().or_else(|| {
        let float = value.as_f64().filter(|it| it.fract() == 0.0)?;
        (0.0..=9_007_199_254_740_992.0)
            .contains(&float)
            .then_some(float as u64)
    });
    match number {
        Some(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("is no whole number from {least} to {most}")),
    }
}
