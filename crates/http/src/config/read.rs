//! What the settings mean, field by field. A failure says what to write instead.

use std::collections::BTreeMap;
use std::str::FromStr;

use tollgate_core::{MAX_EXACT, Policy, Quota, QuotaFault};

use super::raw::{Raw, Settings};
use super::{ConfigError, Mistake, OnFailure, RateLimitConfig, decimal};
use crate::{AddressPrefixes, CidrSet, ForwardedBy, OnInvalid, OnNobody, TrustedProxies};

/// Takes one field after another, and keeps what is wrong.
pub(super) struct Reader {
    settings: Settings,
    known: Vec<&'static str>,
    mistakes: Vec<Mistake>,
}

impl Reader {
    pub(super) fn take<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&Raw) -> Result<T, String>,
    ) -> Option<T> {
        self.known.push(field);
        let (place, raw) = self.settings.0.remove(field)?;
        match read(&raw) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.mistakes
                    .push(Mistake::new(&place, raw.shown(), problem));
                None
            }
        }
    }

    pub(super) fn text<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.take(field, |raw| match raw {
            Raw::Text(text) => read(text),
            _ => Err("write one value, not several".into()),
        })
    }

    pub(super) fn wrong(&mut self, field: &str, value: String, problem: String) {
        self.mistakes.push(Mistake::new(field, value, problem));
    }

    /// A text that no mistake shows.
    #[cfg(feature = "jwt")]
    pub(super) fn secret(&mut self, field: &'static str) -> Option<String> {
        self.known.push(field);
        match self.settings.0.remove(field)? {
            (_, Raw::Text(secret)) => Some(secret),
            (place, _) => {
                self.wrong(&place, "(..)".into(), "write one text".into());
                None
            }
        }
    }

    /// Whether a field that begins so is given.
    #[cfg(feature = "jwt")]
    pub(super) fn has(&self, prefix: &str) -> bool {
        self.settings
            .0
            .keys()
            .any(|field| field.starts_with(prefix))
    }

    /// How many mistakes there are.
    pub(super) const fn failed(&self) -> usize {
        self.mistakes.len()
    }
}

pub(super) fn checked(settings: Settings) -> Result<RateLimitConfig, ConfigError> {
    let mut from = Reader {
        settings,
        known: Vec::new(),
        mistakes: Vec::new(),
    };
    let policy = policy(&mut from);
    let on_failure = on_failure(&mut from);
    let v4 = from
        .text("ipv4_prefix", |text| bits(text, 32))
        .unwrap_or(32);
    let v6 = from
        .text("ipv6_prefix", |text| bits(text, 128))
        .unwrap_or(64);
    let key_sources = from.take("key_sources", some_list).unwrap_or_else(|| {
        ["subject", "tenant", "api_key", "ip"]
            .map(Into::into)
            .into()
    });
    let mut config = RateLimitConfig {
        #[cfg(feature = "jwt")]
        jwt: super::jwt::read(&mut from, &key_sources),
        key_sources,
        api_key_header: from.text("api_key_header", header),
        api_keys_file: from.text("api_keys_file", given).map(Into::into),
        on_failure,
        on_invalid: from
            .text("on_invalid", |text| match text {
                "refuse" => Ok(OnInvalid::Refuse),
                "skip" => Ok(OnInvalid::Skip),
                _ => Err("write refuse or skip".into()),
            })
            .unwrap_or_default(),
        on_nobody: from
            .text("on_nobody", |text| match text {
                "refuse" => Ok(OnNobody::Refuse),
                "share" => Ok(OnNobody::Share),
                _ => Err("write refuse or share".into()),
            })
            .unwrap_or_default(),
        exempt: from
            .take("exempt", paths)
            .unwrap_or_else(|| ["/health", "/ready", "/metrics"].map(Into::into).into()),
        headers: from
            .take("headers", |raw| {
                list(raw)?
                    .join(",")
                    .parse()
                    .map_err(|it: crate::HeaderStyleError| it.to_string())
            })
            .unwrap_or_default(),
        prefixes: AddressPrefixes::new(v4, v6).unwrap_or_default(),
        trusted_proxies: proxies(&mut from),
        plans: plans(&mut from, policy.as_ref()),
        // Stands in until the mistakes are told.
        policy: policy.unwrap_or_else(|| default_policy("default")),
    };
    if config.api_keys_file.is_some() && config.api_key_header.is_none() {
        let file = config.api_keys_file.take().unwrap_or_default();
        from.wrong(
            "api_keys_file",
            format!("{:?}", file.display()),
            "the keys are in no header; set api_key_header as well, such as X-API-Key".into(),
        );
    }
    for (field, (place, raw)) in std::mem::take(&mut from.settings.0) {
        let problem = if field == "enabled" {
            "this switches nothing on; list \"ratelimit\" in plugins.enabled".into()
        } else if field.starts_with("jwt_") && !cfg!(feature = "jwt") {
            "this program verifies no tokens; build it with the feature http-jwt".into()
        } else {
            format!(
                "there is no such setting; there are {}",
                from.known.join(", ")
            )
        };
        // An unknown field may be anything, a password too.
        let value = match raw {
            Raw::Text(text) => format!("({} characters)", text.chars().count()),
            _ => "(..)".into(),
        };
        from.wrong(&place, value, problem);
    }
    ConfigError::unless_none(from.mistakes).map(|()| config)
}

