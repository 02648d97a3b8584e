//! Key sets: when they are fetched, what of them counts, and from whom.

use std::sync::atomic::{AtomicUsize, Ordering};

use ring::signature::RsaPublicKeyComponents;
use tollgate_core::{ManualClock, Timestamp};

use super::*;

/// The RSA key as a set, under this `kid`.
fn key_set(kid: &str) -> Vec<u8> {
    let key = RsaKeyPair::from_pkcs8(RSA).unwrap();
    let of = |it: &[u8]| B64.encode(it);
    let public: RsaPublicKeyComponents<Vec<u8>> = key.public().into();
    let ed = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let ed = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&ed.serialize_der()).unwrap();
    let set = json!({"keys": [
        {"kty": "oct", "k": of(&SECRET), "alg": "HS256", "kid": "secret"},
        {"kty": "new-kind", "kid": "x"},
        {"kty": "OKP", "crv": "Ed25519", "x": of(ed.public_key().as_ref()), "kid": "ed"},
        {"kty": "RSA", "use": "enc", "n": "AQAB", "e": "AQAB", "kid": kid},
        {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": kid,
         "n": of(&public.n), "e": of(&public.e)},
    ]});
    set.to_string().into_bytes()
}

/// A set that counts how often it is asked for, and what it answers.
#[derive(Clone, Default)]
struct Issuer {
    asked: Arc<AtomicUsize>,
    kid: Arc<parking_lot::Mutex<Option<String>>>,
}

impl Issuer {
    fn with(kid: &str) -> Self {
        let issuer = Self::default();
        issuer.publish(Some(kid));
        issuer
    }
    fn publish(&self, kid: Option<&str>) {
        *self.kid.lock() = kid.map(Into::into);
    }
    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
    fn keys(&self, clock: &ManualClock) -> Jwt {
        let jwks = Jwks::new(self.clone()).clock(clock.clone());
        Jwt::new("issuer", "orders", jwks)
    }
}

impl FetchJwks for Issuer {
    fn fetch(&self) -> Fetching {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let kid = self.kid.lock().clone();
        Box::pin(async move {
            tokio::task::yield_now().await;
            kid.map(|kid| key_set(&kid))
                .ok_or_else(|| FetchError::new("it is down"))
        })
    }
}

fn signed(kid: &str) -> String {
    rs256(&json!({"alg": "RS256", "kid": kid}), &claims())
}

async fn waited(source: &Jwt, token: &str) -> String {
    let parts = bearing(token);
    match source.identify_now(&parts) {
        Some(answer) => told(answer),
        None => told(source.identify(&parts).await),
    }
}

fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_micros(1_700_000_000_000_000))
}

#[tokio::test]
async fn a_key_set_is_fetched_once_and_kept() {
    let (issuer, clock) = (Issuer::with("a"), clock());
    let source = issuer.keys(&clock);
    assert!(source.identify_now(&bearing(&signed("a"))).is_none());
    for _ in 0..5 {
        assert_eq!(waited(&source, &signed("a")).await, alice(None));
    }
    // Clones share it, and now there is no waiting.
    assert_eq!(asked(&source.clone(), &signed("a")), alice(None));
    assert_eq!(issuer.asked(), 1);
    // Without a token nothing is fetched, nor for one that is none.
    let (none, ()) = Request::new(()).into_parts();
    assert_eq!(told(source.identify_now(&none).unwrap()), "Unknown");
    // Old keys are fetched again, and the refresh is in time.
    clock.advance(Duration::from_secs(601));
    assert_eq!(waited(&source, &signed("a")).await, alice(None));
    assert_eq!(issuer.asked(), 2);
}

