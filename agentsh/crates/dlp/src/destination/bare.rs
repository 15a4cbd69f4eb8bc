//! Hosts without a scheme: decides which dotted words are hosts, and which are files, versions or calls.

use std::sync::LazyLock;

use super::host::{Authority, read};
use super::key::{Key, Trust, has_word};
use super::{Destination, Form, Sink, Target};

/// Top-level domains that occur only in host names.
const OLDEST: &str = "com net org edu gov mil int info";
const CERTAIN: &str = "biz xyz online site top club shop store cloud tech space website \
     live click link host press agency digital solutions systems network email example test invalid onion \
     internal corp lan local localdomain arpa dev page icu";
/// Whether this top-level domain occurs only in host names.
fn ends_host(end: &str) -> bool {
    has_word(OLDEST, end) || has_word(CERTAIN, end)
}

/// Countries whose two letters end no common file name, module or abbreviation.
const COUNTRIES: &str = "ac ad ae af ag al am ao aq ar at au aw az ba bb bd be bf bg bh bi bj bm bn bo br bs bt bw by bz ca \
     cd cf cg ch ci ck cl cm cn cr cu cv cw cx cy cz de dj dk dm do dz ec ee eg er es et eu fi fj fk fm \
     fo fr ga gb gd ge gf gg gi gl gm gn gp gq gr gt gu gw gy hk hm hn hr ht hu id ie il im iq ir it je \
     jm jo jp ke kg kh ki km kn kp kr kw ky kz la lb lc li lk lr lt lu lv ly ma mc me mg mh mk mn mo mp \
     mq mr mt mu mv mw mx my mz na nc nf ng ni nl no np nr nu nz om pa pe pf pg ph pk pn pr pt pw qa re \
     ro ru rw sa sb sc sd se sg si sk sm sn sr ss st su sv sx sy sz tc td tf tg th tj tk tl tm tn tr tt \
     tw tz ua ug uk us uy uz va vc ve vg vi vn vu wf ws ye yt za zm zw io co ai tv cc to";

/// Words in settings that are not hosts.
const NO_HOSTS: [&str; 10] =
    ["none", "direct", "null", "off", "false", "true", "auto", "system", "default", "*"];

/// Words with a dot that are hosts: after `www.`, before a port or a path, or under a key that says so.
pub(super) fn find(text: &str, key: Key, sink: &mut Sink<'_>) {
    if key.trust > Trust::Nothing && find_host_value(text, key.trust, sink) {
        return;
    }
    let bytes = text.as_bytes();
    let mut end_of_last = 0;
    for dot in memchr::memchr_iter(b'.', bytes) {
        if dot < end_of_last {
            continue;
        }
        let start = bytes[end_of_last..dot]
            .iter()
            .rposition(|b| !is_part(*b))
            .map_or(end_of_last, |at| end_of_last + at + 1);
        let end = bytes[dot..].iter().position(|b| !is_part(*b)).map_or(bytes.len(), |at| dot + at);
        end_of_last = end;
        // Parts of an address, a path, a scheme or a mail address are handled elsewhere.
        let before = start.checked_sub(1).map(|at| bytes[at]);
        if matches!(before, Some(b'@' | b'/' | b'\\' | b':' | b'%' | b'$' | b'#' | b'-')) || start == end {
            continue;
        }
        let word = text[start..end].trim_end_matches(['.', '-', '_']);
        let after = &bytes[start + word.len()..];
        let alone = start == 0 && after.is_empty() && !key.names_part;
        if key.counts && word.parse::<std::net::Ipv4Addr>().is_ok() {
            continue;
        }
        if is_host_in_prose(word, after, alone) {
            let length = word.len() + port(after);
            give(&text[start..start + length], start, Form::Bare, sink);
        }
    }
}

