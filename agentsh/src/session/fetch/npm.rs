//! npm: `npm install` into an empty directory.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use agentsh_egress::authorities::Source;
use agentsh_host::address::Address;

use super::stage::{self, Task};
use super::{FetchError, Job, failure};

const TOOL: &str = "npm";
/// System-wide settings, relative to the prefix.
const SYSTEM_SETTINGS: [&str; 3] = ["/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc"];

/// npm settings that a fetch needs.
#[derive(Debug, Default)]
struct Settings {
    /// Lines of a `.npmrc`.
    lines: Vec<String>,
    registries: Vec<Address>,
    trusts: Vec<Source>,
}

pub async fn install(job: &Job<'_>) -> Result<(), FetchError> {
    let settings = settings(job).await?;
    let npmrc = job.session.facts.context.home.join(".npmrc");
    std::fs::write(job.tree().join("package.json"), "{\"private\":true}\n")
        .map_err(|source| FetchError::Io { doing: "write package.json", source })?;
    let mut args: Vec<String> = [
        "install",
        "--no-audit",
        "--no-fund",
        "--no-update-notifier",
        "--no-progress",
        "--loglevel=error",
        "--fetch-retries=1",
        "--fetch-retry-mintimeout=500",
        "--fetch-retry-maxtimeout=2000",
        "--fetch-timeout=60000",
    ]
    .map(str::to_owned)
    .into();
    args.push(format!("--prefix={}", job.tree().display()));
    // Scripts run later, without credentials and network.
    args.push("--ignore-scripts=true".to_owned());
    args.push("--".to_owned());
    args.extend(job.wanted.specs.iter().cloned());
    let userconfig = ("NPM_CONFIG_USERCONFIG".to_owned(), npmrc.display().to_string());
    let globalconfig = ("NPM_CONFIG_GLOBALCONFIG".to_owned(), "/nonexistent".to_owned());
    let installing = Task {
        tool: TOOL,
        program: TOOL,
        args,
        env: BTreeMap::from([userconfig, globalconfig.clone()]),
        read: Vec::new(),
        // Only registries and credentials of the user's file.
        files: vec![(npmrc, (settings.lines.join("\n") + "\n").into_bytes())],
        reach: &settings.registries,
        trusts: settings.trusts,
    };
    finished(stage::run(job, installing).await?, &settings.registries)?;
    if !job.run_scripts {
        say_what_did_not_run(job);
        return Ok(());
    }
    let prefix = format!("--prefix={}", job.tree().display());
    let words = ["rebuild", "--no-update-notifier", "--no-progress", "--loglevel=error", prefix.as_str()];
    let building = Task {
        tool: TOOL,
        program: TOOL,
        args: words.map(str::to_owned).into(),
        env: BTreeMap::from([globalconfig]),
        read: Vec::new(),
        files: Vec::new(),
        reach: &[],
        trusts: Vec::new(),
    };
    finished(stage::run(job, building).await?, &[])
}

fn finished(done: stage::CommandOutput, registries: &[Address]) -> Result<(), FetchError> {
    if done.code == 0 {
        return Ok(());
    }
    Err(failure(TOOL, registries, &format!("{}{}", done.output, done.errors)))
}

/// Asks npm, which knows all its files. Without network.
async fn settings(job: &Job<'_>) -> Result<Settings, FetchError> {
    let context = &job.session.facts.context;
    let mut env = stage::variables(job, &["NPM_CONFIG_"]);
    let configured = env.iter().find(|(name, _)| name.eq_ignore_ascii_case("npm_config_userconfig"));
    let own = configured.map_or_else(|| context.home.join(".npmrc"), |(_, value)| PathBuf::from(value));
    env.retain(|name, _| !name.eq_ignore_ascii_case("npm_config_userconfig"));
    let text = stage::configuration(&own).unwrap_or_default();
    let inside = context.home.join(".npmrc");
    let done = stage::run(
        job,
        Task {
            tool: TOOL,
            program: TOOL,
            args: ["config", "list", "--json", "--no-update-notifier"].map(str::to_owned).into(),
            env,
            read: SYSTEM_SETTINGS.iter().map(PathBuf::from).filter(|path| path.is_file()).collect(),
            files: vec![(inside, text.clone())],
            reach: &[],
            trusts: Vec::new(),
        },
    )
    .await?;
    let answer: Value = serde_json::from_str(&done.output).map_err(|_| failure(TOOL, &[], &done.errors))?;
    let mut settings = read(&answer).ok_or(FetchError::NoRegistry { tool: TOOL })?;
    let credentials = String::from_utf8_lossy(&text).into_owned();
    let credentials = credentials.lines().map(str::trim).filter(|line| line.starts_with("//"));
    settings.lines.extend(credentials.map(|line| expand(line, &context.env)));
    Ok(settings)
}

