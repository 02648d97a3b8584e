//! `tollgate serve`: the gateway.

mod accept;
mod answer;
mod body;
mod client_stream;
mod connection;
mod cors;
mod early;
mod forwarding;
mod gateway;
mod known;
mod open;
mod patience;
mod peer;
mod probes;
mod routes;
mod signals;
mod template;
mod tls;
mod unsent;
mod upload;
mod upstream;
mod validity;
mod websocket;
mod worker;

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ArgMatches;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tollgate::{Connect, ConnectError, Limiter};

use crate::admin;
use crate::cli::ServeArgs;
use crate::config::{Given, Settings, Upstream, values, variables};
use crate::metrics::Metrics;
use crate::output::Lines;
use crate::service::Service;
use crate::traces::Traces;
use crate::{Outcome, SUCCESS, store};
pub(crate) use cors::Cors;
use gateway::Gateway;
use open::Drain;
use routes::Routes;
use signals::Signals;
use tls::Tls;
use upstream::Target;
#[cfg(feature = "otlp")]
pub(crate) use upstream::connector;
use worker::{Shared, Worker};

/// Notes what is wrong with the files of certificates that the settings name.
pub(crate) fn check_certificates(given: &Given<'_>) {
    let path = |field| {
        let found = given.find(field, values::text).ok().flatten();
        found.map(|(path, _)| PathBuf::from(path))
    };
    if let (Some(certificate), Some(key)) = (path("tls.certificate"), path("tls.key"))
        && let Err(error) = Tls::read(&certificate, &key)
    {
        let field = match error.path() == Some(&*key) {
            true => "tls.key",
            false => "tls.certificate",
        };
        given.mistake(given.placed(format!("{field}: {error}")));
    }
    if let Some(authorities) = path("upstream_ca")
        && let Err(error) = upstream::connector(Some(&authorities))
    {
        given.mistake(given.placed(error.to_string()));
    }
}

/// What the command is told; nothing where it was only to be printed.
pub(crate) fn settings(args: &ServeArgs, matches: &ArgMatches) -> Outcome<Option<Settings>> {
    let given = Given::new(matches, "serve").with_file(args.config.clone());
    let settings = Settings::read(&given)?;
    if args.print_config {
        let mut lines = Lines::new();
        lines.text(given.print().trim_end())?;
        lines.flush()?;
        return Ok(None);
    }
    Ok(Some(settings))
}

/// Runs the command until a signal ends it.
pub(crate) fn run(settings: Settings, matches: &ArgMatches) -> Outcome {
    for variables::Unknown { name, nearest } in variables::unknown(&Given::new(matches, "serve")) {
        match nearest {
            Some(nearest) => tracing::warn!(
                variable = name,
                nearest,
                "this variable is no setting and is not read; another one may have been meant"
            ),
            None => tracing::warn!(
                variable = name,
                "this variable is no setting and is not read"
            ),
        }
    }
    // Requests are served by the workers; this thread accepts, and sees to the store.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(serve(settings));
    runtime.shutdown_background();
    result
}

/// How long a call of the store's client may take at least: an answer that comes too late for its
/// request is still worth its connection.
const CLIENT_TIMEOUT: Duration = Duration::from_millis(500);