fn default_policy(name: &str) -> Policy {
    let quota = "100/60s"
        .parse::<Quota>()
        .expect("the default can be counted");
    Policy::new(name, [quota]).expect("the name was checked, and one quota is no more than 16")
}

fn policy(from: &mut Reader) -> Option<Policy> {
    let name = from.text("name", |text| {
        let policy = Policy::new(text, ["1/s".parse::<Quota>().map_err(|it| it.to_string())?]);
        policy
            .map(|it| it.name().to_owned())
            .map_err(|_| "write 1 to 128 characters of printable ASCII".to_owned())
    });
    let failed = from.failed();
    let limit = from.text("limit", count).unwrap_or(100);
    let micros = from.text("window", window).unwrap_or(60_000_000);
    let burst = from.text("burst", count).unwrap_or(limit);
    if from.failed() > failed {
        return None;
    }
    match format!("{limit}/{micros}us burst={burst}").parse::<Quota>() {
        Ok(quota) => Policy::new(name.as_deref().unwrap_or("default"), [quota]).ok(),
        Err(error) => {
            let value = format!("{limit} in {} s, burst {burst}", decimal::shown(micros));
            let problem = match (error.fault(), error.nearest()) {
                (QuotaFault::NotExact, Some(quota)) => format!(
                    "this cannot be counted exactly; the nearest that can is limit = {}, \
                     window = {}, burst = {}",
                    quota.limit(),
                    decimal::shown(u64::try_from(quota.period().as_micros()).unwrap_or(u64::MAX)),
                    quota.capacity()
                ),
                _ => error.to_string(),
            };
            from.wrong("plugin.ratelimit.limit", value, problem);
            None
        }
    }
}

fn on_failure(from: &mut Reader) -> OnFailure {
    let fail_open = from.text("fail_open", |text| match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("write true or false".into()),
    });
    let named = from.take("on_failure", |raw| match raw {
        Raw::Text(text) => match (text.as_str(), fail_open) {
            ("open", Some(false)) | ("closed", Some(true)) => {
                Err("fail_open says the opposite; leave one of the two out".into())
            }
            ("open", _) => Ok(OnFailure::Open),
            ("closed", _) => Ok(OnFailure::Closed),
            ("local", _) => Ok(OnFailure::Local),
            _ => Err("write open, closed or local".into()),
        },
        _ => Err("write open, closed or local".into()),
    });
    named.unwrap_or(match fail_open {
        Some(false) => OnFailure::Closed,
        _ => OnFailure::Open,
    })
}

