//! What was given on the command line, in the environment, in `.env` and in the file, and by which.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::dotenv::DotEnv;
use super::file::{self, File, Node, Value};
use super::table::{Kind, field, variable};
use super::unknown::unknown_fields;
use super::{ConfigError, Mistakes, Place, Source};

/// Where `.env` is looked for.
const DOT_ENV: &str = ".env";

/// What is wrong with the stars in the place of a secret: everybody knows them.
const HIDDEN: &str = "it is what --print-config shows in the place of a secret; write the secret \
                      itself, best in the environment";

/// What was given to one command.
///
/// Mistakes are gathered, so that all can be told at once: a setting that cannot be used has its
/// default until [`finish`](Self::finish) is asked.
pub(crate) struct Given<'a> {
    flags: Option<&'a ArgMatches>,
    dotenv: DotEnv,
    file: Option<File>,
    mistakes: RefCell<Vec<ConfigError>>,
    /// Which fields were asked for.
    read: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Given<'a> {
    /// What was given to a command: `matches` is those of the whole command line.
    pub(crate) fn new(matches: &'a ArgMatches, command: &str) -> Self {
        let mut mistakes = Vec::new();
        Self {
            flags: Some(matches.subcommand_matches(command).unwrap_or(matches)),
            dotenv: DotEnv::read(Path::new(DOT_ENV), &mut mistakes),
            file: None,
            mistakes: RefCell::new(mistakes),
            read: RefCell::default(),
        }
    }

    /// Reads a file, too; where none is given, the one that `TOLLGATE_CONFIG` names.
    pub(crate) fn with_file(mut self, path: Option<PathBuf>) -> Self {
        let named = || {
            self.environment("TOLLGATE_CONFIG").or_else(|| {
                let found = self.dotenv.get("TOLLGATE_CONFIG");
                found.map(|(_, path)| path.to_owned())
            })
        };
        let path = path
            .filter(|path| !path.as_os_str().is_empty())
            .or_else(|| named().map(PathBuf::from));
        if let Some(path) = path {
            let mistakes = self.mistakes.get_mut();
            let file = File::read(&path, mistakes);
            unknown_fields(&file, mistakes);
            self.file = Some(file);
        }
        self
    }

    /// Variables of `.env`.
    pub(super) fn of_dotenv(&self) -> impl Iterator<Item = (String, String)> {
        self.dotenv.all()
    }

    fn environment(&self, name: &str) -> Option<String> {
        // An empty variable, as compose files produce, is none.
        std::env::var(name).ok().filter(|text| !text.is_empty())
    }

    /// A setting that has a default.
    pub(crate) fn value<T>(
        &self,
        path: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> T {
        self.optional(path, &read)
            .unwrap_or_else(|| Self::default(path, read))
    }

    /// What a setting is when it is not given.
    pub(crate) fn default<T>(path: &str, read: impl Fn(&str) -> Result<T, String>) -> T {
        let default = field(path).and_then(|field| field.default);
        let value = default.and_then(|text| read(text).ok());
        value.expect("every setting read this way has a default that can be read")
    }

    /// A setting, if it was given.
    pub(crate) fn optional<T>(
        &self,
        path: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.sourced(path, read).map(|(value, _)| value)
    }

    /// A setting, if it was given, and by what.
    pub(crate) fn sourced<T>(
        &self,
        path: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<(T, Source)> {
        match self.find(path, read) {
            Ok(found) => found,
            Err(error) => {
                self.mistake(error);
                None
            }
        }
    }

    /// The same for commands that end with the first mistake.
    pub(crate) fn find<T>(
        &self,
        path: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<(T, Source)>, ConfigError> {
        self.read.borrow_mut().insert(path);
        let Some((text, source)) = self.text(path)? else {
            return Ok(None);
        };
        let field = field(path);
        let hidden = field.is_some_and(|field| field.is_hidden(&text));
        let value = if hidden {
            Err(HIDDEN.into())
        } else {
            read(&text)
        };
        match value {
            Ok(value) => Ok(Some((value, source))),
            Err(problem) => Err(ConfigError::Value {
                value: field.map_or_else(|| format!("{text:?}"), |field| field.shown(&text)),
                source_of: source,
                problem,
            }),
        }
    }

    /// What only a flag says.
    pub(crate) fn flag<T>(
        &self,
        path: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        let Some((text, source_of)) = self.of_flag(path) else {
            return Ok(None);
        };
        read(&text).map(Some).map_err(|problem| ConfigError::Value {
            source_of,
            value: format!("{text:?}"),
            problem,
        })
    }

    fn of_flag(&self, path: &str) -> Option<(String, Source)> {
        let flags = self.flags?;
        let text = flags.try_get_one::<String>(path).ok().flatten()?;
        let by_flag = flags.value_source(path) == Some(ValueSource::CommandLine);
        let flag = format!("--{}", path.replace(['.', '_'], "-"));
        by_flag.then(|| (text.clone(), Source::Flag(flag)))
    }

    /// The tables of a setting, each as it is made of its fields.
    pub(crate) fn tables<T>(&self, path: &'static str, make: impl Fn(&Item<'_>) -> T) -> Vec<T> {
        self.read.borrow_mut().insert(path);
        let made = |items: &[Node], source: &Source| {
            let items = items.iter().enumerate();
            let make = |(number, node)| self.item(path, number, node, source).map(|it| make(&it));
            items.filter_map(make).collect()
        };
        if let Some((text, source)) = self.outside(path) {
            return match file::json(&text) {
                Ok(Value::List(items)) => made(&items, &source),
                Ok(other) => {
                    self.problem(source, other.noun(), "write a list of objects");
                    Vec::new()
                }
                Err(problem) => {
                    self.problem(source, "the text", &problem);
                    Vec::new()
                }
            };
        }
        let Some((node, source)) = self.in_file(path) else {
            return Vec::new();
        };
        match &node.value {
            Value::List(items) => made(items, &source),
            other => {
                self.problem(source, other.noun(), &format!("write [[{path}]]"));
                Vec::new()
            }
        }
    }

    fn item<'b>(
        &'b self,
        path: &'static str,
        number: usize,
        node: &'b Node,
        source: &Source,
    ) -> Option<Item<'b>> {
        let name = format!("{path}[{number}]");
        let source = match source {
            Source::File(place, _) => {
                let line = node.line;
                let path = place.path.clone();
                Source::File(Place { path, line }, name.clone())
            }
            other => other.clone(),
        };
        let Value::Table(fields) = &node.value else {
            self.problem(source, node.value.noun(), "write a table of fields");
            return None;
        };
        Some(Item {
            given: self,
            of: path,
            name,
            fields,
            source,
        })
    }

    /// Notes a mistake.
    pub(crate) fn mistake(&self, error: ConfigError) {
        self.mistakes.borrow_mut().push(error);
    }

    /// A problem that begins with the name of a field, with where that was given.
    pub(crate) fn placed(&self, problem: String) -> ConfigError {
        let named = problem.split_once(": ").and_then(|(name, rest)| {
            let field = field(name)?;
            let (text, source_of) = self.text(field.path).ok().flatten()?;
            Some(ConfigError::Value {
                source_of,
                value: field.shown(&text),
                problem: rest.to_owned(),
            })
        });
        named.unwrap_or(ConfigError::Together(problem))
    }

    fn problem(&self, source_of: Source, value: &str, problem: &str) {
        self.mistake(ConfigError::Value {
            source_of,
            value: value.into(),
            problem: problem.into(),
        });
    }

    /// Everything that is wrong, if something is.
    pub(crate) fn finish(&self) -> Result<(), Mistakes> {
        let mut mistakes = self.mistakes.take();
        if mistakes.is_empty() {
            return Ok(());
        }
        // The file from top to bottom, then the rest.
        mistakes.sort_by_key(|mistake| match mistake {
            ConfigError::Value {
                source_of: Source::File(place, _) | Source::DotEnv(place, _),
                ..
            } => place.line,
            ConfigError::Syntax { place, .. } => {
                let number = place.strip_prefix("line ").unwrap_or_default();
                let number = number.split(':').next().unwrap_or_default();
                number.parse().unwrap_or_default()
            }
            _ => 0,
        });
        Err(Mistakes(mistakes))
    }

    /// The fields that were asked for.
    #[cfg(test)]
    pub(super) fn asked(&self) -> BTreeSet<&'static str> {
        self.read.borrow().clone()
    }

    /// The text of a setting from the first place that has it.
    pub(super) fn text(&self, path: &'static str) -> Result<Option<(String, Source)>, ConfigError> {
        if let Some(found) = self.outside(path) {
            let is_list = field(path).is_some_and(|field| field.kind.is_list());
            return match found {
                (text, source) if is_list && text.trim_start().starts_with('[') => {
                    joined(&text, &source).map(|text| Some((text, source)))
                }
                found => Ok(Some(found)),
            };
        }
        let Some((node, source)) = self.in_file(path) else {
            return Ok(None);
        };
        let kind = field(path).map_or(Kind::Text, |field| field.kind);
        scalar(node, kind, &source).map(|text| text.map(|text| (text, source)))
    }

    /// What a flag or a variable says.
    fn outside(&self, path: &'static str) -> Option<(String, Source)> {
        if let Some(found) = self.of_flag(path) {
            return Some(found);
        }
        let own = variable(path);
        let bare = field(path).and_then(|field| field.bare);
        if let Some(text) = self.environment(&own) {
            return Some((text, Source::Environment(own)));
        }
        if let Some((bare, text)) = bare.and_then(|bare| Some((bare, self.environment(bare)?))) {
            return Some((text, Source::Bare(bare.into())));
        }
        let names = [Some(&*own), bare];
        let mut found = names.iter().flatten().filter_map(|name| {
            let (place, text) = self.dotenv.get(name)?;
            Some((text.to_owned(), Source::DotEnv(place, (*name).to_owned())))
        });
        found.next()
    }

    fn in_file(&self, path: &str) -> Option<(&Node, Source)> {
        let file = self.file.as_ref()?;
        let node = match path.split_once('.') {
            None => lookup(&file.root, path)?,
            Some((table, name)) => match &lookup(&file.root, table)?.value {
                Value::Table(fields) => lookup(fields, name)?,
                _ => return None,
            },
        };
        let place = Place {
            path: file.path.clone(),
            line: node.line,
        };
        Some((node, Source::File(place, path.into())))
    }
}

