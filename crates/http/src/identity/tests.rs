use std::net::SocketAddr;

use http::Request;
use http::request::Builder;

use super::*;
use crate::client::Once;
use crate::{ClientIp, PeerAddr};

fn parts(builder: Builder) -> Parts {
    builder.body(()).unwrap().into_parts().0
}

fn from(peer: &str, builder: Builder) -> Parts {
    let mut parts = parts(builder);
    let peer = SocketAddr::new(peer.parse().unwrap(), 51_000);
    parts.extensions.insert(PeerAddr(peer));
    parts
}

#[track_caller]
fn who(source: &impl IdentitySource, parts: &Parts) -> Identity {
    match source.identify_now(parts) {
        Some(Identified::As(identity)) => identity,
        other => panic!("{other:?}"),
    }
}

fn unknown(source: &impl IdentitySource, parts: &Parts) -> bool {
    matches!(source.identify_now(parts), Some(Identified::Unknown))
}

#[test]
fn s13_sources_are_asked_in_order_and_the_first_that_answers_wins() {
    let identities = Identities::new()
        .then(Subject::source())
        .then(Tenant::source())
        .then(Header::api_key("x-api-key").unwrap())
        .then(Ip::default());
    let mut all = from("192.0.2.1", Request::builder().header("x-api-key", "k"));
    assert_eq!(who(&identities, &all).source(), "api_key");
    all.extensions.insert(Tenant::new("acme"));
    assert_eq!(who(&identities, &all).source(), "tenant");
    all.extensions.insert(Subject::new("alice"));
    assert_eq!(who(&identities, &all).source(), "subject");
    // Empty is as good as missing.
    all.extensions.insert(Subject::new(""));
    assert_eq!(who(&identities, &all).source(), "tenant");
    let bare = from("192.0.2.1", Request::builder());
    assert_eq!(who(&identities, &bare).source(), "ip");
}

#[test]
fn s14_anonymous_traffic_counts_for_its_tenant_unless_tenant_is_left_out() {
    let mut anonymous = from("192.0.2.1", Request::builder());
    anonymous.extensions.insert(Tenant::new("acme"));
    let with = Identities::new()
        .then(Subject::source())
        .then(Tenant::source());
    assert_eq!(
        who(&with, &anonymous).key(),
        Identity::new("tenant", "acme").key()
    );
    let without = Identities::new()
        .then(Subject::source())
        .then(Ip::default());
    assert_eq!(who(&without, &anonymous).source(), "ip");
}

#[test]
fn s15_an_api_key_is_no_source_until_its_header_is_named() {
    let keyed = from("192.0.2.1", Request::builder().header("x-api-key", "k"));
    let off = Identities::new().then(Ip::default());
    assert_eq!(who(&off, &keyed).source(), "ip");
    let on = Identities::new()
        .then(Header::api_key("X-API-Key").unwrap())
        .then(Ip::default());
    assert_eq!(who(&on, &keyed).source(), "api_key");
}

#[test]
fn s16_forwarding_headers_are_never_read_and_client_ip_is() {
    let forged = Request::builder()
        .header("x-forwarded-for", "203.0.113.9")
        .header("forwarded", "for=203.0.113.9")
        .header("x-real-ip", "203.0.113.9");
    let mut request = from("192.0.2.1", forged);
    let ip = Identity::new("ip", "192.0.2.1");
    assert_eq!(who(&Ip::default(), &request).key(), ip.key());
    request
        .extensions
        .insert(ClientIp([198, 51, 100, 1].into()));
    let ip = Identity::new("ip", "198.51.100.1");
    assert_eq!(who(&Ip::default(), &request).key(), ip.key());
}

#[test]
fn s17_headers_that_nobody_resolved_are_warned_of_once() {
    static ONCE: Once = Once::new();
    let log = crate::test_log::Log::new();
    let source = Ip::default().warns(&ONCE);
    let plain = from("192.0.2.1", Request::builder());
    who(&source, &plain);
    assert_eq!(log.count("WARN"), 0, "{}", log.text());
    let xff = || Request::builder().header("x-forwarded-for", "203.0.113.9");
    let mut resolved = from("192.0.2.1", xff());
    resolved
        .extensions
        .insert(ClientIp([198, 51, 100, 1].into()));
    who(&source, &resolved);
    assert_eq!(log.count("WARN"), 0, "{}", log.text());
    for _ in 0..3 {
        who(&source, &from("192.0.2.1", xff()));
        who(
            &source,
            &from(
                "192.0.2.1",
                Request::builder().header("forwarded", "for=1.1.1.1"),
            ),
        );
    }
    assert_eq!(log.count("WARN"), 1, "{}", log.text());
    assert!(
        log.text()
            .contains("all clients behind the proxy share one bucket")
    );
    assert!(!log.text().contains("203.0.113.9"));
}

