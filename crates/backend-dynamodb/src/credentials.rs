//! Loading credentials beside the calls that wait for them.

use std::fmt;
use std::sync::Arc;

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{Result, future};
use aws_sdk_dynamodb::config::{ProvideCredentials, SharedCredentialsProvider};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// A call gives up at its timeout, and what it awaited is dropped. A role's credentials may take
/// longer to come than a call may take; were their loading dropped with each call, they would never
/// come. So it goes on, and the next call finds it further on.
#[derive(Clone)]
pub(crate) struct Patient(Arc<Inner>);

struct Inner {
    provider: SharedCredentialsProvider,
    loading: Mutex<Option<Loading>>,
}

/// Dropping it ends the loading.
struct Loading(JoinHandle<Result>);

impl Drop for Loading {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Patient {
    pub(crate) fn new(provider: SharedCredentialsProvider) -> Self {
        Self(Arc::new(Inner {
            provider,
            loading: Mutex::new(None),
        }))
    }

    async fn load(&self) -> Result {
        let mut loading = self.0.loading.lock().await;
        let task = loading.get_or_insert_with(|| {
            let provider = self.0.provider.clone();
            Loading(tokio::spawn(
                async move { provider.provide_credentials().await },
            ))
        });
        let loaded = (&mut task.0).await;
        *loading = None;
        loaded.unwrap_or_else(|broken| Err(CredentialsError::unhandled(broken)))
    }
}

impl ProvideCredentials for Patient {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.load())
    }

    fn fallback_on_interrupt(&self) -> Option<Credentials> {
        self.0.provider.fallback_on_interrupt()
    }
}

impl fmt::Debug for Patient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Patient")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use tokio::sync::Notify;

    use super::*;

    #[derive(Debug, Default)]
    struct Slow {
        started: AtomicU32,
        come: Notify,
    }

    #[derive(Clone, Debug, Default)]
    struct Provider(Arc<Slow>);

    impl ProvideCredentials for Provider {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            future::ProvideCredentials::new(async {
                self.0.started.fetch_add(1, Ordering::SeqCst);
                self.0.come.notified().await;
                Ok(Credentials::for_tests())
            })
        }
    }

    #[tokio::test]
    async fn callers_that_give_up_do_not_stop_the_loading() {
        let slow = Provider::default();
        let patient = Patient::new(SharedCredentialsProvider::new(slow.clone()));
        for _ in 0..5 {
            let waited = tokio::time::timeout(Duration::from_millis(2), patient.load());
            assert!(waited.await.is_err());
        }
        assert_eq!(slow.0.started.load(Ordering::SeqCst), 1);
        slow.0.come.notify_one();
        assert!(patient.load().await.is_ok());
        slow.0.come.notify_one();
        assert!(patient.load().await.is_ok());
        assert_eq!(slow.0.started.load(Ordering::SeqCst), 2);
    }
}