#[tokio::test]
async fn b100_unknown_kids_fetch_at_most_once_a_pause_and_never_anything_else() {
    let (issuer, clock) = (Issuer::with("a"), clock());
    let source = issuer.keys(&clock);
    assert_eq!(waited(&source, &signed("a")).await, alice(None));
    clock.advance(Duration::from_secs(31));
    for kid in 0..100 {
        let answer = waited(&source, &signed(&format!("../../{kid}"))).await;
        assert!(is_invalid(&answer), "{answer}");
    }
    assert_eq!(issuer.asked(), 2);
    // A key that is really new is found after the pause.
    issuer.publish(Some("b"));
    assert!(is_invalid(&waited(&source, &signed("b")).await));
    clock.advance(Duration::from_secs(31));
    assert_eq!(waited(&source, &signed("b")).await, alice(None));
    assert!(is_invalid(&waited(&source, &signed("a")).await));
    assert_eq!(issuer.asked(), 3);
}

#[tokio::test]
async fn b100_secrets_of_a_set_and_other_algorithms_verify_nothing() {
    let source = Issuer::with("a").keys(&clock());
    let hs = hs256(
        &SECRET,
        &json!({"alg": "HS256", "kid": "secret"}),
        &claims(),
    );
    assert!(is_invalid(&waited(&source, &hs).await));
    let ps = rsa_with(
        &RSA_PSS_SHA256,
        &json!({"alg": "PS256", "kid": "a"}),
        &claims(),
    );
    assert!(is_invalid(&waited(&source, &ps).await));
    let only_ed = Jwks::new(Issuer::with("a")).algorithms(&[JwtAlgorithm::EdDsa]);
    let only_ed = Jwt::new("issuer", "orders", only_ed);
    assert!(is_invalid(&waited(&only_ed, &signed("a")).await));
}

#[tokio::test]
async fn many_requests_at_once_share_one_fetch_and_one_that_goes_away_ends_nothing() {
    let (issuer, clock) = (Issuer::with("a"), clock());
    let source = issuer.keys(&clock);
    let parts = bearing(&signed("a"));
    {
        let mut gone = std::pin::pin!(source.identify(&parts));
        let waker = std::task::Waker::noop();
        let mut context = std::task::Context::from_waker(waker);
        assert!(gone.as_mut().poll(&mut context).is_pending());
    }
    let many: Vec<_> = (0..20)
        .map(|_| {
            let source = source.clone();
            tokio::spawn(async move { waited(&source, &signed("a")).await })
        })
        .collect();
    for one in many {
        assert_eq!(one.await.unwrap(), alice(None));
    }
    assert_eq!(issuer.asked(), 1);
}

