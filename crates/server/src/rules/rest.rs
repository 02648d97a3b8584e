//! Rules over HTTP: `/rules` and `/rules/{id}`.

mod answer;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Extension, State};
use axum::routing::any;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, HeaderValue, IF_MATCH, LINK, LOCATION};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use serde::Serialize;
use serde_json::Value;
use tollgate::Changed;
use tollgate_http::RequestId;
use utoipa::ToSchema;

pub use answer::Invalid;
pub(crate) use answer::invalid;
use answer::{Refusal, json, tagged};

use super::faults::{self, Fields, flag};
use super::store::{Entry, Stored};
use super::sync::Rules;
use super::{Faults, ManagedBy, Rule, read};
use crate::admin::Failed;

/// Where rules are.
pub const PATH: &str = "/rules";

/// The largest body.
pub const MAX_BODY: usize = 256 * 1024;

/// How many rules there may be.
pub const MAX_RULES: usize = 10_000;

/// The largest page, which one without a limit is not bound by.
const MAX_PAGE: u64 = 1_000;

/// How often a change is tried anew that another one came before.
const ROUNDS: usize = 8;

/// What became of what was used under a rule that was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Counters {
    /// What was used still is.
    Kept,
    /// Everybody starts anew.
    Fresh,
}

/// The answer to `PUT`.
#[derive(Debug, Serialize, ToSchema)]
pub struct Put<'a> {
    /// The rule as it is now.
    #[serde(flatten)]
    pub rule: &'a Rule,
    /// What became of what was used.
    pub counters: Counters,
}

/// Answers a request to `/rules` or below. Whether it may be made is up to the caller.
///
/// # Cancellation
/// A call that is dropped has made its change or not.
pub async fn handle(rules: &Rules, request: Request<Bytes>, id: &RequestId) -> Response<Bytes> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let call = Call {
        rules,
        headers: &parts.headers,
        query: parts.uri.query().unwrap_or_default(),
        body: &body,
    };
    let rest = path.strip_prefix(PATH).unwrap_or(path);
    let answer = match (rest, &parts.method) {
        ("" | "/", &Method::GET | &Method::HEAD) => call.list().await,
        ("" | "/", &Method::POST) => call.create().await,
        ("" | "/", _) => Err(Refusal::Method("GET, HEAD, POST")),
        (rest, method) => match (&rest[1..], method) {
            (one, _) if !read::is_id(one) => Err(Refusal::NoRule),
            (one, &Method::GET | &Method::HEAD) => call.get(one).await,
            (one, &Method::PUT) => call.put(one).await,
            (one, &Method::PATCH) => call.patch(one).await,
            (one, &Method::DELETE) => call.delete(one).await,
            _ => Err(Refusal::Method("GET, HEAD, PUT, PATCH, DELETE")),
        },
    };
    let mut response = answer.unwrap_or_else(|refusal| refusal.answer(path, id));
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(CACHE_CONTROL, no_store);
    response
}

/// The routes of rules.
pub(crate) fn routes(rules: Rules) -> Router {
    Router::new()
        .route("/rules", any(routed))
        .route("/rules/", any(routed))
        .route("/rules/{*rest}", any(routed))
        .with_state(rules)
}

async fn routed(
    State(rules): State<Rules>,
    id: Option<Extension<RequestId>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response<Body>, Failed> {
    let mut request = Request::new(crate::admin::body(body)?);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    let id = id.map_or_else(|| RequestId::of(request.headers()), |Extension(id)| id);
    Ok(handle(&rules, request, &id).await.map(Body::from))
}

type Answer = Result<Response<Bytes>, Refusal>;

/// One request.
struct Call<'a> {
    rules: &'a Rules,
    headers: &'a HeaderMap,
    query: &'a str,
    body: &'a [u8],
}

