//! Rules with `inspect`: TLS ends at agentsh, single requests are judged, and certificates of the session are valid
//! for no other name. Without: a second hello must name the same host as the first.

use std::path::Path;

use super::online;
use crate::support::forge::authority;
use crate::support::sandbox::Kind;
use crate::support::{no, skip, yes};

#[test]
#[ignore = "takes long"]
fn inspected_requests_are_judged_one_by_one() {
    online(|sandbox| {
        let place = &sandbox.place;
        let ca = authority(place).display().to_string();
        // Whom this machine trusts.
        place.set("SSL_CERT_FILE", &ca);
        sandbox.policy(
            "network: {allow: [\
             {host: allowed.test, ports: [80, 8443], inspect: true, allow: [\"GET /x\", \"GET /repos/**\"]}, \
             {host: mixed.test, port: 8443, inspect: true}, {host: v4.test, port: 8443, inspect: true}, \
             \"v6.test:8443\"]}",
        );
        let request = |rest: &str| format!("https-request allowed.test:8443 system {rest}");
        let host = "allowed.test:8443";
        let mut attempts = vec![
            yes(request(&format!("GET /x {host}"))),
            yes(request(&format!("GET /x {host} GET /repos/a/b?c=d allowed.test:8443 GET /x {host}"))),
            yes("http allowed.test:80 allowed.test"),
            no(request(&format!("POST /x {host}"))),
            no(request(&format!("GET /x {host} DELETE /repos/a {host}"))),
            no(request(&format!("GET /repos/../admin {host}"))),
            no(request("GET /x other.test:8443")),
            no(request(&format!("GET /x {host} GET /x other.test"))),
            yes("environment NODE_EXTRA_CA_CERTS"),
            // Every request of this one.
            yes("https-request v4.test:8443 system DELETE /anything v4.test:8443"),
            // The authority of the session is not among those that this program trusts.
            no(format!("https allowed.test:8443 {ca} allowed.test")),
            no("https allowed.test:8443 system other.test"),
            no("https allowed.test:8443 system -"),
            // The server has no certificate for this name.
            no("https mixed.test:8443 system mixed.test"),
            // Not inspected: the server's own certificate.
            yes(format!("https v6.test:8443 {ca} v6.test")),
        ];
        let python = place.write("client.py", include_str!("clients/client.py")).display().to_string();
        let node = place.write("client.mjs", include_str!("clients/client.mjs")).display().to_string();
        if Path::new("/usr/bin/curl").exists() {
            // The offer to change to HTTP/2 is not passed on.
            attempts.push(yes("client curl -sSf --http2 http://allowed.test/x".to_owned()));
            let with = |header: &str| format!("client curl -sSf -H {header} https://allowed.test:8443/x");
            attempts.extend(
                ["X-Forwarded-Path:admin", "X-Goog-Method-Override:DELETE", "Destination:/admin"]
                    .map(|header| no(with(header))),
            );
            attempts.extend(
                ["X-Amz-Copy-Source:/b/k", "X-Forwarded-For:192.0.2.1", "Referer:https://a.test/b"]
                    .map(|header| yes(with(header))),
            );
        }
        for (program, command) in [
            ("curl", "curl -sSf https://allowed.test:8443/".to_owned()),
            ("python3", format!("python3 {python} system https://allowed.test:8443/")),
            ("node", format!("node {node} fetch https://allowed.test:8443/")),
        ] {
            if Path::new("/usr/bin").join(program).exists() {
                attempts.extend([yes(format!("client {command}x")), no(format!("client {command}admin"))]);
            } else {
                skip(&format!("there is no {program} here"));
            }
        }
        sandbox.holds(&attempts);

        let blocked = place.events("net_connect_blocked");
        for reason in [
            "request-not-allowed",
            "override-not-allowed",
            "host-mismatch",
            "authority-not-trusted",
            "server-name-mismatch",
            "no-server-name",
            "certificate-not-valid",
        ] {
            assert!(blocked.iter().any(|event| event["reason"] == reason), "{reason}: {blocked:?}");
        }
        let first = blocked.iter().find(|event| event["reason"] == "request-not-allowed").unwrap();
        assert_eq!(first["protocol"], "https");
        assert!(first["rule"]["id"].as_str().unwrap().contains("network.allow[0]"), "{first}");
        assert_eq!(first["change"], "add \"POST /x\" to `allow` of that rule");
        assert!(first["detail"].as_str().unwrap().contains("`POST /x`"), "{first}");
        let opened = place.events("mcp_network_connection");
        assert!(opened.iter().any(|event| event["protocol"] == "https" && event["bytes_sent"] != 0));
    });
}

