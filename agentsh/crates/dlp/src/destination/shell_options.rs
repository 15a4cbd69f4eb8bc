//! Options of shell commands: which of them take a host as their value, and which another value.

use super::key::has_word;

/// Options whose value is a host, whatever the tool.
const HOST_OPTIONS: &str = "--proxy --preproxy --socks4 --socks4a --socks5 --socks5-hostname --doh-url --url --host --server \
     --hostname --proxy-host -connect -proxy -uri --dns-servers --interface-host";
/// Options of one letter whose value is a host: of curl and nc, of ssh, of databases, of `dig` and `ldapsearch`.
const HOST_LETTERS: [(&[&str], &str); 5] = [
    (&["curl", "nc", "ncat", "netcat"], "x"),
    (&["ssh", "scp", "sftp"], "JW"),
    (&["psql", "mysql", "redis-cli", "mongo", "swaks"], "hs"),
    (&["ldapsearch"], "Hh"),
    (&["openssl"], ""),
];
/// Options of one letter that take a value which is not a host.
const VALUE_LETTERS: [(&[&str], &str); 5] = [
    (&["curl"], "odFHuAbcTKXmwCErYyzDPQteU"),
    (&["wget"], "OoPUTtwQIXRDB"),
    (&["ssh", "scp", "sftp", "mosh"], "ilpFcmESoLRDbBeIOQwP"),
    (&["nc", "ncat", "netcat"], "pwsqieXPIOTcmV"),
    (&["ping", "traceroute", "mtr", "nmap", "dig", "host", "rsync"], "cwWitsIpfkyebqTQm"),
];

/// Long options of curl and of wget whose next word is not an address.
const LONG_CURL: &str = "--max-time --connect-timeout --cacert --capath --cert --key --retry --retry-delay --retry-max-time \
     --limit-rate --user-agent --referer --cookie --cookie-jar --range --write-out --output-dir \
     --data-raw --data-binary --data-urlencode --form-string --json --max-redirs --dump-header --ciphers \
     --tls-max --oauth2-bearer --speed-limit --speed-time --help";
const LONG_WGET: &str = "--timeout --tries --wait --level --output-document --directory-prefix --user-agent --limit-rate \
     --ca-certificate --post-data --post-file";
/// The same for every tool.
const LONG_OF_ALL: &str = "--output --data --header --form --user --request --upload-file -in -out";

pub(super) enum HostPosition<'w> {
    Nothing,
    Skip,
    /// The next word is a host.
    Next,
    /// The next word is `host:port:HOST:port`.
    Third,
    Here(&'w str),
}

/// The meaning of an option and its next word.
pub(super) fn option<'w>(tool: &str, text: &'w str) -> HostPosition<'w> {
    let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
    if matches!(name, "--connect-to" | "--resolve") {
        return HostPosition::Third;
    }
    if has_word(HOST_OPTIONS, &name.to_ascii_lowercase()) {
        return value.map_or(HostPosition::Next, HostPosition::Here);
    }
    let letters_of = |table: &[(&[&str], &'static str)]| {
        table.iter().find(|(tools, _)| tools.contains(&tool)).map_or("", |(_, letters)| *letters)
    };
    if text.starts_with("--") || tool == "openssl" {
        let own = match tool {
            "curl" => LONG_CURL,
            "wget" => LONG_WGET,
            _ => "",
        };
        let is_valued = value.is_none() && (has_word(LONG_OF_ALL, name) || has_word(own, name));
        return if is_valued { HostPosition::Skip } else { HostPosition::Nothing };
    }
    let (hosts, values) = (letters_of(&HOST_LETTERS), letters_of(&VALUE_LETTERS));
    for (position, letter) in text.char_indices().skip(1) {
        let rest = &text[position + letter.len_utf8()..];
        if hosts.contains(letter) {
            return if rest.is_empty() { HostPosition::Next } else { HostPosition::Here(rest) };
        }
        if values.contains(letter) {
            return if rest.is_empty() { HostPosition::Skip } else { HostPosition::Nothing };
        }
    }
    HostPosition::Nothing
}
