//! A path as rules see it, so that no other spelling of it gets round them.

use std::borrow::Cow;

/// The path with doubled slashes as one, dot segments resolved, and what need not be encoded
/// decoded. What is forwarded is the path as it came.
pub(crate) fn normalised(path: &str) -> Cow<'_, str> {
    // A raw `#` and what follows it is no part of any path.
    let path = path.split('#').next().unwrap_or_default();
    let plain = !path.contains('%') && !path.contains("//") && !path.contains("/.");
    if plain && !path.is_empty() {
        return Cow::Borrowed(path);
    }
    let decoded = decoded(path);
    let mut segments: Vec<&str> = Vec::new();
    let mut ends_open = true;
    for segment in decoded.split('/') {
        match segment {
            "" | "." => ends_open = true,
            ".." => {
                segments.pop();
                ends_open = true;
            }
            segment => {
                segments.push(segment);
                ends_open = false;
            }
        }
    }
    let mut normalised = String::with_capacity(decoded.len());
    for segment in &segments {
        normalised.push('/');
        normalised.push_str(segment);
    }
    if ends_open {
        normalised.push('/');
    }
    Cow::Owned(normalised)
}

/// With the encoding of characters undone that mean the same without (RFC 3986, 6.2.2.2). Others
/// keep it, with capital digits: `%2f` is no slash.
fn decoded(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        let digits = rest.get(at + 1..at + 3);
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                text.push(byte as char);
            }
            Some(byte) => text.push_str(&format!("%{byte:02X}")),
            None => {
                text.push('%');
                rest = &rest[at + 1..];
                continue;
            }
        }
        rest = &rest[at + 3..];
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::normalised;

    #[test]
    fn b106_spellings_of_one_path_are_one_path() {
        for same in [
            "/api/login",
            "//api/login",
            "/api//login",
            "/api/login#f",
            "/api/./login",
            "/x/../api/login",
            "/../api/login",
            "/%61pi/log%69n",
            "/api/%2E/login",
        ] {
            assert_eq!(normalised(same), "/api/login", "{same}");
        }
        for (path, expected) in [
            ("/", "/"),
            ("", "/"),
            ("*", "*"),
            ("//", "/"),
            ("/a/", "/a/"),
            ("/a//", "/a/"),
            ("/a/..", "/"),
            ("/a/b/.", "/a/b/"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%", "/a%"),
            ("/a%zz%4", "/a%zz%4"),
            ("/%C3%A9/é", "/%C3%A9/é"),
            ("/a/...", "/a/..."),
        ] {
            assert_eq!(normalised(path), expected, "{path}");
        }
    }
}
