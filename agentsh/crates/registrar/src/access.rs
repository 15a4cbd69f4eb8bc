//! Access control: operators by their tokens, and no requests of other sites.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use agentsh_base::{random, site};
use hyper::{HeaderMap, Method, header};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::refusal::Refusal;

/// Random bytes of a token that is made here.
const TOKEN_BYTES: usize = 24;
/// Shortest token that a file may hold, in characters.
const MIN_LENGTH: usize = 20;

/// The people who may decide, each with the SHA-256 of a token.
#[derive(Clone, Default)]
pub struct Operators {
    known: Vec<(String, [u8; 32])>,
}

/// Why the tokens could not be had.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("cannot use '{path}': {error}")]
    Io { path: String, error: io::Error },
    #[error("'{0}' can be read by others: chmod 600")]
    Open(String),
    #[error("line {line} of '{path}' is not NAME TOKEN, with a token of 20 characters or more")]
    Line { path: String, line: usize },
    #[error("the system's random number generator failed: {0}")]
    Random(io::Error),
}

impl Operators {
    /// Reads the file (`NAME TOKEN` on each line, 0600); makes it, with one operator, where it is missing. True when it
    /// was made.
    ///
    /// # Errors
    /// Other users can read the file, or it has another form.
    pub fn from_file(path: &Path) -> Result<(Self, bool), TokenError> {
        let shown = path.display().to_string();
        let failed = |error| TokenError::Io { path: shown.clone(), error };
        match fs::metadata(path) {
            Ok(found) if found.mode() & 0o077 != 0 => return Err(TokenError::Open(shown)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut file =
                    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
                writeln!(file, "operator {}", random_token()?).map_err(failed)?;
                return Ok((Self::from_file(path)?.0, true));
            }
            Err(error) => return Err(failed(error)),
        }
        let text = fs::read_to_string(path).map_err(failed)?;
        let mut known = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match line.split_whitespace().collect::<Vec<_>>().as_slice() {
                [name, token] if token.len() >= MIN_LENGTH => {
                    known.push(((*name).to_owned(), Sha256::digest(token.as_bytes()).into()));
                }
                _ => return Err(TokenError::Line { path: shown, line: number + 1 }),
            }
        }
        Ok((Self { known }, false))
    }

    /// The operator whose token the request carries.
    ///
    /// # Errors
    /// An unknown token.
    pub fn of(&self, headers: &HeaderMap) -> Result<Option<String>, Refusal> {
        let Some(sent) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
        let token =
            sent.to_str().ok().and_then(|text| text.strip_prefix("Bearer ")).ok_or(Refusal::NoOperator)?;
        self.operator_with_token(token).map(Some)
    }

    /// The operator with this token.
    ///
    /// # Errors
    /// An unknown token.
    pub fn operator_with_token(&self, token: &str) -> Result<String, Refusal> {
        let digest: [u8; 32] = Sha256::digest(token.trim().as_bytes()).into();
        let found = self.known.iter().find(|(_, known)| bool::from(known.ct_eq(&digest)));
        found.map(|(name, _)| name.clone()).ok_or(Refusal::NoOperator)
    }

    /// The operator that the file names first.
    #[must_use]
    pub fn first(&self) -> Option<&str> {
        self.known.first().map(|(name, _)| name.as_str())
    }
}

fn random_token() -> Result<String, TokenError> {
    let digits = random::hex::<TOKEN_BYTES>().map_err(TokenError::Random)?;
    Ok(format!("agr_{digits}"))
}

/// Whether the request was sent to a host name of this server, by a page of the same site or by no page at all.
///
/// # Errors
/// For a name that was rebound to this address, and for pages of other sites.
pub fn same_site(method: &Method, headers: &HeaderMap, hosts: &[String]) -> Result<(), Refusal> {
    site::same_site(&browser_request(method, headers), hosts).map_err(Refusal::Foreign)
}

fn browser_request<'a>(method: &Method, headers: &'a HeaderMap) -> site::BrowserRequest<'a> {
    let only_reads = matches!(*method, Method::GET | Method::HEAD);
    site::BrowserRequest::of(only_reads, |name| headers.get(name).map(|value| value.to_str().unwrap_or("?")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use hyper::header::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn other_sites_and_rebound_names_are_refused() {
        let ours = ["127.0.0.1".to_owned(), "[::1]".to_owned()];
        let asked = |method: Method, pairs: &[_]| same_site(&method, &headers(pairs), &ours).is_ok();
        assert!(asked(Method::GET, &[("host", "127.0.0.1:8000")]));
        assert!(asked(Method::GET, &[("host", "[::1]:8000")]));
        assert!(asked(Method::POST, &[("host", "127.0.0.1:80"), ("origin", "http://127.0.0.1:80")]));
        assert!(!asked(Method::GET, &[("host", "rebind.example:8000")]));
        assert!(!asked(Method::GET, &[]));
        assert!(!asked(Method::POST, &[("host", "127.0.0.1:80"), ("origin", "http://127.0.0.1:81")]));
        assert!(!asked(Method::POST, &[("host", "127.0.0.1"), ("origin", "null")]));
        assert!(!asked(Method::POST, &[("host", "127.0.0.1"), ("sec-fetch-site", "cross-site")]));
    }

    #[test]
    fn a_token_is_made_once_and_belongs_to_its_operator() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("operators");
        let (_, made) = Operators::from_file(&path).unwrap();
        assert!(made);
        let (operators, made) = Operators::from_file(&path).unwrap();
        assert!(!made);
        let text = fs::read_to_string(&path).unwrap();
        let token = text.trim().strip_prefix("operator ").unwrap();
        let mut sent = HeaderMap::new();
        assert_eq!(operators.of(&sent).unwrap(), None);
        sent.insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        assert_eq!(operators.of(&sent).unwrap().as_deref(), Some("operator"));
        sent.insert(header::AUTHORIZATION, "Bearer agr_0000".parse().unwrap());
        assert!(operators.of(&sent).is_err());
        fs::write(&path, "operator short").unwrap();
        assert!(matches!(Operators::from_file(&path), Err(TokenError::Line { line: 1, .. })));
    }
}
