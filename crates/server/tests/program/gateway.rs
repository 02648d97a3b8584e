//! What clients see of the limits.

use serde_json::json;

use crate::client::{Connection, get, request};
use crate::process::{Gateway, eventually};

fn number(text: Option<&str>) -> u64 {
    text.expect("a number").parse().unwrap()
}

#[test]
fn s57_without_an_upstream_the_demo_document_is_the_answer() {
    let gateway = Gateway::start(&[]);
    let answer = get(gateway.address, "/orders");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(
        answer.text(),
        r#"{"detail":"Rate limit check passed","mode":"demo","message":"No UPSTREAM_BASE_URL is configured, so this request was not forwarded. Set UPSTREAM_BASE_URL to proxy accepted traffic to your protected backend.","would_forward":{"method":"GET","path":"/orders","query":""}}"#
    );
    let raw = request(gateway.address, "PUT", "/a%20b//c?x=%2F&y", "").json();
    assert_eq!(
        raw["would_forward"],
        json!({"method": "PUT", "path": "/a%20b//c", "query": "x=%2F&y"})
    );
}

#[test]
fn s58_admitted_answers_carry_the_headers_and_no_retry_after() {
    let gateway = Gateway::start(&["--quota", "3/60s"]);
    for remaining in [2, 1, 0] {
        let answer = get(gateway.address, "/");
        assert_eq!(
            answer.header("ratelimit-policy"),
            Some(r#""default";q=3;w=60"#)
        );
        let state = format!(r#""default";r={remaining};t=20"#);
        assert_eq!(answer.header("ratelimit"), Some(&*state));
        assert_eq!(number(answer.header("x-ratelimit-limit")), 3);
        assert_eq!(number(answer.header("x-ratelimit-remaining")), remaining);
        assert!(number(answer.header("x-ratelimit-reset")) > 1_700_000_000);
        assert_eq!(answer.header("retry-after"), None);
        assert_eq!(answer.header("ratelimit-limit"), None);
    }
}

#[test]
fn s59_refusals_are_problem_documents_or_plain() {
    let gateway = Gateway::start(&["--quota", "1/60s"]);
    get(gateway.address, "/");
    let refused = get(gateway.address, "/orders?secret=1");
    assert_eq!(refused.status, 429);
    assert_eq!(
        refused.header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(refused.header("cache-control"), Some("no-store"));
    assert_eq!(number(refused.header("retry-after")), 60);
    assert_eq!(number(refused.header("x-ratelimit-remaining")), 0);
    let body = refused.json();
    let id = refused.header("x-request-id").unwrap();
    for (member, value) in [
        ("type", json!("about:blank")),
        ("title", json!("Too Many Requests")),
        ("status", json!(429)),
        ("detail", json!("Rate limit exceeded")),
        ("instance", json!("/orders")),
        ("request_id", json!(id)),
        ("limit", json!(1)),
        ("remaining", json!(0)),
    ] {
        assert_eq!(body[member], value, "{member}");
    }
    assert!(body["retry_after"].is_f64() && body["reset_at"].is_f64());
    assert_eq!(body.as_object().unwrap().len(), 10);

    let plain = request(gateway.address, "GET", "/", "Accept: application/json\r\n");
    assert_eq!(plain.header("content-type"), Some("application/json"));
    let mut members: Vec<_> = plain.json().as_object().unwrap().keys().cloned().collect();
    members.sort();
    assert_eq!(
        members,
        ["detail", "limit", "remaining", "reset_at", "retry_after"]
    );

    let gateway = Gateway::start(&["--quota", "1/60s", "--body", "plain"]);
    get(gateway.address, "/");
    assert_eq!(
        get(gateway.address, "/").json().as_object().unwrap().len(),
        5
    );
}

#[test]
fn b48_retry_after_is_never_zero() {
    let gateway = Gateway::start(&["--quota", "1/s burst=5"]);
    let refused = (0..)
        .map(|_| get(gateway.address, "/"))
        .find(|answer| answer.status == 429)
        .unwrap();
    assert_eq!(refused.header("retry-after"), Some("1"));
    let wait = refused.json()["retry_after"].as_f64().unwrap();
    assert!(wait > 0.0 && wait <= 1.0, "{wait}");
}

#[test]
fn b53_several_quotas_are_several_items() {
    let gateway = Gateway::start(&["--quota", "10/s, 1/h fixed_window"]);
    let admitted = get(gateway.address, "/");
    assert_eq!(
        admitted.header("ratelimit-policy"),
        Some(r#""default.1s";q=10;w=1, "default.1h";q=1;w=3600"#)
    );
    let refused = get(gateway.address, "/");
    assert_eq!(refused.status, 429);
    assert_eq!(
        refused.header("x-ratelimit-limit"),
        Some("1"),
        "b52: the refusing one speaks"
    );
    assert!(
        refused
            .header("ratelimit")
            .unwrap()
            .contains(r#""default.1h";r=0;t="#)
    );
}

#[test]
fn head_is_counted_and_its_connection_stays_in_step() {
    let gateway = Gateway::start(&["--quota", "2/60s"]);
    let mut connection = Connection::new(gateway.address);
    for _ in 0..3 {
        connection.send("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
        connection.answer(false);
    }
    connection.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(connection.answer(true).status, 429);
}

#[test]
fn s30_probes_are_exempt_and_say_what_holds() {
    let gateway = Gateway::start(&["--quota", "1/60s"]);
    for _ in 0..5 {
        let ready = get(gateway.address, "/ready");
        assert_eq!(ready.status, 200);
        assert_eq!(
            ready.text(),
            r#"{"status":"ok","checks":{"ratelimit":{"healthy":true,"critical":false,"detail":"enforcing","meta":{"enforcing":true}}}}"#
        );
        assert_eq!(ready.header("ratelimit"), None);
        let health = get(gateway.address, "/health?verbose");
        assert_eq!(
            (health.status, health.text()),
            (200, r#"{"status":"ok","memory":"ok"}"#)
        );
        assert_eq!(request(gateway.address, "HEAD", "/health", "").status, 200);
    }
    let wrong = request(gateway.address, "DELETE", "/ready", "");
    assert_eq!(
        (wrong.status, wrong.header("allow")),
        (405, Some("GET, HEAD"))
    );
    // None of them was counted, and what only looks like one is.
    assert_eq!(get(gateway.address, "/healthy").status, 200);
    assert_eq!(get(gateway.address, "//health").status, 429);
}

#[test]
fn request_ids_are_taken_or_made_echoed_and_logged() {
    let gateway = Gateway::start(&["--quota", "1/60s"]);
    let taken = request(gateway.address, "GET", "/", "X-Request-Id: Order-7.a_b\r\n");
    assert_eq!(taken.header("x-request-id"), Some("Order-7.a_b"));
    let made = request(gateway.address, "GET", "/", "X-Request-Id: no spaces\r\n");
    let id = made.header("x-request-id").unwrap();
    assert_eq!(id.len(), 26);
    assert_eq!(made.json()["request_id"], id);
    for id in ["Order-7.a_b", id] {
        eventually("the id is logged", || {
            gateway.log().contains(&format!("request_id={id} "))
        });
    }
    let log = gateway.log();
    let answered = log.lines().filter(|line| line.contains(" answered "));
    let told: Vec<_> = answered.filter(|line| line.contains("127.0.0.1")).collect();
    assert!(told.is_empty(), "identities are not logged: {told:?}");
    assert!(!log.contains("no spaces"));
}

#[test]
fn b112_odd_headers_are_answered_and_never_a_failure() {
    // Every kind of identity that is read from a field of the client's.
    for kind in ["user_id", "oauth_account", "api_key", "custom"] {
        let environment = [
            ("IDENTITY_RESOLUTION_ORDER", kind),
            ("USER_ID_HEADER", "X-User"),
            ("OAUTH_ACCOUNT_HEADER", "X-User"),
            ("API_KEY_HEADER", "X-User"),
            ("TOLLGATE_IDENTITY_CUSTOM", "header:X-User"),
        ];
        let gateway = Gateway::start_with(&["--quota", "1/60s"], &environment);
        let every: Vec<u8> = (0x80..=0xff).collect();
        let long = "x".repeat(60 * 1024);
        for value in [&every[..], b"\x80\xfe\xff", b"a\tb", long.as_bytes()] {
            for status in [200, 429] {
                let mut connection = Connection::new(gateway.address);
                connection.send(b"GET / HTTP/1.1\r\nHost: h\r\nX-User: ");
                connection.send(value);
                connection.send(b"\r\nX-Request-Id: ");
                connection.send(&value[..value.len().min(200)]);
                connection.send(b"\r\n\r\n");
                let answer = connection.answer(true);
                assert_eq!(answer.status, status, "{kind} {}", value.len());
                assert_eq!(answer.header("x-request-id").unwrap().len(), 26);
            }
        }
    }
    let gateway = Gateway::start(&[]);
    // A head that is larger than what is held of a connection.
    let mut connection = Connection::new(gateway.address);
    connection.send(b"GET / HTTP/1.1\r\nHost: h\r\n");
    let line = format!("X-Long: {}\r\n", "y".repeat(1_000));
    for _ in 0..100 {
        // It may be refused before all is sent.
        let _ = std::io::Write::write_all(connection.stream.get_mut(), line.as_bytes());
    }
    let (status, _) = connection.head();
    assert_eq!(status, 431);
    assert_eq!(get(gateway.address, "/").status, 200);
}

#[test]
fn s27_each_client_address_has_its_own_quota() {
    let gateway = Gateway::start(&["--quota", "1/60s"]);
    let from = |source: &str| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(format!("{source}:0").parse().unwrap()).unwrap();
            socket
                .connect(gateway.address)
                .await
                .unwrap()
                .into_std()
                .unwrap()
        });
        stream.set_nonblocking(false).unwrap();
        let mut connection = Connection {
            stream: std::io::BufReader::new(stream),
        };
        connection.send("GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 9.9.9.9\r\n\r\n");
        connection.answer(true).status
    };
    assert_eq!([from("127.0.0.1"), from("127.0.0.1")], [200, 429]);
    assert_eq!([from("127.0.0.2"), from("127.0.0.2")], [200, 429]);
}

#[test]
fn header_styles_are_settable() {
    let gateway = Gateway::start(&["--headers", "triple"]);
    let answer = get(gateway.address, "/");
    assert_eq!(answer.header("ratelimit-limit"), Some("100"));
    // The default is the exact log: a request counts for the whole window.
    assert_eq!(answer.header("ratelimit-reset"), Some("60"));
    assert_eq!(
        (
            answer.header("ratelimit"),
            answer.header("x-ratelimit-limit")
        ),
        (None, None)
    );

    let gateway = Gateway::start(&["--headers", "none", "--quota", "1/60s"]);
    let answer = get(gateway.address, "/");
    assert!(
        !answer
            .headers
            .iter()
            .any(|(name, _)| name.contains("ratelimit"))
    );
    let refused = get(gateway.address, "/");
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (429, Some("60"))
    );
}

#[test]
fn requests_that_are_no_http_are_refused() {
    let gateway = Gateway::start(&[]);
    for (bytes, status) in [
        ("nonsense\r\n\r\n", 400),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n",
            400,
        ),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    ] {
        let mut connection = Connection::new(gateway.address);
        connection.send(bytes);
        assert_eq!(connection.head().0, status, "{bytes}");
    }
    assert_eq!(get(gateway.address, "/").status, 200);
}

#[test]
fn s17_forwarding_headers_are_hinted_at_once() {
    let gateway = Gateway::start(&["--quota", "1/60s"]);
    let statuses = [
        "X-Forwarded-For: 1.1.1.1\r\n",
        "Forwarded: for=2.2.2.2\r\n",
        "",
    ]
    .map(|headers| request(gateway.address, "GET", "/last", headers).status);
    assert_eq!(statuses, [200, 429, 429], "s16: they are not believed");
    eventually("all is logged", || {
        gateway.log().matches("/last").count() == 3
    });
    let log = gateway.log();
    assert_eq!(log.matches("share one quota").count(), 1, "{log}");
    assert!(!log.contains("1.1.1.1"), "identities are not logged");
}

/// The documented refusal is the one that is sent: the same fields and members, and the same values
/// where they do not depend on the moment.
#[test]
fn the_sample_refusal_of_the_documentation_is_what_is_sent() {
    let page = include_str!("../../../../docs/gateway.md");
    let (_, rest) = page.split_once("```http\n").unwrap();
    let (sample, _) = rest.split_once("```").unwrap();
    let (head, body) = sample.split_once("\n\n").unwrap();
    let gateway = Gateway::start(&["--quota", "5/10s"]);
    let answer = loop {
        let answer = get(gateway.address, "/orders");
        if answer.status != 200 {
            break answer;
        }
    };
    assert!(head.starts_with("HTTP/1.1 429 "));
    let mut documented: Vec<&str> = head
        .lines()
        .skip(1)
        .map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            let sent = answer.header(name).unwrap_or_else(|| panic!("no {name}"));
            if !matches!(
                name,
                "x-request-id" | "x-ratelimit-reset" | "ratelimit" | "retry-after"
            ) {
                assert_eq!(sent, value, "{name}");
            }
            name
        })
        .collect();
    documented.sort_unstable();
    let mut sent: Vec<&str> = answer
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| !matches!(*name, "date" | "content-length" | "connection"))
        .collect();
    sent.sort_unstable();
    assert_eq!(sent, documented);
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    let members = |of: &serde_json::Value| -> Vec<String> {
        of.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(members(&answer.json()), members(&body));
}
