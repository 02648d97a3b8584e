//! Tokens in the settings.

use std::path::Path;

use super::*;
use crate::JwtKeySource;

const BASE: &str = r#"
    key_sources = ["jwt", "ip"]
    jwt_issuer = "https://issuer.example"
    jwt_audience = "orders"
"#;

fn file(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/identity/jwt/testdata");
    folder.join(name).display().to_string()
}

/// The message of the one mistake there is.
#[track_caller]
fn built(table: &str, env: &[(&str, &str)]) -> String {
    let config = with(&format!("{BASE}{table}"), env).unwrap();
    match config.identities([]) {
        Ok(_) => "built".into(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn s31_tokens_are_set_by_the_table_and_by_variables() {
    let secret = "s3cr3t-s3cr3t-s3cr3t-s3cr3t-s3cr3t";
    let table = format!("{BASE}jwt_algorithms = [\"HS256\"]\njwt_plan_claim = \"plan\"");
    let config = with(
        &table,
        &[("JWT_SECRET", secret), ("JWT_AUDIENCE", "invoices")],
    )
    .unwrap();
    let jwt = config.jwt.as_ref().unwrap();
    assert_eq!(
        (&*jwt.issuer, &*jwt.audience),
        ("https://issuer.example", "invoices")
    );
    assert!(matches!(&jwt.key, JwtKeySource::Secret(it) if it == secret));
    assert_eq!(jwt.plan_claim.as_deref(), Some("plan"));
    config.identities([]).unwrap();
    let shown = format!("{config:?} {:?}", config.identities([]).unwrap());
    assert!(!shown.contains("s3cr3t"), "{shown}");
}

#[test]
fn every_source_of_keys_is_built() {
    let folder = std::env::temp_dir().join(format!("tollgate-jwt-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let secret = folder.join("secret");
    std::fs::write(&secret, "0123456789abcdef0123456789abcdef\n").unwrap();
    let secret = secret.display();
    let tables = [
        format!("jwt_algorithms = [\"HS256\"]\njwt_secret_file = \"{secret}\""),
        format!(
            "jwt_algorithms = [\"RS256\", \"PS256\"]\njwt_public_key_file = \"{}\"",
            file("rsa.pub.pem")
        ),
        format!(
            "jwt_algorithms = \"RS256\"\njwt_public_key_file = \"{}\"\njwt_cookie = \"session\"",
            file("rsa.pkcs1.pub.pem")
        ),
        #[cfg(feature = "jwks")]
        "jwt_algorithms = [\"ES256\"]\njwt_jwks_url = \"http://localhost:1/keys\"".into(),
    ];
    for table in tables {
        assert_eq!(built(&table, &[]), "built", "{table}");
    }
    // The line break is no part of it, so this one is too short.
    std::fs::write(folder.join("secret"), "0123456789abcdef0123456789abcde\n").unwrap();
    let table = format!("jwt_algorithms = [\"HS256\"]\njwt_secret_file = \"{secret}\"");
    assert!(built(&table, &[]).contains("shorter than 32 bytes"));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn keys_that_do_not_fit_are_refused_when_the_sources_are_made() {
    let pem = |algorithms: &str, name: &str| {
        let file = file(name);
        built(
            &format!("jwt_algorithms = {algorithms}\njwt_public_key_file = {file:?}"),
            &[],
        )
    };
    let told = pem("[\"ES384\"]", "p521.pub.pem");
    assert!(
        told.contains("jwt_public_key_file") && told.contains("P-384"),
        "{told}"
    );
    assert!(pem("[\"ES256\"]", "rsa.pub.pem").contains("no key for ES256"));
    assert!(pem("[\"RS256\"]", "none.pem").contains("cannot be read"));
    let secret = [("JWT_SECRET", "short-s3cr3t")];
    let told = built("jwt_algorithms = [\"HS256\"]", &secret);
    assert!(
        told.contains("shorter than 32 bytes") && !told.contains("s3cr3t"),
        "{told}"
    );
    #[cfg(feature = "jwks")]
    for (algorithms, url, part) in [
        (
            "[\"HS256\"]",
            "https://issuer.example/keys",
            "no key set may show",
        ),
        (
            "[\"RS256\"]",
            "http://issuer.example/keys",
            "could be anybody's",
        ),
    ] {
        let told = built(
            &format!("jwt_algorithms = {algorithms}\njwt_jwks_url = {url:?}"),
            &[],
        );
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn what_is_missing_or_contradicts_is_named() {
    let told = |table: &str, env: &[(&str, &str)]| {
        let all = mistakes(table, env);
        let all: Vec<String> = all.iter().map(ToString::to_string).collect();
        all.join("\n")
    };
    let all = told("jwt_claim = \"sub\"", &[]);
    for part in [
        "jwt_issuer",
        "jwt_audience",
        "jwt_algorithms",
        "jwt_secret",
        "key_sources",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    let table = format!("{BASE}jwt_algorithms = [\"ES512\"]\njwt_jwks_url = \"https://a/b\"");
    let all = told(&table, &[]);
    assert!(
        all.contains("ES512") && all.contains("signed by ES384"),
        "{all}"
    );
    let table = format!("{BASE}jwt_algorithms = [\"HS256\"]\njwt_secret_file = \"a\"");
    let all = told(&table, &[("JWT_SECRET", "s3cr3t")]);
    assert!(
        all.contains("(several)") && !all.contains("s3cr3t"),
        "{all}"
    );
    let config = with("key_sources = [\"jwt\"]", &[]).unwrap();
    let all = config.identities([]).unwrap_err().to_string();
    assert!(
        all.contains("nothing says how tokens are verified"),
        "{all}"
    );
}
