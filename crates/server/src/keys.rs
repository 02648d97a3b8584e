//! API keys of the store over HTTP: `/v1/keys`. A key is told once, to whoever makes it.

use axum::Router;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{HeaderValue, LOCATION};
use http::{StatusCode, Uri};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate::{BackendError, Changed, Document};
use utoipa::ToSchema;

use crate::admin::{Failed, Json, body, fields};
use crate::identity::{StoredKey, StoredKeys, key_digest};
use crate::rules::{Fields, Moment, flag, text};

/// The most keys, since every process keeps all of them.
const MOST: usize = 10_000;

/// The longest owner and plan, in bytes.
const LONGEST: usize = 200;

/// How often a change is tried again that another one came before.
const TRIES: usize = 8;

/// The routes below `/v1/keys`.
pub(crate) fn routes(keys: Option<StoredKeys>) -> Router {
    Router::new()
        .route("/v1/keys", get(list).post(create))
        .route("/v1/keys/{id}", get(show).patch(change).delete(remove))
        .with_state(Keys(keys))
}

/// The keys, if they are kept in the store.
#[derive(Clone)]
struct Keys(Option<StoredKeys>);

impl Keys {
    fn there(&self) -> Result<&StoredKeys, Failed> {
        self.0.as_ref().ok_or_else(|| {
            let detail = "API keys are not kept in the store; set identity.stored_keys = true";
            Failed::new(StatusCode::NOT_FOUND, detail)
        })
    }

    /// The key of a path. (Ids have no character that is ever written otherwise.)
    async fn find(&self, uri: &Uri) -> Result<(Document, StoredKey), Failed> {
        let id = uri.path().rsplit('/').next().unwrap_or_default();
        let stored = self.there()?.list().await;
        let mut stored = stored.map_err(|error| unreachable(&error))?.into_iter();
        stored
            .find(|(document, _)| document.id == id)
            .ok_or_else(|| Failed::new(StatusCode::NOT_FOUND, "There is no API key of this id"))
    }
}

/// A key to be made.
// `Deserialize` is for the schema, which so says that other fields are refused.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyRequest {
    /// Whose it is. All keys of an owner share a budget.
    #[schema(min_length = 1, max_length = 200)]
    owner: String,
    /// The plan that rules may look at.
    #[schema(min_length = 1, max_length = 200)]
    plan: Option<String>,
    /// When it ends to hold (RFC 3339), which is not over yet. Never, where none is given.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires: Option<Moment>,
}

impl KeyRequest {
    fn read(bytes: &[u8]) -> Result<Self, Failed> {
        fields(bytes, |fields| {
            let owner = fields.read_needed("owner", "say whose it is", plain);
            let plan = fields.read("plan", plain);
            let now = Moment::now();
            let expires = fields.read("expires", |value| match moment(value)? {
                it if it.as_micros() > now.as_micros() => Ok(it),
                _ => Err("is over; write a later one, or leave it out".into()),
            });
            Some(Self {
                owner: owner?,
                plan,
                expires,
            })
        })
    }
}

/// What is changed of a key; what is not given stays, and `null` takes away.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyChange {
    /// Whether it does not hold, until that is changed again.
    disabled: Option<bool>,
    /// The plan that rules may look at.
    #[schema(value_type = Option<String>, min_length = 1, max_length = 200)]
    plan: Option<Option<String>>,
    /// When it ends to hold (RFC 3339).
    #[schema(value_type = Option<String>, format = DateTime)]
    expires: Option<Option<Moment>>,
}

impl KeyChange {
    fn read(bytes: &[u8]) -> Result<Self, Failed> {
        fields(bytes, |fields| {
            Some(Self {
                disabled: fields.read("disabled", flag),
                plan: changed(fields, "plan", plain),
                expires: changed(fields, "expires", moment),
            })
        })
    }
}

/// What a field is to be, if it is given.
#[expect(
    clippy::option_option,
    reason = "null takes away, and none leaves alone"
)]
fn changed<T>(
    fields: &mut Fields<'_>,
    field: &'static str,
    read: impl FnOnce(&Value) -> Result<T, String>,
) -> Option<Option<T>> {
    let taken = fields.read(field, read);
    (taken.is_some() || fields.is_null(field)).then_some(taken)
}

/// A key, without what it is known by.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Key {
    id: String,
    owner: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    created: Moment,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires: Option<Moment>,
    disabled: bool,
}

