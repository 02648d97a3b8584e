//! A file of rules, in YAML or JSON: reading it with the line of every fault, and writing one.

use std::collections::HashMap;
use std::fmt;

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData, YamlEmitter};
use serde_json::{Map, Number, Value};

use super::{Fault, Faults, Rule};

/// The largest file that is read, in bytes.
pub(super) const MAX_FILE: u64 = 16 * 1024 * 1024;

/// How deep a document may be.
const MAX_DEPTH: usize = 32;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq)]
pub struct FileFaults(Vec<(Option<usize>, Fault)>);

impl FileFaults {
    /// One fault of the whole file.
    #[must_use]
    pub fn one(line: Option<usize>, problem: impl Into<String>) -> Self {
        let fault = Fault {
            field: String::new(),
            value: None,
            problem: problem.into(),
        };
        Self(vec![(line, fault)])
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The line of the first.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.0.first()?.0
    }
}

/// All of them, each with its line.
impl fmt::Display for FileFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (line, fault)) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            if let Some(line) = line {
                write!(f, "line {line}: ")?;
            }
            fmt::Display::fmt(fault, f)?;
        }
        Ok(())
    }
}

impl std::error::Error for FileFaults {}

/// The rules of a file: a list, or an object with the list `rules`. `None` where it says nothing.
///
/// # Errors
/// Every fault, with its line.
pub fn parse(text: &str) -> Result<Option<Vec<Rule>>, FileFaults> {
    let (value, lines) = load(text)?;
    let (list, below) = match &value {
        Value::Null => return Ok(None),
        Value::Array(list) => (list, ""),
        Value::Object(map) => {
            if let Some(other) = map.keys().find(|it| *it != "rules") {
                let line = lines.get(other).copied();
                let problem = format!("{other}: is not known here; the only field is rules");
                return Err(FileFaults::one(line, problem));
            }
            match map.get("rules") {
                Some(Value::Array(list)) => (list, "rules"),
                None | Some(Value::Null) => return Ok(None),
                Some(_) => return Err(FileFaults::one(lines.get("rules").copied(), NO_LIST)),
            }
        }
        _ => return Err(FileFaults::one(Some(1), NO_LIST)),
    };
    let mut faults = Faults::default();
    let mut rules: Vec<Rule> = Vec::with_capacity(list.len());
    let mut ids = HashMap::new();
    let mut claims = HashMap::new();
    for (i, value) in list.iter().enumerate() {
        let place = format!("{below}[{i}]");
        let rule = match Rule::read(value) {
            Ok(rule) if value.get("id").is_none_or(Value::is_null) => {
                // Whoever reads the file again must find the same rule.
                let problem = "is missing; a rule in a file needs one";
                faults.add(format!("{place}.id"), None, problem);
                rule
            }
            Ok(rule) => rule,
            Err(wrong) => {
                faults.extend(&place, wrong);
                continue;
            }
        };
        if let Some(first) = ids.insert(rule.id.clone(), place.clone()) {
            let problem = format!("is the id of {first} already");
            faults.add(
                format!("{place}.id"),
                Some(&Value::from(rule.id.as_str())),
                problem,
            );
        } else if let Some(first) = claims.insert(rule.uniqueness(), rule.id.clone()) {
            let problem = format!(
                "has the identity type, algorithm and match of {first}; keep one of them, or change the match"
            );
            faults.add(place, Some(&Value::from(rule.id.as_str())), problem);
        }
        rules.push(rule);
    }
    if faults.is_empty() {
        return Ok(Some(rules));
    }
    let faults = faults.all().iter().cloned();
    Err(FileFaults(
        faults
            .map(|fault| (line_of(&fault.field, &lines), fault))
            .collect(),
    ))
}

const NO_LIST: &str = "is no list of rules; write `rules:` and below it `- id: ..`";

/// The line of a field, or of what it is in.
fn line_of(field: &str, lines: &HashMap<String, usize>) -> Option<usize> {
    let mut path = field;
    loop {
        if let Some(line) = lines.get(path) {
            return Some(*line);
        }
        path = &path[..path.rfind(['.', '['])?];
    }
}

