//! What each type finds, and how it writes it.

use http::Request;
use http::request::Parts;
use tollgate::Key;

use super::*;

fn request(uri: &str, fields: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().uri(uri);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn resolver(change: impl FnOnce(&mut Options)) -> Resolver {
    let mut options = Options::default();
    change(&mut options);
    Resolver::new(options).unwrap()
}

/// The type and the value that are found, or the status.
async fn found(resolver: &Resolver, uri: &str, fields: &[(&str, &str)]) -> Result<String, u16> {
    let client = [203, 0, 113, 9].into();
    match resolver.resolve(&request(uri, fields), client).await {
        Ok(it) => Ok(format!(
            "{}={}",
            it.kind(),
            String::from_utf8_lossy(it.value())
        )),
        Err(problem) => Err(problem.status().as_u16()),
    }
}

fn is(text: &str) -> Result<String, u16> {
    Ok(text.into())
}

#[tokio::test]
async fn s38_the_first_type_that_finds_a_value_wins() {
    use IdentityType::*;
    let all = resolver(|it| {
        it.order = vec![ApiKey, UserId, Phone, OauthAccount, Custom, IpAddress];
        it.custom = Some("header:X-Tenant".parse().unwrap());
    });
    let fields = [
        ("x-api-key", "k1"),
        ("x-user-id", "7"),
        ("x-phone", "+49 170 1234567"),
        ("x-oauth-account", "github:1"),
        ("x-tenant", "acme"),
    ];
    let expected = [
        "api_key=k1",
        "user_id=7",
        "phone=+491701234567",
        "oauth_account=github:1",
        "custom=acme",
        "ip_address=203.0.113.9",
    ];
    for (from, expected) in expected.into_iter().enumerate() {
        assert_eq!(found(&all, "/", &fields[from.min(5)..]).await, is(expected));
    }
    // Empty is missing.
    assert_eq!(
        found(&all, "/", &[("x-api-key", "")]).await,
        is("ip_address=203.0.113.9")
    );
    // Two of a kind are nobody's.
    let twice = [("x-api-key", "a"), ("x-api-key", "b")];
    assert_eq!(found(&all, "/", &twice).await, Err(401));
}

#[tokio::test]
async fn s41_custom_identities_are_found_in_headers_cookies_and_queries() {
    for (custom, uri, fields, expected) in [
        ("header:X-A", "/", &[("x-a", "1")][..], is("custom=1")),
        (
            "cookie:sid",
            "/",
            &[("cookie", "a=b; sid=\"s 1\"")],
            is("custom=s 1"),
        ),
        ("query:key", "/?a=b&k%65y=x%20y+z", &[], is("custom=x y z")),
        ("query:key", "/?key=", &[], Err(401)),
        ("query:key", "/?key=1&key=2", &[], Err(401)),
        ("query:key", "/", &[], Err(401)),
    ] {
        let resolver = resolver(|it| {
            it.order = vec![IdentityType::Custom];
            it.custom = Some(custom.parse().unwrap());
        });
        assert_eq!(
            found(&resolver, uri, fields).await,
            expected,
            "{custom} {uri}"
        );
    }
    for wrong in ["", "header", "header:a b", "cookie:", "body:x"] {
        assert!(wrong.parse::<Custom>().is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn s41_phone_numbers_are_normalised_to_e164() {
    let german = resolver(|it| {
        it.order = vec![IdentityType::Phone, IdentityType::IpAddress];
        it.phone_region = Some("DE".parse().unwrap());
    });
    for same in [
        "+491701234567",
        "+49 (170) 123-4567",
        "0170/1234567",
        "0049 170 1234567",
    ] {
        assert_eq!(
            found(&german, "/", &[("x-phone", same)]).await,
            is("phone=+491701234567")
        );
    }
    for wrong in ["12", "hello", "+0", &"1".repeat(4_000)] {
        assert_eq!(
            found(&german, "/", &[("x-phone", wrong)]).await,
            Err(401),
            "{wrong}"
        );
    }
    let anywhere = resolver(|it| it.order = vec![IdentityType::Phone]);
    assert_eq!(
        found(&anywhere, "/", &[("x-phone", "0170 1234567")]).await,
        Err(401)
    );
    assert!("Germany".parse::<Region>().is_err());
    // And in the same way where an operator names it.
    let named = german.named(IdentityType::Phone, b"0170 1234567").unwrap();
    assert_eq!(named.value(), b"+491701234567");
}

#[tokio::test]
async fn nobody_is_401_and_a_global_identity_is_for_everybody() {
    let strict = resolver(|it| it.order = vec![IdentityType::UserId]);
    assert_eq!(found(&strict, "/", &[]).await, Err(401));
    let shared = resolver(|it| it.order = vec![IdentityType::UserId, IdentityType::Global]);
    assert_eq!(found(&shared, "/", &[]).await, is("global="));
}

#[tokio::test]
async fn what_is_not_valid_can_be_passed_over_by_setting() {
    let lenient = resolver(|it| {
        it.order = vec![IdentityType::Phone, IdentityType::IpAddress];
        it.skip_invalid = true;
    });
    let found = found(&lenient, "/", &[("x-phone", "nonsense")]).await;
    assert_eq!(found, is("ip_address=203.0.113.9"));
}

#[test]
fn settings_that_cannot_work_are_refused_with_what_to_write() {
    let refused = |change: fn(&mut Options)| {
        let mut options = Options::default();
        change(&mut options);
        Resolver::new(options).unwrap_err()
    };
    let empty = refused(|it| it.order.clear());
    assert!(empty.contains("name a type"), "{empty}");
    let twice = refused(|it| it.order = vec![IdentityType::Phone, IdentityType::Phone]);
    assert!(twice.contains("phone is there twice"), "{twice}");
    let custom = refused(|it| it.order = vec![IdentityType::Custom]);
    assert!(custom.contains("identity.custom"), "{custom}");
    let claim = refused(|it| it.custom = Some(Custom::Claim("/a".into())));
    assert!(claim.contains("jwt.issuer"), "{claim}");
}

#[test]
fn addresses_are_named_in_any_of_their_forms() {
    let resolver = resolver(|_| {});
    let value = |text: &str| {
        let named = resolver.named(IdentityType::IpAddress, text.as_bytes());
        String::from_utf8(named.unwrap().value().to_vec()).unwrap()
    };
    for same in [
        "2001:db8:1:2::1",
        "2001:DB8:1:2::",
        "2001:db8:1:2::/64",
        "[2001:db8:1:2::9]",
    ] {
        assert_eq!(value(same), "2001:db8:1:2::/64");
    }
    assert_eq!(value("::ffff:1.2.3.4"), "1.2.3.4");
    assert!(
        resolver
            .named(IdentityType::IpAddress, b"localhost")
            .is_err()
    );
    assert!(resolver.named(IdentityType::UserId, b"").is_err());
}

#[test]
fn s69_keys_are_a_whole_digest_of_the_value_and_keyed_with_a_secret() {
    let alice = Identity::new(IdentityType::UserId, *b"alice");
    let plain = Digester::new(None).key(&alice);
    // printf %s alice | sha256sum
    let digest = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90";
    assert_eq!(plain.digest(), digest);
    let keyed = |secret: &[u8]| Digester::new(Some(secret)).key(&alice);
    // printf %s alice | openssl dgst -sha256 -hmac key
    let hmac = "76fb55e929c06b97b01c35950ee5f72fe415b15ed3a7356c39e709906dbb5c45";
    assert_eq!(keyed(b"key").digest(), hmac);
    assert_ne!(keyed(b"key"), keyed(b"other"));
    assert_ne!(plain, Key::from("alice"));
    let shown = format!("{alice:?} {:?}", Digester::new(Some(b"s3cr3t")));
    assert!(
        !shown.contains("alice") && !shown.contains("s3cr3t"),
        "{shown}"
    );
}
