//! The programs that people use: curl, node, Python, openssl, and a static one. An allowed name works with each, and
//! its connections carry nothing else.

use std::path::Path;
use std::time::Duration;

use super::{heard, online};
use crate::support::expect::Expected;
use crate::support::forge::authority;
use crate::support::{no, patience, skip, yes};

/// Attempts with real programs, and the one program each needs.
struct Wanted {
    expected: Vec<Expected>,
}

impl Wanted {
    fn with(&mut self, program: &str, expected: impl IntoIterator<Item = Expected>) {
        let is_here = ["/usr/local/bin", "/usr/bin", "/bin"]
            .iter()
            .any(|place| Path::new(place).join(program).exists());
        if is_here {
            self.expected.extend(expected);
        } else {
            skip(&format!("there is no {program} here"));
        }
    }
}

#[test]
#[ignore = "takes long"]
fn curl_node_python_and_openssl_reach_allowed_names() {
    online(|sandbox| {
        let place = &sandbox.place;
        let ca = authority(place).display().to_string();
        let file = |name: &str, text: &str| place.write(name, text).display().to_string();
        let python = file("client.py", include_str!("clients/client.py"));
        let node = file("client.mjs", include_str!("clients/client.mjs"));
        let openssl = file("client.sh", include_str!("clients/client.sh"));
        let openssl = format!("{openssl} {}", patience(Duration::from_millis(500)).as_secs_f64());
        let names = ["allowed.test", "v4.test", "v6.test"];
        let entries = names.map(|name| format!("{{host: {name}, ports: [80, 8443]}}")).join(", ");
        sandbox.policy(&format!("network: {{allow: [{entries}]}}"));

        let mut wanted = Wanted { expected: Vec::new() };
        let mut works = Vec::new();
        for name in names {
            for family in ["-4", "-6"] {
                works.push(yes(format!("client curl -sSf {family} --cacert {ca} https://{name}:8443/x")));
                works.push(yes(format!("client curl -sSf {family} http://{name}/x")));
            }
        }
        wanted.with("curl", works);
        let curl = format!("client curl -sSf --cacert {ca}");
        wanted.with(
            "curl",
            [
                no(format!(
                    "{curl} --connect-to other.test:8443:allowed.test:8443 https://other.test:8443/x"
                )),
                no(format!("{curl} --connect-to v4.test:8443:allowed.test:8443 https://v4.test:8443/x")),
                no(format!("{curl} --connect-to ::v4.test: https://allowed.test:8443/x")),
                no(format!("{curl} --resolve allowed.test:8443:93.184.216.34 https://allowed.test:8443/x")),
                no(format!(
                    "{curl} --resolve allowed.test:8443:[2606:2800:220:1::34] https://allowed.test:8443/x"
                )),
                no(format!("{curl} -k https://93.184.216.34:8443/x")),
                no(format!("{curl} https://other.test:8443/x")),
                no(format!("{curl} -H Host:other.test http://allowed.test/x")),
                no(format!(
                    "{curl} http://allowed.test/x --next -sSf -H Host:other.test http://allowed.test/x"
                )),
                yes(format!("{curl} http://allowed.test/x http://allowed.test/x")),
                no(format!("{curl} --http2-prior-knowledge http://allowed.test/x")),
            ],
        );
        wanted.with(
            "openssl",
            [
                yes(format!("client sh {openssl} allowed.test:8443 {ca} -servername allowed.test")),
                yes(format!("client sh {openssl} v6.test:8443 {ca} -servername v6.test -tls1_2")),
                no(format!("client sh {openssl} allowed.test:8443 {ca} -servername other.test")),
                no(format!("client sh {openssl} allowed.test:8443 {ca} -servername v4.test -tls1_2")),
                no(format!("client sh {openssl} allowed.test:8443 {ca} -noservername")),
            ],
        );
        wanted.with(
            "python3",
            [
                yes(format!("client python3 {python} urllib https://allowed.test:8443/x {ca}")),
                yes(format!("client python3 {python} urllib http://v6.test/x {ca}")),
                yes(format!("client python3 {python} ssl v6.test 8443 {ca} v6.test")),
                no(format!("client python3 {python} ssl allowed.test 8443 {ca} other.test")),
                no(format!("client python3 {python} ssl allowed.test 8443 {ca} -")),
                no(format!("client python3 {python} ssl 93.184.216.34 8443 {ca} allowed.test")),
                no(format!("client python3 {python} urllib http://allowed.test/x {ca} other.test")),
            ],
        );
        let fetch = format!("client env NODE_EXTRA_CA_CERTS={ca} node {node} fetch");
        wanted.with(
            "node",
            [
                yes(format!("{fetch} https://allowed.test:8443/x")),
                yes(format!("{fetch} http://v6.test/x")),
                no(format!("{fetch} https://other.test:8443/x")),
                yes(format!("client node {node} get 4 https://v6.test:8443/x {ca}")),
                yes(format!("client node {node} get 6 http://v4.test/x {ca}")),
                no(format!("client node {node} get 4 https://allowed.test:8443/x {ca} other.test")),
                no(format!("client node {node} get 6 http://allowed.test/x {ca} - other.test")),
            ],
        );
        wanted.expected.extend([
            // If no rule inspects TLS, no program gets another authority to trust.
            no("environment NODE_EXTRA_CA_CERTS"),
            yes(format!("https allowed.test:8443 {ca} allowed.test")),
            yes(format!("https v6.test:8443 {ca} v6.test")),
            no(format!("https allowed.test:8443 {ca} other.test")),
            no(format!("https allowed.test:8443 {ca} -")),
            no(format!("https 93.184.216.34:8443 {ca} allowed.test")),
        ]);
        sandbox.holds(&wanted.expected);

        let heard = heard(place);
        assert!(heard.contains("tcp 93.184.216.34 8443"), "{heard}");
        assert!(heard.contains("tcp 2606:2800:220:1::34 8443"), "{heard}");
        assert!(!heard.contains("other.test"), "{heard}");
        let blocked = place.events("net_connect_blocked");
        for reason in ["server-name-mismatch", "no-server-name", "address-not-allowed"] {
            assert!(blocked.iter().any(|event| event["reason"] == reason), "{reason}: {blocked:?}");
        }
    });
}
