//! A rule as it is written, sent and stored.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tollgate::{Algorithm, Clock, Quota, QuotaError, SystemClock};
use utoipa::ToSchema;

use super::read;
use super::{Decimal, Faults, IdentityType};

/// Who is limited how. Of the rules that match a request the one with the highest priority holds;
/// `docs/rules.md` has the order of those with the same one.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Rule {
    /// 1 to 64 of `A-Z a-z 0-9 _ -`. Made up where none is given.
    #[schema(pattern = "^[A-Za-z0-9_-]{1,64}$", example = "api-default")]
    pub id: String,
    /// For people; the id, where none is given.
    #[schema(max_length = 200)]
    pub name: String,
    /// Whose rule it is.
    pub identity_type: IdentityType,
    /// The larger goes first. 0 unless given.
    pub priority: i32,
    /// Whether it holds at all. `true` unless given.
    pub enabled: bool,
    /// How it counts. Either this or `quotas` must be given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Config>,
    /// Several ways to count that hold together: each must have room.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, max_items = 16)]
    pub quotas: Vec<Config>,
    /// Which requests it is for. Without one, all of the identity type.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    #[schema(rename = "match")]
    pub matching: Option<Match>,
    /// How much a request costs. 1 unless given.
    #[serde(skip_serializing_if = "is_one")]
    #[schema(required = false, minimum = 1, default = 1)]
    pub cost: u64,
    /// What becomes of a refusal. `enforce` unless given.
    #[serde(skip_serializing_if = "is_enforce")]
    #[schema(required = false)]
    pub mode: Mode,
    /// It does not hold before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub not_before: Option<Moment>,
    /// It holds no more from then on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires: Option<Moment>,
    /// `file`: the rule comes from the rule file and is changed there. Never sent by clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(read_only)]
    pub managed_by: Option<ManagedBy>,
    /// Other numbers for those on a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_from: Option<LimitFrom>,
    /// Who of those the rule is for is not counted and not refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exempt: Option<Exempt>,
}

/// One way to count.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "algorithm", rename_all = "snake_case")]
pub enum Config {
    /// Every admission is remembered for a window: never above the limit in any window at all.
    SlidingWindow(Window),
    /// The same as `sliding_window`.
    SlidingLog(Window),
    /// Two windows, the earlier one weighted by the part of it that still counts.
    SlidingCounter(Window),
    /// Windows aligned to the epoch.
    FixedWindow(Window),
    /// A bucket of `capacity` tokens that refills at `refill_rate` tokens a second.
    TokenBucket(Bucket),
    /// At most so many requests in flight at the same time.
    Concurrency(Slots),
}

/// So many in each window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub struct Window {
    /// How many; 0 blocks.
    pub limit: u64,
    /// How long a window is; at most 6 decimal places.
    #[schema(value_type = f64, exclusive_minimum = 0, example = 60)]
    pub window_seconds: Decimal,
}

/// A bucket that refills.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub struct Bucket {
    /// How many at once; 0 blocks.
    pub capacity: u64,
    /// How many come back in a second; at most 6 decimal places.
    #[schema(value_type = f64, exclusive_minimum = 0, example = 5)]
    pub refill_rate: Decimal,
}

/// Requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub struct Slots {
    /// How many.
    #[schema(minimum = 1)]
    pub slots: u32,
    /// How long the slot of a process that died stays taken. 60 unless given.
    #[schema(required = false, value_type = f64, default = 60, minimum = 0.1)]
    pub ttl_seconds: Decimal,
    /// How long a request waits for a slot. 0 unless given.
    #[schema(required = false, value_type = f64, default = 0)]
    pub wait_seconds: Decimal,
}

/// Which requests. Every field that is given must agree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Match {
    /// `/orders`; with a part that may be anything, `/orders/{id}`; with all below, `/orders/*`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "/orders/{id}")]
    pub path: Option<String>,
    /// One of these methods, in capitals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub methods: Vec<String>,
    /// One of these identities. `sha256:` and 64 hexadecimal digits stand for one that should not
    /// be written here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub identity_values: Vec<String>,
    /// All of these header fields, names in lower case.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    pub headers: BTreeMap<String, String>,
}

/// What becomes of a refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It is one.
    #[default]
    Enforce,
    /// It is counted and reported, and the request admitted.
    Shadow,
    /// Nothing is counted.
    Off,
}

