//! From inside a sandbox neither the fleet's server nor its registry nor its questions are reached, whatever rules say.

use std::os::unix::fs::PermissionsExt as _;

use super::Server;
use crate::support::http_server::{HttpServer, Reply};
use crate::support::{Mode, Peer, Place, no, yes};

const PATHS: [&str; 5] = ["/healthz", "/v1/asks", "/registry/servers", "/sign-in", "/v1/bundles/x"];

/// Asks a port for each path, and says which status came.
fn script(port: &str) -> String {
    let ask = |path: &str| {
        format!(
            "for host in 127.0.0.1 localhost '[::1]'; do curl -sS -o /dev/null -w '{path} %{{http_code}}\\n' --max-time 10 \
             \"http://$host:{port}{path}\" 2>/dev/null || echo '{path} no'; done\n"
        )
    };
    PATHS.map(ask).concat()
}

#[test]
fn agent_cannot_reach_the_server_that_judges_it() {
    for mode in Mode::all() {
        let at = Place::new(Mode::Invoker);
        let server = Server::start(&at, at.home.join("fleet.db").to_str().unwrap(), &["--registry", "open"]);
        let port = server.address.rsplit(':').next().unwrap().to_owned();
        let twin = HttpServer::start(|_| Reply::json("{}"));
        let host = Place::new(mode);
        // One rule opens both.
        host.user_policy(&format!("version: 1\nagent: {{network: {{loopback: [{port}, {}]}}}}\n", twin.port));
        let before = host.shell(&script(&port)).expect_code(0);
        assert!(before.stdout.contains("/healthz 200") && before.stdout.contains("/v1/asks 401"), "{before}");

        server.enrol(&host, "laptop");
        let after = host.shell(&script(&port)).expect_code(0);
        assert_eq!(after.stdout.matches(" no\n").count(), 3 * PATHS.len(), "{after}");
        let other = host.shell(&script(&twin.port.to_string())).expect_code(0);
        assert!(other.stdout.contains("/healthz 200"), "{other}");
        // Nor the key of the host, nor the socket that answers.
        let files = host.shell(
            "find / -name host.json -path '*fleet*' 2>/dev/null; ls ~/.local/state/agentsh 2>/dev/null; \
             ls \"$XDG_RUNTIME_DIR\"/agentsh 2>/dev/null; true",
        );
        assert!(!files.stdout.contains("host.json") && !files.stdout.contains("approvals"), "{files}");
    }
}

/// Says what answered on the port that the project's file `port` names.
const SERVER: &str = r#"#!/bin/bash
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
  case $line in
    *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) result='{"tools":[{"name":"knock","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*)
      said=no
      if exec 3<>"/dev/tcp/127.0.0.1/$(cat port)"; then
        printf 'GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
        read -r said <&3; exec 3>&-
      fi 2>/dev/null
      result='{"content":[{"type":"text","text":"'"${said%$'\r'}"'"}]}' ;;
    *) continue ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

#[test]
fn mcp_server_cannot_reach_the_fleet_server() {
    let at = Place::new(Mode::Invoker);
    let server = Server::start(&at, at.home.join("fleet.db").to_str().unwrap(), &["--registry", "open"]);
    let port = server.address.rsplit(':').next().unwrap().to_owned();
    let host = Place::new(Mode::Invoker);
    host.user_policy(&format!(
        "version: 1\nsandbox: {{mcp: {{servers: [{{id: s, network: {{loopback: [{port}]}}}}]}}}}\n"
    ));
    host.write(host.project.join("port"), &port);
    let program = host.script(host.home.join("server"), SERVER);
    let knock = || {
        let mut peer = Peer::start(host.agentsh(&["mcp", "run", "--id", "s", "--"]).arg(&program));
        peer.shake_hands();
        let said = peer.text("knock", serde_json::json!({}));
        (said, peer.finish().1)
    };
    let (said, errors) = knock();
    assert!(said.contains("200"), "{said} {errors}");
    server.enrol(&host, "laptop");
    let (said, errors) = knock();
    assert!(!said.contains("HTTP"), "{said} {errors}");
}

/// A host that is enrolled by a name, and rules that open the addresses of the server as such.
#[test]
#[ignore = "takes long"]
fn address_block_rule_does_not_open_the_fleet_server() {
    crate::network::online(|sandbox| {
        let place = &sandbox.place;
        let rules = "network: {allow: [{host: 10.9.8.0/24, port: 443}, {host: 10.9.8.0/24, port: 80}, \
            {host: mapped.test, port: 443, protocol: tcp, addresses: [10.9.8.0/24]}, \
            {host: mixed.test, addresses: [10.9.8.0/24]}]}";
        sandbox.policy(rules);
        sandbox.holds(&[yes("tls 10.9.8.7:443"), yes("tls mapped.test:443 mapped.test")]);
        let file = place.home.join(".local/state/agentsh/fleet/host.json");
        let enrolled = |url: &str| {
            let file = place.write(
                &file,
                serde_json::json!({"url": url, "host": "h", "name": "n", "key": "00"}).to_string(),
            );
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
        };
        enrolled("https://private.test");
        sandbox.holds(&[
            no("tls 10.9.8.7:443"),
            no("tls [::ffff:10.9.8.7]:443"),
            // Bytes that name nobody, to a name that leads there.
            no("tls mapped.test:443 mapped.test"),
            // Another address of this machine, where the server may listen too.
            no("tls 10.9.8.8:443"),
            // Another port of its machine, and another server's name that is served there.
            yes("http 10.9.8.7:80 10.9.8.7"),
            yes("tls mixed.test:443 mixed.test"),
        ]);
        let refused = place.events("net_connect_blocked");
        let said = |event: &serde_json::Value| {
            event["reason"] == "address-not-allowed"
                && event["detail"]
                    .as_str()
                    .is_some_and(|detail| detail.contains("it leads to 'private.test'"))
                && event["rule"]["id"] == "fleet"
        };
        assert!(refused.iter().any(said), "{refused:?}");
        // A name that cannot be looked up may be any address; a name that does not exist has no address.
        enrolled("https://nobody.test");
        sandbox.holds(&[yes("tls 10.9.8.7:443")]);
    });
}
