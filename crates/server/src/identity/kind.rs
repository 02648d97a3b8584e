//! The types of identities, by the names that rules and settings use.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What kind of identity a rule is for, or a request has.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum IdentityType {
    /// An API key, by its owner where keys are verified here.
    ApiKey,
    /// The address of the client, or its network.
    IpAddress,
    /// A user, as something in front of the gateway names him.
    UserId,
    /// The subject of a token that was verified here.
    JwtSub,
    /// A phone number, in the form of E.164.
    Phone,
    /// An account of somebody else's, as something in front of the gateway names it.
    OauthAccount,
    /// What the setting `identity.custom` names.
    Custom,
    /// Everybody: one identity for all requests.
    Global,
}

impl IdentityType {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::ApiKey,
        Self::IpAddress,
        Self::UserId,
        Self::JwtSub,
        Self::Phone,
        Self::OauthAccount,
        Self::Custom,
        Self::Global,
    ];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApiKey => "api_key",
            Self::IpAddress => "ip_address",
            Self::UserId => "user_id",
            Self::JwtSub => "jwt_sub",
            Self::Phone => "phone",
            Self::OauthAccount => "oauth_account",
            Self::Custom => "custom",
            Self::Global => "global",
        }
    }

    /// Its place in [`ALL`](Self::ALL).
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for IdentityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Text that names no type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no type of identity; write one of {names}", names = names())]
pub struct UnknownIdentityType(String);

impl FromStr for IdentityType {
    type Err = UnknownIdentityType;

    fn from_str(text: &str) -> Result<Self, UnknownIdentityType> {
        let found = Self::ALL.into_iter().find(|it| it.as_str() == text);
        found.ok_or_else(|| UnknownIdentityType(text.chars().take(64).collect()))
    }
}

fn names() -> String {
    IdentityType::ALL.map(IdentityType::as_str).join(", ")
}
