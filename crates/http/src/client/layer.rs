//! [`TrustedProxies`] as a layer.

use std::task::{Context, Poll};

use http::Request;
use tower_layer::Layer;
use tower_service::Service;

use super::TrustedProxies;

impl<S> Layer<S> for TrustedProxies {
    type Service = TrustedProxiesService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        TrustedProxiesService {
            proxies: self.clone(),
            inner,
        }
    }
}

/// A service whose requests know their client. Made by [`TrustedProxies`].
#[derive(Clone, Debug)]
pub struct TrustedProxiesService<S> {
    proxies: TrustedProxies,
    inner: S,
}

impl<S, B> Service<Request<B>> for TrustedProxiesService<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        let (mut parts, body) = request.into_parts();
        self.proxies.resolve(&mut parts);
        self.inner.call(Request::from_parts(parts, body))
    }
}
