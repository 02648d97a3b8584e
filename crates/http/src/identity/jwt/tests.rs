mod key_sets;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as B64;
use http::Request;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
};
use serde_json::json;
use tollgate_core::{Clock as _, SystemClock};

use super::*;
use crate::{Identities, OnInvalid, OnNobody};

/// Made for these tests; nothing is protected by it.
const RSA: &[u8] = include_bytes!("testdata/rsa.pkcs8.der");
const RSA_PUBLIC: &str = include_str!("testdata/rsa.pub.pem");
const SECRET: [u8; 32] = [7; 32];

fn now() -> u64 {
    SystemClock.now().as_micros() / 1_000_000
}

fn claims() -> Value {
    json!({"iss": "issuer", "aud": "orders", "sub": "alice", "plan": "pro", "exp": now() + 600})
}

fn unsigned(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| B64.encode(value.to_string());
    format!("{}.{}", part(header), part(claims))
}

fn joined(message: &str, signature: impl AsRef<[u8]>) -> String {
    format!("{message}.{}", B64.encode(signature))
}

fn rsa_with(encoding: &'static dyn RsaEncoding, header: &Value, claims: &Value) -> String {
    let key = RsaKeyPair::from_pkcs8(RSA).unwrap();
    let message = unsigned(header, claims);
    let mut tag = vec![0; key.public().modulus_len()];
    key.sign(encoding, &SystemRandom::new(), message.as_bytes(), &mut tag)
        .unwrap();
    joined(&message, tag)
}

fn rs256(header: &Value, claims: &Value) -> String {
    rsa_with(&RSA_PKCS1_SHA256, header, claims)
}

fn hs256(secret: &[u8], header: &Value, claims: &Value) -> String {
    let message = unsigned(header, claims);
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
    joined(&message, ring::hmac::sign(&key, message.as_bytes()))
}

fn by_secret() -> Jwt {
    let key = JwtKey::secret(JwtAlgorithm::Hs256, &SECRET).unwrap();
    Jwt::new("issuer", "orders", [key])
}

fn by_rsa() -> Jwt {
    let key = JwtKey::pem(JwtAlgorithm::Rs256, RSA_PUBLIC).unwrap();
    Jwt::new("issuer", "orders", [key])
}

fn bearing(token: &str) -> Parts {
    let request = Request::builder().header("authorization", format!("Bearer {token}"));
    request.body(()).unwrap().into_parts().0
}

/// The key and the plan, or what was answered instead.
fn told(answer: Identified) -> String {
    match answer {
        Identified::As(it) => format!("{:?} {:?}", it.key(), it.plan()),
        other => format!("{other:?}"),
    }
}

fn asked(source: &impl IdentitySource, token: &str) -> String {
    told(source.identify_now(&bearing(token)).expect("no waiting"))
}

fn alice(plan: Option<&str>) -> String {
    format!("{:?} {plan:?}", Identity::new("jwt", "alice").key())
}

fn is_invalid(answer: &str) -> bool {
    answer.starts_with("Invalid")
}

#[test]
fn every_kind_of_key_verifies() {
    let random = SystemRandom::new();
    let head = |alg: &str| json!({"alg": alg, "typ": "JWT"});
    let hs = hs256(&SECRET, &head("HS256"), &claims());
    assert_eq!(asked(&by_secret(), &hs), alice(None));
    assert_eq!(
        asked(&by_rsa(), &rs256(&head("RS256"), &claims())),
        alice(None)
    );
    let pss = JwtKey::pem(JwtAlgorithm::Ps256, RSA_PUBLIC).unwrap();
    let pss = Jwt::new("issuer", "orders", [pss]);
    let token = rsa_with(&RSA_PSS_SHA256, &head("PS256"), &claims());
    assert_eq!(asked(&pss, &token), alice(None));
    for (alg, kind, algorithm, point) in [
        (
            "ES256",
            &rcgen::PKCS_ECDSA_P256_SHA256,
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            JwtAlgorithm::Es256,
        ),
        (
            "ES384",
            &rcgen::PKCS_ECDSA_P384_SHA384,
            &ECDSA_P384_SHA384_FIXED_SIGNING,
            JwtAlgorithm::Es384,
        ),
    ] {
        let pair = rcgen::KeyPair::generate_for(kind).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(algorithm, &pair.serialize_der(), &random).unwrap();
        let message = unsigned(&head(alg), &claims());
        let token = joined(&message, key.sign(&random, message.as_bytes()).unwrap());
        let public = JwtKey::pem(point, &pair.public_key_pem()).unwrap();
        let source = Jwt::new("issuer", "orders", [public]);
        assert_eq!(asked(&source, &token), alice(None), "{alg}");
        assert!(is_invalid(&asked(&by_rsa(), &token)));
        let other = JwtKey::pem(JwtAlgorithm::EdDsa, &pair.public_key_pem());
        assert_eq!(
            other.unwrap_err(),
            JwtKeyError::OtherKind(JwtAlgorithm::EdDsa)
        );
    }
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&pair.serialize_der()).unwrap();
    let message = unsigned(&head("EdDSA"), &claims());
    let token = joined(&message, key.sign(message.as_bytes()));
    let public = JwtKey::pem(JwtAlgorithm::EdDsa, &pair.public_key_pem()).unwrap();
    assert_eq!(
        asked(&Jwt::new("issuer", "orders", [public]), &token),
        alice(None)
    );
}