#[test]
fn a_second_hello_names_the_same_host() {
    online(|sandbox| {
        let ca = authority(&sandbox.place).display().to_string();
        sandbox.policy("network: {allow: [{host: allowed.test, port: 9443}, {host: v6.test, port: 9443}]}");
        sandbox.holds(&[
            yes("two-hellos allowed.test:9443 allowed.test allowed.test"),
            yes(format!("https allowed.test:9443 {ca} allowed.test")),
            no("two-hellos allowed.test:9443 allowed.test other.test"),
            no("two-hellos allowed.test:9443 allowed.test other.test at-once"),
            no("two-hellos allowed.test:9443 allowed.test v6.test at-once"),
            no("two-hellos allowed.test:9443 allowed.test v6.test alert"),
            no("two-hellos allowed.test:9443 allowed.test v6.test"),
            yes(format!("https v6.test:9443 {ca} v6.test")),
        ]);
        let blocked = sandbox.place.events("net_connect_blocked");
        let both = ["other.test", "v6.test"].map(|name| format!("TLS for '{name}'"));
        for detail in both {
            let is_told = |event: &serde_json::Value| event["detail"].as_str().unwrap().contains(&detail);
            assert!(blocked.iter().any(is_told), "{blocked:?}");
        }
    });
}

/// Bun and Chromium send an Encrypted Client Hello to every server. Without an authority of the session nobody here can tell
/// whether it hides another name.
#[test]
fn encrypted_client_hello_is_answered_by_agentsh_or_refused() {
    if !Path::new("/usr/bin/python3").exists() {
        return skip("there is no python3 here");
    }
    online(|sandbox| {
        let place = &sandbox.place;
        place.set("SSL_CERT_FILE", authority(place).display().to_string());
        let client = place.write("ech.py", include_str!("clients/ech.py")).display().to_string();
        let hello = |host: &str| format!("client python3 {client} {host}");
        sandbox.policy("network: {allow: [\"v6.test:8443\"]}");
        sandbox.holds(&[no(hello("v6.test:8443"))]);
        let blocked = place.events("net_connect_blocked");
        assert_eq!(blocked[0]["reason"], "encrypted-client-hello", "{blocked:?}");
        sandbox.policy(
            "network: {allow: [{host: allowed.test, port: 8443, inspect: true}, {host: v4.test, port: 8443, inspect: true, \
             allow: [\"GET /x\"]}, \"v6.test:8443\"]}",
        );
        sandbox.holds(&[
            yes(hello("allowed.test:8443")),
            yes(hello("v4.test:8443")),
            // No rule asks for inspection of this one; its hello does.
            yes(hello("v6.test:8443")),
            no(hello("other.test:8443")),
        ]);
    });
}

