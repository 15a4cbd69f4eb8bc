//! Authentication for the pages and the registry on the fleet server.

use std::sync::Arc;

use agentsh_database::Value;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};

use crate::fleet::access::{Claim, Role, bearer, credential_owner};
use crate::fleet::refusal::Refusal;
use crate::fleet::routes::App;
use crate::fleet::sign_ins::{self, SignIn};

/// The identity of a requester.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A host that is not refused, by its name.
    Host(String),
    /// The person's name as in records.
    Person { name: String, role: Role },
}

/// The way in of a server that runs.
#[derive(Clone)]
pub struct Gate(Arc<App>);

impl Gate {
    pub(crate) fn of(app: Arc<App>) -> Self {
        Self(app)
    }

    /// The identity of a request, by a signature or a credential; and the request, whose body has at most `most` bytes.
    ///
    /// # Errors
    /// The answer to an unknown caller.
    pub async fn identify(&self, request: Request, most: usize) -> Result<(Identity, Request), Response> {
        self.identify_caller(request, most).await.map_err(IntoResponse::into_response)
    }

    /// A credential for a person whom an identity provider has verified.
    ///
    /// # Errors
    /// When the database does not keep it.
    pub async fn signed_in(&self, sign_in: SignIn) -> Result<String, Response> {
        let opened = self.0.judge(&self.0.writers, move |db| sign_ins::open(db, &sign_in)).await;
        opened.map_err(IntoResponse::into_response)
    }

    async fn identify_caller(&self, request: Request, most: usize) -> Result<(Identity, Request), Refusal> {
        let (parts, body) = request.into_parts();
        if Claim::of(&parts.headers).is_some() {
            let (host, bytes) = self.0.host_of(&parts, body, most).await?;
            let name = self.0.judge(&self.0.readers, move |db| {
                let rows = db.rows("SELECT name, state FROM hosts WHERE id = $1", &[Value::text(host)])?;
                match rows.first().map(Vec::as_slice) {
                    Some([name, state]) if state.as_text() == "active" => Ok(name.as_text().to_owned()),
                    Some([_, state]) => Err(crate::fleet::arrival::stopped_host(state.as_text())),
                    _ => Err(Refusal::Unknown("no such host")),
                }
            });
            return Ok((Identity::Host(name.await?), Request::from_parts(parts, Body::from(bytes))));
        }
        let credential = credential(&parts.headers)?;
        let known = self.0.judge(&self.0.readers, move |db| credential_owner(db, &credential)).await?;
        let role = Role::named(&known.role).ok_or(Refusal::Unknown("no such role"))?;
        Ok((Identity::Person { name: known.on_record(), role }, Request::from_parts(parts, body)))
    }
}

fn credential(headers: &HeaderMap) -> Result<String, Refusal> {
    if headers.contains_key(header::COOKIE) && !headers.contains_key(header::AUTHORIZATION) {
        return Err(Refusal::Unknown("a cookie is accepted for pages only"));
    }
    bearer(headers).ok_or(Refusal::Unknown("a credential is required: `agentsh fleet login`"))
}
