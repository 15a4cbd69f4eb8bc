//! `proxy.json`: the servers behind `agentsh proxy`, their allowed hosts and tools, and the auditors.

use std::collections::BTreeMap;

use crate::types::RuleRef;

use super::diagnostic::{PolicyError, Source, printable};
use super::json_nodes;
use super::model::{ListMode, NetworkRule, Ruled, ToolRule};
use super::reader::{Here, Listed, Reader};
use super::search;
use super::sections::{McpPolicy, allowed_domain, headers, judge_url};

/// Largest file, in bytes.
const MAX_BYTES: u64 = 4 << 20;
/// How long an auditor may take unless the file says otherwise, in milliseconds.
const AUDITOR_TIMEOUT_MS: u64 = 8000;
const EXAMPLE: &str = "write `\"servers\": [{\"id\": \"files\", \"command\": \"...\"}]`";
/// The id under which the proxy has tools of its own.
const RESERVED: &str = "canary";

#[derive(Clone, Debug, PartialEq)]
pub struct ProxyFile {
    pub servers: Vec<Ruled<ProxyServer>>,
    /// None may be reached unless it is named here.
    pub allowed_domains: Vec<Ruled<NetworkRule>>,
    /// The place of that list, or the place where it would be.
    pub domains_rule: RuleRef,
    /// Empty: every tool.
    pub allowed_tools: Vec<Ruled<ToolRule>>,
    pub tools_rule: RuleRef,
    /// None, or two.
    pub auditors: Vec<Ruled<Auditor>>,
    /// How an auditor counts that does not answer, or not in time.
    pub audit_timeout: AuditTimeout,
    pub warnings: Vec<Ruled<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyServer {
    pub id: String,
    pub way: ServerTransport,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerTransport {
    Command {
        command: String,
        args: Vec<String>,
        env: BTreeMap<String, String>,
    },
    Url {
        url: String,
        /// With variables as `${NAME}`, which the session fills in.
        headers: BTreeMap<String, String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auditor {
    pub provider: Provider,
    pub model: String,
    /// Name of the variable that holds the key; None sends no key, which only a self-hosted server accepts.
    pub api_key_env: Option<String>,
    pub timeout_ms: u64,
    /// Instead of the provider's own address, without a trailing slash.
    pub base_url: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    Anthropic,
    OpenAi,
    Google,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditTimeout {
    Block,
    Allow,
}

/// Reads a file.
///
/// # Errors
/// An unreadable file, and every mistake in it with its place.
pub fn load(path: &std::path::Path) -> Result<ProxyFile, PolicyError> {
    let name = path.display().to_string();
    let unreadable = |why: String| PolicyError::Unreadable { file: name.clone(), why };
    let facts = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
    let cannot = match () {
        () if facts.is_dir() => Some("it is a directory"),
        () if !facts.is_file() => Some("it is not a plain file"),
        () if facts.len() > MAX_BYTES => Some("it is larger than 4 MiB"),
        () => None,
    };
    if let Some(why) = cannot {
        return Err(unreadable(why.to_owned()));
    }
    let bytes = std::fs::read(path).map_err(|error| unreadable(error.to_string()))?;
    agentsh_base::users_files::judged(path, "a configuration of the proxy", &bytes).map_err(unreadable)?;
    let text = search::utf8(bytes).map_err(unreadable)?;
    // Some editors begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    if text.trim().is_empty() {
        return Err(unreadable(format!("it is empty; {EXAMPLE}")));
    }
    parse(&name, text)
}

/// Reads the text of a file; `name` is what messages call it.
///
/// # Errors
/// Every mistake with its place: unknown keys, wrong types, ids that are not usable or could be mixed up, tools of
/// servers that are not there, one auditor alone.
pub fn parse(name: &str, text: &str) -> Result<ProxyFile, PolicyError> {
    let source = Source { name, text };
    let tree = json_nodes::parse(source).map_err(|error| PolicyError::Invalid(vec![*error]))?;
    let mut reader = Reader::new(source);
    reader.root = "the proxy configuration";
    let root = Here::root(&tree);
    let mut file = ProxyFile::default();
    for rule in [&mut file.domains_rule, &mut file.tools_rule] {
        name.clone_into(&mut rule.file);
    }
    let keys =
        ["servers", "allowed_domains", "allowed_tools", "auditors", "audit_timeout_action", "mcpServers"];
    if let Some(fields) = reader.fields(&root, &keys) {
        match reader.list(fields.find("servers"), server) {
            Some(servers) => file.servers = servers.value,
            None if fields.find("servers").is_none() => match fields.find("mcpServers") {
                Some(here) => {
                    let help = format!("each entry is one of a list, with its name as `id`: {EXAMPLE}");
                    let text = "`mcpServers` is what clients write; here it is `servers`";
                    reader.problem(&here, text, help);
                }
                None => reader.problem(&root, "there is no list of `servers`", EXAMPLE.to_owned()),
            },
            None => {}
        }
        judge_ids(&mut reader, &file.servers);
        if let Some(domains) = reader.list(fields.find("allowed_domains"), allowed_domain) {
            file.domains_rule = domains.rule;
            file.allowed_domains = domains.value;
        }
        let ids: Vec<String> = file.servers.iter().map(|server| server.value.id.clone()).collect();
        if let Some(tools) =
            reader.list(fields.find("allowed_tools"), |reader, here| tool(reader, here, &ids))
        {
            file.tools_rule = tools.rule;
            file.allowed_tools = flatten(tools.value);
        }
        if let Some(auditors) = reader.list(fields.find("auditors"), auditor) {
            judge_auditors(&mut reader, &auditors);
            file.auditors = auditors.value;
        }
        let actions = [("block", AuditTimeout::Block), ("allow", AuditTimeout::Allow)];
        if let Some(action) = reader.word(fields.find("audit_timeout_action"), &actions) {
            file.audit_timeout = action.value;
        }
    }
    file.warnings = reader.finish().map_err(PolicyError::Invalid)?;
    Ok(file)
}

/// No servers, no destinations.
impl Default for ProxyFile {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            allowed_domains: Vec::new(),
            domains_rule: RuleRef::default_rule("allowed_domains"),
            allowed_tools: Vec::new(),
            tools_rule: RuleRef::default_rule("allowed_tools"),
            auditors: Vec::new(),
            audit_timeout: AuditTimeout::Block,
            warnings: Vec::new(),
        }
    }
}

impl ProxyFile {
    /// The tool list as a layer over the lists of a policy: a call has to pass both.
    #[must_use]
    pub fn narrow(&self, policy: &McpPolicy) -> McpPolicy {
        if self.allowed_tools.is_empty() {
            return policy.clone();
        }
        let layer = McpPolicy {
            enforce: true,
            tool_policy: ListMode::Allowlist,
            tool_policy_rule: Some(self.tools_rule.clone()),
            allowed_tools: self.allowed_tools.clone().into(),
            narrowed_by: policy.narrowed_by.clone(),
            ..McpPolicy::default()
        };
        McpPolicy { narrowed_by: Some(Box::new(layer)), ..policy.clone() }
    }
}

fn server(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<ProxyServer> {
    let fields = reader.fields(here, &["id", "command", "args", "env", "url", "headers"])?;
    let is_remote = fields.find("url").is_some();
    let wrong = if is_remote { &["command", "args", "env"][..] } else { &["headers"][..] };
    for key in wrong {
        if let Some(here) = fields.find(key) {
            let (kind, has) =
                if is_remote { ("that agentsh starts", "url") } else { ("behind a `url`", "command") };
            let text = format!("`{key}` is for a server {kind}, and this one has a `{has}`");
            reader.problem(&here, text, None);
        }
    }
    let needed = |reader: &mut Reader<'_>, key: &str| match fields.find(key) {
        Some(value) => reader.text(&value),
        None => reader.fault(here, format!("a server needs `{key}`"), None),
    };
    let id = needed(reader, "id");
    let command = if is_remote { None } else { needed(reader, "command") };
    if let (Some(id), Some(value)) = (&id, fields.find("id")) {
        judge_id(reader, &value, id);
    }
    let args = reader.list(fields.find("args"), Reader::any_text);
    let mut env = BTreeMap::new();
    if let Some(here) = fields.find("env")
        && let Some(names) = reader.names(&here)
    {
        for (name, value) in names.all() {
            if name.is_empty() || name.contains(['=', '\0']) {
                reader.problem(&value, format!("`{}` is not the name of a variable", printable(name)), None);
            }
            if let Some(text) = reader.any_text(&value) {
                env.insert(name.to_owned(), text);
            }
        }
    }
    let args = args.map(|list| list.value.into_iter().map(|entry| entry.value).collect());
    if let Some(here) = fields.find("url") {
        let text = reader.text(&here)?;
        let url = reader.ruled(&here, text);
        judge_url(reader, &url);
        let headers = fields.find("headers").and_then(|here| headers(reader, &here));
        let headers = headers.map(|headers| headers.value).unwrap_or_default();
        return Some(ProxyServer { id: id?, way: ServerTransport::Url { url: url.value, headers } });
    }
    Some(ProxyServer {
        id: id?,
        way: ServerTransport::Command { command: command?, args: args.unwrap_or_default(), env },
    })
}

fn judge_id(reader: &mut Reader<'_>, here: &Here<'_>, id: &str) {
    let is_fine = id.len() <= 64
        && id.starts_with(|first: char| first.is_ascii_lowercase())
        && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte));
    if !is_fine {
        let shown: String = printable(id).chars().take(64).collect();
        reader.problem(here, format!("`{shown}` is not a server id"), "an id starts with a small letter and goes on with small letters, digits, `-` and `_`, at most 64");
    } else if colliding(id, RESERVED) {
        let help = format!("`{RESERVED}__get_report` is a tool of the proxy itself; use another id");
        reader.problem(here, format!("the id `{id}` is reserved"), help);
    }
}