impl Call<'_> {
    async fn stored(&self) -> Result<Stored, Refusal> {
        if self.rules.can_change() {
            return Ok(self.rules.0.store.list().await?);
        }
        // The rules of the file are all there are.
        let rules = self
            .rules
            .table()
            .all()
            .map(|it| Entry::new(it.rule().clone()))
            .collect();
        Ok(Stored {
            rules,
            unreadable: Vec::new(),
        })
    }

    async fn list(&self) -> Answer {
        let page = Page::of(self.query)?;
        let stored = self.stored().await?;
        let after = page.cursor.as_deref().unwrap_or_default();
        let from = stored
            .rules
            .partition_point(|it| it.rule.id.as_str() <= after);
        let from = if page.cursor.is_none() { 0 } else { from };
        let rest = &stored.rules[from..];
        let page_length = page.limit.map_or(rest.len(), |it| it.min(rest.len()));
        let shown = &rest[..page_length];
        let rules: Vec<&Rule> = shown.iter().map(|it| &it.rule).collect();
        let mut response = json(StatusCode::OK, &rules);
        if shown.len() < rest.len()
            && let (Some(limit), Some(last)) = (page.limit, shown.last())
        {
            let next = format!(
                "<{PATH}?limit={limit}&cursor={}>; rel=\"next\"",
                last.rule.id
            );
            let next = HeaderValue::from_str(&next).expect("ids are plain");
            response.headers_mut().insert(LINK, next);
        }
        Ok(response)
    }

    async fn get(&self, id: &str) -> Answer {
        let stored = self.stored().await?;
        let entry = stored.get(id).ok_or(Refusal::NoRule)?;
        Ok(tagged(json(StatusCode::OK, &entry.rule), entry))
    }

    async fn create(&self) -> Answer {
        let rule = Rule::read(&self.json()?)?;
        self.countable(&rule)?;
        self.changeable()?;
        if self.rules.table().len() >= MAX_RULES {
            return Err(Refusal::Conflict(format!(
                "there are {MAX_RULES} rules already; delete one"
            )));
        }
        let (changed, entry) = self.rules.0.store.create(rule).await?;
        match changed {
            Changed::Yes => {}
            Changed::Claimed { by } => return Err(self.claimed(&entry.rule, by).await),
            _ => {
                return Err(Refusal::Conflict(format!(
                    "there is a rule {} already; PUT changes it",
                    entry.rule.id
                )));
            }
        }
        self.in_force().await;
        let mut response = tagged(json(StatusCode::CREATED, &entry.rule), &entry);
        let place = format!("{PATH}/{}", entry.rule.id);
        let place = HeaderValue::from_str(&place).expect("ids are plain");
        response.headers_mut().insert(LOCATION, place);
        Ok(response)
    }

    async fn put(&self, id: &str) -> Answer {
        let mut value = self.json()?;
        if let Value::Object(map) = &mut value {
            let given = map.entry("id").or_insert_with(|| id.into());
            if given != id {
                let faults = Faults::one(
                    "id",
                    Some(given),
                    "is another one than in the path; leave it out",
                );
                return Err(faults.into());
            }
        }
        let rule = Rule::read(&value)?;
        self.countable(&rule)?;
        self.change(id, |before| {
            if let Some(what) = rule.unlike(before) {
                return Err(Refusal::Conflict(format!(
                    "{what} cannot be changed; delete the rule and create another one"
                )));
            }
            Ok(rule.clone())
        })
        .await
        .map(|(before, entry)| {
            let counters = if entry.rule.keeps_counters_of(&before) {
                Counters::Kept
            } else {
                Counters::Fresh
            };
            let put = Put {
                rule: &entry.rule,
                counters,
            };
            tagged(json(StatusCode::OK, &put), &entry)
        })
    }

    async fn patch(&self, id: &str) -> Answer {
        let value = self.json()?;
        let mut faults = Faults::default();
        let patch = Fields::of(&value, "", &mut faults).map(|mut fields| {
            let name = fields.read("name", read::name);
            let priority = fields.read("priority", read::priority);
            let enabled = fields.read("enabled", flag);
            fields.end();
            (name, priority, enabled)
        });
        let Some((name, priority, enabled)) = patch.filter(|_| faults.is_empty()) else {
            return Err(faults.into());
        };
        let (_, entry) = self
            .change(id, |before| {
                Ok(Rule {
                    name: name.clone().unwrap_or_else(|| before.name.clone()),
                    priority: priority.unwrap_or(before.priority),
                    enabled: enabled.unwrap_or(before.enabled),
                    ..before.clone()
                })
            })
            .await?;
        Ok(tagged(json(StatusCode::OK, &entry.rule), &entry))
    }

    async fn delete(&self, id: &str) -> Answer {
        self.changeable()?;
        for _ in 0..ROUNDS {
            let stored = self.stored().await?;
            let entry = self.current(&stored, id)?;
            match self.rules.0.store.delete(entry).await? {
                Changed::Yes => {
                    self.in_force().await;
                    let mut response = Response::new(Bytes::new());
                    *response.status_mut() = StatusCode::NO_CONTENT;
                    return Ok(response);
                }
                Changed::Missing => return Err(Refusal::NoRule),
                _ => {}
            }
        }
        Err(Refusal::Busy)
    }

    /// Changes a rule, anew if another change came first; the rule before, and the one that is now.
    async fn change(
        &self,
        id: &str,
        change: impl Fn(&Rule) -> Result<Rule, Refusal>,
    ) -> Result<(Rule, Entry), Refusal> {
        self.changeable()?;
        for _ in 0..ROUNDS {
            let stored = self.stored().await?;
            let before = self.current(&stored, id)?;
            let rule = change(&before.rule)?;
            if rule == before.rule {
                return Ok((rule, before.clone()));
            }
            let (changed, entry) = self.rules.0.store.replace(before, rule).await?;
            match changed {
                Changed::Yes => {
                    self.in_force().await;
                    return Ok((before.rule.clone(), entry));
                }
                Changed::Missing => return Err(Refusal::NoRule),
                Changed::Claimed { by } => return Err(self.claimed(&entry.rule, by).await),
                Changed::Stale | Changed::Exists => {}
            }
        }
        Err(Refusal::Busy)
    }

    /// A rule that may be changed by this request.
    fn current<'s>(&self, stored: &'s Stored, id: &str) -> Result<&'s Entry, Refusal> {
        let entry = stored.get(id).ok_or(Refusal::NoRule)?;
        if !self.if_match(entry) {
            return Err(Refusal::Stale);
        }
        if entry.rule.managed_by == Some(ManagedBy::File) {
            return Err(Refusal::Conflict(
                "the rule comes from the rule file; change it there".into(),
            ));
        }
        Ok(entry)
    }

    fn if_match(&self, entry: &Entry) -> bool {
        let mut given = self.headers.get_all(IF_MATCH).iter().peekable();
        if given.peek().is_none() {
            return true;
        }
        let tag = entry.tag();
        given.filter_map(|it| it.to_str().ok()).any(|list| {
            list.split(',')
                .any(|one| matches!(one.trim(), "*") || one.trim() == tag)
        })
    }

    fn json(&self) -> Result<Value, Refusal> {
        if self.body.len() > MAX_BODY {
            return Err(Refusal::TooLarge);
        }
        Ok(faults::json(self.body)?)
    }

    fn countable(&self, rule: &Rule) -> Result<(), Refusal> {
        self.rules.0.compiler.check(rule).map_err(|error| {
            let field = if rule.config.is_some() {
                "config"
            } else {
                "quotas"
            };
            Faults::one(field, None, format!("cannot be counted: {error}")).into()
        })
    }

    fn changeable(&self) -> Result<(), Refusal> {
        if self.rules.can_change() {
            return Ok(());
        }
        Err(Refusal::Conflict(
            "the store of this service keeps no rules, so they come from its rule file only; use redis://, dynamodb:// or memory:// to change them here".into(),
        ))
    }

    /// Whose place it is that a rule wants to take.
    async fn claimed(&self, rule: &Rule, by: Option<String>) -> Refusal {
        let by = match by {
            Some(by) => Some(by),
            None => self.stored().await.ok().and_then(|stored| {
                let wanted = rule.uniqueness();
                let mut all = stored.rules.into_iter();
                let owner = all.find(|it| it.rule.id != rule.id && it.rule.uniqueness() == wanted);
                owner.map(|it| it.rule.id)
            }),
        };
        let owner = by.map_or_else(|| "another rule".into(), |by| format!("rule {by}"));
        Refusal::Conflict(format!(
            "{owner} has the same identity type, algorithm and match; there can be one of each"
        ))
    }

    /// This process has it at once, the others when they are told.
    async fn in_force(&self) {
        // It is stored: what fails here is tried again soon.
        let _ = self.rules.refresh().await;
    }
}

/// Which part of a list.
#[derive(Default)]
struct Page {
    limit: Option<usize>,
    cursor: Option<String>,
}

impl Page {
    fn of(query: &str) -> Result<Self, Faults> {
        let (mut page, mut faults) = (Self::default(), Faults::default());
        for pair in query.split('&').filter(|it| !it.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let shown = Value::from(value);
            match name {
                "limit" => match value.parse() {
                    Ok(limit @ 1..=MAX_PAGE) => page.limit = Some(limit as usize),
                    _ => {
                        let problem = format!("is no whole number from 1 to {MAX_PAGE}");
                        faults.add("limit".into(), Some(&shown), problem);
                    }
                },
                "cursor" if read::is_id(value) => page.cursor = Some(value.into()),
                "cursor" => {
                    let problem = "is no cursor; take the one in the Link of the page before";
                    faults.add("cursor".into(), Some(&shown), problem);
                }
                _ => faults.add(
                    name.into(),
                    Some(&shown),
                    "is not known here; use limit and cursor",
                ),
            }
        }
        if faults.is_empty() {
            Ok(page)
        } else {
            Err(faults)
        }
    }
}