/// One table of several.
pub(crate) struct Item<'a> {
    given: &'a Given<'a>,
    of: &'static str,
    name: String,
    fields: &'a [(String, Node)],
    source: Source,
}

impl Item<'_> {
    /// A field of it.
    pub(crate) fn optional<T>(
        &self,
        name: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let Some(Kind::Tables(known)) = field(self.of).map(|field| field.kind) else {
            return None;
        };
        let field = known.iter().find(|field| field.path == name)?;
        let node = lookup(self.fields, name)?;
        let source = self.source_of(name, node);
        let text = match scalar(node, field.kind, &source) {
            Ok(text) => text?,
            Err(error) => {
                self.given.mistake(error);
                return None;
            }
        };
        match read(&text) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.given.problem(source, &field.shown(&text), &problem);
                None
            }
        }
    }

    /// One that must be there.
    pub(crate) fn required<T>(
        &self,
        name: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        if !self.has(name) {
            self.wrong(&format!("it has no {name}; write one"));
        }
        self.optional(name, read)
    }

    /// Whether a field was written, be it right or wrong.
    pub(crate) fn has(&self, name: &str) -> bool {
        lookup(self.fields, name).is_some()
    }

    /// Notes what is wrong with the whole of it.
    pub(crate) fn wrong(&self, problem: &str) {
        self.given.problem(self.source.clone(), "a table", problem);
    }

    fn source_of(&self, name: &str, node: &Node) -> Source {
        match &self.source {
            Source::File(place, _) => {
                let path = place.path.clone();
                let line = node.line;
                Source::File(Place { path, line }, format!("{}.{name}", self.name))
            }
            other => other.clone(),
        }
    }
}