#[test]
fn b100_only_the_configured_algorithm_and_key_identify() {
    let good = rs256(&json!({"alg": "RS256"}), &claims());
    assert_eq!(asked(&by_rsa(), &good), alice(None));
    let body = good.split('.').nth(1).unwrap();
    let signature = good.split('.').nth(2).unwrap();
    let head = |header: Value| B64.encode(header.to_string());
    let none = |alg: &str| format!("{}.{body}.", head(json!({"alg": alg})));
    let der = RSA_PUBLIC
        .lines()
        .filter(|it| !it.starts_with('-'))
        .collect::<String>();
    let der = base64::engine::general_purpose::STANDARD
        .decode(der)
        .unwrap();
    let hs = json!({"alg": "HS256"});
    let attacker = json!({"kty": "oct", "k": B64.encode(SECRET)});
    for (what, token) in [
        ("none", none("none")),
        ("nOnE", none("nOnE")),
        (
            "no signature",
            format!("{}.{body}.", head(json!({"alg": "RS256"}))),
        ),
        (
            "the public PEM as a secret",
            hs256(RSA_PUBLIC.as_bytes(), &hs, &claims()),
        ),
        ("the public DER as a secret", hs256(&der, &hs, &claims())),
        (
            "its own key",
            hs256(
                &SECRET,
                &json!({"alg": "HS256", "jwk": attacker}),
                &claims(),
            ),
        ),
        (
            "crit",
            rs256(&json!({"alg": "RS256", "crit": ["x"]}), &claims()),
        ),
        (
            "crit b64",
            rs256(
                &json!({"alg": "RS256", "crit": ["b64"], "b64": false}),
                &claims(),
            ),
        ),
        (
            "another signature",
            rs256(&json!({"alg": "RS256"}), &json!({"iss": "issuer"})),
        ),
        ("another body", {
            let body = B64.encode(
                json!({"iss": "issuer", "aud": "orders", "sub": "bob", "exp": now() + 600})
                    .to_string(),
            );
            format!("{}.{body}.{signature}", head(json!({"alg": "RS256"})))
        }),
        (
            "PS256 with a key for RS256",
            rsa_with(&RSA_PSS_SHA256, &json!({"alg": "PS256"}), &claims()),
        ),
        (
            "kid of 16 KiB",
            rs256(
                &json!({"alg": "RS256", "kid": "k".repeat(16 << 10)}),
                &claims(),
            ),
        ),
        ("not three parts", format!("{good}.x")),
        ("nothing", "x".into()),
        ("empty parts", "..".into()),
    ] {
        let answer = asked(&by_rsa(), &token);
        assert!(is_invalid(&answer), "{what}: {answer}");
    }
}

