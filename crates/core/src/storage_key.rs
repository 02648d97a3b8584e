//! What a record is called in a store.

use crate::{Key, Policy};

/// The prefix of every key unless another is set.
pub const DEFAULT_PREFIX: &str = "tollgate";

/// `{prefix}:v1:{policy}:{digest}`: one key for all quotas of a policy for one identity.
///
/// `v1` is the version of the record's format, so that releases with different formats never read
/// each other's. Braces, spaces and percent signs of the policy's name are escaped, so that no name
/// becomes a cluster hash tag; the digest has none, so no client chooses its slot.
///
/// ```
/// use tollgate_core::{Key, Policy, storage_key};
///
/// let policy = Policy::new("login", ["5/15m".parse()?])?;
/// let key = storage_key("tollgate", &policy, &Key::from("alice"));
/// assert_eq!(key, "tollgate:v1:login:K9gGyX8OAK8aH8Myj6djqQ");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn storage_key(prefix: &str, policy: &Policy, key: &Key<'_>) -> String {
    build(prefix, ":v1:", policy.name(), key)
}

/// `{prefix}:lease:v1:{name}:{digest}`: one key for the slots of a limit for one identity.
///
/// ```
/// use tollgate_core::{Key, lease_key};
///
/// let key = lease_key("tollgate", "ocr", &Key::from("alice"));
/// assert_eq!(key, "tollgate:lease:v1:ocr:K9gGyX8OAK8aH8Myj6djqQ");
/// ```
#[must_use]
pub fn lease_key(prefix: &str, name: &str, key: &Key<'_>) -> String {
    build(prefix, ":lease:v1:", name, key)
}

fn build(prefix: &str, kind: &str, of: &str, key: &Key<'_>) -> String {
    let mut name = String::with_capacity(prefix.len() + kind.len() + of.len() + 24);
    name.push_str(prefix);
    name.push_str(kind);
    for c in of.chars() {
        match c {
            '{' => name.push_str("%7B"),
            '}' => name.push_str("%7D"),
            ' ' => name.push_str("%20"),
            '%' => name.push_str("%25"),
            c => name.push(c),
        }
    }
    name.push(':');
    name.push_str(&key.digest());
    name
}
