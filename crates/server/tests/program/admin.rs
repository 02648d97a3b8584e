//! Who may use the admin surface, and where it is.

use crate::client::{get, request};
use crate::process::{Gateway, eventually};
use crate::service::{Service, TOKEN, send};
use crate::upstream::{OK, answering};

const LOCAL: [&str; 8] = [
    "/rules",
    "/rules/some",
    "/usage/someone?identity_type=user_id",
    "/metrics",
    "/docs",
    "/redoc",
    "/openapi.json",
    "/v1/anything",
];

#[test]
fn s55_local_paths_need_the_token_and_are_never_forwarded() {
    let (upstream, requests) = answering(OK);
    let upstream = format!("http://{upstream}");
    Service::each(&["--upstream", &upstream], &[], |service| {
        for path in LOCAL {
            for method in ["GET", "POST", "DELETE", "OPTIONS"] {
                let stranger = send(service.address(), method, path, "", "");
                assert_eq!(stranger.status, 401, "{method} {path}");
                assert_eq!(stranger.header("www-authenticate"), Some("Bearer"));
                assert_eq!(
                    stranger.header("content-type"),
                    Some("application/problem+json")
                );
                let operator = service.admin(method, path, "");
                assert_ne!(operator.status, 401, "{method} {path}");
            }
        }
        let head = request(service.address(), "HEAD", "/rules", "");
        assert_eq!(head.status, 401);
        assert_eq!(get(service.address(), "/health").status, 200);
        assert_eq!(get(service.address(), "/ready").status, 200);
        assert!(requests.try_recv().is_err(), "nothing was forwarded");
        for path in ["/orders", "/rulesets", "/usage", "/v1", "//rules", "/docsx"] {
            assert_eq!(service.status(path, ""), 200, "{path}");
            let line = requests.recv_timeout(crate::process::LONG).unwrap().line;
            assert_eq!(line, format!("GET {path} HTTP/1.1"));
        }
        assert!(!service.log().contains(TOKEN));
    });
}

#[test]
fn s55_with_a_listener_of_its_own_the_surface_moves_there() {
    let (upstream, requests) = answering(OK);
    let upstream = format!("http://{upstream}");
    let arguments = ["--upstream", &*upstream, "--admin-listen", "127.0.0.1:0"];
    let gateway = Gateway::start_with(&arguments, &[("ADMIN_TOKEN", TOKEN)]);
    let admin = crate::process::eventually_some("the second address is printed", || {
        let lines = gateway.printed();
        let line = lines
            .iter()
            .find_map(|line| line.strip_prefix("admin on http://"));
        line.map(|address| address.parse().unwrap())
    });
    let operator = format!("Authorization: Bearer {TOKEN}\r\n");
    let target = "/usage/u?identity_type=user_id";
    assert_eq!(send(admin, "GET", target, &operator, "").status, 200);
    assert_eq!(send(admin, "GET", target, "", "").status, 401);
    assert_eq!(get(admin, "/health").status, 200);
    assert_eq!(get(admin, "/ready").status, 200);
    assert_eq!(
        get(admin, "/orders").status,
        401,
        "there is no gateway behind it"
    );
    assert_eq!(send(admin, "GET", "/orders", &operator, "").status, 404);
    assert!(requests.try_recv().is_err());
    for path in LOCAL {
        assert_eq!(get(gateway.address, path).status, 200, "{path}");
        let line = requests.recv_timeout(crate::process::LONG).unwrap().line;
        assert_eq!(line, format!("GET {path} HTTP/1.1"));
    }
    assert_eq!(get(gateway.address, "/ready").json()["status"], "ok");
}

#[test]
fn without_a_token_it_is_open_on_loopback_with_a_warning_and_by_setting() {
    let target = "/usage/u?identity_type=user_id";
    let gateway = Gateway::start(&[]);
    assert_eq!(get(gateway.address, target).status, 200);
    eventually("the log warns", || {
        gateway.log().contains("WARN") && gateway.log().contains("set ADMIN_TOKEN")
    });
    // A page of another origin changes nothing all the same.
    let reset = |origin: &str| {
        let target = "/usage/u/reset?identity_type=user_id";
        request(
            gateway.address,
            "POST",
            target,
            &format!("Origin: {origin}\r\n"),
        )
        .status
    };
    assert_eq!(reset("http://evil.example"), 403);
    assert_eq!(reset("null"), 403);
    assert_eq!(reset("http://gate.example"), 200);

    let everywhere = ["--listen", "0.0.0.0:0"];
    let start = |environment: &[(&str, &str)]| Gateway::start_with(&everywhere, environment);
    let local = |gateway: &Gateway| ([127, 0, 0, 1], gateway.address.port()).into();
    let closed = start(&[]);
    assert_eq!(
        get(local(&closed), target).status,
        401,
        "a loopback peer proves nothing"
    );
    let open = start(&[("ADMIN_OPEN", "true")]);
    assert_eq!(get(local(&open), target).status, 200);
}

#[test]
fn only_trusted_proxies_ask_for_others() {
    let gateway = Gateway::start_with(&[], &[("ADMIN_TOKEN", TOKEN)]);
    let headers = format!("Authorization: Bearer {TOKEN}\r\nX-Forwarded-Uri: /a\r\n");
    let answer = request(gateway.address, "GET", "/v1/forward-auth", &headers);
    assert_eq!(answer.status, 403, "loopback is no proof");
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
}
