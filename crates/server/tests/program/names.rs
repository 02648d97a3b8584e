//! Names that cannot be in a header.

use serde_json::json;

use crate::process::{Gateway, program, text};
use crate::service::send;

#[test]
fn b112_what_cannot_be_a_name_of_a_field_is_refused_when_it_is_set() {
    for (name, value) in [
        ("API_KEY_HEADER", "x bad"),
        ("USER_ID_HEADER", "x bad"),
        ("PHONE_HEADER", "x\u{e4}"),
        ("OAUTH_ACCOUNT_HEADER", "x\r\nbad"),
        ("TOLLGATE_IDENTITY_CUSTOM", "header:x bad"),
        ("TOLLGATE_IDENTITY_FORWARD_AS", "x bad"),
        ("TOLLGATE_FORWARDED_BY", "x bad"),
    ] {
        let output = program()
            .args(["serve", "--listen", "127.0.0.1:0"])
            .env(name, value)
            .output()
            .unwrap();
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {told}");
        assert!(told.contains(name), "{name}: {told}");
    }
    let gateway = Gateway::start(&[]);
    let config = json!({"algorithm": "fixed_window", "limit": 1, "window_seconds": 60});
    for (field, value) in [
        ("id", json!("a\r\nb")),
        ("name", json!("a\r\nb")),
        ("match", json!({"headers": {"x bad": "1"}})),
        ("match", json!({"headers": {"x": "a\r\nb"}})),
        (
            "limit_from",
            json!({"header": "x bad", "plans": {"a": config}}),
        ),
    ] {
        let mut rule = json!({"identity_type": "ip_address", "config": config});
        rule[field] = value;
        let refused = send(gateway.address, "POST", "/rules", "", &rule.to_string());
        assert_eq!(refused.status, 400, "{rule}");
        let named = refused.json()["errors"][0]["field"].to_string();
        assert!(named.contains(field), "{named}");
    }
}
