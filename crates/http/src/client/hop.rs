//! One hop of a forwarding header, as text: an address in all the forms that proxies write.

use std::net::{IpAddr, Ipv6Addr};

/// The address of a hop. Port, brackets and zone are dropped. `None`: it names no address
/// (`unknown`, `_hidden`, or anything else).
pub(super) fn address(hop: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(hop).ok()?.trim_matches([' ', '\t']);
    if let Some(rest) = text.strip_prefix('[') {
        let (inside, after) = rest.split_once(']')?;
        let whole = after.is_empty() || after.strip_prefix(':').is_some_and(is_port);
        return if whole { v6(inside) } else { None };
    }
    match text.split_once(':') {
        None => text.parse().ok().map(IpAddr::V4),
        Some((v4, port)) if is_port(port) && v4.contains('.') => v4.parse().ok().map(IpAddr::V4),
        Some(_) => v6(text),
    }
}

fn v6(text: &str) -> Option<IpAddr> {
    let address = match text.split_once('%') {
        Some((_, "")) => return None,
        Some((address, _zone)) => address,
        None => text,
    };
    let address: Ipv6Addr = address.parse().ok()?;
    Some(IpAddr::V6(address).to_canonical())
}

/// A port, or what RFC 7239 allows to hide one (`_x`).
fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(hidden) => {
            !hidden.is_empty()
                && hidden
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        }
        None => matches!(text.len(), 1..=5) && text.bytes().all(|b| b.is_ascii_digit()),
    }
}

/// The `for` of one element of a `Forwarded` field. `None` where the element is malformed or has
/// no `for`, or two.
pub(super) fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    for pair in split(element, b';')? {
        let pair = trim(pair);
        let equals = pair.iter().position(|b| *b == b'=')?;
        let (name, value) = (&pair[..equals], &pair[equals + 1..]);
        if name.eq_ignore_ascii_case(b"for") {
            if found.is_some() {
                return None;
            }
            found = Some(address(&unquoted(value)?)?);
        }
    }
    found
}

/// The parts between separators that are not inside quotes. `None` where a quote is not closed.
pub(super) fn split(text: &[u8], separator: u8) -> Option<Vec<&[u8]>> {
    let mut parts = Vec::new();
    let (mut from, mut quoted, mut escaped) = (0, false, false);
    for (at, byte) in text.iter().copied().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if byte == separator && !quoted => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    (!quoted).then_some(parts)
}

/// A token as it is, or what is inside a quoted string.
fn unquoted(value: &[u8]) -> Option<Vec<u8>> {
    let Some(inside) = value.strip_prefix(b"\"") else {
        let plain = !value.iter().any(|b| b" \t\"\\".contains(b));
        return plain.then(|| value.to_vec());
    };
    let inside = inside.strip_suffix(b"\"")?;
    let mut text = Vec::with_capacity(inside.len());
    let mut bytes = inside.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return None,
            b'\\' => text.push(bytes.next()?),
            _ => text.push(byte),
        }
    }
    Some(text)
}

fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(hop: &str) -> Option<String> {
        address(hop.as_bytes()).map(|address| address.to_string())
    }

    #[test]
    fn b94_ports_brackets_and_zones_are_cut() {
        for hop in [
            "203.0.113.9",
            "203.0.113.9:51000",
            "203.0.113.9:51001",
            " 203.0.113.9\t",
        ] {
            assert_eq!(text(hop).as_deref(), Some("203.0.113.9"), "{hop}");
        }
        for hop in [
            "[2001:db8::1]:443",
            "[2001:db8::1]",
            "2001:db8::1",
            "2001:DB8:0:0:0:0:0:1",
            "[2001:db8::1%eth0]:1",
            "2001:db8::1%1",
            "[2001:db8::1]:_hidden",
        ] {
            assert_eq!(text(hop).as_deref(), Some("2001:db8::1"), "{hop}");
        }
        assert_eq!(text("::ffff:1.2.3.4").as_deref(), Some("1.2.3.4"));
        assert_eq!(text("[::ffff:102:304]:80").as_deref(), Some("1.2.3.4"));
    }

    #[test]
    fn what_names_no_address_is_none() {
        for hop in [
            "",
            " ",
            "unknown",
            "_hidden",
            "1.2.3",
            "1.2.3.4.5",
            "01.2.3.4",
            "1.2.3.4:",
            "1.2.3.4:123456",
            "1.2.3.4:x",
            "1.2.3.4 5",
            "[1.2.3.4]",
            "[::1",
            "::1]",
            "[::1]x",
            "[::1]:",
            "::1%",
            "example.com",
            "256.1.1.1",
            "1.2.3.4%0",
        ] {
            assert_eq!(text(hop), None, "{hop:?}");
        }
        assert_eq!(address(b"1.2.3.\xff"), None);
    }

    #[test]
    fn elements_of_forwarded_are_read_as_rfc_7239_says() {
        let read = |element: &str| forwarded_for(element.as_bytes()).map(|it| it.to_string());
        for (element, client) in [
            ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
            (r#"For="[2001:db8:cafe::17]:4711""#, "2001:db8:cafe::17"),
            (r#" proto=https ; for="192.0.2.60:80" "#, "192.0.2.60"),
            (r#"by="a;for=1.1.1.1";for=2.2.2.2"#, "2.2.2.2"),
            (r#"for="\1.2.3.4""#, "1.2.3.4"),
        ] {
            assert_eq!(read(element).as_deref(), Some(client), "{element}");
        }
        for element in [
            "",
            "for",
            "for=",
            "for=unknown",
            "for=_gazonk",
            "proto=http",
            "for=1.1.1.1;for=2.2.2.2",
            r#"for="1.1.1.1"#,
            r#"for="1.1.1.1"x"#,
            r#"for=1.1.1.1";""#,
            "for=2001:db8::1 x",
            ";for=1.1.1.1",
        ] {
            assert_eq!(read(element), None, "{element}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = address(&bytes);
            let _ = forwarded_for(&bytes);
            let _ = split(&bytes, b',');
        }

        #[test]
        fn nearly_right_text_is_read_without_a_panic(text in r#"[0-9a-f:.%\[\]"\\;,= for_]{0,40}"#) {
            let _ = address(text.as_bytes());
            let _ = forwarded_for(text.as_bytes());
        }

        #[test]
        fn every_address_is_read_in_every_form(bits: u128, v4: bool, port: u16) {
            let address_of = if v4 {
                IpAddr::V4((bits as u32).into())
            } else {
                IpAddr::V6(bits.into())
            };
            let forms = match address_of {
                IpAddr::V4(it) => vec![format!("{it}"), format!("{it}:{port}")],
                IpAddr::V6(it) => vec![format!("{it}"), format!("[{it}]"), format!("[{it}%z]:{port}")],
            };
            for form in forms {
                prop_assert_eq!(address(form.as_bytes()), Some(address_of.to_canonical()), "{}", form);
                let element = format!("proto=http;for=\"{form}\"");
                prop_assert_eq!(forwarded_for(element.as_bytes()), Some(address_of.to_canonical()));
            }
        }
    }
}
