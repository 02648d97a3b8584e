//! Clients behind proxies: whose word counts, and what one client is, with a limit over HTTP.

use axum::Router;
use axum::routing::get;
use http::Method;
use tollgate::http::{ClientIp, ForwardedBy, Ip, RateLimitLayer, TrustedProxies};

use crate::support::{Server, Store, stores};

/// The proxy that is trusted, and a peer that is not: the last parts of loopback addresses.
const PROXY: u8 = 5;
const STRANGER: u8 = 7;

/// Says the address that the limit saw.
async fn serve(layer: RateLimitLayer, proxies: Option<TrustedProxies>) -> Server {
    let app = Router::new().route(
        "/a",
        get(|ClientIp(ip): ClientIp| async move { ip.to_string() }),
    );
    let app = app.layer(layer);
    Server::start(match proxies {
        Some(proxies) => app.layer(proxies),
        None => app,
    })
    .await
}

fn trusted() -> Option<TrustedProxies> {
    Some(TrustedProxies::networks(["127.0.0.5", "10.0.0.0/8"]).unwrap())
}

fn layer(store: &Store, quotas: &str) -> RateLimitLayer {
    // A name for each: the tests of one store share it.
    RateLimitLayer::new(&store.limit(&format!("api {quotas}"), quotas))
}

/// The statuses of requests that a peer sends with this in a header.
async fn ask(server: &Server, peer: u8, name: &str, values: &[&str]) -> Vec<u16> {
    let client = server.client(peer);
    let mut seen = Vec::new();
    for value in values {
        let headers = [(name, value.as_bytes())];
        let answer = client.send(Method::GET, "/a", &headers).await;
        seen.push(answer.status.as_u16());
    }
    seen
}

async fn forwarded_for(server: &Server, peer: u8, values: &[&str]) -> Vec<u16> {
    ask(server, peer, "x-forwarded-for", values).await
}

#[tokio::test]
async fn b92_only_what_trusted_proxies_wrote_is_believed_from_the_right() {
    for store in stores().await {
        let server = serve(layer(&store, "2/60s"), trusted()).await;
        // The leftmost is the client's own word.
        let forged = [
            "1.1.1.1, 203.0.113.9",
            "1.1.1.2, 203.0.113.9",
            "1.1.1.3, 203.0.113.9",
        ];
        assert_eq!(
            forwarded_for(&server, PROXY, &forged).await,
            [200, 200, 429]
        );
        // Trusted hops are walked over, and several fields are one list.
        let client = server.client(PROXY);
        let fields: [(&str, &[u8]); 2] = [
            ("x-forwarded-for", b"203.0.113.9"),
            ("x-forwarded-for", b"10.1.2.3"),
        ];
        assert_eq!(client.send(Method::GET, "/a", &fields).await.status, 429);
        // Nobody burns a victim's budget, nor escapes his own, from elsewhere.
        let victim = ["203.0.113.77"; 3];
        assert_eq!(
            forwarded_for(&server, STRANGER, &victim).await,
            [200, 200, 429]
        );
        assert_eq!(
            forwarded_for(&server, PROXY, &victim[..2]).await,
            [200, 200]
        );

        // By default nobody is trusted: the peer counts, whatever it says.
        let server = serve(layer(&store, "3/60s"), None).await;
        let random = [
            "198.51.100.1",
            "198.51.100.2",
            "198.51.100.3",
            "198.51.100.4",
        ];
        let seen = forwarded_for(&server, PROXY, &random).await;
        assert_eq!(seen, [200, 200, 200, 429], "{}", store.name);
    }
}

#[tokio::test]
async fn b92_the_other_headers_and_counted_hops_are_read_the_same_way() {
    for store in stores().await {
        let by = |header: &str| ForwardedBy::header(header).unwrap();
        let proxies = trusted().unwrap().forwarded_by(by("Forwarded"));
        let server = serve(layer(&store, "1/60s"), Some(proxies)).await;
        let values = [
            r#"for=1.1.1.1, for="203.0.113.9:80";proto=https"#,
            r#"for=1.1.1.2, FOR=203.0.113.9"#,
        ];
        assert_eq!(ask(&server, PROXY, "forwarded", &values).await, [200, 429]);
        // The header that nobody names is not read: this is the proxy itself.
        let seen = forwarded_for(&server, PROXY, &["203.0.113.9", "203.0.113.10"]).await;
        assert_eq!(seen, [200, 429]);

        let proxies = trusted().unwrap().forwarded_by(by("CF-Connecting-IP"));
        let server = serve(layer(&store, "2/60s"), Some(proxies)).await;
        let seen = ask(&server, PROXY, "cf-connecting-ip", &["203.0.113.9"; 3]).await;
        assert_eq!(seen, [200, 200, 429]);

        let server = serve(layer(&store, "4/60s"), Some(TrustedProxies::hops(2))).await;
        let values = ["1.1.1.1, 203.0.113.8, 10.9.9.9"; 5];
        let seen = forwarded_for(&server, STRANGER, &values).await;
        assert_eq!(seen, [200, 200, 200, 200, 429], "{}", store.name);
    }
}

