//! Files that the configuration names, and the key sets that are fetched.

use std::rc::Rc;

use hyper::header::HeaderMap;
use jsonwebtoken::jwk::JwkSet;
use tokio_rustls::TlsAcceptor;

use super::admission::{Refusal, check_origin, shown_token};
use super::codes::Code;
use super::config::Config;
use super::key_sets::KeySets;
use super::keys::Keys;
use super::server::GatewayError;
use super::tls;

pub struct Files {
    pub keys: Keys,
    /// The signers of tokens.
    signers: Option<Rc<KeySets>>,
    pub tls: Option<TlsAcceptor>,
}

impl Files {
    pub fn load(config: &Config) -> Result<Self, GatewayError> {
        let file = config.keys_file();
        let keys = Keys::load(&file).map_err(|source| GatewayError::Keys { file, source })?;
        let tls = config.tls.as_ref().map(tls::acceptor).transpose().map_err(GatewayError::Unusable)?;
        let signers = config.auth.oauth.as_ref().map(KeySets::load).transpose();
        let signers = signers.map_err(GatewayError::Unusable)?.map(Rc::new);
        Ok(Self { keys, signers, tls })
    }

    /// The keys that may have signed the request's token. Foreign web pages do not trigger a fetch.
    ///
    /// # Errors
    /// When they are not available.
    pub async fn signers_for(
        &self,
        config: &Config,
        headers: &HeaderMap,
    ) -> Result<Option<Rc<JwkSet>>, Refusal> {
        let Some((signers, token)) = self.signers.as_ref().zip(shown_token(headers)) else { return Ok(None) };
        check_origin(config, headers)?;
        signers
            .for_token(token)
            .await
            .map(Some)
            .map_err(|why| Refusal { retry_after: Some(5), ..Refusal::new(Code::Unverifiable, why) })
    }
}
