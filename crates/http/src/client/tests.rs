use http::{HeaderMap, HeaderValue, Request};
use tower_layer::Layer as _;
use tower_service::Service as _;

use super::*;

fn lines(name: &'static str, values: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn client(proxies: &TrustedProxies, peer: &str, headers: &HeaderMap) -> String {
    proxies.client(peer.parse().unwrap(), headers).to_string()
}

fn ten() -> TrustedProxies {
    TrustedProxies::networks(["10.0.0.0/8"]).unwrap()
}

#[test]
fn b92_only_what_trusted_proxies_added_is_believed() {
    let xff = |value: &str| lines("x-forwarded-for", &[value]);
    for n in 1..=3 {
        let headers = xff(&format!("1.1.1.{n}, 203.0.113.9"));
        assert_eq!(client(&ten(), "10.0.0.5", &headers), "203.0.113.9");
        // A dual-stack socket shows the same peer as IPv6.
        assert_eq!(client(&ten(), "::ffff:10.0.0.5", &headers), "203.0.113.9");
    }
    assert_eq!(
        client(&ten(), "198.51.100.7", &xff("203.0.113.9")),
        "198.51.100.7"
    );
}

#[test]
fn b92_without_trusted_proxies_the_peer_is_the_client() {
    let mut request = Request::new(());
    *request.headers_mut() = lines("x-forwarded-for", &["203.0.113.9"]);
    let peer = PeerAddr(([10, 0, 0, 5], 1).into());
    request.extensions_mut().insert(peer);
    assert_eq!(client_ip(request.extensions()), Some([10, 0, 0, 5].into()));
}

#[test]
fn s16_the_walk_goes_over_trusted_hops_and_fields_and_stops_at_the_first_other() {
    let resolved = |values: &[&str]| client(&ten(), "10.0.0.5", &lines("x-forwarded-for", values));
    assert_eq!(
        resolved(&["1.1.1.1, 203.0.113.9, 10.0.0.7, 10.0.0.6"]),
        "203.0.113.9"
    );
    assert_eq!(
        resolved(&["1.1.1.1", "203.0.113.9,10.0.0.7", "10.0.0.6"]),
        "203.0.113.9"
    );
    // All of them trusted: the furthest.
    assert_eq!(resolved(&["10.0.0.8, 10.0.0.7"]), "10.0.0.8");
    assert_eq!(resolved(&[]), "10.0.0.5");
    // Malformed: stop there.
    assert_eq!(resolved(&["1.1.1.1, garbage, 10.0.0.7"]), "10.0.0.7");
    assert_eq!(resolved(&["1.1.1.1, unknown"]), "10.0.0.5");
    assert_eq!(resolved(&["1.1.1.1,"]), "10.0.0.5");
}

#[test]
fn b94_all_forms_of_an_address_are_one_client() {
    let prefixes = crate::AddressPrefixes::default();
    let key = |value: &str| {
        let headers = lines("x-forwarded-for", &[value]);
        prefixes.client_key(ten().client([10, 0, 0, 5].into(), &headers))
    };
    for form in ["203.0.113.9:51000", "203.0.113.9:51001", "203.0.113.9"] {
        assert_eq!(key(form), "203.0.113.9", "{form}");
    }
    for form in ["[2001:db8::1]:443", "2001:db8::1", "[2001:db8::1]"] {
        assert_eq!(key(form), "2001:db8::/64", "{form}");
    }
}

