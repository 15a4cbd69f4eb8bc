//! A placeholder where it may not be: towards another host, on another request, in a place from which the secret could be
//! read again, or on a request that servers could read in two ways. Stopped by: the session replaces it in the headers made
//! for it, on inspected requests to the one host, and refuses every other request that holds one.

use crate::day::credentials::policy;
use crate::support::forge::{TOKEN, forge};
use crate::support::sandbox::{Kind, Sandbox};
use crate::support::{Mode, no, yes};

const BEARER: &str = "Authorization:~Bearer~{FORGE_TOKEN}|";

fn raw(host: &str, count: usize, texts: &str) -> String {
    format!("https-raw {host}:8443 system {count} {texts}")
}

fn get(headers: &str) -> String {
    format!("GET~/a~HTTP/1.1|Host:~allowed.test:8443|{headers}|")
}

#[test]
#[ignore = "takes long"]
fn credential_is_sent_to_its_host_only() {
    for mode in Mode::all() {
        for backend in ["auto", "userns"] {
            let sandbox = Sandbox { place: forge(mode, backend), kind: Kind::Agent };
            let place = &sandbox.place;
            place.user_policy(
                "agent:\n  network: {allow: [{host: other.test, ports: [80, 8443], inspect: true}, \
                 {host: allowed.test, port: 80}, {host: allowed.test, port: 8443, inspect: true}]}\n  \
                 credentials: [{host: \"allowed.test:8443\", from: \"env:FORGE_TOKEN\"}]\n",
            );
            let to = |texts: &str| raw("allowed.test", 1, texts);
            sandbox.holds(&[
                // The twin: the one place for it, and requests without it.
                yes(to(&get(BEARER))),
                yes(raw("allowed.test", 2, &format!("{}{}", get(BEARER), get("")))),
                yes(to(&format!("GET~/a~HTTP/1.1|Host:~allowed.test:8443|{BEARER} |"))),
                yes(to("POST~/a~HTTP/1.1|Host:~allowed.test:8443|Content-Length:~2||hi")),
                // Another host, in every way to name it.
                no(raw("other.test", 1, &get(BEARER).replace("allowed", "other"))),
                no(to(&get(BEARER).replace("allowed", "other"))),
                no(to(&format!("GET~https://other.test:8443/a~HTTP/1.1|Host:~other.test:8443|{BEARER}|"))),
                no(to(&format!("{}Host:~other.test|{BEARER}|", get("").trim_end_matches('|').to_owned() + "|"))),
                // Another method, or path.
                no(to(&get(BEARER).replace("GET", "POST"))),
                no(to(&get(BEARER).replace("GET", "DELETE"))),
                no(to(&get(BEARER).replace("GET~/a", "POST~/git/private.git/git-receive-pack"))),
                no(to(&get(BEARER).replace("GET~/a", "GET~/git/private.git/info/refs?service=git-receive-pack"))),
                no(to(&get(&format!("X-HTTP-Method-Override:~DELETE|{BEARER}")))),
                no(to(&get(BEARER).replace("GET~/a", "CONNECT~other.test:8443"))),
                // In places from which the program could read it again.
                no(to("GET~/{FORGE_TOKEN}~HTTP/1.1|Host:~allowed.test:8443||")),
                no(to("GET~/a?t={FORGE_TOKEN}~HTTP/1.1|Host:~allowed.test:8443||")),
                no(to(&get("Cookie:~t={FORGE_TOKEN}|"))),
                no(to(&get("X-Note:~{FORGE_TOKEN}|"))),
                no(to(&get("Authorization:~Bearer~{FORGE_TOKEN},~a|"))),
                no(to("POST~/a~HTTP/1.1|Host:~allowed.test:8443|Content-Length:~60||say~{FORGE_TOKEN}~say~say~say~say~say~say~say~say")),
                no(raw("allowed.test", 1, &get(BEARER).replace("/a", "/echo"))),
                no(raw("allowed.test", 1, &get("Authorization:~Basic~<x-access-token:{FORGE_TOKEN}>|").replace("/a", "/echo"))),
                no(raw("allowed.test", 1, &get(BEARER).replace("/a", "/echo?chunks"))),
                // Two readings of one request.
                no(to(&get(&format!("{BEARER}{BEARER}")))),
                no(to(&get(&format!("Authorization:~Bearer~own|{BEARER}")))),
                no(to(&get(&format!("{BEARER}Authorization:~Bearer~own|")))),
                no(to(&get(&format!("{BEARER}X-Api-Key:~{{FORGE_TOKEN}}|")))),
                no(to(&get("Authorization~:~Bearer~{FORGE_TOKEN}|"))),
                no(to(&get("Authorization:|~Bearer~{FORGE_TOKEN}|"))),
                no(to(&get(BEARER).replace("HTTP/1.1", "HTTP/1.0"))),
                no(to(&get(&format!("{BEARER}Content-Length:~5|Transfer-Encoding:~chunked|")))),
                no(to(&get(&format!("{BEARER}Connection:~Upgrade|Upgrade:~websocket|")))),
                // The second of two at once, and in pieces.
                no(raw("allowed.test", 2, &format!("{}{}", get(""), get(BEARER).replace("GET", "DELETE")))),
                no(to("GET~/a?t={FORGE_TOKEN} ~HTTP/1.1|Host:~allowed.test:8443||")),
            ]);
            let log = std::fs::read_to_string(place.internet_log()).unwrap();
            let sent: Vec<&str> = log.lines().filter(|line| line.contains(TOKEN)).collect();
            let allowed = "auth GET /a HTTP/1.1 authorization Bearer";
            let echoes = |line: &&&str| line.starts_with("auth GET /echo");
            assert_eq!(sent.iter().filter(echoes).count(), 3, "{sent:?}");
            assert!(
                sent.iter().filter(|line| !echoes(line)).all(|line| line.starts_with(allowed)),
                "{sent:?}"
            );
            let blocked = place.events("net_connect_blocked");
            for reason in [
                "credential-of-another-host",
                "credential-not-allowed",
                "credential-in-answer",
                "placeholder-misplaced",
                "placeholder-in-body",
                "placeholder-twice",
                "authorization-twice",
                "placeholder-not-replaced",
            ] {
                assert!(blocked.iter().any(|event| event["reason"] == reason), "{reason}: {blocked:?}");
            }
        }
    }
}

