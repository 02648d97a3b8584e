//! The settings as they come out, for `--print-config`: a file that can be given again once its
//! secrets are. What stands for them is refused, so that nobody runs with a secret that all know.

use std::fmt::Write as _;

use super::given::Given;
use super::table::{FIELDS, Field, Kind, Secret};

impl Given<'_> {
    /// All settings, each with where it comes from.
    pub(crate) fn print(&self) -> String {
        let mut text = String::from(
            "# The settings in force. Secrets are hidden: give them again, best by the environment.\n",
        );
        let mut last = None;
        let without = self.overruled();
        let tables = |field: &&Field| matches!(field.kind, Kind::Tables(_));
        // What TOML has after a table belongs to it.
        let plain = FIELDS.iter().filter(|field| !tables(field));
        for field in plain.chain(FIELDS.iter().filter(tables)) {
            let (table, name) = field.place();
            if let Kind::Tables(known) = field.kind {
                for item in self.tables(field.path, |item| print_item(item, field, known)) {
                    text.push_str(&item);
                }
                continue;
            }
            if table != last {
                last = table;
                let _ = write!(text, "\n[{}]\n", table.unwrap_or_default());
            }
            if without.contains(&field.path) {
                let _ = writeln!(text, "# {name} does not count");
                continue;
            }
            // Mistakes were told before.
            let given = self.text(field.path).ok().flatten();
            let _ = match (&given, field.default) {
                (Some((_, source)), _) if field.secret == Secret::Whole => {
                    writeln!(text, "# {name} = (hidden, from {source})")
                }
                (Some((value, source)), _) => {
                    writeln!(text, "{name} = {} # {source}", written(field, value))
                }
                (None, Some(default)) => {
                    writeln!(text, "{name} = {} # default", written(field, default))
                }
                (None, None) => writeln!(text, "# {name} is not given"),
            };
        }
        text
    }

    /// Of the two ways to say what the default is, the one that does not count.
    fn overruled(&self) -> &'static [&'static str] {
        const NUMBERS: [&str; 2] = ["default_limit", "default_window_seconds"];
        let rank = |path| {
            let given = self.text(path).ok().flatten();
            given.map_or(u8::MAX, |(_, source)| source.rank())
        };
        let (quota, numbers) = (rank("quota"), NUMBERS.map(rank));
        match quota {
            u8::MAX => &[],
            quota if quota < numbers[0].min(numbers[1]) => {
                &["default_limit", "default_window_seconds"]
            }
            _ => &["quota"],
        }
    }
}

fn print_item(item: &super::given::Item<'_>, field: &Field, known: &[Field]) -> String {
    let mut text = format!("\n[[{}]]\n", field.path);
    for inner in known {
        if let Some(value) = item.optional(inner.path, |text| Ok(text.to_owned())) {
            let _ = writeln!(text, "{} = {}", inner.path, written(inner, &value));
        }
    }
    text
}

/// A value as TOML has it.
fn written(field: &Field, value: &str) -> String {
    let bare = match field.kind {
        Kind::Bool => value == "true" || value == "false",
        Kind::Number => value.parse::<i64>().is_ok(),
        _ => false,
    };
    match field.secret {
        Secret::No if bare => value.into(),
        Secret::No => toml_text(value),
        Secret::Url => toml_text(&super::url::starred(value)),
        Secret::Whole => toml_text("***"),
    }
}

fn toml_text(value: &str) -> String {
    toml::Value::from(value).to_string()
}
