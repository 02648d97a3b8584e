//! What `tollgate serve` is made of besides the gateway: identities, rules, decisions, and the admin
//! surface, put together by the settings.

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;

use tollgate::Limiter;

use crate::admin::{Access, Admin, Shared, is_admin};
use crate::config::Settings;
use crate::engine::{Blocks, Engine};
use crate::identity::{Digester, IdentityType, Resolver, StoredKeys};
use crate::metrics::Metrics;
use crate::rules::{Compiler, Keeping, RuleSettings, Rules, rest};
use crate::tasks::Tasks;
use crate::{keys, pages, usage, v1};

/// The parts that requests share.
#[derive(Debug)]
pub(crate) struct Service {
    /// Who decides.
    pub(crate) engine: Arc<Engine>,
    /// What operators use.
    pub(crate) admin: Admin,
    /// The rules in force.
    pub(crate) rules: Rules,
    /// They are kept in step until it ends.
    _keeping: Keeping,
    /// Whether they use a listener of its own.
    apart: bool,
    /// They end with it.
    _tasks: Tasks,
}

impl Service {
    /// By these settings, for an admin surface that is reached at this address.
    ///
    /// # Errors
    /// Settings that cannot work together, and limits that the store cannot count.
    pub(crate) async fn new(
        settings: &Settings,
        limiter: &Limiter,
        listener: IpAddr,
        metrics: Metrics,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let mut tasks = Tasks::default();
        let keys = match settings.identity.stored_keys {
            true => Some(stored_keys(limiter, settings)?),
            false => None,
        };
        if let Some(keys) = &keys {
            keys.keep(settings.rules.cache_ttl, &mut tasks).await;
        }
        let resolver = Resolver::new(settings.identity.clone())?;
        let resolver = Arc::new(resolver.with_stored_keys(keys.clone()));
        let digester = Digester::new(settings.key_secret.as_deref().map(str::as_bytes));
        let guessable = [IdentityType::IpAddress, IdentityType::Phone];
        if !digester.is_keyed()
            && store_is_shared(settings)
            && resolver.order().iter().any(|kind| guessable.contains(kind))
        {
            tracing::warn!(
                "the store keeps plain digests of addresses or phone numbers, which can be found by \
                 trying all of them: set TOLLGATE_KEY_SECRET to the same secret everywhere"
            );
        }
        let named = Arc::clone(&resolver);
        let compiler = Compiler {
            limiter: limiter.clone(),
            headers: settings.headers,
            default: settings.quotas.clone(),
            normalise: Arc::new(move |kind, text| {
                let named = named.named(kind, text.as_bytes());
                named.map_or_else(|_| text.as_bytes().to_vec(), |it| it.value().to_vec())
            }),
        };
        let kept = RuleSettings {
            file: settings.rules.file.clone(),
            cache_ttl: settings.rules.cache_ttl,
            prefix: settings.prefix.clone(),
            require_store: settings.require_backend_at_start,
        };
        let (rules, keeping) = Rules::start(compiler, kept).await?;
        let blocks = Blocks::of(limiter.backend(), &settings.prefix);
        blocks.keep(settings.rules.cache_ttl, &mut tasks).await;
        let engine = Arc::new(Engine::new(
            resolver,
            digester,
            rules.shared_table(),
            blocks,
        ));
        let shared = Shared {
            engine: Arc::clone(&engine),
        };
        let router = usage::routes()
            .merge(v1::routes())
            .with_state(shared)
            .merge(rest::routes(rules.clone()))
            .merge(keys::routes(keys))
            .merge(pages::routes(Arc::new(metrics)));
        let Settings { admin, .. } = settings;
        let access = Access::new(admin.token.as_deref(), admin.open, listener);
        if let Some(keys) = settings.identity.api_keys.clone() {
            tasks.keep("the file of API keys", move || keys.clone().watch());
        }
        let checks = Arc::clone(&engine);
        Ok(Self {
            engine,
            admin: Admin::new(access, router).with_checks(checks),
            rules,
            _keeping: keeping,
            apart: admin.listen.is_some(),
            _tasks: tasks,
        })
    }

    /// Whether this path is answered by the admin surface on the main listener.
    pub(crate) fn is_admin(&self, path: &str) -> bool {
        !self.apart && is_admin(path)
    }
}

/// The API keys of the store that counts.
fn stored_keys(limiter: &Limiter, settings: &Settings) -> Result<StoredKeys, String> {
    StoredKeys::of(limiter.backend(), &settings.prefix).ok_or_else(|| {
        format!(
            "identity.stored_keys: {} cannot keep API keys; use redis://, dynamodb:// or \
             memory://, or a file (identity.api_keys)",
            limiter.backend()
        )
    })
}

/// Whether others can read what is stored.
fn store_is_shared(settings: &Settings) -> bool {
    !settings.backend.starts_with("memory:")
}