#[test]
#[ignore = "takes long"]
fn a_web_socket_is_judged_as_the_request_that_it_begins_with() {
    online(|sandbox| {
        let place = &sandbox.place;
        place.set("SSL_CERT_FILE", authority(place).display().to_string());
        sandbox.policy(
            "network: {allow: [{host: allowed.test, ports: [80, 8443], inspect: true, \
             allow: [\"* /socket\", \"* /declined\", \"GET /named\"]}, {host: v4.test, ports: [80, 8443], inspect: true}]}",
        );
        sandbox.holds(&[
            yes("websocket allowed.test:8443 system /socket"),
            yes("websocket allowed.test:80 plain /socket"),
            yes("websocket v4.test:8443 system /anything"),
            yes("websocket v4.test:80 plain /anything"),
            no("websocket allowed.test:8443 system /other"),
            no("websocket allowed.test:80 plain /other"),
            // A rule that names methods means requests, and nobody reads what goes through a web socket.
            no("websocket allowed.test:8443 system /named"),
            no("websocket allowed.test:80 plain /named"),
            // A server that declines reads what follows as requests, and so does agentsh.
            no("websocket allowed.test:8443 system /declined"),
            yes("websocket allowed.test:8443 system /declined GET"),
            yes("websocket allowed.test:80 plain /declined GET"),
            no("websocket allowed.test:8443 system /declined DELETE /named"),
            no("websocket allowed.test:80 plain /declined DELETE /named"),
        ]);
        let blocked = place.events("net_connect_blocked");
        for (reason, request) in [
            ("request-not-allowed", "GET /other"),
            ("request-not-allowed", "DELETE /named"),
            ("upgrade-not-allowed", "GET /named"),
        ] {
            let is_told = |event: &serde_json::Value| {
                event["reason"] == reason && event["detail"].as_str().unwrap().contains(request)
            };
            assert_eq!(blocked.iter().filter(|event| is_told(event)).count(), 2, "{request}: {blocked:?}");
        }
        // Bytes through the socket are counted: 300,000 bytes each way.
        let opened = place.events("mcp_network_connection");
        let carried = |event: &&serde_json::Value| {
            ["bytes_sent", "bytes_received"].iter().all(|way| event[way].as_u64() > Some(300_000))
        };
        assert_eq!(opened.iter().filter(carried).count(), 4, "{opened:?}");
    });
}

/// The agent's MCP servers are behind bridges; what a server asks is its own affair.
#[test]
#[ignore = "takes long"]
fn agent_cannot_bypass_the_bridges_to_reach_an_mcp_server() {
    online(|sandbox| {
        if !Path::new("/usr/bin/curl").exists() {
            return skip("there is no curl here");
        }
        let place = &sandbox.place;
        place.set("SSL_CERT_FILE", authority(place).display().to_string());
        sandbox.policy(
            "network: {allow: [{host: allowed.test, ports: [80], inspect: true, allow: [\"GET /x\"]}, \
             {host: v4.test, ports: [80, 8443], inspect: true}]}",
        );
        let client = |url: &str, more: &str| format!("client curl -sSf {more} {url}");
        let (plain, secure) = ("http://v4.test/x", "https://v4.test:8443/x");
        let asks = [
            client(plain, "-H mcp-session-id:1"),
            client(secure, "-H MCP-Protocol-Version:2025-06-18"),
            client(secure, "-H Mcp_Session_Id:1"),
            client(plain, "-X POST -H Accept:application/json,text/event-stream"),
            client(secure, "-X POST -H Accept:text/event-stream -H Accept:Application/JSON"),
        ];
        let is_agent = sandbox.kind == Kind::Agent;
        // The allowed twin is recognised by the answer, which names the method.
        let shown = asks.iter().filter(|line| is_agent || !line.contains("POST"));
        let mut attempts: Vec<_> =
            shown.map(|line| if is_agent { no(line.clone()) } else { yes(line.clone()) }).collect();
        attempts.extend([
            yes(client(secure, "-H Accept:application/json")),
            yes(client(secure, "-H Accept:text/event-stream")),
            // A rule that means the request.
            yes(client("http://allowed.test/x", "-H mcp-session-id:1")),
        ]);
        sandbox.holds(&attempts);
        let blocked = place.events("net_connect_blocked");
        let count = blocked.iter().filter(|event| event["reason"] == "mcp-past-bridges").count();
        assert_eq!(count > 0, is_agent, "{blocked:?}");
    });
}