impl Mode {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Off => "off",
        }
    }
}

/// Who changes a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ManagedBy {
    /// Whoever writes the rule file.
    File,
}

/// Numbers by plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct LimitFrom {
    /// The header field that names the plan, which whoever is in front must set. Without one the
    /// plan is what the identity brings: a claim of its token, or what is kept beside its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// What holds for each plan in place of the rule's own. For one that is not here, that does.
    pub plans: BTreeMap<String, Plan>,
}

/// What holds for a plan: one way to count, or several together.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Plan {
    /// One.
    One(Config),
    /// Several.
    Several(Vec<Config>),
}

impl Plan {
    /// Its ways to count.
    #[must_use]
    pub fn configs(&self) -> &[Config] {
        match self {
            Self::One(config) => std::slice::from_ref(config),
            Self::Several(configs) => configs,
        }
    }
}

/// Who is not counted. Any of them is enough.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Exempt {
    /// These identities, as in `match`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub identity_values: Vec<String>,
    /// Clients in these networks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, example = json!(["10.0.0.0/8"]))]
    pub networks: Vec<String>,
    /// Requests to these paths, as in `match`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub paths: Vec<String>,
    /// Requests by these methods.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub methods: Vec<String>,
}

/// A moment, with the text by which it was given.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Moment {
    pub(super) text: String,
    pub(super) micros: u64,
}

/// By RFC 3339.
impl TryFrom<String> for Moment {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let moment: jiff::Timestamp = text.parse().map_err(|_| {
            "is no moment of RFC 3339; write one such as 2026-03-01T00:00:00Z".to_owned()
        })?;
        let micros = u64::try_from(moment.as_microsecond());
        let micros = micros.map_err(|_| "is before 1970".to_owned())?;
        Ok(Self { text, micros })
    }
}

impl Moment {
    /// This moment, to the second.
    pub(crate) fn now() -> Self {
        let seconds = SystemClock.now().as_micros() / 1_000_000;
        let moment = i64::try_from(seconds).ok();
        let moment = moment.and_then(|it| jiff::Timestamp::from_second(it).ok());
        Self {
            text: moment.unwrap_or_default().to_string(),
            micros: seconds * 1_000_000,
        }
    }

    /// In microseconds since the epoch.
    #[must_use]
    pub const fn as_micros(&self) -> u64 {
        self.micros
    }
}

impl PartialEq for Moment {
    fn eq(&self, other: &Self) -> bool {
        self.micros == other.micros
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_one(cost: &u64) -> bool {
    *cost == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_enforce(mode: &Mode) -> bool {
    *mode == Mode::Enforce
}

impl Rule {
    /// Reads a rule.
    ///
    /// # Errors
    /// Every fault of it.
    pub fn read(value: &Value) -> Result<Self, Faults> {
        read::rule(value)
    }

    /// Its ways to count.
    #[must_use]
    pub fn configs(&self) -> &[Config] {
        match &self.config {
            Some(config) => std::slice::from_ref(config),
            None => &self.quotas,
        }
    }

    /// What it counts by: the algorithm, `multi` for several. Keys and the index have it.
    #[must_use]
    pub fn algorithm(&self) -> &'static str {
        match self.configs() {
            [config] => config.family(),
            _ => "multi",
        }
    }

    /// `{identity_type}:{algorithm}`, and the digest of what it matches if it matches only some:
    /// there is one rule of each.
    #[must_use]
    pub fn uniqueness(&self) -> String {
        let mut field = format!("{}:{}", self.identity_type, self.algorithm());
        if let Some(matching) = &self.matching {
            let text = serde_json::to_vec(matching).expect("texts always serialise");
            field.push(':');
            field.push_str(&hex(&Sha256::digest(text)));
        }
        field
    }

    /// As it is stored.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers always serialise")
    }

    /// What of the one cannot become what it is in the other: its identity type, its algorithms.
    #[must_use]
    pub fn unlike(&self, before: &Self) -> Option<&'static str> {
        let families =
            |rule: &Self| -> Vec<_> { rule.configs().iter().map(Config::family).collect() };
        if self.identity_type != before.identity_type {
            Some("identity_type")
        } else if self.algorithm() != before.algorithm() || families(self) != families(before) {
            Some("algorithm")
        } else {
            None
        }
    }

