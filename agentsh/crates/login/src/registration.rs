//! agentsh's client registration at an authorization server: one that the user made, or a dynamic one (RFC 7591).

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::ask::{Clients, post};
use super::error::LoginError;
use super::escape;
use super::metadata::AuthorizationServer;

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    #[serde(default)]
    pub authentication: Authentication,
}

/// How a secret is shown to the token endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Authentication {
    #[default]
    #[serde(rename = "client_secret_basic")]
    Basic,
    #[serde(rename = "client_secret_post")]
    Post,
}

impl std::fmt::Debug for Registered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registered").field("id", &self.id).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct RegistrationResponse {
    client_id: String,
    client_secret: Option<String>,
    token_endpoint_auth_method: Option<String>,
}

#[derive(Deserialize)]
struct RegistrationErrorBody {
    error: String,
    error_description: Option<String>,
}

/// Registers agentsh for one redirect address, and says who it is from then on.
///
/// # Errors
/// When the authorization server registers no clients, or not agentsh.
pub async fn register(
    clients: &Clients,
    server: &AuthorizationServer,
    redirect: &str,
    scopes: &[String],
) -> Result<Registered, LoginError> {
    let none = || LoginError::NoRegistration(server.issuer.clone());
    let endpoint = server.registration_endpoint.as_deref().ok_or_else(none)?;
    let mut about = json!({
        "client_name": "agentsh",
        "application_type": "native",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    });
    if !scopes.is_empty() {
        about["scope"] = scopes.join(" ").into();
    }
    let body = ("application/json", about.to_string().into_bytes());
    let answer = post(clients, "its registration endpoint", endpoint, body, None).await?;
    if !answer.status.is_success() {
        let why = match serde_json::from_slice::<RegistrationErrorBody>(&answer.body) {
            Ok(RegistrationErrorBody { error, error_description }) => error_description.unwrap_or(error),
            Err(_) => format!("HTTP {}", answer.status.as_u16()),
        };
        return Err(LoginError::NotRegistered(display_text(&why)));
    }
    let answered: RegistrationResponse = serde_json::from_slice(&answer.body)
        .map_err(|_| LoginError::NotRegistered("its answer has no `client_id`".to_owned()))?;
    let method = answered.token_endpoint_auth_method.as_deref();
    Ok(Registered {
        id: answered.client_id,
        secret: answered.client_secret.filter(|secret| !secret.is_empty() && method != Some("none")),
        authentication: if method == Some("client_secret_post") {
            Authentication::Post
        } else {
            Authentication::Basic
        },
    })
}

/// The user's own registration. A secret is shown in the body where that is known there: some servers look for the name in the
/// body in any case.
#[must_use]
pub fn user_registration(server: &AuthorizationServer, id: String, secret: Option<String>) -> Registered {
    let is_post = server.client_authentication.iter().any(|known| known == "client_secret_post");
    Registered {
        id,
        secret,
        authentication: if is_post { Authentication::Post } else { Authentication::Basic },
    }
}

/// Foreign text in one line of bounded length.
pub(crate) fn display_text(text: &str) -> String {
    escape::shorten(&escape::line(text), 200).into_owned()
}