/// A key that was made.
#[derive(Serialize, ToSchema)]
pub(crate) struct NewKey {
    /// What clients send. It is not kept, and cannot be told again.
    key: String,
    #[serde(flatten)]
    about: Key,
}

impl Key {
    fn of((document, key): (Document, StoredKey)) -> Self {
        Self {
            id: document.id,
            owner: key.owner,
            plan: key.plan,
            created: key.created,
            expires: key.expires,
            disabled: key.disabled,
        }
    }
}

async fn list(State(keys): State<Keys>) -> Result<Response, Failed> {
    let stored = keys.there()?.list().await;
    let mut all: Vec<Key> = stored
        .map_err(|error| unreachable(&error))?
        .into_iter()
        .map(Key::of)
        .collect();
    all.sort_by(|a, b| (&a.owner, &a.id).cmp(&(&b.owner, &b.id)));
    Ok(Json(all).into_response())
}

async fn show(State(keys): State<Keys>, uri: Uri) -> Result<Response, Failed> {
    Ok(Json(Key::of(keys.find(&uri).await?)).into_response())
}

async fn create(
    State(keys): State<Keys>,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<Response, Failed> {
    let KeyRequest {
        owner,
        plan,
        expires,
    } = KeyRequest::read(&body(bytes)?)?;
    let store = keys.there()?;
    let stored = store.list().await.map_err(|error| unreachable(&error))?;
    if stored.len() >= MOST {
        let detail = "There are 10,000 API keys, and no more can be kept; remove some";
        return Err(Failed::new(StatusCode::CONFLICT, detail));
    }
    let (id, key) = (random::<12>()?, format!("tg_{}", random::<32>()?));
    let made = StoredKey {
        digest: key_digest(&key),
        owner,
        plan,
        created: Moment::now(),
        expires,
        disabled: false,
    };
    let changed = store.create(&id, &made).await;
    if changed.map_err(|error| unreachable(&error))? != Changed::Yes {
        let detail = "The API key could not be made; try again";
        return Err(Failed::new(StatusCode::CONFLICT, detail));
    }
    let place = HeaderValue::from_str(&format!("/v1/keys/{id}"));
    let body = Vec::new();
    let about = Key::of((Document { id, body }, made));
    let mut response = (StatusCode::CREATED, Json(NewKey { key, about })).into_response();
    if let Ok(place) = place {
        response.headers_mut().insert(LOCATION, place);
    }
    Ok(response)
}

async fn change(
    State(keys): State<Keys>,
    uri: Uri,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<Response, Failed> {
    let KeyChange {
        disabled,
        plan,
        expires,
    } = KeyChange::read(&body(bytes)?)?;
    for _ in 0..TRIES {
        let (document, mut key) = keys.find(&uri).await?;
        key.disabled = disabled.unwrap_or(key.disabled);
        key.plan = plan.clone().unwrap_or(key.plan);
        key.expires = expires.clone().unwrap_or(key.expires);
        let changed = keys.there()?.replace(&document, &key).await;
        if changed.map_err(|error| unreachable(&error))? == Changed::Yes {
            return Ok(Json(Key::of((document, key))).into_response());
        }
    }
    Err(busy())
}

async fn remove(State(keys): State<Keys>, uri: Uri) -> Result<StatusCode, Failed> {
    for _ in 0..TRIES {
        let (document, key) = keys.find(&uri).await?;
        let changed = keys.there()?.delete(&document, &key).await;
        if changed.map_err(|error| unreachable(&error))? == Changed::Yes {
            return Ok(StatusCode::NO_CONTENT);
        }
    }
    Err(busy())
}

/// So many random bytes, as text.
fn random<const N: usize>() -> Result<String, Failed> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| {
        let detail = "The system has no random numbers";
        Failed::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    })?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// A text that can be shown.
fn plain(value: &Value) -> Result<String, String> {
    let text = text(value)?;
    if text.is_empty() || text.len() > LONGEST || text.chars().any(char::is_control) {
        return Err(format!(
            "is not 1 to {LONGEST} bytes without control characters"
        ));
    }
    Ok(text.into())
}

fn moment(value: &Value) -> Result<Moment, String> {
    Moment::try_from(text(value)?.to_owned())
}

fn busy() -> Failed {
    let detail = "Others change the same API key at the same time; try again";
    Failed::new(StatusCode::CONFLICT, detail)
}

fn unreachable(error: &BackendError) -> Failed {
    tracing::warn!(%error, "API keys cannot be read or changed");
    Failed::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "The store does not answer: what was to be changed may be, or not",
    )
}
