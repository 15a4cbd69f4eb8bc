//! Metadata of a server (RFC 9728) and an authorization server (RFC 8414, OpenID Connect Discovery), and its checks.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::Url;

use super::challenge::is_scope;

/// Most of anything that is listed: what is beyond is not read.
const MAX_LISTED: usize = 200;
/// How a code is kept from others.
const PKCE: &str = "S256";

/// Why a document is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMetadata {
    #[error("it is not a JSON object, or has a duplicate member")]
    NotJson,
    #[error("its field `{0}` has the wrong type")]
    Member(String),
    #[error("its `resource` is '{0}', which is not this server")]
    OtherResource(String),
    #[error("it names no authorization server")]
    NoIssuer,
    #[error("'{0}' is not a valid authorization server URL")]
    NoIssuerAddress(String),
    #[error("its `issuer` is '{found}', expected '{expected}'")]
    OtherIssuer { expected: String, found: String },
    #[error("it has no `{0}`")]
    Lacks(&'static str),
    #[error("it does not support PKCE with S256")]
    NoPkce,
    #[error("it does not support the authorization code flow")]
    NoCode,
}

/// A server, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The resource identifier of token requests (RFC 8707).
    pub identifier: String,
    /// Its authorization servers, in its order. Never empty.
    pub issuers: Vec<String>,
    pub scopes: Vec<String>,
}

#[derive(Deserialize)]
struct RawResource {
    resource: Option<String>,
    authorization_servers: Option<Vec<String>>,
    scopes_supported: Option<Vec<String>>,
}

impl Resource {
    /// Reads what was answered for the server at this URL.
    ///
    /// # Errors
    /// When it describes another resource: a token for that one would be useless here, but valid there.
    pub fn read(text: &[u8], server: &Url) -> Result<Self, InvalidMetadata> {
        let raw: RawResource = members(text)?;
        let identifier = raw.resource.ok_or(InvalidMetadata::Lacks("resource"))?;
        if !names(&identifier, server) {
            return Err(InvalidMetadata::OtherResource(identifier));
        }
        let issuers: Vec<String> = bounded_list(raw.authorization_servers);
        if issuers.is_empty() {
            return Err(InvalidMetadata::NoIssuer);
        }
        Ok(Self { identifier, issuers, scopes: scopes(raw.scopes_supported) })
    }
}

/// Whether an identifier names this server: the same origin, and its path or one above it.
fn names(identifier: &str, server: &Url) -> bool {
    let Ok(named) = Url::parse(identifier) else { return false };
    let above = named.path().trim_end_matches('/');
    let below = server.path().strip_prefix(above);
    named.origin() == server.origin()
        && named.fragment().is_none()
        && named.query().is_none_or(|query| server.query() == Some(query))
        && below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

/// An authorization server, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationServer {
    /// The issuer as it spells itself.
    pub issuer: String,
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    pub registration_endpoint: Option<String>,
    pub revocation_endpoint: Option<String>,
    pub scopes: Vec<String>,
    /// It names itself in the callback through the browser (RFC 9207).
    pub names_itself: bool,
    /// A client may be the address of a document about it.
    pub takes_documents: bool,
    /// How clients show who they are at the token endpoint; empty where it does not say.
    pub client_authentication: Vec<String>,
}

#[derive(Deserialize)]
struct RawServer {
    issuer: Option<String>,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    registration_endpoint: Option<String>,
    revocation_endpoint: Option<String>,
    response_types_supported: Option<Vec<String>>,
    code_challenge_methods_supported: Option<Vec<String>>,
    scopes_supported: Option<Vec<String>>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    authorization_response_iss_parameter_supported: Option<bool>,
    client_id_metadata_document_supported: Option<bool>,
}

