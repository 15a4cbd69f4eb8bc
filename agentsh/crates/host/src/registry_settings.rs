//! Files and variables of package managers that say where packages come from, without what may be a secret.

use agentsh_sandbox::spec::{EnvChange, File};
use agentsh_secrets::{certain, views};

use crate::Context;
use crate::registries::{NPM_VARIABLES, PYTHON_VARIABLES, read};

/// Words in the name of a setting that holds a secret or names a file of one.
const SECRET_WORDS: [&str; 20] = [
    "auth",
    "authtoken",
    "token",
    "password",
    "passwd",
    "pass",
    "secret",
    "user",
    "username",
    "email",
    "login",
    "otp",
    "cert",
    "certfile",
    "key",
    "keyfile",
    "ca",
    "cafile",
    "userconfig",
    "credentials",
];
/// Characters from which a part of a path may be a token.
const MIN_TOKEN: usize = 12;

/// The user's own configuration of npm.
#[must_use]
pub fn of_npmrc(context: &Context) -> String {
    without_secrets(&read(&context.home.join(".npmrc")))
}

/// The files, below the home as the sandbox has it.
pub(crate) fn files(context: &Context) -> Vec<File> {
    let files = [
        (context.home.join(".npmrc"), ".npmrc"),
        (context.config.join("pip/pip.conf"), ".config/pip/pip.conf"),
        (context.home.join(".pip/pip.conf"), ".pip/pip.conf"),
        (context.config.join("uv/uv.toml"), ".config/uv/uv.toml"),
        (context.config.join("pnpm/rc"), ".config/pnpm/rc"),
    ];
    let there = files.into_iter().filter(|(file, _)| !context.host.is_missing(file));
    let kept = there.filter_map(|(file, inside)| {
        let text = read(&file);
        let kept =
            if inside.ends_with(".toml") { toml_without_secrets(&text) } else { without_secrets(&text) };
        (!kept.trim().is_empty()).then_some((inside, kept))
    });
    kept.map(|(inside, text)| File::new(context.home.join(inside), text, 0o600)).collect()
}

/// The variables, with those of their addresses that hold no secret.
pub(crate) fn variables(context: &Context) -> Vec<EnvChange> {
    let known = NPM_VARIABLES.iter().chain(PYTHON_VARIABLES);
    let values = known.filter_map(|name| Some((name, context.env.get(*name)?)));
    let plain = values.map(|(name, value)| {
        let kept: Vec<&str> = value.split_whitespace().filter(|address| is_plain(address)).collect();
        (name, kept.join(" "))
    });
    let plain = plain.filter(|(_, kept)| !kept.is_empty());
    plain.map(|(name, kept)| EnvChange::Default((*name).to_owned(), kept)).collect()
}

/// The settings of an `ini` file that neither name a secret, a certificate or a key, nor hold an address with one. Of several
/// addresses the others stay. An indented line continues a setting.
fn without_secrets(text: &str) -> String {
    let mut settings: Vec<Vec<&str>> = Vec::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with(['#', ';'])) {
        match settings.last_mut().filter(|_| line.starts_with([' ', '\t'])) {
            Some(setting) => setting.push(line),
            None => settings.push(vec![line]),
        }
    }
    settings
        .iter()
        .filter_map(|lines| plain_setting(lines))
        .fold(String::new(), |text, line| text + &line + "\n")
}

fn plain_setting(lines: &[&str]) -> Option<String> {
    let (first, more) = lines.split_first()?;
    let (name, value) = first.split_once('=').map_or((*first, ""), |(name, value)| (name, value.trim()));
    if names_secret(name.trim()) || !is_plain(name) {
        return None;
    }
    let plain: Vec<&str> = more.iter().copied().filter(|line| is_plain(line.trim())).collect();
    let head = match (is_plain(value), plain.is_empty()) {
        // Nothing is left of its values.
        (false, true) => return None,
        (true, true) if value.is_empty() && !more.is_empty() => return None,
        (true, _) => (*first).to_owned(),
        (false, false) => format!("{name}="),
    };
    Some(std::iter::once(head.as_str()).chain(plain).collect::<Vec<_>>().join("\n"))
}

/// The same of TOML. An index whose address is left out is left out as a whole: uv would refuse it.
fn toml_without_secrets(text: &str) -> String {
    let Ok(mut table) = text.parse::<toml::Table>() else { return String::new() };
    keep_plain_entries(&mut table);
    toml::to_string(&table).unwrap_or_default()
}

fn keep_plain_entries(table: &mut toml::Table) {
    table.retain(|name, value| !names_secret(name) && keep_plain(value));
}

