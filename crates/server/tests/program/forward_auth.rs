//! `/v1/forward-auth`, asked by a proxy that is trusted, and by nginx and Caddy themselves.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use crate::client::{get, request};
use crate::identities::File;
use crate::process::{Gateway, eventually};
use crate::service::{Service, TOKEN};
use crate::upstream::{OK, answering, nowhere};

const TRUSTED: [&str; 2] = ["--trusted-proxies", "127.0.0.1/32"];

#[test]
fn a_proxy_asks_for_the_request_that_it_describes() {
    let arguments = [&TRUSTED[..], &["--quota", "2/h"]].concat();
    Service::each(&arguments, &[], |service| {
        let ask =
            |query: &str, headers: &str| service.get(&format!("/v1/forward-auth{query}"), headers);
        let of = |client: &str| {
            format!(
                "X-Forwarded-For: 1.1.1.1, {client}\r\nX-Forwarded-Method: POST\r\nX-Forwarded-Uri: /a?b=c\r\n"
            )
        };
        let admitted = ask("", &of("203.0.113.9"));
        assert_eq!((admitted.status, admitted.text()), (200, ""));
        assert_eq!(
            admitted.header("ratelimit-policy"),
            Some(r#""default";q=2;w=3600"#)
        );
        assert_eq!(admitted.header("x-ratelimit-remaining"), Some("1"));
        assert_eq!(ask("", &of("203.0.113.9:4711")).status, 200);
        let refused = ask("", &of("203.0.113.9"));
        assert_eq!(refused.status, 429);
        assert_eq!(refused.json()["status"], 429);
        assert!(refused.header("retry-after").is_some());
        let denied = ask("?deny=403", &of("203.0.113.9"));
        assert_eq!(denied.status, 403);
        assert!(denied.header("retry-after").is_some());
        // Another client, and nginx's names.
        let nginx =
            "X-Forwarded-For: 203.0.113.8\r\nX-Original-URI: /a\r\nX-Original-Method: GET\r\n";
        assert_eq!(ask("?deny=403", nginx).status, 200);
        for (query, headers) in [
            ("", "X-Forwarded-For: 203.0.113.7\r\n"),
            ("", "X-Forwarded-Uri: /a\r\nX-Original-URI: /b\r\n"),
            ("", "X-Forwarded-Uri: orders\r\n"),
            ("", "X-Forwarded-Uri: /a\r\nX-Forwarded-Method: a b\r\n"),
            ("?deny=402", "X-Forwarded-Uri: /a\r\n"),
        ] {
            let answer = ask(query, headers);
            assert_eq!(answer.status, 400, "{query} {headers}");
            assert_eq!(
                answer.header("content-type"),
                Some("application/problem+json")
            );
        }
    });
}

#[test]
fn who_is_no_trusted_proxy_may_not_ask_and_the_token_does_not_help() {
    let arguments = ["--trusted-proxies", "192.0.2.0/24"];
    let gateway = Gateway::start_with(&arguments, &[("ADMIN_TOKEN", TOKEN)]);
    let headers = format!("X-Forwarded-Uri: /a\r\nAuthorization: Bearer {TOKEN}\r\n");
    assert_eq!(
        request(gateway.address, "GET", "/v1/forward-auth", &headers).status,
        403
    );
}

/// A proxy that runs until it is dropped.
struct Proxy(Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        // nginx's workers end with their master only if that is told.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// Whether there is such a program. On CI there must be.
fn installed(program: &str) -> bool {
    let found = Command::new(program)
        .arg(if program == "nginx" { "-v" } else { "version" })
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        assert!(
            std::env::var_os("CI").is_none(),
            "{program} is not installed"
        );
        eprintln!("{program} is not installed: its sample was not tested");
    }
    found
}

/// The sample with these addresses in place of its own.
fn sample(name: &str, listen: SocketAddr, gateway: SocketAddr, application: SocketAddr) -> String {
    let path = format!("{}/../../docs/samples/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    for known in ["127.0.0.1:8000", "127.0.0.1:3000", "8080"] {
        assert!(text.contains(known), "{name} has no {known}");
    }
    text.replace("127.0.0.1:8000", &gateway.to_string())
        .replace("127.0.0.1:3000", &application.to_string())
        .replace("8080", &listen.port().to_string())
}

/// Five requests through a proxy whose gateway admits two.
fn limits(listen: SocketAddr, gateway: &Gateway) {
    eventually("the proxy listens", || {
        std::net::TcpStream::connect(listen).is_ok()
    });
    // What a client says in the names that proxies use is not what is asked about.
    let lies = "X-Forwarded-Uri: /free\r\nX-Forwarded-Method: PUT\r\n";
    let answers = [(); 4].map(|()| request(listen, "GET", "/orders?x=1", lies));
    let statuses = answers
        .iter()
        .map(|answer| answer.status)
        .collect::<Vec<_>>();
    assert_eq!(statuses, [200, 200, 429, 429], "{}", gateway.log());
    assert_eq!(answers[0].text(), "ok");
    let refused = &answers[3];
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert_eq!(
        refused.header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(refused.json()["status"], 429);
}

/// nginx with this configuration.
fn nginx(name: &str, text: &str) -> (File, Proxy) {
    let text = format!(
        "daemon off;\nerror_log stderr;\npid {}/{name}.pid;\n{text}",
        env!("CARGO_TARGET_TMPDIR")
    );
    let text = text.replace("http {\n", "http {\n    access_log off;\n");
    let file = File::new(name, &text);
    let child = Command::new("nginx")
        .args(["-c", file.path()])
        .spawn()
        .unwrap();
    (file, Proxy(child))
}

#[test]
fn nginx_asks_as_its_sample_says() {
    if !installed("nginx") {
        return;
    }
    let (application, requests) = answering(OK);
    let gateway = Gateway::start(&[&TRUSTED[..], &["--quota", "2/h"]].concat());
    let listen = nowhere();
    let text = sample("nginx.conf", listen, gateway.address, application);
    let _proxy = nginx("nginx.conf", &text);
    limits(listen, &gateway);
    assert_eq!(
        requests.try_iter().count(),
        2,
        "the others never reached the application"
    );
    let admitted = get(listen, "/");
    assert_eq!(
        admitted.header("ratelimit-policy"),
        Some(r#""default";q=2;w=3600"#)
    );
    // Nobody is there to say what on_failure says.
    drop(gateway);
    let unlimited = get(listen, "/");
    assert_eq!((unlimited.status, unlimited.text()), (200, "ok"));
}

/// The other choice of the sample.
#[test]
fn nginx_refuses_while_the_gateway_is_down_if_it_is_told() {
    if !installed("nginx") {
        return;
    }
    let (application, requests) = answering(OK);
    let listen = nowhere();
    let text = sample("nginx.conf", listen, nowhere(), application);
    assert!(text.contains("return 204;"));
    let text = text.replace("return 204;", "return 503;");
    let _proxy = nginx("nginx-closed.conf", &text);
    eventually("nginx listens", || {
        std::net::TcpStream::connect(listen).is_ok()
    });
    let refused = get(listen, "/");
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(
        refused.header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(requests.try_iter().count(), 0);
}

#[test]
fn caddy_asks_as_its_sample_says() {
    if !installed("caddy") {
        return;
    }
    let (application, requests) = answering(OK);
    let gateway = Gateway::start(&[&TRUSTED[..], &["--quota", "2/h"]].concat());
    let listen = nowhere();
    let text = sample("Caddyfile", listen, gateway.address, application);
    let text = format!("{{\n\tadmin off\n\tauto_https off\n}}\n{text}");
    let file = File::new("Caddyfile", &text);
    let child = Command::new("caddy")
        .args(["run", "--adapter", "caddyfile", "--config", file.path()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _proxy = Proxy(child);
    limits(listen, &gateway);
    assert_eq!(
        requests.try_iter().count(),
        2,
        "the others never reached the application"
    );
}