#[test]
fn b100_kid_is_compared_and_nothing_else() {
    let key = JwtKey::pem(JwtAlgorithm::Rs256, RSA_PUBLIC)
        .unwrap()
        .with_id("a");
    let source = Jwt::new("issuer", "orders", [key]);
    let with = |kid: Value| {
        asked(
            &source,
            &rs256(&json!({"alg": "RS256", "kid": kid}), &claims()),
        )
    };
    assert_eq!(with(json!("a")), alice(None));
    assert_eq!(with(Value::Null), alice(None));
    let long = "k".repeat(10 << 10);
    for kid in [
        "../../etc/passwd",
        "/dev/zero",
        "http://127.0.0.1:1/",
        "b",
        "",
        &long,
    ] {
        assert!(is_invalid(&with(json!(kid))), "{kid}");
    }
}

#[test]
fn issuer_audience_and_times_are_required() {
    let with = |claim: &str, value: Value| {
        let mut all = claims();
        all[claim] = value;
        asked(
            &by_secret(),
            &hs256(&SECRET, &json!({"alg": "HS256"}), &all),
        )
    };
    let without = |claim: &str| {
        let mut all = claims();
        all.as_object_mut().unwrap().remove(claim);
        asked(
            &by_secret(),
            &hs256(&SECRET, &json!({"alg": "HS256"}), &all),
        )
    };
    for claim in ["iss", "aud", "exp", "sub"] {
        assert!(is_invalid(&without(claim)), "{claim}");
        assert!(is_invalid(&with(claim, Value::Null)), "{claim}");
        assert!(is_invalid(&with(claim, json!({}))), "{claim}");
    }
    assert!(is_invalid(&with("iss", json!("other"))));
    assert!(is_invalid(&with("aud", json!(["other"]))));
    assert!(is_invalid(&with("exp", json!(now() - 120))));
    assert!(is_invalid(&with("nbf", json!(now() + 120))));
    assert!(is_invalid(&with("sub", json!(""))));
    assert_eq!(with("aud", json!(["other", "orders"])), alice(None));
    assert_eq!(with("exp", json!(now() - 5)), alice(None));
    assert_eq!(with("nbf", json!(now() - 5)), alice(None));
    let number = format!("{:?} None", Identity::new("jwt", "17").key());
    assert_eq!(with("sub", json!(17)), number);
}

#[test]
fn claims_are_found_by_name_and_by_pointer() {
    let mut all = claims();
    all["org"] = json!({"id": "acme", "plans": ["free"]});
    let token = hs256(&SECRET, &json!({"alg": "HS256"}), &all);
    assert_eq!(
        asked(&by_secret().plan_claim("plan"), &token),
        alice(Some("pro"))
    );
    let source = by_secret()
        .claim("/org/id")
        .plan_claim("/org/plans/0")
        .named("jwt-b");
    let acme = Identity::new("jwt-b", "acme");
    assert_eq!(
        asked(&source, &token),
        format!("{:?} {:?}", acme.key(), Some("free"))
    );
    assert_eq!(asked(&by_secret().plan_claim("tier"), &token), alice(None));
}

#[test]
fn a_token_is_looked_for_where_it_is_said_to_be() {
    let token = hs256(&SECRET, &json!({"alg": "HS256"}), &claims());
    let request = |name: &str, value: &str| {
        let request = Request::builder().header(name, value).body(()).unwrap();
        request.into_parts().0
    };
    let ask = |source: &Jwt, name: &str, value: String| {
        told(source.identify_now(&request(name, &value)).unwrap())
    };
    let bearer = by_secret();
    assert_eq!(
        ask(&bearer, "authorization", format!("bEARER  {token} ")),
        alice(None)
    );
    for other in ["Basic YTpi".to_owned(), "Bearer".into(), String::new()] {
        assert_eq!(
            ask(&bearer, "authorization", other.clone()),
            "Unknown",
            "{other}"
        );
    }
    assert!(is_invalid(&ask(
        &bearer,
        "authorization",
        "Bearer ".to_owned() + "x"
    )));
    let header = by_secret().in_header(HeaderName::from_static("x-token"));
    assert_eq!(ask(&header, "x-token", token.clone()), alice(None));
    assert_eq!(
        ask(&header, "authorization", format!("Bearer {token}")),
        "Unknown"
    );
    let cookie = by_secret().in_cookie("session");
    assert_eq!(
        ask(&cookie, "cookie", format!("a=b; session={token}")),
        alice(None)
    );
    let twice = Request::builder()
        .header("authorization", format!("Bearer {token}"))
        .header("authorization", "Bearer x");
    let (twice, ()) = twice.body(()).unwrap().into_parts();
    assert!(is_invalid(&told(bearer.identify_now(&twice).unwrap())));
}

