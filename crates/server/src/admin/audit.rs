//! What was changed, by a line in the log for each try.

use http::{Method, StatusCode};
use tollgate_http::RequestId;

use super::{Caller, access, paths};
use crate::identity::IdentityType;

/// The lines' target, which is written whatever level is set, unless the log is off.
pub(crate) const TARGET: &str = "tollgate::audit";

/// Whose usage was changed, and how; an extension of a response.
#[derive(Clone, Debug)]
pub(crate) struct Audited {
    /// The type of the identity.
    pub(crate) kind: IdentityType,
    /// The digest under which it is counted.
    pub(crate) digest: String,
    /// What was done, such as `cost=3`.
    pub(crate) detail: String,
}

/// Tells of a request that may have changed something. Checks are no admin's: they are told of by
/// metrics.
pub(super) fn tell(
    method: &Method,
    path: &str,
    status: StatusCode,
    audited: Option<&Audited>,
    caller: Caller,
    id: &RequestId,
) {
    if !access::changes(method) || matches!(path, "/v1/check" | paths::FORWARD_AUTH) {
        return;
    }
    let path = paths::shown(path);
    let path = &path[..path.floor_char_boundary(256)];
    tracing::info!(
        target: TARGET,
        method = %method,
        path,
        status = status.as_u16(),
        identity_type = audited.map(|it| it.kind.as_str()),
        identity = audited.map(|it| &*it.digest),
        detail = audited.map(|it| &*it.detail),
        peer = %caller.peer,
        client = %caller.client,
        request_id = %id,
        "admin"
    );
}
