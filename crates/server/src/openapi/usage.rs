//! `/usage`.

#![expect(dead_code, reason = "these are read by a macro only")]

use super::Problem;
use crate::identity::IdentityType;
use crate::usage::{BlockRequest, Blocked, RefundRequest, Refunded, Reset, Usage};

macro_rules! operations {
    ($($(#[doc = $doc:literal])* $method:ident $path:literal $id:literal $name:ident
        $(($body:ty))? -> $answer:ty, $says:literal;)*) => {$(
        $(#[doc = $doc])*
        #[utoipa::path($method, path = $path, tag = "usage", operation_id = $id,
            params(
                ("identity" = String, Path, description = "Whose, as a request would bring it"),
                ("identity_type" = Option<IdentityType>, Query, description = "Its type; or give rule_id"),
                ("rule_id" = Option<String>, Query, description = "A rule; or give identity_type"),
                ("path" = Option<String>, Query, description = "The path that rules look at; / unless given", pattern = "^/"),
                ("method" = Option<String>, Query, description = "The method that rules look at; GET unless given", pattern = "^[A-Z]{1,20}$"),
            ),
            $(request_body(content = $body, content_type = "application/json"),)?
            responses(
                (status = 200, description = $says, body = $answer),
                (status = 400, description = "A parameter, the identity or the body is wrong", body = Problem, content_type = "application/problem+json"),
                (status = 401, description = "No token", body = Problem, content_type = "application/problem+json"),
                (status = 403, description = "A page of another origin asks", body = Problem, content_type = "application/problem+json"),
                (status = 404, description = "There is no such rule or path", body = Problem, content_type = "application/problem+json"),
                (status = 413, description = "The body is too large", body = Problem, content_type = "application/problem+json"),
                (status = 503, description = "The store does not answer", body = Problem, content_type = "application/problem+json"),
            ))]
        pub(super) fn $name() {}
    )*};
}

operations! {
    /// What an identity has used
    get "/usage/{identity}" "get_usage" show -> Usage, "Of the rule that would apply, or that is named";
    /// Forget what an identity has used
    post "/usage/{identity}/reset" "reset_usage" reset -> Reset, "How many rules forgot it";
    /// Give some of it back
    post "/usage/{identity}/refund" "refund_usage" refund (RefundRequest) -> Refunded, "What was given back, and what is used after it";
    /// Refuse an identity for a time
    post "/usage/{identity}/block" "block_identity" block (BlockRequest) -> Blocked, "Until when";
    /// Let it in again
    delete "/usage/{identity}/block" "unblock_identity" unblock -> Blocked, "It is not blocked";
}