#[test]
fn s76_the_default_identity_is_the_peer_and_s77_by_networks() {
    let of = |source: Ip, peer| who(&source, &from(peer, Request::builder())).key().clone();
    let by64 = Ip::default();
    assert_eq!(
        of(by64, "2001:db8:1:2::1"),
        of(by64, "2001:db8:1:2:ffff::9")
    );
    assert_ne!(of(by64, "2001:db8:1:2::1"), of(by64, "2001:db8:1:3::1"));
    assert_ne!(of(by64, "203.0.113.9"), of(by64, "203.0.113.10"));
    let wide = Ip::default().client_network(24, 48).unwrap();
    assert_eq!(of(wide, "203.0.113.9"), of(wide, "203.0.113.10"));
    assert_eq!(of(wide, "2001:db8:1:2::1"), of(wide, "2001:db8:1:3::1"));
    assert_ne!(of(wide, "2001:db8:1::1"), of(wide, "2001:db8:2::1"));
}

#[test]
fn s79_a_function_of_the_request_identifies() {
    let by = identify_by("user", |parts| {
        parts.uri.query().map(|query| query.to_owned())
    });
    let alice = parts(Request::builder().uri("/?alice"));
    assert_eq!(who(&by, &alice).key(), Identity::new("user", "alice").key());
    assert!(unknown(&by, &parts(Request::builder().uri("/"))));
    let own = identify_by("user", |_| Identified::Invalid("no"));
    assert!(matches!(
        own.identify_now(&alice),
        Some(Identified::Invalid("no"))
    ));
}

#[tokio::test]
async fn s79_an_async_function_is_waited_for_in_its_turn() {
    let slow = identify_by_async("session", |parts| {
        let session = parts.headers.get("x-session").cloned();
        async move {
            tokio::task::yield_now().await;
            session.map(|it| it.as_bytes().to_vec())
        }
    });
    let identities = Identities::new()
        .then(Subject::source())
        .then(slow)
        .then(Ip::default());
    let mut request = from("192.0.2.1", Request::builder().header("x-session", "s"));
    assert!(identities.identify_now(&request).is_none());
    let answer = identities.identify(&request).await;
    assert!(matches!(answer, Identified::As(it) if it.source() == "session"));
    request.headers.clear();
    let answer = identities.identify(&request).await;
    assert!(matches!(answer, Identified::As(it) if it.source() == "ip"));
    // What comes before it takes no waiting.
    request.extensions.insert(Subject::new("alice"));
    assert_eq!(who(&identities, &request).source(), "subject");
}

#[test]
fn s80_identities_are_not_printed_and_their_keys_are_digests() {
    let mut request = from(
        "203.0.113.9",
        Request::builder().header("x-api-key", "s3cret"),
    );
    request.extensions.insert(Subject::new("alice"));
    let printed = format!(
        "{:?} {:?} {:?} {:?} {:?}",
        Subject::new("alice"),
        Tenant::new("alice"),
        who(&Subject::source(), &request),
        who(&Ip::default(), &request),
        who(&Header::api_key("x-api-key").unwrap(), &request),
    );
    for secret in ["alice", "203.0.113.9", "s3cret"] {
        assert!(!printed.contains(secret), "{printed}");
    }
}

#[test]
fn b104_sources_have_name_spaces_and_nobody_has_no_common_bucket() {
    let rule = Identities::new()
        .then(Header::new("X-User").unwrap())
        .then(Ip::default());
    let key = |parts: &Parts| who(&rule, parts).key().clone();
    let named = Request::builder().header("x-user", "203.0.113.9");
    let mut keys = vec![
        key(&from("198.51.100.1", named)),
        key(&from("203.0.113.9", Request::builder())),
        key(&from("192.0.2.1", Request::builder())),
        key(&from("192.0.2.2", Request::builder())),
        key(&from("192.0.2.3", Request::builder().header("x-user", ""))),
    ];
    assert_eq!(keys[4], *Identity::new("ip", "192.0.2.3").key());
    keys.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    keys.dedup();
    assert_eq!(keys.len(), 5);
}

#[test]
fn b104_where_nobody_answers_it_is_refused_or_by_setting_shared() {
    let request = parts(Request::builder());
    let refused = Identities::new().then(Subject::source());
    assert!(unknown(&refused, &request));
    let shared = refused.on_nobody(OnNobody::Share);
    assert_eq!(who(&shared, &request).source(), "shared");
}