fn judge_ids(reader: &mut Reader<'_>, servers: &[Ruled<ProxyServer>]) {
    if servers.is_empty() {
        return;
    }
    for (index, server) in servers.iter().enumerate() {
        let id = &server.value.id;
        let mut earlier = servers.iter().take(index);
        let Some(other) = earlier.find(|other| colliding(&other.value.id, id)) else { continue };
        let other = &other.value.id;
        let (message, help) = if other == id {
            (format!("two servers have the id `{id}`"), "give every server an id of its own".to_owned())
        } else {
            let message =
                format!("the ids `{other}` and `{id}` cannot be told apart in names such as `{id}__tool`");
            (
                message,
                format!(
                    "use ids of which none begins with another one and `_`, such as `{}`",
                    id.replace("__", "-").trim_end_matches('_')
                ),
            )
        };
        reader.problem_of_rule(&server.rule, message, help);
    }
}

/// Whether a name `{id}__tool` of one server could be read as a name of the other one.
#[must_use]
pub fn colliding(left: &str, right: &str) -> bool {
    let (left, right) = (format!("{left}__"), format!("{right}__"));
    left.starts_with(&right) || right.starts_with(&left)
}

/// `{id}__{tool}`, the beginning of such names and `*`, or `*` alone.
fn tool(reader: &mut Reader<'_>, here: &Here<'_>, ids: &[String]) -> Option<Vec<ToolRule>> {
    let written = reader.text(here)?;
    let (start, open) = written.strip_suffix('*').map_or((written.as_str(), false), |start| (start, true));
    if start.contains(['*', '?']) {
        let help = "`*` must be alone or at the end: `files__*`, `files__read_*`, `*`";
        return reader.fault(here, "this name has a wildcard in the middle", help);
    }
    let mut rules = Vec::new();
    for id in ids {
        let prefix = format!("{id}__");
        let rule = |tool: String| ToolRule { server: id.clone(), tool, content_hash: None };
        if open && prefix.starts_with(start) {
            rules.push(rule("*".to_owned()));
        } else if let Some(rest) = start.strip_prefix(prefix.as_str()) {
            rules.push(rule(if open { format!("{rest}*") } else { rest.to_owned() }));
        }
    }
    // A list of the proxy's own tools alone names no tool of a server, and is not empty: all of those are refused.
    if let Some(own) = own_tool(start) {
        rules.push(ToolRule { server: RESERVED.to_owned(), tool: own.to_owned(), content_hash: None });
    }
    if rules.is_empty() {
        let known: Vec<String> = ids.iter().map(|id| format!("{id}__*")).collect();
        let help = format!("the names of tools here begin with {}", known.join(", ").replace('*', ""));
        let shown: String = written.chars().take(64).collect();
        reader.problem(here, format!("`{shown}` is not a tool of any server here"), help);
    }
    Some(rules)
}