#[tokio::test]
async fn b94_ports_and_brackets_make_nobody_another_client() {
    for store in stores().await {
        let server = serve(layer(&store, "2/60s"), trusted()).await;
        let v4 = ["203.0.113.9:51000", "203.0.113.9:51001", "203.0.113.9"];
        assert_eq!(forwarded_for(&server, PROXY, &v4).await, [200, 200, 429]);
        let v6 = ["[2001:db8::1]:443", "2001:db8::1", "[2001:db8::1]"];
        assert_eq!(forwarded_for(&server, PROXY, &v6).await, [200, 200, 429]);
        // Nor do they all fall back to the proxy, which has its whole budget.
        let proxy = server.client(PROXY);
        assert_eq!(proxy.get("/a").await.status, 200, "{}", store.name);
        // A hop that names nobody is the proxy that wrote it.
        assert_eq!(
            forwarded_for(&server, PROXY, &["unknown", "_hidden"]).await,
            [200, 429]
        );
    }
}

#[tokio::test]
async fn b96_an_ipv4_address_written_as_ipv6_is_the_ipv4_address() {
    for store in stores().await {
        let server = serve(layer(&store, "2/60s"), trusted()).await;
        let same = ["::ffff:1.2.3.4", "::ffff:102:304", "1.2.3.4"];
        assert_eq!(forwarded_for(&server, PROXY, &same).await, [200, 200, 429]);
        let others = ["::ffff:1.2.3.5", "2001:db8:1234:5678::1.2.3.4"];
        assert_eq!(forwarded_for(&server, PROXY, &others).await, [200, 200]);
        // That one is an ordinary IPv6 address, which counts with its network.
        let network = ["2001:db8:1234:5678::9", "2001:db8:1234:5678::a"];
        assert_eq!(forwarded_for(&server, PROXY, &network).await, [200, 429]);
    }
}

#[tokio::test]
async fn b97_s77_an_ipv6_client_is_its_network_and_the_prefixes_are_settable() {
    let walk = [
        "2001:db8:1:2::1",
        "2001:db8:1:2::2",
        "2001:db8:1:2:ffff:ffff:ffff:ffff",
        "2001:db8:1:3::1",
        "2001:DB8:1:2:0:0:0:1",
    ];
    for store in stores().await {
        let server = serve(layer(&store, "2/60s"), trusted()).await;
        assert_eq!(
            forwarded_for(&server, PROXY, &walk).await,
            [200, 200, 429, 200, 429]
        );
        for (prefix, quotas, seen) in [
            (56, "2/61s", [200, 200, 429, 429, 429]),
            (128, "1/60s", [200, 200, 200, 200, 429]),
        ] {
            let ip = Ip::default().client_network(32, prefix).unwrap();
            let server = serve(layer(&store, quotas).identity(ip), trusted()).await;
            assert_eq!(
                forwarded_for(&server, PROXY, &walk).await,
                seen,
                "/{prefix}"
            );
        }
        let ip = Ip::default().client_network(24, 48).unwrap();
        let server = serve(layer(&store, "1/61s").identity(ip), trusted()).await;
        let near = ["203.0.113.9", "203.0.113.200", "203.0.114.9"];
        assert_eq!(forwarded_for(&server, PROXY, &near).await, [200, 429, 200]);
    }
}

#[tokio::test]
async fn b98_nat64_and_6to4_are_the_ipv4_address_inside_and_loopbacks_are_not_merged() {
    for store in stores().await {
        let server = serve(layer(&store, "1/60s"), trusted()).await;
        let apart = [
            "64:ff9b::808:808",
            "64:ff9b::909:909",
            "2002:c000:204::1",
            "::1",
            "127.0.0.1",
        ];
        assert_eq!(forwarded_for(&server, PROXY, &apart).await, [200; 5]);
        let same = ["8.8.8.8", "9.9.9.9", "192.0.2.4", "::1", "127.0.0.1"];
        assert_eq!(
            forwarded_for(&server, PROXY, &same).await,
            [429; 5],
            "{}",
            store.name
        );
        // An address that only holds a trusted one inside is not trusted.
        let hidden = [
            "203.0.113.50, 64:ff9b::a01:203",
            "203.0.113.51, 64:ff9b::a01:203",
        ];
        assert_eq!(forwarded_for(&server, PROXY, &hidden).await, [200, 429]);
    }
}