#[test]
fn b102_source_and_value_are_kept_apart_in_keys() {
    let key = |source: &'static str, value: &str| Identity::new(source, value).key().clone();
    for (a, b) in [
        (("did:key:abc", "s"), ("did:key", "abc:s")),
        (("21", "1"), ("2", "11")),
        (("a", ""), ("", "a")),
        (("a|b", "c"), ("a", "b|c")),
        (("a\0", "b"), ("a", "\0b")),
    ] {
        assert_ne!(key(a.0, a.1), key(b.0, b.1), "{a:?} {b:?}");
    }
}

#[test]
fn b110_an_address_that_nobody_knows_is_a_clear_error() {
    let answer = Ip::default().identify_now(&parts(Request::builder()));
    let Some(Identified::Misconfigured(text)) = answer else {
        panic!("{answer:?}");
    };
    assert!(text.contains("into_make_service_with_connect_info") && text.contains("PeerAddr"));
    // It is not passed over, and not asked where another source answers.
    let list = Identities::new()
        .then(Subject::source())
        .then(Ip::default())
        .on_nobody(OnNobody::Share);
    let mut request = parts(Request::builder());
    let answer = list.identify_now(&request);
    assert!(
        matches!(answer, Some(Identified::Misconfigured(_))),
        "{answer:?}"
    );
    request.extensions.insert(Subject::new("alice"));
    assert_eq!(who(&list, &request).source(), "subject");
}

#[test]
fn an_invalid_credential_is_never_passed_over_unless_told_to() {
    let list = Identities::new()
        .then(ApiKeys::new("x-api-key").unwrap())
        .then(Ip::default());
    let wrong = from("192.0.2.1", Request::builder().header("x-api-key", "wrong"));
    assert!(matches!(
        list.identify_now(&wrong),
        Some(Identified::Invalid(_))
    ));
    let missing = from("192.0.2.1", Request::builder().header("x-api-key", ""));
    assert_eq!(who(&list, &missing).source(), "ip");
    let skipping = list.on_invalid(OnInvalid::Skip);
    assert_eq!(who(&skipping, &wrong).source(), "ip");
}

#[test]
fn headers_are_taken_as_bytes_and_once() {
    let source = Header::new("X-User").unwrap();
    let of = |value: &[u8]| parts(Request::builder().header("x-user", value));
    assert_ne!(
        who(&source, &of(b"\xe9")).key(),
        who(&source, &of("\u{e9}".as_bytes())).key()
    );
    let twice = parts(
        Request::builder()
            .header("x-user", "a")
            .header("x-user", "b"),
    );
    assert!(matches!(
        source.identify_now(&twice),
        Some(Identified::Invalid(_))
    ));
    assert!(Header::new("not a name").is_none());
}

#[test]
fn cookies_are_found_by_their_whole_name() {
    let source = Cookie::new("sid");
    let value = |line: &str| who(&source, &parts(Request::builder().header("cookie", line)));
    for line in [
        "sid=a",
        "x=1; sid=a",
        "asid=b;sid=a",
        " sid=\"a\" ;x=2",
        "sid=a; sid=b",
    ] {
        assert_eq!(
            value(line).key(),
            Identity::new("cookie:sid", "a").key(),
            "{line}"
        );
    }
    for line in ["", "sid", "sid=", "SID=a", "xsid=a", "x=sid=a"] {
        let request = parts(Request::builder().header("cookie", line));
        assert!(unknown(&source, &request), "{line}");
    }
    let two_lines = Request::builder()
        .header("cookie", "x=1")
        .header("cookie", "sid=a");
    assert_eq!(who(&source, &parts(two_lines)).source(), "cookie:sid");
}

#[test]
fn api_keys_share_the_budget_of_their_owner_and_bring_a_plan() {
    let keys = ApiKeys::new("x-api-key")
        .unwrap()
        .with(ApiKeys::digest("old"), "acme", Some("free"))
        .with(ApiKeys::digest("new"), "acme", Some("pro"))
        .with(ApiKeys::digest("other"), "zeta", None);
    let of = |key: &str| who(&keys, &parts(Request::builder().header("x-api-key", key)));
    assert_eq!(of("old").key(), of("new").key());
    assert_ne!(of("old").key(), of("other").key());
    assert_eq!((of("new").plan(), of("other").plan()), (Some("pro"), None));
    assert_eq!(
        format!("{keys:?}"),
        r#"ApiKeys { header: "x-api-key", keys: 3 }"#
    );
}

