//! The user's own proxy: allowed connections leave by it, names are judged as always, and nothing but its own name is resolved.

use super::{heard, online};
use crate::support::forge::authority;
use crate::support::{no, yes};

const PROXY: &str = "http://user:pass@proxy.test:3128";

fn requests(name: &str) -> String {
    format!("https-request {name}:8443 system GET /x {name}:8443")
}

#[test]
#[ignore = "takes long"]
fn allowed_connections_use_the_users_proxy() {
    online(|sandbox| {
        let place = &sandbox.place;
        let ca = authority(place).display().to_string();
        // Whom the session trusts besides counts where TLS ends at agentsh.
        place.set("NODE_EXTRA_CA_CERTS", ca.clone());
        place.set("HTTPS_PROXY", PROXY);
        place.set("NO_PROXY", "v4.test, other.test:80");
        sandbox.policy(
            "network: {allow: [{host: allowed.test, port: 8443, inspect: true}, {host: v4.test, port: 8443, inspect: true}, \
             {host: v6.test, ports: [80, 8443]}]}",
        );
        sandbox.holds(&[
            yes(requests("allowed.test")),
            yes(requests("v4.test")),
            yes(format!("https v6.test:8443 {ca} v6.test")),
            yes("http v6.test:80 v6.test"),
            // The proxy is not asked for a host that no rule names.
            no(requests("other.test")),
            no("http allowed.test:80 allowed.test"),
        ]);
        let log = heard(place);
        for line in [
            "proxy CONNECT allowed.test:8443 HTTP/1.1",
            "proxy CONNECT v6.test:8443 HTTP/1.1",
            "proxy CONNECT v6.test:80 HTTP/1.1",
        ] {
            assert!(log.contains(line), "{line}: {log}");
        }
        assert!(!log.contains("CONNECT v4.test") && !log.contains("CONNECT other.test"), "{log}");
        assert!(
            log.contains("name v4.test")
                && !log.contains("name allowed.test")
                && !log.contains("name v6.test"),
            "{log}"
        );
        let enforced = place.events("enforcement");
        let says = |event: &&serde_json::Value| {
            event["layer"] == "network"
                && event["got"].as_str().unwrap().contains("through the proxy 'proxy.test'")
        };
        assert!(enforced.iter().any(|event| says(&event)), "{enforced:?}");
        assert!(!format!("{enforced:?}").contains("pass@"));
    });
}

#[test]
#[ignore = "takes long"]
fn policy_decides_which_proxy_is_used() {
    online(|sandbox| {
        let place = &sandbox.place;
        place.set("SSL_CERT_FILE", authority(place).display().to_string());
        place.set("HTTPS_PROXY", "http://wrong:word@proxy.test:3128");
        let rule = "allow: [{host: allowed.test, port: 8443, inspect: true}]";
        // It does not connect without its password: nothing goes around it.
        sandbox.policy(&format!("network: {{{rule}}}"));
        sandbox.holds(&[no(requests("allowed.test"))]);
        sandbox.policy(&format!("network: {{{rule}, proxy: off}}"));
        sandbox.holds(&[yes(requests("allowed.test"))]);
        let before = heard(place).matches("proxy CONNECT").count();
        sandbox.policy(&format!("network: {{{rule}, proxy: \"{PROXY}\"}}"));
        sandbox.holds(&[yes(requests("allowed.test"))]);
        assert_eq!(heard(place).matches("proxy CONNECT").count(), before + 1);
    });
}