/// The proxy's own tools are always there.
fn own_tool(name: &str) -> Option<&str> {
    name.strip_prefix(RESERVED)?.strip_prefix("__")
}

fn flatten(lists: Vec<Ruled<Vec<ToolRule>>>) -> Vec<Ruled<ToolRule>> {
    let each = |Ruled { value, rule }: Ruled<Vec<ToolRule>>| {
        value.into_iter().map(move |tool| Ruled { value: tool, rule: rule.clone() })
    };
    lists.into_iter().flat_map(each).collect()
}

fn auditor(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<Auditor> {
    let keys = ["provider", "model", "api_key_env", "timeout_ms", "base_url"];
    let fields = reader.fields(here, &keys)?;
    for key in ["provider", "model"] {
        if fields.find(key).is_none() {
            reader.problem(here, format!("an auditor needs `{key}`"), None);
        }
    }
    let providers =
        [("anthropic", Provider::Anthropic), ("openai", Provider::OpenAi), ("google", Provider::Google)];
    let provider = reader.word(fields.find("provider"), &providers);
    let model = fields.find("model").and_then(|value| reader.text(&value));
    let api_key_env = fields.find("api_key_env").and_then(|value| reader.text(&value));
    let timeout_ms = reader.number(fields.find("timeout_ms"), 100, 600_000);
    let base_url = fields.find("base_url").and_then(|value| {
        let text = reader.text(&value)?;
        if !text.starts_with("https://") && !text.starts_with("http://")
            || text.contains(['?', '#', ' ', '@'])
        {
            let help = "write `https://host/v1`, or `http://127.0.0.1:8080/v1` for a model on this machine";
            reader.problem(&value, "this is not the address of a model's API", help);
        }
        Some(text.trim_end_matches('/').to_owned())
    });
    if api_key_env.is_none() && base_url.is_none() && fields.find("api_key_env").is_none() {
        let help = "`api_key_env` names the variable that holds the key, such as `ANTHROPIC_API_KEY`";
        reader.problem(here, "an auditor needs `api_key_env`", help);
    }
    Some(Auditor {
        provider: provider?.value,
        model: model?,
        api_key_env,
        timeout_ms: timeout_ms.map_or(AUDITOR_TIMEOUT_MS, |number| number.value),
        base_url,
    })
}

fn judge_auditors(reader: &mut Reader<'_>, auditors: &Listed<Auditor>) {
    match auditors.value.as_slice() {
        [] => {}
        [first, second] => {
            if first.value.provider == second.value.provider && first.value.base_url == second.value.base_url
            {
                let text = "both auditors are of the same provider: what fools one of them fools the other";
                reader.warn(auditors.rule.clone(), text);
            }
        }
        others => {
            let message = format!("there must be two auditors, or none; here {} can be used", others.len());
            let help = "name two of different providers, or remove `auditors`";
            reader.problem_of_rule(&auditors.rule, message, help);
        }
    }
}