/// The value of a document, and the line of each path in it.
fn load(text: &str) -> Result<(Value, HashMap<String, usize>), FileFaults> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // What is JSON is read as JSON: not all of it is YAML.
    let strict = text.trim_start().starts_with(['{', '[']);
    let json = strict.then(|| serde_json::from_str::<Value>(text));
    let documents = match (MarkedYaml::load_from_str(text), json) {
        (Ok(documents), _) => documents,
        (Err(_), Some(Ok(value))) => return Ok((value, HashMap::new())),
        (Err(error), _) => {
            let line = error.marker().line();
            return Err(FileFaults::one(
                Some(line),
                format!("is no YAML: {}", error.info()),
            ));
        }
    };
    let mut lines = HashMap::new();
    match &documents[..] {
        [] => Ok((Value::Null, lines)),
        [one] => Ok((convert(one, "", 0, &mut lines)?, lines)),
        [_, second, ..] => {
            let line = Some(second.span.start.line());
            Err(FileFaults::one(
                line,
                "is a second document; put all rules into one",
            ))
        }
    }
}

fn convert(
    node: &MarkedYaml<'_>,
    path: &str,
    depth: usize,
    lines: &mut HashMap<String, usize>,
) -> Result<Value, FileFaults> {
    let line = node.span.start.line();
    let wrong = |problem: &str| FileFaults::one(Some(line), format!("{path}: {problem}"));
    if depth > MAX_DEPTH {
        return Err(wrong("is too deep"));
    }
    lines.entry(path.into()).or_insert(line);
    Ok(match &node.data {
        YamlData::Value(scalar) => match scalar {
            Scalar::Null => Value::Null,
            Scalar::Boolean(flag) => Value::Bool(*flag),
            Scalar::Integer(number) => Value::from(*number),
            Scalar::FloatingPoint(number) => Number::from_f64(number.into_inner())
                .map(Value::Number)
                .ok_or_else(|| wrong("is no number"))?,
            Scalar::String(text) => Value::from(text.as_ref()),
        },
        YamlData::Sequence(list) => {
            let mut values = Vec::with_capacity(list.len());
            for (i, node) in list.iter().enumerate() {
                values.push(convert(node, &format!("{path}[{i}]"), depth + 1, lines)?);
            }
            Value::Array(values)
        }
        YamlData::Mapping(map) => {
            let mut values = Map::new();
            for (key, node) in map {
                let YamlData::Value(key_value) = &key.data else {
                    return Err(wrong("has a field whose name is no text"));
                };
                let name = match key_value {
                    Scalar::String(text) => text.clone().into_owned(),
                    Scalar::Integer(number) => number.to_string(),
                    Scalar::Boolean(flag) => flag.to_string(),
                    _ => return Err(wrong("has a field whose name is no text")),
                };
                let below = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                lines.insert(below.clone(), key.span.start.line());
                let value = convert(node, &below, depth + 1, lines)?;
                values.insert(name, value);
            }
            Value::Object(values)
        }
        _ => {
            return Err(wrong(
                "is no plain value: no tag and no unknown anchor can be used here",
            ));
        }
    })
}

/// Rules as a file: JSON, or else YAML. What only the service sets is left out.
#[must_use]
pub fn write(rules: &[Rule], json: bool) -> String {
    let rules: Vec<Value> = rules.iter().map(written).collect();
    let value = serde_json::json!({ "rules": rules });
    if json {
        let mut text = serde_json::to_string_pretty(&value).expect("values always serialise");
        text.push('\n');
        return text;
    }
    if rules.is_empty() {
        return "rules: []\n".into();
    }
    let mut text = String::new();
    let yaml = yaml(&value);
    YamlEmitter::new(&mut text)
        .dump(&yaml)
        .expect("writing to a string cannot fail");
    // The mark at the beginning of a document is for those who write several.
    let mut text = text.strip_prefix("---\n").unwrap_or(&text).to_owned();
    text.push('\n');
    text
}

/// A rule as clients write it.
#[must_use]
pub(super) fn written(rule: &Rule) -> Value {
    let rule = Rule {
        managed_by: None,
        ..rule.clone()
    };
    serde_json::to_value(rule).expect("rules always serialise")
}

fn yaml(value: &Value) -> saphyr::Yaml<'static> {
    use saphyr::Yaml;
    let scalar = match value {
        Value::Null => Scalar::Null,
        Value::Bool(flag) => Scalar::Boolean(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Scalar::Integer(whole),
            (None, float) => Scalar::FloatingPoint(float.unwrap_or_default().into()),
        },
        Value::String(text) => Scalar::String(text.clone().into()),
        Value::Array(list) => return Yaml::Sequence(list.iter().map(yaml).collect()),
        Value::Object(map) => {
            let pairs = map.iter().map(|(name, value)| {
                let name = Scalar::String(name.clone().into());
                (Yaml::Value(name), yaml(value))
            });
            return Yaml::Mapping(pairs.collect());
        }
    };
    Yaml::Value(scalar)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
