//! Providers' additions to and deviations from the specification, in the forms that their documents show. A login
//! succeeds with each.

use serde_json::{Value, json};

use super::log_in;
use crate::support::authority::Authority;
use crate::support::{Mode, Place};

struct Provider {
    name: &'static str,
    metadata: Vec<(&'static str, Value)>,
    tokens: Vec<(&'static str, Value)>,
}

fn providers(issuer: &str) -> Vec<Provider> {
    let types = json!(["code", "id_token", "code id_token", "token"]);
    vec![
        Provider {
            name: "Microsoft Entra",
            metadata: vec![
                // It knows PKCE and does not say so.
                ("code_challenge_methods_supported", Value::Null),
                ("response_types_supported", types.clone()),
                ("http_logout_supported", json!(true)),
                ("tenant_region_scope", json!("EU")),
                ("cloud_instance_name", json!("microsoftonline.com")),
            ],
            tokens: vec![
                ("expires_in", json!("3599")),
                ("ext_expires_in", json!("3599")),
                ("expires_on", json!("1388444763")),
                ("not_before", json!("1388440863")),
                ("id_token", json!("eyJ0eXAi.e30.c2ln")),
            ],
        },
        Provider {
            name: "Google",
            metadata: vec![
                ("response_types_supported", types.clone()),
                ("code_challenge_methods_supported", json!(["plain", "S256"])),
                ("scopes_supported", json!(["openid", "email", "profile"])),
                ("claims_supported", json!(["aud", "email"])),
            ],
            tokens: vec![("expires_in", json!(3920)), ("id_token", json!("eyJ0eXAi.e30.c2ln"))],
        },
        Provider {
            name: "Okta",
            metadata: vec![
                ("response_types_supported", types),
                ("response_modes_supported", json!(["query", "fragment", "form_post", "okta_post_message"])),
                ("request_parameter_supported", json!(true)),
                ("end_session_endpoint", json!(format!("{issuer}/logout"))),
            ],
            tokens: vec![("id_token", json!("eyJ0eXAi.e30.c2ln"))],
        },
        Provider {
            name: "Auth0",
            metadata: vec![
                ("issuer", json!(format!("{issuer}/"))),
                ("mfa_challenge_endpoint", json!(format!("{issuer}/mfa/challenge"))),
                ("backchannel_logout_supported", json!(true)),
            ],
            tokens: vec![("expires_in", json!(86400))],
        },
        Provider {
            name: "Keycloak",
            metadata: vec![
                ("mtls_endpoint_aliases", json!({"token_endpoint": format!("{issuer}/token")})),
                ("tls_client_certificate_bound_access_tokens", json!(true)),
                ("acr_values_supported", json!(["0", "1"])),
            ],
            tokens: vec![
                ("refresh_expires_in", json!(1800)),
                ("not-before-policy", json!(0)),
                ("session_state", json!("1c6e8a2f")),
                ("token_type", json!("Bearer")),
            ],
        },
        Provider {
            name: "GitHub",
            metadata: vec![("scopes_supported", Value::Null)],
            tokens: vec![
                ("token_type", json!("bearer")),
                ("scope", json!("repo,gist")),
                ("expires_in", Value::Null),
            ],
        },
        Provider {
            name: "GitLab",
            metadata: vec![("claim_types_supported", json!(["normal"]))],
            tokens: vec![("expires_in", json!(7200)), ("created_at", json!(1_607_635_748))],
        },
        Provider {
            name: "Twitch",
            metadata: vec![],
            tokens: vec![
                ("token_type", json!("bearer")),
                ("scope", json!(["channel:moderate", "chat:read"])),
                ("expires_in", json!(14_124)),
            ],
        },
        Provider {
            name: "Salesforce",
            metadata: vec![("display_values_supported", json!(["page", "popup", "touch"]))],
            tokens: vec![
                ("expires_in", Value::Null),
                ("instance_url", json!("https://example.my.salesforce.com")),
                ("issued_at", json!("1278448384422")),
                ("signature", json!("SSSbLO/gBhmmyNUvN18ODBDFYHzakxOMgqYtu+hDPsc=")),
            ],
        },
        Provider {
            name: "Notion",
            metadata: vec![("revocation_endpoint", Value::Null)],
            tokens: vec![
                ("token_type", json!("bearer")),
                ("refresh_token", Value::Null),
                ("expires_in", Value::Null),
                ("workspace_name", Value::Null),
                ("owner", json!({"type": "user"})),
            ],
        },
    ]
}

#[test]
fn metadata_and_tokens_of_ten_providers_are_read() {
    for at in 0..providers("").len() {
        let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
        let Provider { name, metadata, tokens } = providers(&authority.issuer()).swap_remove(at);
        {
            let mut state = authority.state();
            state.metadata.extend(metadata);
            state.tokens.extend(tokens);
        }
        let outcome = log_in(&place, &[&authority.mcp.url()]);
        assert_eq!(outcome.code, 0, "{name}: {outcome}");
        assert_eq!(place.listed(&["login", "--list", "--json"]).len(), 1, "{name}");
    }
}