#[tokio::test]
async fn an_issuer_that_is_down_is_our_error_and_old_keys_serve_for_a_day() {
    let (issuer, clock) = (Issuer::default(), clock());
    let source = issuer.keys(&clock);
    let log = crate::test_log::Log::new();
    for _ in 0..5 {
        let answer = waited(&source, &signed("a")).await;
        assert!(answer.starts_with("Misconfigured"), "{answer}");
    }
    assert_eq!(
        (issuer.asked(), log.count("WARN")),
        (1, 1),
        "{}",
        log.text()
    );
    issuer.publish(Some("a"));
    clock.advance(Duration::from_secs(31));
    assert_eq!(waited(&source, &signed("a")).await, alice(None));
    issuer.publish(None);
    clock.advance(Duration::from_secs(86_000));
    assert_eq!(waited(&source, &signed("a")).await, alice(None));
    clock.advance(Duration::from_secs(500));
    let answer = waited(&source, &signed("a")).await;
    assert!(answer.starts_with("Misconfigured"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_hangs_ends_with_its_timeout() {
    let jwks = Jwks::new(std::future::pending::<Result<Vec<u8>, FetchError>>)
        .timeout(Duration::from_millis(200))
        .clock(clock());
    let source = Jwt::new("issuer", "orders", jwks);
    let start = tokio::time::Instant::now();
    let answer = waited(&source, &signed("a")).await;
    assert!(answer.starts_with("Misconfigured"), "{answer}");
    let took = start.elapsed();
    assert!(
        took >= Duration::from_millis(200) && took < Duration::from_millis(300),
        "{took:?}"
    );
}

#[tokio::test]
async fn documents_that_are_too_large_or_no_set_are_refused() {
    let large = format!(r#"{{"keys":[],"x":"{}"}}"#, "x".repeat(256 << 10));
    for document in [large, "[]".into(), "{".into(), r#"{"keys":{}}"#.into()] {
        let jwks = Jwks::new(move || {
            let document = document.clone();
            async move { Ok(document.into_bytes()) }
        });
        let source = Jwt::new("issuer", "orders", jwks);
        let answer = waited(&source, &signed("a")).await;
        assert!(answer.starts_with("Misconfigured"), "{answer}");
    }
}

#[cfg(feature = "jwks")]
mod by_url {
    use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::crypto::ring::default_provider;
    use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

    use super::*;
    use crate::HttpFetch;

    async fn answer(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), answer: &[u8]) -> String {
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            asked.push(stream.read_u8().await.unwrap());
        }
        // The other side may have heard enough.
        let _ = stream.write_all(answer).await;
        let _ = stream.shutdown().await;
        String::from_utf8(asked).unwrap()
    }

    fn http(status: &str, body: &[u8]) -> Vec<u8> {
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body].concat()
    }

    #[tokio::test]
    async fn keys_are_fetched_over_tls_from_whom_is_trusted() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = made.cert.der().clone();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let server = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], PrivateKeyDer::from(key))
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(server));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!(
            "https://localhost:{}/keys?a=b",
            listener.local_addr().unwrap().port()
        );
        let serve = tokio::spawn(async move {
            // Only the second client trusts the certificate.
            let (stream, _) = listener.accept().await.unwrap();
            assert!(acceptor.accept(stream).await.is_err());
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            answer(&mut stream, &http("200 OK", &key_set("a"))).await
        });
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let stranger = HttpFetch::trusting(&url, || vec![other.cert.der().clone()]).unwrap();
        assert!(
            stranger
                .fetch()
                .await
                .unwrap_err()
                .to_string()
                .contains("TLS")
        );
        let fetch = HttpFetch::trusting(&url, || vec![certificate]).unwrap();
        let source = Jwt::new("issuer", "orders", Jwks::new(fetch));
        assert_eq!(waited(&source, &signed("a")).await, alice(None));
        let asked = serve.await.unwrap();
        assert!(asked.starts_with("GET /keys?a=b HTTP/1.1\r\n"), "{asked}");
    }

    #[tokio::test]
    async fn other_answers_than_200_and_too_much_are_refused() {
        let large = vec![b' '; (256 << 10) + 1];
        for (reply, why) in [
            (
                http("302 Found\r\nLocation: http://127.0.0.1:1/", b""),
                "302",
            ),
            (http("500 Internal Server Error", b"{\"keys\":[]}"), "500"),
            (http("200 OK", &large), "limit"),
            (b"nonsense\r\n\r\n".to_vec(), "HTTP failed"),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/", listener.local_addr().unwrap());
            let serve = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                answer(&mut stream, &reply).await
            });
            let error = HttpFetch::new(&url)
                .unwrap()
                .fetch()
                .await
                .unwrap_err()
                .to_string();
            assert!(error.contains(why), "{why}: {error}");
            serve.await.unwrap();
        }
    }

    #[test]
    fn urls_are_https_or_this_machine() {
        let of = |url: &str| {
            HttpFetch::trusting(url, Vec::new)
                .map(|_| ())
                .map_err(|it| it.to_string())
        };
        assert_eq!(of("http://127.0.0.1:1/x"), Ok(()));
        assert_eq!(of("http://[::1]/"), Ok(()));
        assert_eq!(of("http://localhost"), Ok(()));
        for url in [
            "http://example.com/",
            "ftp://localhost/",
            "/keys",
            "",
            "http://u:p@localhost/",
            "file:///etc/passwd",
        ] {
            assert!(of(url).unwrap_err().contains("write https://"), "{url}");
        }
        assert!(
            of("https://example.com/")
                .unwrap_err()
                .contains("SSL_CERT_FILE")
        );
    }
}