#[test]
fn an_invalid_token_is_never_passed_over_unless_told_to() {
    let list = Identities::new()
        .then(by_secret())
        .on_nobody(OnNobody::Share);
    assert!(is_invalid(&asked(&list, "x.y.z")));
    let shared = asked(&list.on_invalid(OnInvalid::Skip), "x.y.z");
    assert_eq!(
        shared,
        format!("{:?} None", Identity::new("shared", "").key())
    );
}

#[test]
fn keys_that_prove_nothing_are_refused_and_secrets_not_printed() {
    assert_eq!(
        JwtKey::secret(JwtAlgorithm::Hs512, &[1; 63]).unwrap_err(),
        JwtKeyError::ShortSecret(64)
    );
    assert_eq!(
        JwtKey::secret(JwtAlgorithm::Rs256, &[1; 64]).unwrap_err(),
        JwtKeyError::NotSecret(JwtAlgorithm::Rs256)
    );
    assert_eq!(
        JwtKey::pem(JwtAlgorithm::Hs256, RSA_PUBLIC).unwrap_err(),
        JwtKeyError::OtherKind(JwtAlgorithm::Hs256)
    );
    assert_eq!(
        JwtKey::pem(JwtAlgorithm::Rs256, "x").unwrap_err(),
        JwtKeyError::Malformed
    );
    for (pem, error) in [
        (include_str!("testdata/p521.pub.pem"), JwtKeyError::Curve),
        (
            include_str!("testdata/rsa1024.pub.pem"),
            JwtKeyError::ShortRsa(1024),
        ),
        (
            "-----BEGIN EC PRIVATE KEY-----\nAA==\n-----END EC PRIVATE KEY-----",
            JwtKeyError::Private,
        ),
    ] {
        for algorithm in [JwtAlgorithm::Rs256, JwtAlgorithm::Es384] {
            assert_eq!(JwtKey::pem(algorithm, pem).unwrap_err(), error);
        }
    }
    let key = JwtKey::secret(JwtAlgorithm::Hs256, b"0123456789abcdef0123456789abcdef").unwrap();
    assert!(!format!("{:?}", Jwt::new("i", "a", [key])).contains("0123"));
}

#[test]
fn an_rsa_key_is_read_in_both_of_its_forms() {
    let pkcs1 = include_str!("testdata/rsa.pkcs1.pub.pem");
    assert!(pkcs1.starts_with("-----BEGIN RSA PUBLIC KEY-----"));
    let key = JwtKey::pem(JwtAlgorithm::Rs256, pkcs1).unwrap();
    let token = rs256(&json!({"alg": "RS256"}), &claims());
    let source = Jwt::new("issuer", "orders", [key]);
    assert_eq!(asked(&source, &token), asked(&by_rsa(), &token));
    assert_eq!(asked(&source, &token), alice(None));
}

#[test]
fn algorithms_that_cannot_be_verified_are_refused_by_name_with_those_that_can() {
    for name in ["ES512", "ES256K", "none", "rs256", ""] {
        let error = name.parse::<JwtAlgorithm>().unwrap_err().to_string();
        assert!(error.contains(&format!("{name:?} is none of")), "{error}");
        assert!(
            error.contains("HS256, HS384") && error.contains("ES384"),
            "{error}"
        );
    }
    let error = "ES512".parse::<JwtAlgorithm>().unwrap_err().to_string();
    assert!(error.contains("have tokens signed by ES384"), "{error}");
    // Nor does a token of that kind panic.
    let token = format!("{}.AA", unsigned(&json!({"alg": "ES512"}), &claims()));
    assert!(is_invalid(&asked(&by_rsa(), &token)));
}

proptest::proptest! {
    #[test]
    fn any_token_is_read_without_a_panic(header in "\\PC{0,40}", body in "\\PC{0,40}", rest in "[ -~]{0,20}") {
        let token = format!("{}.{}.{rest}", B64.encode(header), B64.encode(body));
        proptest::prop_assert!(is_invalid(&asked(&by_secret(), &token)));
    }
}