/// A value that as a whole is a host, under a key that is made for one.
fn find_host_value(text: &str, trust: Trust, sink: &mut Sink<'_>) -> bool {
    let value = text.trim_matches(|c: char| c.is_whitespace() || "\"'`<>".contains(c));
    let authority = value.split(['/', '\\', '?', '#']).next().unwrap_or("");
    let name = authority.rsplit('@').next().unwrap_or("");
    if name.is_empty()
        || value.contains("://")
        || authority.contains(char::is_whitespace)
        || authority.len() > 1024
    {
        return false;
    }
    let host = if name.starts_with('[') { name } else { name.split(':').next().unwrap_or("") };
    let numeric = !host.is_empty() && host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let dotted =
        host.contains(['.', '。', '．', '｡']) || name.starts_with('[') || name.matches(':').count() > 1;
    // `urn:isbn:0451450523`; an address of six has hexadecimal digits alone.
    let is_colons =
        |name: &str| name.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.' | b'%'));
    if name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("urn:"))
        || trust < Trust::Host && name.matches(':').count() > 1 && !name.starts_with('[') && !is_colons(name)
        || NO_HOSTS.iter().any(|word| value.eq_ignore_ascii_case(word))
    {
        return false;
    }
    let is_v6 = name.parse::<std::net::Ipv6Addr>().is_ok();
    let fits = match trust {
        _ if is_v6 => true,
        Trust::Host => !host.is_empty() && (host.bytes().any(|b| !b.is_ascii_digit()) || host.len() >= 7),
        // The name of a machine near by: `localhost:3000/x`, `vault:8200/v1`; an address as one number.
        _ if is_near(name, value) || is_one_number(host) => true,
        // A path, a file name or a version is not a host because of a key like `target`.
        _ => {
            let rooted = value.starts_with(['.', '/', '~']) || host.starts_with('-');
            let plain = !authority.contains(['@', ':']);
            let ends = ends_as_host(host);
            // `collect.example.sh` under `server` is a machine, under `target` it may be a script.
            let named = trust == Trust::Address && host.split('.').count() >= 3 && ends;
            let file = is_file_name(host) && plain && authority.len() == value.len() && !named;
            // No host can have this ending: a module, a class, a file of some kind.
            let nowhere = trust == Trust::Likely && plain && !numeric && !ends;
            let last = host.rsplit('.').next().unwrap_or("");
            let versioned = last.bytes().all(|b| b.is_ascii_digit())
                && host.split('.').any(|label| !label.bytes().all(|b| b.is_ascii_hexdigit() || b == b'x'));
            let other = rooted || file || nowhere || versioned && !name.contains('[') || host.contains('*');
            dotted && !other && (!numeric || host.split('.').count() == 4)
        }
    };
    if fits {
        let read_as = if name.matches(':').count() > 1 && !name.starts_with('[') {
            format!("[{name}]")
        } else {
            authority.to_owned()
        };
        let start = text.find(value).unwrap_or(0);
        give(&read_as, start, Form::Bare, &mut |found| {
            sink(Destination { at: start..start + authority.len(), ..found });
        });
    }
    fits
}

/// The domains below the root of DNS, by the public suffix list of 2026; those beyond ASCII begin with `xn--`.
static TOP_LEVEL_DOMAINS: LazyLock<Vec<&str>> =
    LazyLock::new(|| include_str!("top_level_domains.txt").lines().collect());

/// Whether a name ends as names of machines do: in a top-level domain, or in a way that is kept for private networks.
fn ends_as_host(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_lowercase();
    let last = name.rsplit('.').next().unwrap_or_default();
    // Letters beyond ASCII may become dots and letters of it.
    !name.is_ascii()
        || last.starts_with("xn--")
        || ends_host(last)
        || TOP_LEVEL_DOMAINS.binary_search(&last).is_ok()
}

/// `localhost/x`, `name:8200` or `name:8200/x`.
fn is_near(name: &str, value: &str) -> bool {
    let (host, port) = name.split_once(':').map_or((name, ""), |(host, port)| (host, port));
    let is_name = host.len() >= 2 && host.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let is_port = (2..=5).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit());
    is_name && host.bytes().any(|b| b.is_ascii_alphabetic()) && is_port
        || host.eq_ignore_ascii_case("localhost") && value.len() > host.len()
}

/// `3418468615` and `0xCBC07107`, which programs read as an address.
fn is_one_number(host: &str) -> bool {
    match host.strip_prefix("0x").or_else(|| host.strip_prefix("0X")) {
        Some(digits) => digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_hexdigit()),
        None => (9..=10).contains(&host.len()) && host.parse::<u32>().is_ok(),
    }
}

