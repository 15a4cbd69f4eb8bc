#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use super::*;
use proptest::prelude::*;

fn server() -> Url {
    Url::parse("https://mcp.example.com/a/mcp").unwrap()
}

fn resource(value: &Value) -> Result<Resource, InvalidMetadata> {
    Resource::read(value.to_string().as_bytes(), &server())
}

const ISSUER: &str = "https://auth.example.com/tenant";

fn issuer() -> Value {
    json!({
        "issuer": ISSUER,
        "authorization_endpoint": "https://auth.example.com/authorize",
        "token_endpoint": "https://tokens.example.com/token",
        "code_challenge_methods_supported": ["plain", "S256"],
        "response_types_supported": ["code"],
        "x-new": {"any": [1]},
    })
}

fn with(name: &str, value: Value) -> Result<AuthorizationServer, InvalidMetadata> {
    let mut document = issuer();
    document[name] = value;
    AuthorizationServer::read(document.to_string().as_bytes(), ISSUER)
}

#[test]
fn resource_metadata_must_name_this_server_or_a_parent() {
    let about = |identifier: &str| {
        resource(&json!({"resource": identifier, "authorization_servers": ["https://a.example"],
            "scopes_supported": ["read", "no scope"]}))
    };
    for own in [
        "https://mcp.example.com/a/mcp",
        "https://MCP.example.com:443/a/mcp",
        "https://mcp.example.com/a/",
        "https://mcp.example.com",
    ] {
        let found = about(own).unwrap();
        assert_eq!((found.identifier.as_str(), found.scopes), (own, vec!["read".to_owned()]));
    }
    for other in [
        "https://evil.example/a/mcp",
        "http://mcp.example.com/a/mcp",
        "https://mcp.example.com:8443/a/mcp",
        "https://mcp.example.com/a/mcp/below",
        "https://mcp.example.com/a/mc",
        "https://mcp.example.com/b",
        "https://mcp.example.com/a/mcp?x=1",
        "https://mcp.example.com/a/mcp#x",
        "https://mcp.example.com@evil.example/a/mcp",
        "mcp.example.com",
    ] {
        assert_eq!(about(other), Err(InvalidMetadata::OtherResource(other.to_owned())));
    }
    let own = "https://mcp.example.com";
    assert_eq!(
        resource(&json!({"resource": own, "authorization_servers": []})),
        Err(InvalidMetadata::NoIssuer)
    );
    assert_eq!(resource(&json!({"resource": own})), Err(InvalidMetadata::NoIssuer));
    assert_eq!(resource(&json!({"resource": 1})), Err(InvalidMetadata::Member("resource".to_owned())));
    assert_eq!(resource(&json!({"authorization_servers": []})), Err(InvalidMetadata::Lacks("resource")));
    assert_eq!(resource(&json!([])), Err(InvalidMetadata::NotJson));
    let twice = br#"{"resource": "https://mcp.example.com", "resource": "https://evil.example"}"#;
    assert_eq!(Resource::read(twice, &server()), Err(InvalidMetadata::NotJson));
}

#[test]
fn authorization_server_metadata_must_name_the_requested_issuer() {
    let found = AuthorizationServer::read(issuer().to_string().as_bytes(), ISSUER).unwrap();
    assert_eq!((found.issuer.as_str(), found.names_itself, found.takes_documents), (ISSUER, false, false));
    for other in [
        "https://evil.example/tenant",
        "https://auth.example.com/tenant//",
        "https://auth.example.com/Tenant",
        "https://auth.example.com",
    ] {
        assert!(matches!(with("issuer", json!(other)), Err(InvalidMetadata::OtherIssuer { .. })), "{other}");
    }
    // One address in two spellings.
    assert!(with("issuer", json!(format!("{ISSUER}/"))).is_ok());
    let bare = json!({"issuer": "https://a.example", "authorization_endpoint": "x", "token_endpoint": "y",
        "code_challenge_methods_supported": ["S256"]});
    assert!(AuthorizationServer::read(bare.to_string().as_bytes(), "https://a.example/").is_ok());
    assert_eq!(with("code_challenge_methods_supported", json!(["plain"])), Err(InvalidMetadata::NoPkce));
    assert_eq!(with("response_types_supported", json!(["token"])), Err(InvalidMetadata::NoCode));
    assert_eq!(with("token_endpoint", Value::Null), Err(InvalidMetadata::Lacks("token_endpoint")));
    assert_eq!(
        with("token_endpoint", json!(["a"])),
        Err(InvalidMetadata::Member("token_endpoint".to_owned()))
    );
    assert!(with("authorization_response_iss_parameter_supported", json!(true)).unwrap().names_itself);
}

#[test]
fn metadata_urls_are_those_of_the_specification() {
    assert_eq!(
        places_of_resource(&server()),
        [
            "https://mcp.example.com/.well-known/oauth-protected-resource/a/mcp",
            "https://mcp.example.com/.well-known/oauth-protected-resource"
        ]
    );
    assert_eq!(
        places_of_issuer("https://auth.example.com/tenant1").unwrap(),
        [
            "https://auth.example.com/.well-known/oauth-authorization-server/tenant1",
            "https://auth.example.com/.well-known/openid-configuration/tenant1",
            "https://auth.example.com/tenant1/.well-known/openid-configuration"
        ]
    );
    assert_eq!(places_of_issuer("https://auth.example.com/").unwrap().len(), 2);
    for wrong in
        ["", "auth.example.com", "file:///etc/passwd", "https://a.example/?x", "https://a.example/#x"]
    {
        assert!(places_of_issuer(wrong).is_err(), "{wrong}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Resource::read(&bytes, &server());
        let _ = AuthorizationServer::read(&bytes, ISSUER);
        let _ = places_of_issuer(&String::from_utf8_lossy(&bytes));
    }
}
