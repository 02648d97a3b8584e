//! Reading a rule from JSON, and finding every fault of it on the way.

mod counting;

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue, Method};
use serde_json::Value;
use tollgate::MAX_EXACT;
use tollgate_http::{Cidr, RequestId};

use counting::{config, configs, counting};

use super::faults::{Fields, flag, text, whole};
use super::model::{Exempt, LimitFrom, ManagedBy, Match, Mode, Moment, Plan, Rule};
use super::pattern::Pattern;
use super::{Faults, IdentityType};

/// The id of the rule that holds where no other does.
pub const DEFAULT_ID: &str = "default";

const MAX_ID: usize = 64;
const MAX_NAME: usize = 200;
/// Of a path, a value, a header field.
const MAX_TEXT: usize = 1_024;
const MAX_VALUES: usize = 1_000;
const MAX_OTHERS: usize = 64;
const MAX_PLANS: usize = 64;
const MAX_PLAN_NAME: usize = 32;

pub(super) fn rule(value: &Value) -> Result<Rule, Faults> {
    let mut faults = Faults::default();
    let rule = Fields::of(value, "", &mut faults).and_then(fields_of_rule);
    match rule {
        Some(rule) if faults.is_empty() => Ok(rule),
        _ => Err(faults),
    }
}

/// A rule that was stored: the service has set what only it sets.
pub(super) fn stored(value: &Value) -> Result<Rule, Faults> {
    let mut value = value.clone();
    let managed_by = value.as_object_mut().and_then(|it| it.remove("managed_by"));
    let mut rule = rule(&value)?;
    rule.managed_by = match managed_by {
        None | Some(Value::Null) => None,
        Some(by) if by == "file" => Some(ManagedBy::File),
        Some(by) => {
            return Err(Faults::one(
                "managed_by",
                Some(&by),
                "is not known; use file",
            ));
        }
    };
    Ok(rule)
}

fn fields_of_rule(mut fields: Fields<'_>) -> Option<Rule> {
    let id = match fields.find("id") {
        None => Some(RequestId::of(&http::HeaderMap::new()).as_str().to_owned()),
        Some(_) => fields.read("id", id),
    };
    let name = match fields.find("name") {
        None => id.clone(),
        Some(_) => fields.read("name", name),
    };
    let types = IdentityType::ALL.map(IdentityType::as_str).join(", ");
    let identity_type =
        fields.read_needed("identity_type", &format!("use one of {types}"), |value| {
            let known = text(value)?.parse();
            known.map_err(|_: super::UnknownIdentityType| format!("is none; use one of {types}"))
        });
    let priority = optional(&mut fields, "priority", 0, priority);
    let enabled = optional(&mut fields, "enabled", true, flag);
    let cost = optional(&mut fields, "cost", 1, |value| whole(value, 1, MAX_EXACT));
    let mode = optional(&mut fields, "mode", Mode::Enforce, mode);
    let not_before = fields.read("not_before", moment);
    let expires = fields.read("expires", moment);
    if let (Some(from), Some(to)) = (&not_before, &expires)
        && to.micros <= from.micros
    {
        let value = Value::from(to.text.as_str());
        fields.wrong("expires", &value, "is not later than not_before");
    }
    let (config, quotas) = counting(&mut fields);
    let matching = fields
        .find("match")
        .map(|value| matching(&mut fields, value, identity_type));
    let limit_from = fields
        .find("limit_from")
        .map(|value| limit_from(&mut fields, value));
    let exempt = fields
        .find("exempt")
        .map(|value| exempt(&mut fields, value));
    if let Some(value) = fields.find("managed_by") {
        fields.wrong(
            "managed_by",
            value,
            "is set by the service only; leave it out",
        );
    }
    let rule = Rule {
        id: id.unwrap_or_default(),
        name: name.unwrap_or_default(),
        identity_type: identity_type.unwrap_or(IdentityType::Global),
        priority,
        enabled,
        config,
        quotas,
        matching: matching.flatten().filter(|it| *it != Match::default()),
        cost,
        mode,
        not_before,
        expires,
        managed_by: None,
        limit_from: limit_from.flatten(),
        exempt: exempt.flatten().filter(|it| *it != Exempt::default()),
    };
    affordable(&mut fields, &rule);
    fields.end();
    Some(rule)
}