/// Whether a word of a text is a host. `after` is what follows it.
fn is_host_in_prose(word: &str, after: &[u8], alone: bool) -> bool {
    let labels: Vec<&str> = word.split('.').collect();
    let (Some(last), true) = (labels.last(), labels.len() >= 2) else { return false };
    if labels.iter().any(|label| label.is_empty() || label.len() > 63) {
        return false;
    }
    let last = last.to_ascii_lowercase();
    let called = after.first() == Some(&b'(');
    if let Ok(address) = word.parse::<std::net::Ipv4Addr>() {
        // Versions have four numbers too; an address has a port, a path, or is the whole text and not like 1.2.3.4.
        return port(after) > 0 || after.first() == Some(&b'/') || alone && address.octets()[0] >= 10;
    }
    let www = labels[0].eq_ignore_ascii_case("www");
    if called || !(is_certain(&last) || www && labels.len() >= 3 && ends_as_host(word)) {
        return false;
    }
    // `items.0.id`: the place in a list. Of names of machines the first label is numbered, if any.
    let is_place = |label: &&str| label.len() <= 3 && label.bytes().all(|byte| byte.is_ascii_digit());
    let indexed = last.len() == 2 && labels[1..labels.len() - 1].iter().any(is_place);
    let strong = last.len() > 2 || labels.len() >= 3 && !indexed;
    let addressed = port(after) > 0 || after.first() == Some(&b'/');
    // The two letters of some countries end source files and modules as well.
    addressed || www || strong && (alone || has_word(OLDEST, &last) && labels.len() >= 3)
}

pub(super) fn is_certain(last: &str) -> bool {
    if !(2..=63).contains(&last.len()) {
        return false;
    }
    let last = last.to_ascii_lowercase();
    last.starts_with("xn--")
        || ends_host(&last)
        || last.len() == 2
            && COUNTRIES.as_bytes().windows(2).step_by(3).any(|country| country == last.as_bytes())
}

/// `name.extension` and nothing else, with an extension that is known for files.
pub(super) fn is_file_name(name: &str) -> bool {
    const FILES: &str = " md rs py sh js ts jsx tsx mjs cjs json yaml yml toml xml html htm css txt log csv tsv pdf \
         png jpg jpeg gif svg webp ico zip gz tar tgz bz2 xz 7z rb pl pm go java kt c h cc cpp hpp cs php sql db \
         sqlite lock cfg conf ini env pem key crt cer der p12 pub asc doc docx xls xlsx ppt pptx odt mp3 mp4 mov avi \
         wav app exe dll so o a lib bin iso deb rpm apk jar war whl ipynb vue svelte scss less map bak tmp swp ps ps1 \
         bat cmd proto wasm out in diff patch gitignore git parquet avro npy pkl ";
    let last = name.rsplit('.').next().unwrap_or("").to_ascii_lowercase();
    name.contains('.') && FILES.contains(&format!(" {last} "))
}

/// Gives the destination of an authority, unless it names nothing.
pub(super) fn give(authority: &str, start: usize, form: Form, sink: &mut Sink<'_>) {
    if let Some(Authority { target, port }) = read(authority) {
        let at = start..start + authority.len();
        sink(Destination { target, port, scheme: None, at, form });
    }
}

/// Like [`give`], if the host has at least one dot or is an address.
pub(super) fn give_dotted(authority: &str, start: usize, form: Form, sink: &mut Sink<'_>) {
    give(authority, start, form, &mut |found| {
        let plain = matches!(&found.target, Target::Host(crate::policy::domain::Host::Name(name)) if !name.contains('.'));
        if !plain {
            sink(found);
        }
    });
}

/// Bytes of `:port` at the beginning.
fn port(after: &[u8]) -> usize {
    let Some(b':') = after.first() else { return 0 };
    let digits = after[1..].iter().take(6).take_while(|byte| byte.is_ascii_digit()).count();
    if (1..=5).contains(&digits) { digits + 1 } else { 0 }
}

fn is_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_') || byte >= 0x80
}