fn lookup<'b>(fields: &'b [(String, Node)], name: &str) -> Option<&'b Node> {
    let found = fields.iter().find(|(other, _)| other == name);
    found.map(|(_, node)| node)
}

/// A value of the file as the text that a flag would have.
fn scalar(node: &Node, kind: Kind, source: &Source) -> Result<Option<String>, ConfigError> {
    let wrong = |value: &str, problem: &str| {
        Err(ConfigError::Value {
            source_of: source.clone(),
            value: value.into(),
            problem: problem.into(),
        })
    };
    match (&node.value, kind) {
        (Value::Scalar(text), _) => Ok(Some(text.clone())),
        (Value::Nothing, _) => Ok(None),
        (Value::List(items), kind) if kind.is_list() => {
            let mut texts = Vec::new();
            for item in items {
                match &item.value {
                    Value::Scalar(text) => texts.push(text.as_str()),
                    other => return wrong(other.noun(), "write a list of texts"),
                }
            }
            Ok(Some(texts.join(", ")))
        }
        (other, kind) if kind.is_list() => wrong(other.noun(), "write a list of texts"),
        (other, _) => wrong(other.noun(), "write one value"),
    }
}

/// A list of JSON in a variable.
fn joined(text: &str, source: &Source) -> Result<String, ConfigError> {
    let wrong = |problem: String| ConfigError::Value {
        source_of: source.clone(),
        value: format!("{text:?}"),
        problem,
    };
    let value = file::json(text).map_err(wrong)?;
    let node = Node { line: 0, value };
    scalar(&node, Kind::List, source).map(Option::unwrap_or_default)
}
