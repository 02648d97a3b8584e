//! `/v1/keys`.

#![expect(dead_code, reason = "these are read by a macro only")]

use super::Problem;
use super::rules::Invalid;
use crate::keys::{Key, KeyChange, KeyRequest, NewKey};

macro_rules! operations {
    ($($(#[doc = $doc:literal])* $method:ident $path:literal $id:literal $name:ident
        $([$key:literal])? $(($body:ty))? -> $status:literal $($answer:ty)?, $says:literal;)*) => {$(
        $(#[doc = $doc])*
        #[utoipa::path($method, path = $path, tag = "keys", operation_id = $id,
            $(params(($key = String, Path, description = "Which")),)?
            $(request_body(content = $body, content_type = "application/json"),)?
            responses(
                (status = $status, description = $says $(, body = $answer)?),
                (status = 400, description = "Every fault of the body", body = Invalid, content_type = "application/problem+json"),
                (status = 401, description = "No token", body = Problem, content_type = "application/problem+json"),
                (status = 403, description = "A page of another origin asks", body = Problem, content_type = "application/problem+json"),
                (status = 404, description = "There is no such key, or keys are not kept in the store", body = Problem, content_type = "application/problem+json"),
                (status = 409, description = "There are too many, or others change it at the same time", body = Problem, content_type = "application/problem+json"),
                (status = 413, description = "The body is too large", body = Problem, content_type = "application/problem+json"),
                (status = 503, description = "The store does not answer", body = Problem, content_type = "application/problem+json"),
            ))]
        pub(super) fn $name() {}
    )*};
}

operations! {
    /// The API keys of the store, without what they are known by
    get "/v1/keys" "list_keys" list -> 200 Vec<Key>, "All keys, by their owners";

    /// Make an API key
    ///
    /// The answer is the only one that tells it.
    post "/v1/keys" "create_key" create (KeyRequest) -> 201 NewKey, "The key";

    /// One API key, without what it is known by
    get "/v1/keys/{id}" "get_key" get ["id"] -> 200 Key, "The key";

    /// Change whether an API key holds, until when and for which plan
    patch "/v1/keys/{id}" "change_key" change ["id"] (KeyChange) -> 200 Key, "The key as it is now";

    /// Remove an API key
    delete "/v1/keys/{id}" "delete_key" delete ["id"] -> 204, "It is gone";
}