impl AuthorizationServer {
    /// Reads what was answered for this issuer. A server that does not say whether it knows PKCE is sent a challenge all the
    /// same, as both official SDKs do: several large providers know it and do not say so.
    ///
    /// # Errors
    /// When it describes another issuer, or lacks what a login needs.
    pub fn read(text: &[u8], issuer: &str) -> Result<Self, InvalidMetadata> {
        let raw: RawServer = members(text)?;
        let own = raw.issuer.ok_or(InvalidMetadata::Lacks("issuer"))?;
        if !same_issuer(&own, issuer) {
            return Err(InvalidMetadata::OtherIssuer { expected: issuer.to_owned(), found: own });
        }
        if raw.response_types_supported.is_some_and(|types| !types.iter().any(|kind| kind == "code")) {
            return Err(InvalidMetadata::NoCode);
        }
        let methods = raw.code_challenge_methods_supported;
        if methods.is_some_and(|methods| !methods.iter().any(|method| method == PKCE)) {
            return Err(InvalidMetadata::NoPkce);
        }
        Ok(Self {
            issuer: own,
            authorization_endpoint: raw
                .authorization_endpoint
                .ok_or(InvalidMetadata::Lacks("authorization_endpoint"))?,
            token_endpoint: raw.token_endpoint.ok_or(InvalidMetadata::Lacks("token_endpoint"))?,
            registration_endpoint: raw.registration_endpoint,
            revocation_endpoint: raw.revocation_endpoint,
            scopes: scopes(raw.scopes_supported),
            names_itself: raw.authorization_response_iss_parameter_supported == Some(true),
            takes_documents: raw.client_id_metadata_document_supported == Some(true),
            client_authentication: bounded_list(raw.token_endpoint_auth_methods_supported),
        })
    }
}

/// A document whose members may all be missing. The error names the first that cannot be read, which the library does not.
fn members<T: DeserializeOwned>(text: &[u8]) -> Result<T, InvalidMetadata> {
    serde_json::from_slice(text).map_err(|_| {
        let Ok(Value::Object(all)) = serde_json::from_slice(text) else { return InvalidMetadata::NotJson };
        let is_wrong =
            |(name, value): &(String, Value)| serde_json::from_value::<T>(json!({ name: value })).is_err();
        all.into_iter()
            .find(is_wrong)
            .map_or(InvalidMetadata::NotJson, |(name, _)| InvalidMetadata::Member(name))
    })
}

/// Letter by letter, but for a slash at the end: many spell it in one place and not in the other.
pub(crate) fn same_issuer(one: &str, other: &str) -> bool {
    let bare = |text: &'_ str| text.strip_suffix('/').unwrap_or(text).to_owned();
    bare(one) == bare(other)
}

fn bounded_list(list: Option<Vec<String>>) -> Vec<String> {
    let mut list = list.unwrap_or_default();
    list.truncate(MAX_LISTED);
    list
}

fn scopes(list: Option<Vec<String>>) -> Vec<String> {
    bounded_list(list).into_iter().filter(|scope| is_scope(scope)).collect()
}

/// Addresses of a server's description if the server names none: next to its path, then at the top.
#[must_use]
pub fn places_of_resource(server: &Url) -> Vec<String> {
    let origin = server.origin().ascii_serialization();
    let known = format!("{origin}/.well-known/oauth-protected-resource");
    match server.path().trim_end_matches('/') {
        "" => vec![known],
        path => vec![format!("{known}{path}"), known],
    }
}

/// Where an authorization server describes itself, in the order in which it is asked.
///
/// # Errors
/// When `issuer` cannot be the address of an authorization server.
pub fn places_of_issuer(issuer: &str) -> Result<Vec<String>, InvalidMetadata> {
    let wrong = || InvalidMetadata::NoIssuerAddress(issuer.to_owned());
    let url = Url::parse(issuer).map_err(|_| wrong())?;
    if !matches!(url.scheme(), "https" | "http") || url.query().is_some() || url.fragment().is_some() {
        return Err(wrong());
    }
    let origin = url.origin().ascii_serialization();
    let path = url.path().trim_end_matches('/');
    let mut places = vec![
        format!("{origin}/.well-known/oauth-authorization-server{path}"),
        format!("{origin}/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        places.push(format!("{origin}{path}/.well-known/openid-configuration"));
    }
    Ok(places)
}

#[cfg(test)]
#[path = "metadata_tests.rs"]
mod tests;
