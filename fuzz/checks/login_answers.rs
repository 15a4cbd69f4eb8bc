//! What is accepted from a server that wants a login: no scope that breaks a line, no other server, no other issuer.

use super::login::Url;
use super::login::challenge::{Challenge, is_scope};
use super::login::metadata::{AuthorizationServer, Resource, places_of_issuer};

const SERVER: &str = "https://mcp.example.com/a/mcp";
const ISSUER: &str = "https://auth.example.com/tenant";

pub fn check(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 3 {
        0 => {
            let text = String::from_utf8_lossy(bytes);
            let Some(found) = Challenge::read([&*text]) else { return };
            assert!(text.to_ascii_lowercase().contains("bearer"), "a challenge from nowhere");
            assert!(found.scopes.iter().all(|scope| is_scope(scope)), "a scope is none");
            let size = found.scopes.iter().map(String::len).sum::<usize>();
            assert!(size <= text.len(), "more came out than went in");
        }
        1 => {
            let Some(server) = Url::parse(SERVER).ok() else { return };
            let Ok(found) = Resource::read(bytes, &server) else { return };
            let named = Url::parse(&found.identifier);
            assert!(named.is_ok_and(|named| named.origin() == server.origin()), "another server");
            assert!(!found.issuers.is_empty() && found.scopes.iter().all(|scope| is_scope(scope)));
            for place in found.issuers.iter().filter_map(|issuer| places_of_issuer(issuer).ok()).flatten() {
                assert!(place.starts_with("http") && place.contains("/.well-known/"), "{place}");
            }
        }
        _ => {
            let Ok(found) = AuthorizationServer::read(bytes, ISSUER) else { return };
            // Providers write it with a slash at the end and without.
            assert_eq!(found.issuer.trim_end_matches('/'), ISSUER, "another issuer");
        }
    }
}
