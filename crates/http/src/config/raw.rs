//! The settings as they were written, before anybody looks at what they mean.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::{Spanned, Value};

use super::{ConfigError, ENV_PREFIX, Mistake};

/// The variables of this process that are settings of a rate limit. One that is no Unicode is
/// kept with the wrong characters replaced, so that it is refused and not passed over.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        name.starts_with(ENV_PREFIX)
            .then(|| (name, value.to_string_lossy().into_owned()))
    })
}

/// A value in one of the shapes that text can have.
#[derive(Clone, Debug)]
pub(super) enum Raw {
    Text(String),
    List(Vec<String>),
    Table(BTreeMap<String, String>),
}

impl Raw {
    /// As a mistake shows it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Text(text) => format!("{text:?}"),
            Self::List(items) => format!("{items:?}"),
            Self::Table(items) => format!("{items:?}"),
        }
    }
}

/// All that was given, by field: where, and what.
#[derive(Debug, Default)]
pub(super) struct Settings(pub(super) BTreeMap<String, (String, Raw)>);

#[derive(Default, Deserialize)]
#[serde(default)]
struct Document {
    plugins: Plugins,
    plugin: Plugin,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Plugins {
    enabled: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Plugin {
    ratelimit: BTreeMap<String, Spanned<Value>>,
}

impl Settings {
    /// `None`: not enabled.
    pub(super) fn read(
        text: &str,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Option<Self>, ConfigError> {
        let document: Document = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            ConfigError::Syntax {
                line: before.unwrap_or_default().matches('\n').count() + 1,
                problem: error.message().trim().replace('\n', " "),
            }
        })?;
        if !document
            .plugins
            .enabled
            .iter()
            .any(|name| name == "ratelimit")
        {
            return Ok(None);
        }
        let mut settings = Self::default();
        let mut mistakes = Vec::new();
        for (field, value) in document.plugin.ratelimit {
            let place = format!("plugin.ratelimit.{field}");
            let written = text.get(value.span()).unwrap_or_default();
            match raw(value.get_ref(), written) {
                Some(raw) => {
                    settings.0.insert(field, (place, raw));
                }
                None => mistakes.push(Mistake::new(
                    &place,
                    written.into(),
                    "write text, a number, true, false, or a list or table of these".into(),
                )),
            }
        }
        for (name, value) in env {
            match name.strip_prefix(ENV_PREFIX) {
                Some(field) if !value.is_empty() => {
                    let field = field.to_lowercase();
                    settings.0.insert(field, (name, Raw::Text(value)));
                }
                _ => {}
            }
        }
        ConfigError::unless_none(mistakes).map(|()| Some(settings))
    }
}

fn raw(value: &Value, written: &str) -> Option<Raw> {
    match value {
        Value::Array(items) => {
            let items = items.iter().map(scalar);
            items.collect::<Option<_>>().map(Raw::List)
        }
        Value::Table(items) => {
            let items = items
                .iter()
                .map(|(name, value)| Some((name.clone(), scalar(value)?)));
            items.collect::<Option<_>>().map(Raw::Table)
        }
        // As it was written: a double may have lost some of it.
        Value::Float(_) => Some(Raw::Text(written.into())),
        value => scalar(value).map(Raw::Text),
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Boolean(flag) => Some(flag.to_string()),
        _ => None,
    }
}