#[test]
fn forwarded_of_rfc_7239_is_read_when_it_is_the_header() {
    let proxies = ten().forwarded_by(ForwardedBy::header("Forwarded").unwrap());
    let resolved = |values: &[&str]| client(&proxies, "10.0.0.5", &lines("forwarded", values));
    assert_eq!(
        resolved(&[r#"for=1.1.1.1, for="[2001:db8:cafe::17]:4711";by="a,b", for=10.0.0.6"#]),
        "2001:db8:cafe::17"
    );
    assert_eq!(
        resolved(&["for=203.0.113.9;proto=https", "for=10.0.0.6"]),
        "203.0.113.9"
    );
    assert_eq!(resolved(&["for=1.1.1.1, for=_hidden"]), "10.0.0.5");
    // A quote that the client left open swallows nothing that is believed.
    assert_eq!(
        resolved(&[r#"for=1.1.1.1;x=", for=203.0.113.9"#]),
        "10.0.0.5"
    );
    assert_eq!(
        resolved(&[r#"for=1.1.1.1;x=", for="203.0.113.9""#]),
        "10.0.0.5"
    );
    // The other header is not read.
    let other = lines("x-forwarded-for", &["203.0.113.9"]);
    assert_eq!(client(&proxies, "10.0.0.5", &other), "10.0.0.5");
    let forwarded = lines("forwarded", &["for=203.0.113.9"]);
    assert_eq!(client(&ten(), "10.0.0.5", &forwarded), "10.0.0.5");
}

#[test]
fn a_header_of_ones_own_is_read_from_trusted_peers_only() {
    let proxies = ten().forwarded_by(ForwardedBy::header("CF-Connecting-IP").unwrap());
    let headers = lines("cf-connecting-ip", &["203.0.113.9"]);
    assert_eq!(client(&proxies, "10.0.0.5", &headers), "203.0.113.9");
    assert_eq!(client(&proxies, "11.0.0.5", &headers), "11.0.0.5");
    let error = ForwardedBy::header("no header").unwrap_err().to_string();
    assert!(
        error.contains("\"no header\"") && error.contains("X-Forwarded-For"),
        "{error}"
    );
}

#[test]
fn hops_are_counted_from_the_right() {
    let headers = lines("x-forwarded-for", &["1.1.1.1, 2.2.2.2", "3.3.3.3"]);
    let resolved = |hops| client(&TrustedProxies::hops(hops), "9.9.9.9", &headers);
    assert_eq!(resolved(0), "9.9.9.9");
    assert_eq!(resolved(1), "3.3.3.3");
    assert_eq!(resolved(2), "2.2.2.2");
    assert_eq!(resolved(7), "1.1.1.1");
}

#[test]
fn the_layer_writes_the_client_over_what_came_before() {
    #[derive(Clone)]
    struct Tell;
    impl tower_service::Service<Request<()>> for Tell {
        type Response = Option<ClientIp>;
        type Error = ();
        type Future = std::future::Ready<Result<Self::Response, ()>>;
        fn poll_ready(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), ()>> {
            std::task::Poll::Ready(Ok(()))
        }
        fn call(&mut self, request: Request<()>) -> Self::Future {
            std::future::ready(Ok(request.extensions().get().copied()))
        }
    }
    let ask = |peer: Option<PeerAddr>| {
        let mut request = Request::new(());
        *request.headers_mut() = lines("x-forwarded-for", &["203.0.113.9"]);
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        ten().layer(Tell).call(request).into_inner().unwrap()
    };
    let ten = PeerAddr(([10, 0, 0, 5], 1).into());
    assert_eq!(ask(Some(ten)), Some(ClientIp([203, 0, 113, 9].into())));
    assert_eq!(ask(None), None);
}

#[test]
fn b110_an_untrusted_peer_with_forwarding_headers_is_told_of_once() {
    let log = crate::test_log::Log::new();
    let proxies = ten();
    let headers = lines("x-forwarded-for", &["203.0.113.9"]);
    for _ in 0..3 {
        client(&proxies.clone(), "192.0.2.1", &headers);
    }
    client(&proxies, "10.0.0.5", &headers);
    assert_eq!(log.count("WARN"), 1, "{}", log.text());
    assert!(log.text().contains("share one bucket"));
    assert!(!log.text().contains("203.0.113.9"));
}

proptest::proptest! {
    #[test]
    fn any_headers_are_walked_without_a_panic_and_an_untrusted_peer_stays_itself(
        values in proptest::collection::vec(proptest::collection::vec(0x20_u8..=0xff, 0..80), 0..4),
        which in 0..3_usize,
        hops in 0..4_usize,
    ) {
        let name = ["x-forwarded-for", "forwarded", "x-real-ip"][which];
        let mut headers = HeaderMap::new();
        for value in values {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(name, value);
            }
        }
        let by = ForwardedBy::header(name).unwrap();
        let _ = ten().forwarded_by(by.clone()).client([10, 0, 0, 5].into(), &headers);
        let _ = TrustedProxies::hops(hops).forwarded_by(by.clone()).client([10, 0, 0, 5].into(), &headers);
        let peer = [192, 0, 2, 1].into();
        proptest::prop_assert_eq!(ten().forwarded_by(by).client(peer, &headers), peer);
    }
}