    /// Whether what was used under the one rule is still used under the other: the same ways to
    /// count, over the same periods.
    #[must_use]
    pub fn keeps_counters_of(&self, before: &Self) -> bool {
        let (now, before) = (self.configs(), before.configs());
        now.len() == before.len() && now.iter().zip(before).all(|(a, b)| a.keeps_counters_of(b))
    }
}

impl Config {
    /// Its name as it was written.
    #[must_use]
    pub const fn algorithm(&self) -> &'static str {
        match self {
            Self::SlidingWindow(_) => "sliding_window",
            Self::SlidingLog(_) => "sliding_log",
            Self::SlidingCounter(_) => "sliding_counter",
            Self::FixedWindow(_) => "fixed_window",
            Self::TokenBucket(_) => "token_bucket",
            Self::Concurrency(_) => "concurrency",
        }
    }

    /// The same, but one name for what are two names of one algorithm.
    #[must_use]
    pub const fn family(&self) -> &'static str {
        match self {
            Self::SlidingLog(_) => "sliding_window",
            other => other.algorithm(),
        }
    }

    /// Whether nothing is ever admitted.
    #[must_use]
    pub const fn blocks(&self) -> bool {
        match self {
            Self::SlidingWindow(it)
            | Self::SlidingLog(it)
            | Self::SlidingCounter(it)
            | Self::FixedWindow(it) => it.limit == 0,
            Self::TokenBucket(it) => it.capacity == 0,
            Self::Concurrency(_) => false,
        }
    }

    /// What comes nearest to a quota, for people to read.
    pub(super) fn nearest(quota: &Quota) -> Self {
        let micros = |it: Duration| u64::try_from(it.as_micros()).unwrap_or(u64::MAX);
        let window = Window {
            limit: quota.limit(),
            window_seconds: Decimal::from_millionths(micros(quota.period())),
        };
        match quota.algorithm() {
            Algorithm::SlidingLog => Self::SlidingWindow(window),
            Algorithm::SlidingWindow => Self::SlidingCounter(window),
            Algorithm::FixedWindow => Self::FixedWindow(window),
            _ => {
                let millionths = u128::from(quota.limit()) * 1_000_000_000_000;
                let period = u128::from(micros(quota.period()).max(1));
                let rate = u64::try_from(millionths / period).unwrap_or(u64::MAX);
                Self::TokenBucket(Bucket {
                    capacity: quota.capacity(),
                    refill_rate: Decimal::from_millionths(rate),
                })
            }
        }
    }

    /// The quota it is; `None` for what is none: slots, and what blocks.
    ///
    /// # Errors
    /// When it cannot be counted exactly.
    #[must_use]
    pub fn quota(&self) -> Option<Result<Quota, QuotaError>> {
        if self.blocks() {
            return None;
        }
        let of = |algorithm, window: &Window| {
            let period = Duration::from_micros(window.window_seconds.millionths());
            Some(Quota::new(algorithm, window.limit, period))
        };
        match self {
            Self::SlidingWindow(window) | Self::SlidingLog(window) => {
                of(Algorithm::SlidingLog, window)
            }
            Self::SlidingCounter(window) => of(Algorithm::SlidingWindow, window),
            Self::FixedWindow(window) => of(Algorithm::FixedWindow, window),
            Self::TokenBucket(bucket) => {
                let (limit, period) = bucket.rate();
                let quota = Quota::token_bucket(limit, period);
                Some(quota.and_then(|quota| quota.with_burst(bucket.capacity)))
            }
            Self::Concurrency(_) => None,
        }
    }

    fn keeps_counters_of(&self, before: &Self) -> bool {
        let window = |config: &Self| match config {
            Self::SlidingWindow(it)
            | Self::SlidingLog(it)
            | Self::SlidingCounter(it)
            | Self::FixedWindow(it) => Some(it.window_seconds),
            Self::TokenBucket(_) | Self::Concurrency(_) => None,
        };
        self.family() == before.family() && window(self) == window(before)
    }
}

impl Bucket {
    /// `refill_rate` tokens a second as a limit per period, in the smallest whole numbers that do
    /// not fall below a millisecond.
    fn rate(&self) -> (u64, Duration) {
        let (mut limit, mut seconds) = (self.refill_rate.millionths(), 1_000_000);
        for factor in [2, 5] {
            while limit.is_multiple_of(factor) && limit > 0 && seconds % factor == 0 {
                limit /= factor;
                seconds /= factor;
            }
        }
        (limit, Duration::from_secs(seconds))
    }
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