fn proxies(from: &mut Reader) -> Option<TrustedProxies> {
    let networks = from.take("trusted_proxies", |raw| {
        let set = CidrSet::parse(some_list(raw)?).map_err(|it| it.to_string())?;
        Ok(TrustedProxies::set(set))
    });
    let taken = networks.is_some();
    let hops = from.text("trusted_hops", |text| match count(text) {
        Ok(_) if taken => Err("trusted_proxies is given too; leave one of the two out".into()),
        hops => Ok(TrustedProxies::hops(
            usize::try_from(hops?).unwrap_or(usize::MAX),
        )),
    });
    let proxies = networks.or(hops);
    let trusting = proxies.is_some();
    let by = from.text("forwarded_header", |text| match ForwardedBy::header(text) {
        Ok(_) if !trusting => {
            Err("nobody is trusted to write it; set trusted_proxies or trusted_hops".into())
        }
        by => by.map_err(|it| it.to_string()),
    });
    let proxies = proxies?;
    Some(match by {
        Some(by) => proxies.forwarded_by(by),
        None => proxies,
    })
}

fn plans(from: &mut Reader, policy: Option<&Policy>) -> BTreeMap<String, Policy> {
    let base = policy.map_or("default", Policy::name).to_owned();
    let read = |raw: &Raw| {
        let all: BTreeMap<String, String> = match raw {
            Raw::Table(all) => all.clone(),
            Raw::Text(text) => serde_json::from_str(text).map_err(|_| TABLE.to_owned())?,
            Raw::List(_) => return Err(TABLE.into()),
        };
        let read = all.into_iter().map(|(plan, text)| {
            let quotas = Quota::parse_list(&text).map_err(|it| format!("{plan:?}: {it}"))?;
            // A policy of its own, so that plans do not share counters.
            let policy = Policy::new(&format!("{base}.{plan}"), quotas)
                .map_err(|it| format!("{plan:?}: {it}"))?;
            Ok((plan, policy))
        });
        read.collect::<Result<_, String>>()
    };
    from.take("plans", read).unwrap_or_default()
}

const TABLE: &str = r#"write a table of plans and quotas, such as { free = "100/h", pro = "5000/h" } (in the environment as JSON)"#;

fn count(text: &str) -> Result<u64, String> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse::<u64>() {
        Ok(number @ 1..=MAX_EXACT) if digits => Ok(number),
        Ok(number) if digits && number > 0 => Err(format!("write at most {MAX_EXACT}")),
        _ => Err("write a whole number of 1 or more".into()),
    }
}

fn window(text: &str) -> Result<u64, String> {
    match decimal::millionths(text)? {
        0..1_000 => Err("it is shorter than a millisecond; write 0.001 or more".into()),
        MAX_EXACT.. => Err("it is too large; write 4503599627 or less".into()),
        micros => Ok(micros),
    }
}

fn bits(text: &str, most: u8) -> Result<u8, String> {
    let bits = u8::from_str(text).ok();
    bits.filter(|bits| (1..=most).contains(bits))
        .ok_or_else(|| format!("write a number of bits from 1 to {most}"))
}

pub(super) fn given(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("it is empty; leave it out".into()),
        text => Ok(text.into()),
    }
}

pub(super) fn header(text: &str) -> Result<String, String> {
    http::HeaderName::from_bytes(text.as_bytes())
        .map(|it| it.to_string())
        .map_err(|_| "that is no name of a header; write X-API-Key".into())
}

/// From the environment: JSON, or joined by commas.
fn list(raw: &Raw) -> Result<Vec<String>, String> {
    match raw {
        Raw::List(items) => Ok(items.clone()),
        Raw::Text(text) if text.trim_start().starts_with('[') => serde_json::from_str(text)
            .map_err(|_| "write a JSON list of texts, or join them by commas".into()),
        Raw::Text(text) => {
            let words = text.split(',').map(|word| word.trim().to_owned());
            Ok(words.filter(|word| !word.is_empty()).collect())
        }
        Raw::Table(_) => Err("write a list".into()),
    }
}

pub(super) fn some_list(raw: &Raw) -> Result<Vec<String>, String> {
    match list(raw)? {
        items if items.is_empty() => Err("it is empty; leave it out, or name one".into()),
        items => Ok(items),
    }
}

fn paths(raw: &Raw) -> Result<Vec<String>, String> {
    let paths = list(raw)?;
    match paths.iter().find(|path| !path.starts_with('/')) {
        Some(path) => Err(format!("{path:?} is no path; write it with a / in front")),
        None => Ok(paths),
    }
}