#[test]
fn a_list_of_api_keys_that_cannot_be_read_names_the_line_and_not_the_key() {
    let digest = "a".repeat(64);
    let read = |text: &str| ApiKeys::new("k").unwrap().with_list(text).unwrap_err();
    for (text, error) in [
        ("\n\ns3cret acme".to_owned(), ApiKeysError::Digest(3)),
        (format!("{} acme", "g".repeat(64)), ApiKeysError::Digest(1)),
        (digest.clone(), ApiKeysError::Owner(1)),
        (format!("{digest} a b c"), ApiKeysError::TooMuch(1)),
        (
            format!("{digest} a\n# \n{} b", digest.to_uppercase()),
            ApiKeysError::Twice(3),
        ),
    ] {
        let found = read(&text);
        assert_eq!(found, error, "{text}");
        assert!(!found.to_string().contains("s3cret") && !found.to_string().contains("acme"));
    }
}

#[cfg(feature = "axum")]
mod with_axum {
    use axum::Router;
    use axum::body::Body;
    use axum::extract::ConnectInfo;
    use axum::routing::get;
    use tower::ServiceExt as _;

    use super::*;

    /// What the source answers as a layer around the route sees it.
    async fn asked(source: impl IdentitySource, route: &str, path: &str) -> Option<Vec<u8>> {
        let source = Arc::new(source);
        let answer = Arc::new(std::sync::Mutex::new(None));
        let (tell, asked) = (Arc::clone(&answer), source);
        let tap = axum::middleware::from_fn(
            move |request: axum::extract::Request, next: axum::middleware::Next| {
                let (tell, asked) = (Arc::clone(&tell), Arc::clone(&asked));
                async move {
                    let (parts, body) = request.into_parts();
                    if let Some(Identified::As(identity)) = asked.identify_now(&parts) {
                        *tell.lock().unwrap() = Some(identity.key().as_bytes().to_vec());
                    }
                    next.run(Request::from_parts(parts, body)).await
                }
            },
        );
        let inner = Router::new().route(route, get(|| async {})).layer(tap);
        let app = Router::new().nest("/v1", inner);
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        app.oneshot(request).await.unwrap();
        answer.lock().unwrap().take()
    }

    #[tokio::test]
    async fn a_parameter_is_taken_as_axum_matched_it() {
        let found = asked(PathParam::new("id"), "/t/{id}/x", "/v1/t/a%2Fb/x").await;
        let expected = Identity::new("path:id", "a/b");
        assert_eq!(found.as_deref(), Some(expected.key().as_bytes()));
        assert_eq!(
            asked(PathParam::new("other"), "/t/{id}/x", "/v1/t/a/x").await,
            None
        );
    }

    #[test]
    fn s76_connect_info_is_the_peer() {
        let mut request = parts(Request::builder());
        let peer: SocketAddr = "203.0.113.9:1".parse().unwrap();
        request.extensions.insert(ConnectInfo(peer));
        let ip = Identity::new("ip", "203.0.113.9");
        assert_eq!(who(&Ip::default(), &request).key(), ip.key());
    }

    #[tokio::test]
    async fn the_extractor_is_the_client_or_a_clear_500() {
        let app = Router::new().route(
            "/",
            get(|ClientIp(ip): ClientIp| async move { ip.to_string() }),
        );
        let ask = |peer: Option<&str>| {
            let mut request = Request::builder().uri("/").body(Body::empty()).unwrap();
            if let Some(peer) = peer {
                let peer: SocketAddr = peer.parse().unwrap();
                request.extensions_mut().insert(ConnectInfo(peer));
            }
            app.clone().oneshot(request)
        };
        let response = ask(Some("203.0.113.9:1")).await.unwrap();
        assert_eq!(response.status(), 200);
        let body = axum::body::to_bytes(response.into_body(), 100)
            .await
            .unwrap();
        assert_eq!(body, "203.0.113.9");
        assert_eq!(ask(None).await.unwrap().status(), 500);
    }

    #[tokio::test]
    async fn s28_ready_is_a_route() {
        #[derive(Debug)]
        struct Fine;
        impl crate::ReportHealth for Fine {
            fn report(&self) -> crate::Reporting<'_> {
                Box::pin(async { crate::HealthReport::enforcing(Default::default()) })
            }
        }
        let ready = crate::Ready::new(Fine);
        let app: Router = ready.router();
        let ask = || {
            let request = Request::builder()
                .uri("/ready")
                .body(Body::empty())
                .unwrap();
            app.clone().oneshot(request)
        };
        let response = ask().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/json");
        ready.drain();
        assert_eq!(ask().await.unwrap().status(), 503);
    }
}