#[test]
fn credential_is_not_sent_after_a_redirection_or_without_tls() {
    for mode in Mode::all() {
        let sandbox = Sandbox { place: forge(mode, "userns"), kind: Kind::Agent };
        let place = &sandbox.place;
        policy(place, "");
        let also = "  network: {allow: [{host: other.test, port: 8443, inspect: true}, {host: allowed.test, port: 80}]}\n";
        let text = std::fs::read_to_string(place.home.join(".config/agentsh/policy.yaml")).unwrap();
        place.user_policy(&(text + also));
        let script = "bearer=\"Authorization: Bearer $FORGE_TOKEN\"; \
                      curl -sS -o /dev/null -w '%{http_code} ' -H \"$bearer\" https://allowed.test:8443/a; \
                      curl -sS -o /dev/null -w '%{http_code} ' -L --location-trusted -H \"$bearer\" https://allowed.test:8443/away; \
                      curl -sS -o /dev/null -w '%{http_code}' -H \"$bearer\" http://allowed.test/a";
        let outcome = place.shell(script);
        assert_eq!(outcome.stdout, "200 403 403", "{outcome}");
        let log = std::fs::read_to_string(place.internet_log()).unwrap();
        assert!(!log.contains("landed") && !log.contains("agentsh_"), "{log}");
        let with_token: Vec<&str> = log.lines().filter(|line| line.contains(TOKEN)).collect();
        assert!(
            with_token.iter().all(|line| line.contains("GET /a ") || line.contains("GET /away ")),
            "{log}"
        );
    }
}

/// A project's policy can only restrict credentials.
#[test]
fn project_policy_cannot_request_credentials() {
    for mode in Mode::all() {
        let sandbox = Sandbox { place: forge(mode, "userns"), kind: Kind::Agent };
        let place = &sandbox.place;
        place.user_policy("agent:\n  network: {allow: [{host: allowed.test, port: 8443, inspect: true}]}\n");
        place.write(
            ".agentsh.yaml",
            "agent: {credentials: [{host: \"allowed.test:8443\", from: \"env:FORGE_TOKEN\"}]}\n",
        );
        let outcome = place.shell(&format!("env | grep -c {TOKEN}; curl -sS -H \"Authorization: Bearer $FORGE_TOKEN\" https://allowed.test:8443/a"));
        assert!(!outcome.stdout.contains(TOKEN), "{outcome}");
        let log = std::fs::read_to_string(place.internet_log()).unwrap_or_default();
        assert!(!log.contains(TOKEN), "{log}");
    }
}