fn read(answer: &Value) -> Option<Settings> {
    let mut settings = Settings::default();
    for (key, value) in answer.as_object()? {
        let is_registry = key == "registry" || (key.starts_with('@') && key.ends_with(":registry"));
        match value {
            Value::String(value) if is_registry => {
                settings.registries.push(Address::parse(value, 443)?);
                settings.lines.push(format!("{key}={value}"));
            }
            // These authorities are in the bundle for node.
            Value::String(value) if key == "cafile" => settings.trusts.push(Source::File(value.into())),
            Value::String(value) if key == "ca" => settings.trusts.push(Source::Text(value.clone())),
            Value::Array(values) if key == "ca" => {
                let texts = values.iter().filter_map(Value::as_str);
                settings.trusts.extend(texts.map(|text| Source::Text(text.to_owned())));
            }
            Value::Bool(false) if key == "strict-ssl" => settings.lines.push("strict-ssl=false".to_owned()),
            _ => {}
        }
    }
    settings.registries.sort();
    settings.registries.dedup();
    let named = settings.lines.iter().any(|line| line.starts_with("registry="));
    // A line break would start another setting.
    let plain = settings.lines.iter().all(|line| !line.contains(['\n', '\r']));
    (named && plain).then_some(settings)
}

/// Expands `${NAME}` as npm does; unset names stay.
fn expand(line: &str, env: &BTreeMap<String, String>) -> String {
    let (mut out, mut rest) = (String::new(), line);
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        match after.split_once('}') {
            Some((name, left)) if env.contains_key(name) => {
                out.push_str(env.get(name).map(String::as_str).unwrap_or_default());
                rest = left;
            }
            _ => {
                out.push_str("${");
                rest = after;
            }
        }
    }
    out + rest
}

fn say_what_did_not_run(job: &Job<'_>) {
    let lock = stage::configuration(&job.tree().join("node_modules/.package-lock.json"));
    let lock: Value = lock.and_then(|lock| serde_json::from_slice(&lock).ok()).unwrap_or_default();
    let packages = lock.get("packages").and_then(Value::as_object);
    let with_scripts: Vec<String> = packages
        .into_iter()
        .flatten()
        .filter(|(_, package)| package.get("hasInstallScript") == Some(&Value::Bool(true)))
        .map(|(place, _)| {
            agentsh_store::escape::line(place.rsplit("node_modules/").next().unwrap_or(place)).to_string()
        })
        .collect();
    if !with_scripts.is_empty() {
        job.session.record.note(&format!(
            "install scripts of {} did not run; if server '{}' does not work without them, add to your policy and \
             forget its pin (`agentsh mcp pins reset --server {}`): {}",
            with_scripts.join(", "),
            job.id,
            job.id,
            job.scripts_line()
        ));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn registries_of_scopes_count_too() {
        let answer = serde_json::json!({"registry": "https://r.example/", "@own:registry": "http://127.0.0.1:4873/x",
            "cafile": "/etc/ca.pem", "ca": ["A", "B"], "script-shell": "/tmp/evil", "strict-ssl": true});
        let settings = read(&answer).unwrap();
        let shown: Vec<String> =
            settings.registries.iter().map(|address| format!("{}:{}", address.host, address.port)).collect();
        assert_eq!(shown, ["127.0.0.1:4873", "r.example:443"]);
        assert_eq!(settings.lines, ["registry=https://r.example/", "@own:registry=http://127.0.0.1:4873/x"]);
        let text = |text: &str| Source::Text(text.to_owned());
        assert_eq!(settings.trusts, [Source::File("/etc/ca.pem".into()), text("A"), text("B")]);
        assert!(read(&serde_json::json!({"prefix": "/usr"})).is_none());
        assert!(read(&serde_json::json!({"registry": "https://r.example/\nscript-shell=x"})).is_none());
    }

    #[test]
    fn variables_in_credentials_are_expanded() {
        let env = BTreeMap::from([("TOKEN".to_owned(), "t".to_owned())]);
        assert_eq!(expand("//r/:_authToken=${TOKEN}", &env), "//r/:_authToken=t");
        assert_eq!(expand("//r/:_authToken=${OTHER}${TOKEN}${", &env), "//r/:_authToken=${OTHER}t${");
    }
}