/// A cost that no quota could ever grant would refuse everybody.
fn affordable(fields: &mut Fields<'_>, rule: &Rule) {
    let plans = rule.limit_from.iter().flat_map(|it| it.plans.values());
    let all = rule.configs().iter().chain(plans.flat_map(Plan::configs));
    let least = all
        .filter_map(|config| config.quota()?.ok())
        .map(|quota| quota.capacity())
        .min();
    if let Some(least) = least.filter(|least| *least < rule.cost) {
        let problem = format!(
            "is more than the {least} that can ever be admitted at once; use {least} or less, or raise the limit"
        );
        fields.wrong("cost", &Value::from(rule.cost), problem);
    }
}

/// What a field holds, or else this.
fn optional<T>(
    fields: &mut Fields<'_>,
    field: &'static str,
    default: T,
    read: impl FnOnce(&Value) -> Result<T, String>,
) -> T {
    fields.read(field, read).unwrap_or(default)
}

pub(super) fn id(value: &Value) -> Result<String, String> {
    let id = text(value)?;
    if id == DEFAULT_ID {
        return Err("is the name of the rule that is built in; use another".into());
    }
    if is_id(id) {
        Ok(id.into())
    } else {
        Err(format!(
            "is not 1 to {MAX_ID} characters of A-Z a-z 0-9 _ -"
        ))
    }
}

/// Whether a rule can be called so.
pub(super) fn is_id(text: &str) -> bool {
    is_word(text, MAX_ID)
}

