//! A detection is sent to the webhook: signed, retried when that may help, and recorded when it failed.

use std::process::Command;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use sha2::Sha256;

use super::leaks::MEMO;
use crate::support::trusted::SOURCES;
use crate::support::{Answer, Mode, Peer, Place, Receiver, within};

/// A receiver, and a proxy that sends to it; the certificate is that of an authority of the user's own.
fn start(place: &Place, answer: impl Fn(usize) -> u16 + Send + Sync + 'static) -> (Receiver, Command) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let authority = place.write("authority.pem", made.cert.pem());
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let receiver = Receiver::secure(config, move |_, before| Answer::Say(answer(before), String::new()));
    let mut command = command(place, receiver.port);
    command.env("SSL_CERT_FILE", authority);
    (receiver, command)
}

/// The proxy, configured with a receiver.
fn command(place: &Place, port: u16) -> Command {
    let server = place.program("fixture_server");
    let file = json!({"servers": [{"id": "one", "command": server}, {"id": "two", "command": server}]});
    let config = place.write("proxy.json", file.to_string());
    let mut command = place.halting(&["proxy", "--config", config.to_str().unwrap()]);
    command.env("CANARY_MCP_WEBHOOK_SECRET", "a shared secret");
    command.env("CANARY_MCP_ALERT_WEBHOOK", format!("https://127.0.0.1:{port}/hook?team=1"));
    command
}

/// One call that is refused.
fn leak(place: &Place, command: &mut Command) -> Peer {
    let file = place.write("memo.txt", MEMO);
    let mut peer = Peer::start(command);
    peer.shake_hands();
    peer.call("one__read_file", json!({"path": file}));
    let refused = peer.call("two__echo", json!({"text": MEMO}));
    assert_eq!(refused["error"]["data"]["reason"], "tainted-data", "{refused}");
    peer
}

#[test]
fn webhook_alert_is_signed_and_retried() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let (receiver, mut command) = start(&place, |before| if before == 0 { 503 } else { 204 });
        let before = Instant::now();
        leak(&place, &mut command).finish();
        assert!(before.elapsed() >= Duration::from_secs(1), "the second attempt came at once");
        let heard = receiver.heard();
        assert_eq!(heard.len(), 2, "{mode:?} {heard:?}");
        let mut stamps = Vec::new();
        for request in &heard {
            let (head, body) = request.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("POST /hook?team=1 "), "{head}");
            let header = |name: &str| {
                let line = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                line.unwrap_or_else(|| panic!("{name} in {head}")).to_owned()
            };
            let stamp = header("x-agentsh-timestamp");
            for (name, signed) in [
                ("x-canary-signature-256", body.to_owned()),
                ("x-agentsh-signature-256", format!("{stamp}{body}")),
            ] {
                let mut mac = Hmac::<Sha256>::new_from_slice(b"a shared secret").unwrap();
                mac.update(signed.as_bytes());
                let bytes = mac.finalize().into_bytes();
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(header(name), format!("sha256={hex}"));
            }
            let alert: Value = serde_json::from_str(body).unwrap();
            assert_eq!(
                (&alert["event"], &alert["target_server"], &alert["source_server"], &alert["action"]),
                (&json!("leakage_detected"), &json!("two"), &json!("one"), &json!("block"))
            );
            assert!(!body.contains("Lindenau") && !body.contains("orchard"), "{body}");
            stamps.push((stamp.parse::<i64>().unwrap(), alert["event_id"].clone()));
        }
        // A new signature for the same event.
        assert!(stamps[0].0 < stamps[1].0 && stamps[0].1 == stamps[1].1, "{stamps:?}");
        assert!(place.events("alert_undelivered").is_empty());
    }
}

/// Whom the user's tools are told to trust is trusted by the session's own requests too.
#[test]
#[ignore = "takes long"]
fn webhook_trusts_authorities_of_the_users_tools() {
    for (name, set) in SOURCES {
        let place = Place::new(Mode::Invoker);
        let (receiver, _) = start(&place, |_| 204);
        set(&place, &place.project.join("authority.pem"));
        leak(&place, &mut command(&place, receiver.port)).finish();
        assert_eq!(receiver.heard().len(), 1, "{name}");
    }
}

#[test]
#[ignore = "takes long"]
fn undelivered_alert_is_recorded() {
    let place = Place::new(Mode::Invoker);
    let (receiver, mut command) = start(&place, |_| 404);
    leak(&place, &mut command).finish();
    assert_eq!(receiver.heard().len(), 1);
    let lost = place.events("alert_undelivered");
    assert_eq!((lost.len(), &lost[0]["attempts"]), (1, &json!(1)), "{lost:?}");
    assert!(lost[0]["detail"].as_str().unwrap().contains("404"), "{lost:?}");
    assert_eq!(lost[0]["alert"]["event"], "leakage_detected");
    // A receiver with an untrusted certificate gets nothing; retries end with the session.
    let (receiver, mut command) = start(&place, |_| 204);
    let (_, said) = leak(&place, command.env_remove("SSL_CERT_FILE")).finish();
    assert!(receiver.heard().is_empty());
    let lost = place.events("alert_undelivered");
    assert_eq!(lost.len(), 2, "{lost:?}");
    let (attempts, why) = (&lost[1]["attempts"], lost[1]["detail"].as_str().unwrap());
    assert!(attempts.as_u64().unwrap() >= 1 && why.contains("certificate"), "{lost:?}");
    assert!(said.contains("alerts not delivered: 1; the last one: ") && said.contains(why), "{said}");
    // Nobody listens: five times while the session lasts.
    let mut peer = leak(&place, &mut self::command(&place, 9));
    assert!(within(Duration::from_secs(60), || place.events("alert_undelivered").len() == 3));
    assert_eq!(place.events("alert_undelivered")[2]["attempts"], 5);
    peer.close();
}