/// Leaves secrets out. False: nothing is left.
fn keep_plain(value: &mut toml::Value) -> bool {
    match value {
        toml::Value::String(text) => is_plain(text),
        toml::Value::Array(items) => {
            items.retain_mut(|item| match item {
                toml::Value::Table(index) => {
                    let before = index.len();
                    keep_plain_entries(index);
                    index.len() == before
                }
                item => keep_plain(item),
            });
            !items.is_empty()
        }
        toml::Value::Table(section) => {
            keep_plain_entries(section);
            !section.is_empty()
        }
        _ => true,
    }
}

/// Whether a setting is about a secret. The scope in `@scope:registry` is only a name.
fn names_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    if name.starts_with("//") {
        return true;
    }
    let name = name.strip_prefix('@').and_then(|rest| rest.split_once(':')).map_or(&*name, |(_, name)| name);
    name.split(|letter: char| !letter.is_ascii_alphanumeric()).any(|word| SECRET_WORDS.contains(&word))
}

/// Whether a value is no secret and holds none: no user before a host, no query, no part of a path that looks like a token.
fn is_plain(value: &str) -> bool {
    let decoded = views::escapes(value).map_or_else(|| value.to_owned(), |view| view.text);
    // An `@` that begins a part is that of a scope.
    let has_user = |text: &str| {
        text.match_indices('@').any(|(at, _)| !text[..at].ends_with(['/', ' ', '"', '\'']) && at > 0)
    };
    let is_token = |part: &str| {
        part.len() >= MIN_TOKEN
            && part.bytes().filter(u8::is_ascii_digit).count() >= 2
            && part.bytes().filter(u8::is_ascii_alphabetic).count() >= 4
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_=+".contains(&byte))
    };
    let path = decoded.split_once("://").map_or("", |(_, rest)| rest);
    !decoded.contains(['\\', '?'])
        && !value.contains("-----BEGIN")
        && !has_user(value)
        && !has_user(&decoded)
        && !path.split('/').skip(1).any(is_token)
        && certain::find_in_views(value).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_stay_whatever_their_names_are() {
        for plain in [
            "registry = https://npm.keystone.example/\n",
            "@monkey-corp:registry = https://npm.corp.example/auth0/\n",
            "@auth:registry = https://r.example/@auth/npm/\n",
            "save-exact = true\n",
            "[global]\nindex-url = https://pypi.tokentransit.example/simple\ntimeout = 60\n",
            "extra-index-url = https://a.example/simple\n    https://b.example/simple\n",
        ] {
            assert_eq!(without_secrets(plain), plain);
        }
        assert_eq!(
            without_secrets(
                "[global]\ntimeout = 60\nextra-index-url = https://bob:pw@a.example/x\n    https://b.example/y\n"
            ),
            "[global]\ntimeout = 60\nextra-index-url =\n    https://b.example/y\n"
        );
        let uv = "keyring-provider = \"subprocess\"\n\n[[index]]\nname = \"corp\"\nurl = \"https://b.example/simple\"\n";
        let both = format!("{uv}\n[[index]]\nname = \"own\"\nurl = \"https://bob:pw@a.example/simple\"\n");
        let section = "[pip]\nindex-url = \"https://b.example/simple\"\n";
        let with_secret = format!("{section}extra-index-url = [\"https://bob:pw@a.example/simple\"]\n");
        assert_eq!(toml_without_secrets(&with_secret), section);
        assert_eq!((toml_without_secrets(uv), toml_without_secrets(&both)), (uv.to_owned(), uv.to_owned()));
    }

    #[test]
    fn secrets_in_settings_of_sources_are_left_out() {
        for secret in [
            "//npm.corp.example/:_authToken=abc",
            "_auth = abc",
            "registry=https://bob:pw@r.example/",
            "registry=https://bob%3Apw%40r.example/",
            "registry=\"https://bob:pw\\u0040r.example/\"",
            "registry=https://bob:p/w@r.example/",
            "proxy = bob:pw@proxy:3128",
            "https-proxy=//bob:pw@proxy:3128",
            "index-url = https://dl.example/xK29dkQ0sLm3/org/repo/simple/",
            "index-url = https://dl.example/simple?sig=abc",
            "otp=123456",
            "ca=\"-----BEGIN PRIVATE KEY-----\\nabc\"",
            "; old login bob PASSWORD",
            "# registry=https://bob:pw@r.example/",
        ] {
            assert_eq!(without_secrets(secret), "", "{secret}");
        }
    }
}