fn is_word(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

pub(super) fn name(value: &Value) -> Result<String, String> {
    let name = text(value)?;
    if (1..=MAX_NAME).contains(&name.chars().count()) && !name.chars().any(char::is_control) {
        Ok(name.into())
    } else {
        Err(format!(
            "is not 1 to {MAX_NAME} characters without control characters"
        ))
    }
}

pub(super) fn priority(value: &Value) -> Result<i32, String> {
    let number = value.as_i64().or_else(|| {
        let float = value.as_f64().filter(|it| it.fract() == 0.0)?;
        (f64::from(i32::MIN)..=f64::from(i32::MAX))
            .contains(&float)
            .then_some(float as i64)
    });
    number
        .and_then(|it| i32::try_from(it).ok())
        .ok_or_else(|| format!("is no whole number from {} to {}", i32::MIN, i32::MAX))
}

fn mode(value: &Value) -> Result<Mode, String> {
    let text = text(value)?;
    [Mode::Enforce, Mode::Shadow, Mode::Off]
        .into_iter()
        .find(|it| it.as_str() == text)
        .ok_or_else(|| "is no mode; use enforce, shadow or off".into())
}

fn moment(value: &Value) -> Result<Moment, String> {
    Moment::try_from(text(value)?.to_owned())
}

fn matching(
    fields: &mut Fields<'_>,
    value: &Value,
    identity_type: Option<IdentityType>,
) -> Option<Match> {
    let path = fields.path("match");
    let mut fields = Fields::of(value, &path, fields.faults)?;
    let matching = Match {
        path: fields.read("path", pattern),
        methods: list(&mut fields, "methods", MAX_OTHERS, method),
        identity_values: list(&mut fields, "identity_values", MAX_VALUES, identity_value),
        headers: headers(&mut fields),
    };
    if identity_type == Some(IdentityType::Global)
        && let Some(value) = fields.find("identity_values")
    {
        fields.wrong(
            "identity_values",
            value,
            "says nothing for identity type global; leave it out",
        );
    }
    fields.end();
    Some(matching)
}

fn limit_from(fields: &mut Fields<'_>, value: &Value) -> Option<LimitFrom> {
    let path = fields.path("limit_from");
    let mut fields = Fields::of(value, &path, fields.faults)?;
    let header = fields.read("header", |value| header_name(text(value)?));
    let mut plans = BTreeMap::new();
    if let Some(value) = fields.need("plans", "write {\"plan\": {\"algorithm\": .., ..}, ..}") {
        match value.as_object() {
            Some(map) if (1..=MAX_PLANS).contains(&map.len()) => {
                for (name, value) in map {
                    let path = fields.path(&format!("plans.{name}"));
                    if !is_word(name, MAX_PLAN_NAME) {
                        let problem = format!(
                            "is the name of a plan and not 1 to {MAX_PLAN_NAME} characters of A-Z a-z 0-9 _ -"
                        );
                        fields
                            .faults
                            .add(path, Some(&Value::from(name.as_str())), problem);
                    } else if value.is_array() {
                        let several = configs(value, &path, fields.faults);
                        plans.insert(name.clone(), Plan::Several(several));
                    } else if let Some(one) = config(value, &path, fields.faults) {
                        plans.insert(name.clone(), Plan::One(one));
                    }
                }
            }
            _ => {
                let problem = format!("is no object of 1 to {MAX_PLANS} plans");
                fields.wrong("plans", value, problem);
            }
        }
    }
    fields.end();
    Some(LimitFrom { header, plans })
}

fn exempt(fields: &mut Fields<'_>, value: &Value) -> Option<Exempt> {
    let path = fields.path("exempt");
    let mut fields = Fields::of(value, &path, fields.faults)?;
    let exempt = Exempt {
        identity_values: list(&mut fields, "identity_values", MAX_VALUES, identity_value),
        networks: list(&mut fields, "networks", MAX_VALUES, |text| {
            let network: Cidr = text
                .parse()
                .map_err(|_| "is no network; write one such as 10.0.0.0/8".to_owned())?;
            Ok(network.to_string())
        }),
        paths: list(&mut fields, "paths", MAX_OTHERS, |text| {
            pattern(&text.into())
        }),
        methods: list(&mut fields, "methods", MAX_OTHERS, method),
    };
    fields.end();
    Some(exempt)
}

/// A list of texts, in order and each once.
fn list(
    fields: &mut Fields<'_>,
    field: &'static str,
    most: usize,
    read: impl Fn(&str) -> Result<String, String>,
) -> Vec<String> {
    // Whom a rule is for is no matter of logs.
    let secret = field == "identity_values";
    let Some(value) = fields.find(field) else {
        return Vec::new();
    };
    let Some(list) = value.as_array().filter(|list| list.len() <= most) else {
        fields.wrong(field, value, format!("is no list of at most {most} texts"));
        return Vec::new();
    };
    let mut texts = Vec::with_capacity(list.len());
    for (i, value) in list.iter().enumerate() {
        match text(value).and_then(&read) {
            Ok(text) => texts.push(text),
            Err(problem) => {
                let field = fields.path(&format!("{field}[{i}]"));
                fields
                    .faults
                    .add(field, (!secret).then_some(value), problem);
            }
        }
    }
    texts.sort_unstable();
    texts.dedup();
    texts
}

fn pattern(value: &Value) -> Result<String, String> {
    let path = text(value)?;
    if path.len() > MAX_TEXT {
        return Err(format!("is longer than {MAX_TEXT} bytes"));
    }
    Pattern::parse(path)?;
    Ok(path.into())
}

fn method(text: &str) -> Result<String, String> {
    let name = text.to_ascii_uppercase();
    match Method::from_bytes(name.as_bytes()) {
        Ok(_) if name.len() <= 32 => Ok(name),
        _ => Err("is no method; write one such as GET".into()),
    }
}

fn identity_value(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > MAX_TEXT {
        return Err(format!("is not 1 to {MAX_TEXT} bytes long"));
    }
    match text.strip_prefix("sha256:") {
        Some(digits) if digits.len() != 64 || !digits.bytes().all(|it| it.is_ascii_hexdigit()) => {
            Err("is not sha256: and 64 hexadecimal digits".into())
        }
        Some(_) => Ok(text.to_ascii_lowercase()),
        None => Ok(text.into()),
    }
}

fn headers(fields: &mut Fields<'_>) -> BTreeMap<String, String> {
    let mut headers = BTreeMap::new();
    let Some(value) = fields.find("headers") else {
        return headers;
    };
    let Some(map) = value.as_object().filter(|map| map.len() <= MAX_OTHERS) else {
        let problem = format!("is no object of at most {MAX_OTHERS} header fields");
        fields.wrong("headers", value, problem);
        return headers;
    };
    for (name, value) in map {
        let field = format!("headers.{name}");
        match (header_name(name), text(value)) {
            (Ok(name), Ok(text)) if is_header_value(text) => {
                if headers.insert(name, text.into()).is_some() {
                    fields.wrong(&field, value, "is there twice; names do not differ by case");
                }
            }
            (Ok(_), _) => {
                // It may be a secret.
                let field = fields.path(&field);
                fields
                    .faults
                    .add(field, None, "is no value of a header field");
            }
            (Err(problem), _) => fields.wrong(&field, value, problem),
        }
    }
    headers
}

fn is_header_value(text: &str) -> bool {
    text.len() <= MAX_TEXT && text.trim() == text && HeaderValue::from_str(text).is_ok()
}

fn header_name(text: &str) -> Result<String, String> {
    HeaderName::from_bytes(text.as_bytes())
        .map(|name| name.as_str().to_owned())
        .map_err(|_| "is no name of a header field".into())
}