rules:
  - id: a            # a comment
    identity_type: api_key
    mode: off
    config: {algorithm: sliding_window, limit: 100, window_seconds: 60}
  - id: b
    identity_type: ip_address
    config:
      algorithm: token_bucket
      capacity: 50
      refill_rate: 0.5
";

    #[test]
    fn s53_yaml_and_json_say_the_same() {
        let rules = parse(GOOD).unwrap().unwrap();
        assert_eq!(rules.len(), 2);
        assert_eq!(rules[0].mode, super::super::Mode::Off);
        for json in [true, false] {
            let text = write(&rules, json);
            assert_eq!(parse(&text).unwrap().unwrap(), rules, "{text}");
            let list = &text[text.find('[').unwrap_or(0)..];
            if json {
                let list = list.trim_end().strip_suffix('}').unwrap();
                assert_eq!(parse(list).unwrap().unwrap(), rules, "a list will do");
            }
        }
        let odd = "{\"rules\": [{\"id\": \"a\", \"name\": \"\\ud83d\\ude00\", \"identity_type\": \
                   \"phone\",\n\t\"config\": {\"algorithm\": \"concurrency\", \"slots\": 1}}]}";
        assert_eq!(parse(odd).unwrap().unwrap()[0].name, "\u{1f600}");
    }

    #[test]
    fn b128_faults_have_their_lines() {
        for (text, expected) in [
            (
                GOOD.replace("limit: 100", "limit: -1"),
                "line 5: rules[0].config.limit: -1 is no",
            ),
            (
                GOOD.replace("0.5", "x"),
                "line 11: rules[1].config.refill_rate: \"x\" is no number",
            ),
            (
                GOOD.replace("id: b", "id: a"),
                "line 6: rules[1].id: \"a\" is the id of rules[0]",
            ),
            (
                GOOD.replace("  - id: b", "  - name: b"),
                "line 6: rules[1].id: is missing",
            ),
            (
                GOOD.replace("      capacity: 50\n", ""),
                "rules[1].config.capacity: is missing",
            ),
            (
                GOOD.replace("mode: off", "mode: off\n    mode: shadow"),
                "line 5: is no YAML",
            ),
            (GOOD.replace("{algorithm", "{{algorithm"), "is no YAML"),
            (
                GOOD.replace("rules:", "rule:"),
                "line 1: rule: is not known",
            ),
            ("rules: 5".into(), "line 1: is no list"),
            ("5".into(), "line 1: is no list"),
            ("rules: []\n---\nrules: []\n".into(), "is a second document"),
            ("a: &a [*b]".into(), "is no YAML"),
        ] {
            let error = parse(&text).expect_err(&text).to_string();
            assert!(error.contains(expected), "{error}\n{text}");
        }
        let mut twice = GOOD.replace("ip_address", "api_key");
        twice = twice.replace("token_bucket", "sliding_log");
        twice = twice
            .replace("capacity: 50", "limit: 5")
            .replace("refill_rate", "window_seconds");
        let error = parse(&twice).unwrap_err().to_string();
        assert!(
            error.contains("identity type, algorithm and match of a"),
            "{error}"
        );
    }

    #[test]
    fn nothing_is_told_apart_from_no_rules() {
        for text in ["", "\n# only a comment\n", "rules:\n", "null"] {
            assert_eq!(parse(text), Ok(None), "{text:?}");
        }
        for text in ["[]", "rules: []"] {
            assert_eq!(parse(text), Ok(Some(Vec::new())), "{text:?}");
        }
    }

    #[test]
    fn laughter_is_bounded() {
        let mut text = "a: &a [1, 1]\n".to_owned();
        let names = "abcdefghijklmnopqrstuvwxyz";
        for pair in names.as_bytes().windows(2) {
            let (before, name) = (pair[0] as char, pair[1] as char);
            text.push_str(&format!(
                "{name}: &{name} [*{before}, *{before}, *{before}]\n"
            ));
        }
        assert!(parse(&text).is_err());
    }
}