async fn serve(settings: Settings) -> Outcome {
    let mut signals = Signals::new()?;
    let metrics = Metrics::start(settings.metrics)?;
    let backend = tokio::select! {
        backend = Connect::new(&settings.backend)
            .prefix(&*settings.prefix)
            .max_keys(settings.max_keys)
            .timeout(settings.timeout.max(CLIENT_TIMEOUT))
            .require(settings.require_backend_at_start)
            .connect() => backend.map_err(|error| cannot_start(&settings, &error))?,
        _ = signals.next() => return Ok(SUCCESS),
    };
    let limiter = Limiter::builder(backend)
        .timeout(settings.timeout)
        .on_failure(settings.on_failure);
    let limiter = match store::name(&settings.backend) {
        // What is counted in this process is as near as a memory of it.
        "memory" => limiter.remember_refusals(0),
        _ => limiter.remember_refusals_for(settings.remember_refusals),
    };
    let limiter = limiter.build();

    let listener = TcpListener::bind(&settings.listen)
        .await
        .map_err(|cause| format!("--listen {}: cannot listen there: {cause}", settings.listen))?;
    let admin =
        match &settings.admin.listen {
            None => None,
            Some(address) => Some(TcpListener::bind(address).await.map_err(|cause| {
                format!("--admin-listen {address}: cannot listen there: {cause}")
            })?),
        };
    let surface = admin.as_ref().unwrap_or(&listener).local_addr()?;
    let service = Service::new(&settings, &limiter, surface.ip(), metrics).await?;
    let tls = match &settings.proxy.tls {
        Some((certificate, key)) => Some(Arc::new(Tls::read(certificate, key)?)),
        None => None,
    };
    let traces = Traces::start(
        settings.traces.as_ref(),
        settings.proxy.upstream_ca.as_deref(),
    )?;
    let routes = routes(&settings)?;
    announce(&listener, &limiter, &settings)?;
    let gateway = Arc::new(Gateway::new(
        limiter,
        service,
        routes,
        traces.clone(),
        &settings,
    ));
    let mut apart = JoinSet::new();
    if let Some(listener) = admin {
        let mut lines = Lines::new();
        lines.text(&format!("admin on http://{surface}"))?;
        lines.flush()?;
        tracing::info!(address = %surface, "admin surface");
        let gateway = Arc::clone(&gateway);
        apart.spawn(admin::serve(listener, move |request, peer| {
            let gateway = Arc::clone(&gateway);
            async move { gateway.administer(request, peer).await }
        }));
    }
    let drain = Arc::new(Drain::default());
    let workers = (0..settings.proxy.workers)
        .map(|number| {
            let (gateway, drain) = (Arc::clone(&gateway), Arc::clone(&drain));
            let shared = Shared::new(gateway, drain, tls.clone(), &settings);
            Worker::start(number, shared)
        })
        .collect::<Result<_, _>>()?;
    let tls = tls.as_deref();
    accept::serve(
        listener,
        workers,
        &gateway,
        &drain,
        tls,
        &settings,
        &mut signals,
    )
    .await;
    traces.finish();
    tracing::info!("stopped");
    Ok(SUCCESS)
}

/// Where requests go.
fn routes(settings: &Settings) -> Result<Routes, Box<dyn Error + Send + Sync>> {
    let routed = settings.upstreams.iter().map(|route| &route.url);
    let encrypted = routed.chain(&settings.upstream).any(Upstream::is_encrypted);
    let tls = match encrypted {
        true => Some(upstream::connector(settings.proxy.upstream_ca.as_deref())?),
        false => None,
    };
    let target = |url: &Upstream| Target::new(url.clone(), settings, tls.as_ref());
    let routes = settings.upstreams.iter();
    let routes = routes.map(|it| (it.host.clone(), it.path.clone(), target(&it.url)));
    Ok(Routes::new(routes, settings.upstream.as_ref().map(target)))
}

/// Why there is no backend, and how to start without it where that would help.
fn cannot_start(settings: &Settings, error: &ConnectError) -> String {
    let by = settings.backend_given_by.as_ref();
    let message = store::failed(by, &settings.backend, error);
    match error {
        ConnectError::Backend(error) if error.is_transient() => format!(
            "{message}; to start anyway and use it once it is there, give \
             --require-backend-at-start false"
        ),
        _ => message,
    }
}

/// Says where it listens: one line on standard output, for people and scripts.
fn announce(listener: &TcpListener, limiter: &Limiter, settings: &Settings) -> std::io::Result<()> {
    let address = listener.local_addr()?;
    let mut lines = Lines::new();
    let scheme = match settings.proxy.tls {
        Some(_) => "https",
        None => "http",
    };
    lines.text(&format!("listening on {scheme}://{address}"))?;
    lines.flush()?;
    let quotas: Vec<String> = settings.quotas.iter().map(ToString::to_string).collect();
    tracing::info!(
        %address,
        quota = quotas.join(", "),
        backend = %limiter.backend(),
        on_failure = %settings.on_failure,
        upstream = settings.upstream.as_ref().map(tracing::field::display),
        "listening"
    );
    Ok(())
}
