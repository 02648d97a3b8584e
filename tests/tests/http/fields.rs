//! The rate limit fields: on which responses, and that a real parser reads them.

use axum::Router;
use axum::extract::Form;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use sfv::{BareItem, List, ListEntry, Parser};
use tollgate::http::{HeaderStyle, RateLimitLayer, Rule};
use tollgate::{Algorithm, MAX_EXACT, Quota};
use tollgate_testkit::Rng;

use crate::support::{Server, memory, statuses, stores};

fn app(layer: RateLimitLayer) -> Router {
    Router::new()
        .route("/a", get(|| async { "a" }))
        .layer(layer)
}

#[tokio::test]
async fn s89_what_is_left_for_how_long() {
    for store in stores().await {
        let layer = RateLimitLayer::new(&store.limit("api", "1000/h sliding_window"));
        let server = Server::start(app(layer)).await;
        let client = server.client(1);
        client.get("/a").await;
        store.clock.advance(std::time::Duration::from_secs(60));
        let answer = client.get("/a").await;
        assert_eq!(
            answer.field("ratelimit"),
            r#""api";r=998;t=3540"#,
            "{}",
            store.name
        );
        assert_eq!(answer.field("ratelimit-policy"), r#""api";q=1000;w=3600"#);
    }
}

#[tokio::test]
async fn s90_fields_can_be_left_out() {
    for store in stores().await {
        let api = store.limit("api", "1/60s");
        let server = Server::start(app(RateLimitLayer::new(&api).headers(HeaderStyle::NONE))).await;
        for status in [200, 429] {
            let answer = server.get("/a").await;
            assert_eq!(answer.status, status);
            let names = answer.headers.keys().map(|name| name.as_str());
            assert!(!names.into_iter().any(|name| name.contains("ratelimit")));
            assert_eq!(answer.headers.contains_key("retry-after"), status == 429);
        }
    }
}

#[derive(serde::Deserialize)]
struct Login {
    #[expect(dead_code, reason = "only that it is there")]
    account: String,
}

#[tokio::test]
async fn s91_s92_fields_are_on_every_response_and_invalid_requests_count() {
    for store in stores().await {
        let built = || async {
            let headers = [("ratelimit", "\"forged\";r=9"), ("x-ratelimit-limit", "7")];
            (StatusCode::BAD_GATEWAY, headers, "built").into_response()
        };
        let own = || async { Response::new(axum::body::Body::from("own")) };
        let login = |Form(_): Form<Login>| async { "in" };
        let app = Router::new()
            .route("/built", get(built))
            .route("/own", get(own))
            .route("/login", axum::routing::post(login))
            .layer(RateLimitLayer::new(&store.limit("api", "5/60s")));
        let server = Server::start(app).await;
        let client = server.client(1);
        let built = client.get("/built").await;
        assert_eq!(built.status, 502);
        assert_eq!(built.field("ratelimit"), r#""api";r=4;t=12"#);
        assert_eq!(built.field("x-ratelimit-limit"), "7", "not a chosen style");
        assert_eq!(
            client.get("/own").await.field("ratelimit"),
            r#""api";r=3;t=12"#
        );
        // A method that the route does not have, a body of the wrong type, one without the field.
        let wrong = client.send(http::Method::PUT, "/login", &[]).await;
        assert_eq!(
            (wrong.status.as_u16(), &*wrong.field("ratelimit")),
            (405, r#""api";r=2;t=12"#)
        );
        let wrong = client.send(http::Method::POST, "/login", &[]).await;
        assert_eq!(
            (wrong.status.as_u16(), &*wrong.field("ratelimit")),
            (415, r#""api";r=1;t=12"#)
        );
        let form: &[u8] = b"application/x-www-form-urlencoded";
        let invalid = client
            .send(http::Method::POST, "/login", &[("content-type", form)])
            .await;
        assert_eq!(
            (invalid.status.as_u16(), &*invalid.field("ratelimit")),
            (422, r#""api";r=0;t=12"#)
        );
        assert_eq!(client.get("/own").await.status, 429);
    }
}

#[tokio::test]
async fn b53_several_limits_are_items_with_quoted_names_and_whole_numbers() {
    for store in stores().await {
        store.clock.advance(std::time::Duration::from_secs(30));
        let burst = store.limit("burst", "100/60s fixed_window");
        let daily = store.limit("daily", "1000/86400s fixed_window");
        let odd = store.limit(r#"a"b\c"#, "5/60s fixed_window");
        let rule = Rule::new(&burst).and(&daily).and(&odd);
        let server = Server::start(app(RateLimitLayer::new(rule))).await;
        let answer = server.get("/a").await;
        let policy = r#""burst";q=100;w=60, "daily";q=1000;w=86400, "a\"b\\c";q=5;w=60"#;
        assert_eq!(answer.field("ratelimit-policy"), policy);
        let left = r#""burst";r=99;t=30, "daily";r=999;t=86370, "a\"b\\c";r=4;t=30"#;
        assert_eq!(answer.field("ratelimit"), left, "{}", store.name);
        let quotas = Quota::parse_list("1/s").unwrap();
        assert!(store.limiter.policy("n\u{e4}me", quotas).is_err());
    }
}

#[tokio::test]
async fn b54_what_remains_is_exact() {
    for store in stores().await {
        for algorithm in Algorithm::ALL {
            let name = algorithm.to_string();
            let limit = store.limit(&name, &format!("3/60s {algorithm}"));
            let server = Server::start(app(RateLimitLayer::new(&limit))).await;
            let mut left = Vec::new();
            for _ in 0..5 {
                let field = server.get("/a").await.field("ratelimit");
                left.push(field.split(';').nth(1).unwrap().to_owned());
            }
            assert_eq!(
                left,
                ["r=2", "r=1", "r=0", "r=0", "r=0"],
                "{} {name}",
                store.name
            );
            store.clock.advance(std::time::Duration::from_secs(600));
            let field = server.get("/a").await.field("ratelimit");
            assert!(field.contains("r=2;"), "{field}");
        }
    }
}

/// The names and the numbers of a list, as a parser of RFC 9651 reads them.
fn read(field: &str) -> Vec<(String, Vec<(String, i64)>)> {
    let list: List = Parser::new(field)
        .parse()
        .unwrap_or_else(|e| panic!("{field}: {e}"));
    let items = list.into_iter().map(|entry| {
        let ListEntry::Item(item) = entry else {
            panic!("a list in {field}")
        };
        let BareItem::String(name) = item.bare_item else {
            panic!("no string in {field}")
        };
        let numbers = item.params.into_iter().map(|(key, value)| {
            let BareItem::Integer(number) = value else {
                panic!("no integer in {field}")
            };
            (key.to_string(), i64::from(number))
        });
        (name.to_string(), numbers.collect())
    });
    items.collect()
}

#[tokio::test]
async fn every_name_and_number_parses_as_rfc_9651() {
    let store = memory().await;
    let mut rng = Rng::new(9651);
    let printable: Vec<char> = (' '..='~').collect();
    for round in 0..150 {
        // Every printable character leads a name once, and follows a quote or a backslash.
        let odd = printable[round % printable.len()];
        let names = [
            format!("{odd}\"\\{odd}{round}"),
            format!("\\{odd}\" ;,={round}"),
        ];
        let limits = names.clone().map(|name| {
            let mut quotas = vec![rng.quota(Algorithm::ALL[round % Algorithm::ALL.len()])];
            if round % 3 == 0 {
                quotas.push(
                    Quota::fixed_window(MAX_EXACT, std::time::Duration::from_secs(1)).unwrap(),
                );
            }
            store.limiter.policy(&name, quotas).unwrap()
        });
        let rule = Rule::new(&limits[0]).and(&limits[1]);
        let server = Server::start(app(RateLimitLayer::new(rule))).await;
        let answer = server.get("/a").await;
        let policy = read(&answer.field("ratelimit-policy"));
        let left = read(&answer.field("ratelimit"));
        let quotas: Vec<_> = limits.iter().flat_map(|it| it.policy().quotas()).collect();
        assert_eq!((policy.len(), left.len()), (quotas.len(), quotas.len()));
        for ((policy, left), quota) in policy.iter().zip(&left).zip(quotas) {
            assert_eq!(policy.0, left.0);
            assert!(names.iter().any(|name| policy.0.starts_with(name.as_str())));
            let capacity = i64::try_from(quota.capacity())
                .unwrap()
                .min(999_999_999_999_999);
            assert_eq!(policy.1[0], ("q".to_owned(), capacity));
            assert!(policy.1[1].0 == "w" && policy.1[1].1 >= 1);
            assert!(left.1[0].0 == "r" && left.1[0].1 <= capacity);
        }
    }
}

#[tokio::test]
async fn s30_probes_and_what_is_exempt_are_never_limited() {
    for store in stores().await {
        let ok = || get(|| async { "ok" });
        let app = ["/health", "/ready", "/metrics", "/static", "/a", "/healthy"]
            .iter()
            .fold(Router::new(), |app, path| app.route(path, ok()));
        let layer = RateLimitLayer::new(&store.limit("api", "1/60s"))
            .exempt("/static")
            .exempt_method(http::Method::TRACE)
            .exempt_if(|request| request.headers.contains_key("x-internal"));
        let server = Server::start(app.clone().layer(layer)).await;
        let client = server.client(1);
        for _ in 0..4 {
            let free = ["/health", "/ready", "/metrics", "/static"];
            assert_eq!(statuses(&client, &free).await, [200; 4]);
        }
        assert!(
            !client
                .get("/ready")
                .await
                .headers
                .contains_key("ratelimit-policy")
        );
        let internal = client
            .send(http::Method::GET, "/a", &[("x-internal", b"1")])
            .await;
        assert_eq!(internal.status, 200);
        assert_eq!(
            client.send(http::Method::TRACE, "/a", &[]).await.status,
            405
        );
        assert_eq!(statuses(&client, &["/a", "/healthy"]).await, [200, 429]);
        let layer = RateLimitLayer::new(&store.limit("all", "1/60s")).exempt_nothing();
        let server = Server::start(app.layer(layer)).await;
        assert_eq!(
            statuses(&server.client(1), &["/health", "/ready"]).await,
            [200, 429]
        );
    }
}
