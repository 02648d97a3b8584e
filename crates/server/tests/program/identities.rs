//! Whom requests count for, over HTTP.

use std::path::PathBuf;

use crate::process::{Gateway, LONG, eventually, run, text};
use crate::service::{Service, send};
use crate::upstream::{OK, answering};

/// A file with a name of its own.
pub(crate) struct File(PathBuf);

impl File {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let path = path.join(format!("{name}-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn s38_s39_each_type_is_counted_apart_and_the_first_in_order_wins() {
    let order = r#"["api_key","user_id","phone","oauth_account","custom","ip_address"]"#;
    let environment = [
        ("IDENTITY_RESOLUTION_ORDER", order),
        ("TOLLGATE_IDENTITY_CUSTOM", "query:tenant"),
    ];
    Service::each(&["--quota", "1/h"], &environment, |service| {
        for (target, headers) in [
            // The same text in each of them: nobody spends another's.
            ("/", "X-API-Key: +4930123456\r\n"),
            ("/", "X-User-ID: +4930123456\r\n"),
            ("/", "X-Phone: +4930123456\r\n"),
            ("/", "X-OAuth-Account: +4930123456\r\n"),
            ("/?tenant=%2B4930123456", ""),
            ("/", ""),
        ] {
            let both = [(); 2].map(|()| service.status(target, headers));
            assert_eq!(both, [200, 429], "{target} {headers}");
        }
        // What comes later in the order is not asked.
        let spent = "X-API-Key: +4930123456\r\nX-User-ID: fresh\r\n";
        assert_eq!(service.status("/", spent), 429);
        assert_eq!(service.status("/", "X-User-ID: fresh\r\n"), 200);
        // Empty is missing, and two of a kind are nobody's.
        assert_eq!(service.status("/", "X-API-Key:\r\n"), 429, "the address");
        assert_eq!(service.status("/", "X-API-Key: a\r\nX-API-Key: b\r\n"), 401);
        assert!(service.log().contains("as clients assert them"));
    });
}

#[test]
fn s41_a_phone_number_is_the_same_however_it_is_written() {
    let environment = [
        ("IDENTITY_RESOLUTION_ORDER", "phone"),
        ("TOLLGATE_IDENTITY_PHONE_REGION", "DE"),
        ("PHONE_HEADER", "X-Caller"),
    ];
    Service::each(&["--quota", "3/h"], &environment, |service| {
        let forms = [
            "+491701234567",
            "0170 1234567",
            "+49 (170) 123-4567",
            "0049 170 1234567",
        ];
        let answers = forms.map(|form| service.status("/", &format!("X-Caller: {form}\r\n")));
        assert_eq!(answers, [200, 200, 200, 429]);
        assert_eq!(service.status("/", "X-Caller: nobody\r\n"), 401);
        assert_eq!(service.status("/", ""), 401);
        let log = service.log();
        assert!(!log.contains("1701234567"), "{log}");
    });
}

#[test]
fn s41_api_keys_are_verified_by_their_digests_and_read_again_when_the_file_changes() {
    // printf %s k-one | sha256sum, and the same of k-two.
    let one = sha256("k-one");
    let two = sha256("k-two");
    let three = sha256("k-three");
    let keys = File::new(
        "keys",
        &format!("# keys\n{one} acme\n{two} acme\n{three} zeta pro\n"),
    );
    let environment = [
        ("IDENTITY_RESOLUTION_ORDER", "api_key,ip_address"),
        ("TOLLGATE_IDENTITY_API_KEYS", keys.path()),
    ];
    Service::each(&["--quota", "2/h"], &environment, |service| {
        let with = |key: &str| service.get("/", &format!("X-API-Key: {key}\r\n"));
        // An owner's keys share.
        assert_eq!(
            ["k-one", "k-two", "k-one"].map(|key| with(key).status),
            [200, 200, 429]
        );
        assert_eq!(with("k-three").status, 200);
        let unknown = with("k-four");
        assert_eq!(unknown.status, 401);
        assert_eq!(unknown.header("www-authenticate"), Some("Bearer"));
        assert_eq!(
            unknown.header("content-type"),
            Some("application/problem+json")
        );
        assert!(!unknown.text().contains("k-four"));
        assert_eq!(service.status("/", ""), 200, "no key is no wrong key");
    });
    Service::each(&["--quota", "2/h"], &environment, |service| {
        let with = |key: &str| service.status("/", &format!("X-API-Key: {key}\r\n"));
        let text = std::fs::read_to_string(keys.path()).unwrap();
        std::fs::write(keys.path(), "no digest\n").unwrap();
        eventually("the mistake is told", || service.log().contains("line 1"));
        assert_eq!(with("k-three"), 200, "the keys stay as they were");
        std::fs::write(keys.path(), format!("{} new\n", sha256("k-new"))).unwrap();
        eventually("the new key is known", || {
            [(); 2].map(|()| with("k-new")) != [401, 401]
        });
        eventually("the old one is not", || {
            [(); 2].map(|()| with("k-three")) == [401, 401]
        });
        std::fs::write(keys.path(), text).unwrap();
    });
}

pub(crate) fn sha256(text: &str) -> String {
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(text);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

/// A token with these claims besides the usual ones, signed by `secret`.
fn token(header: &str, claims: &str, secret: &str) -> String {
    let claims =
        format!(r#"{{"iss":"https://issuer.example","aud":"orders","exp":4000000000,{claims}}}"#);
    let signed = format!(
        "{}.{}",
        base64(header.as_bytes()),
        base64(claims.as_bytes())
    );
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
    let signature = ring::hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", base64(signature.as_ref()))
}

const HS256: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

#[test]
fn s41_b100_tokens_are_verified_and_one_that_is_not_valid_is_nobody_elses() {
    let secret = File::new("jwt-secret", SECRET);
    let environment = [
        ("IDENTITY_RESOLUTION_ORDER", "jwt_sub,ip_address"),
        ("TOLLGATE_JWT_ISSUER", "https://issuer.example"),
        ("TOLLGATE_JWT_AUDIENCE", "orders"),
        ("TOLLGATE_JWT_KEY_FILE", secret.path()),
        ("TOLLGATE_JWT_ALGORITHMS", "HS256"),
    ];
    Service::each(&["--quota", "2/h"], &environment, |service| {
        let with = |token: &str| {
            let headers = format!("Authorization: Bearer {token}\r\n");
            service.status("/", &headers)
        };
        let alice = token(HS256, r#""sub":"alice""#, SECRET);
        let other = token(HS256, r#""sub":"alice","jti":"2""#, SECRET);
        assert_eq!([with(&alice), with(&other), with(&alice)], [200, 200, 429]);
        assert_eq!(with(&token(HS256, r#""sub":"bob""#, SECRET)), 200);
        let unsigned = alice.rsplit_once('.').unwrap().0;
        for wrong in [
            format!("{unsigned}."),
            unsigned.to_owned(),
            token(r#"{"alg":"none"}"#, r#""sub":"alice""#, SECRET),
            token(r#"{"alg":"nOnE"}"#, r#""sub":"alice""#, SECRET),
            token(r#"{"alg":"RS256"}"#, r#""sub":"alice""#, SECRET),
            token(
                HS256,
                r#""sub":"alice""#,
                "another secret of thirty-two bytes",
            ),
            token(HS256, r#""sub":"alice","nbf":3999999999"#, SECRET),
            token(HS256, r#""name":"alice""#, SECRET),
            token(
                r#"{"alg":"HS256","crit":["x"]}"#,
                r#""sub":"alice""#,
                SECRET,
            ),
            token(
                r#"{"alg":"HS256","kid":"../../etc/passwd"}"#,
                r#""sub":"a""#,
                "x",
            ),
            "nonsense".to_owned(),
        ] {
            assert_eq!(with(&wrong), 401, "{wrong}");
        }
        // Another scheme is somebody else's credential.
        assert_eq!(service.status("/", "Authorization: Basic YTpi\r\n"), 200);
    });
}

#[test]
fn s41_a_claim_is_a_custom_identity_by_its_pointer() {
    let secret = File::new("jwt-custom", SECRET);
    let environment = [
        ("IDENTITY_RESOLUTION_ORDER", "custom,ip_address"),
        ("TOLLGATE_IDENTITY_CUSTOM", "jwt:/org/id"),
        ("TOLLGATE_JWT_ISSUER", "https://issuer.example"),
        ("TOLLGATE_JWT_AUDIENCE", "orders"),
        ("TOLLGATE_JWT_KEY_FILE", secret.path()),
        ("TOLLGATE_JWT_ALGORITHMS", "HS256"),
    ];
    Service::each(&["--quota", "1/h"], &environment, |service| {
        let with = |claims: &str| {
            let token = token(HS256, claims, SECRET);
            service.status("/", &format!("Authorization: Bearer {token}\r\n"))
        };
        assert_eq!(
            [
                with(r#""org":{"id":7}"#),
                with(r#""org":{"id":7},"sub":"x""#)
            ],
            [200, 429]
        );
        assert_eq!(with(r#""org":{"id":8}"#), 200);
        // A token without the claim says nothing of it: the address counts.
        assert_eq!([with(r#""sub":"x""#), with(r#""sub":"y""#)], [200, 429]);
    });
}

#[test]
fn b137_the_upstream_is_told_whom_the_request_counts_for_whatever_the_client_wrote() {
    let secret = File::new("jwt-forwarded", SECRET);
    let (upstream, requests) = answering(OK);
    let upstream = format!("http://{upstream}");
    let arguments = ["--upstream", &upstream, "--quota", "2/h"];
    let environment = [
        ("IDENTITY_RESOLUTION_ORDER", "jwt_sub,ip_address"),
        ("TOLLGATE_IDENTITY_FORWARD_AS", "X-User-Id"),
        ("TOLLGATE_JWT_ISSUER", "https://issuer.example"),
        ("TOLLGATE_JWT_AUDIENCE", "orders"),
        ("TOLLGATE_JWT_KEY_FILE", secret.path()),
        ("TOLLGATE_JWT_ALGORITHMS", "HS256"),
    ];
    let gateway = Gateway::start_with(&arguments, &environment);
    let alice = token(HS256, r#""sub":"alice""#, SECRET);
    let forged = "Connection: close, X-Forwarded-For, X-Real-IP, X-User-Id, X-RateLimit-Tier\r\n\
        X-Forwarded-For: 6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nX-User-Id: admin\r\n\
        X-User-Id: root\r\nX_User_Id: admin\r\nX-RateLimit-Tier: gold\r\nTE: trailers\r\n\
        Keep-Alive: timeout=5\r\nProxy-Authorization: Basic eA==\r\nUpgrade: h2c\r\n";
    let ask = |more: &str| {
        let headers = format!("{forged}{more}");
        let answer = send(gateway.address, "GET", "/", &headers, "");
        let asked = || requests.recv_timeout(LONG).unwrap();
        (answer.status, (answer.status == 200).then(asked))
    };
    let bearer = format!("Authorization: Bearer {alice}\r\n");
    for _ in 0..2 {
        let (_, asked) = ask(&bearer);
        let asked = asked.unwrap();
        assert_eq!(asked.header("x-user-id"), ["alice"]);
        assert_eq!(asked.header("x-forwarded-for"), ["127.0.0.1"]);
        assert_eq!(asked.header("te"), ["trailers"]);
        for gone in [
            "x_user_id",
            "x-real-ip",
            "x-ratelimit-tier",
            "keep-alive",
            "proxy-authorization",
            "upgrade",
        ] {
            assert_eq!(asked.header(gone), [""; 0], "{gone}");
        }
    }
    // Who is told of is who is limited.
    assert_eq!(ask(&bearer).0, 429);
    let (status, asked) = ask("");
    assert_eq!(status, 200, "the address has a budget of its own");
    assert_eq!(asked.unwrap().header("x-user-id"), [""; 0]);
}

#[test]
fn a_field_with_a_meaning_of_its_own_tells_of_no_identity() {
    for name in ["Host", "X-Forwarded-For", "Authorization"] {
        let output = run(&["serve", "--identity-forward-as", name]);
        assert_eq!(output.status.code(), Some(2));
        let told = text(&output.stderr);
        assert!(
            told.contains("--identity-forward-as") && told.contains("X-User-Id"),
            "{told}"
        );
    }
}

#[test]
fn s39_jwt_sub_is_skipped_until_tokens_can_be_verified() {
    let environment = [("IDENTITY_RESOLUTION_ORDER", "jwt_sub,ip_address")];
    Service::each(&["--quota", "1/h"], &environment, |service| {
        let with = |token: &str| service.status("/", &format!("Authorization: Bearer {token}\r\n"));
        assert_eq!([with("a.b.c"), with("d.e.f")], [200, 429]);
        assert!(service.log().contains("jwt_sub is skipped"));
    });
}

#[test]
fn b104_identities_of_different_types_do_not_meet_and_nobody_has_a_common_bucket() {
    let environment = [("IDENTITY_RESOLUTION_ORDER", "user_id,ip_address")];
    Service::each(&["--quota", "1/h"], &environment, |service| {
        assert_eq!(service.status("/", "X-User-ID: 127.0.0.1\r\n"), 200);
        assert_eq!(service.status("/", ""), 200);
        assert_eq!(
            service.status("/", "X-User-ID:\r\n"),
            429,
            "empty is missing"
        );
    });
    let global = [("IDENTITY_RESOLUTION_ORDER", "user_id,global")];
    Service::each(&["--quota", "1/h"], &global, |service| {
        assert_eq!(service.status("/", "X-User-ID: u\r\n"), 200);
        assert_eq!(
            [service.status("/", ""), service.status("/", "")],
            [200, 429]
        );
    });
}

#[test]
fn b92_b94_b96_b97_b98_the_client_is_whom_trusted_proxies_saw_in_any_spelling() {
    let trusting = [
        "--trusted-proxies",
        "127.0.0.1/32,10.0.0.0/8",
        "--quota",
        "2/h",
    ];
    Service::each(&trusting, &[], |service| {
        let of = |addresses: &[&str]| -> Vec<u16> {
            let headers = addresses.iter();
            let headers = headers.map(|address| format!("X-Forwarded-For: {address}\r\n"));
            headers
                .map(|headers| service.status("/", &headers))
                .collect()
        };
        // From the right, past proxies; what is further left was sent by the client.
        let walked = of(&[
            "1.1.1.1, 203.0.113.9",
            "1.1.1.2, 203.0.113.9:51000, 10.0.0.5",
            "203.0.113.9",
        ]);
        assert_eq!(walked, [200, 200, 429]);
        assert_eq!(of(&["1.1.1.1"]), [200], "nobody burnt it");
        let mapped = of(&[
            "::ffff:1.2.3.4",
            "[::ffff:102:304]:443",
            "1.2.3.4",
            "::ffff:1.2.3.5",
        ]);
        assert_eq!(mapped, [200, 200, 429, 200]);
        let network = of(&[
            "2001:db8:1:2::1",
            "[2001:DB8:1:2:0:0:0:1]:443",
            "2001:db8:1:2:ffff:ffff:ffff:ffff",
            "2001:db8:1:3::1",
        ]);
        assert_eq!(network, [200, 200, 429, 200]);
        assert_eq!(of(&["64:ff9b::808:808"; 3]), [200, 200, 429]);
        assert_eq!(of(&["64:ff9b::909:909"]), [200]);
    });
    // Nobody is trusted unless somebody says so.
    for arguments in [
        &["--quota", "2/h"][..],
        &["--quota", "2/h", "--trusted-proxies", "192.0.2.1"],
    ] {
        Service::each(arguments, &[], |service| {
            let of =
                |address: &str| service.status("/", &format!("X-Forwarded-For: {address}\r\n"));
            assert_eq!(["1.1.1.1", "1.1.1.2", "1.1.1.3"].map(of), [200, 200, 429]);
        });
    }
}
