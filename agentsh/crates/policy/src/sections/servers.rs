//! `servers`: settings of one server, and how it is started.

use super::exfiltration::FLOW;
use super::flow;
use super::prelude::*;
use super::telemetry::is_header;
use crate::limits::limits_for_server;
use crate::model::{DataSink, DataSource, ServerPolicy};
use crate::narrow;
use crate::sections::RawProcess;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Servers {
    pub entries: Vec<(ServerId, Server)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    pub rule: RuleRef,
    pub command: Option<Ruled<String>>,
    pub args: One<Vec<String>>,
    pub url: Option<Ruled<String>>,
    pub headers: Option<Ruled<BTreeMap<String, String>>>,
    pub env: Option<Ruled<BTreeMap<String, String>>>,
    /// True: `install_scripts: allow`.
    pub install_scripts: Option<Ruled<bool>>,
    pub source: Option<Ruled<DataSource>>,
    pub sink: Option<Ruled<DataSink>>,
    pub process: RawProcess,
    /// Keys that are not implemented yet.
    pub later: Vec<RuleRef>,
}

/// `install_scripts`: whether what a package wants to run at its installation may run.
pub const SCRIPTS: [(&str, bool); 2] = [("allow", true), ("deny", false)];

const SERVER: &[Key] = keys! {
    /// The name under which the server is configured.
    "id": Kind::Text, default: "required";
    /// How it is reached.
    "type": Kind::Word(&["stdio", "http", "sse"]), default: "stdio";
    /// The program; without it the entry only adds to what the client declares.
    "command": Kind::Text, default: "what the client's configuration says",
        merge: "the highest layer that writes it decides, with its `args`";
    /// Its arguments.
    "args": Kind::Whole(&Kind::Text), default: "none";
    /// Its URL, instead of a `command`: `https:`, or `http:` on this machine. The session connects to it, not a
    /// sandbox.
    "url": Kind::Text, default: "none", merge: "the highest layer that writes it, or a `command`, decides";
    /// Sent to its `url` with every request. `${NAME}` is a variable of your environment, which the session fills in:
    /// no sandbox sees it.
    "headers": Kind::Names(&Kind::Text), default: "none",
        merge: "merged key by key; a layer that sets a `url` starts from nothing";
    /// Fingerprint of its certificate. This version does not enforce it.
    "tls_fingerprint": Kind::Text, default: "none";
    /// Variables that are set for it.
    "env": Kind::Names(&Kind::Either(&[Kind::Text, Kind::Number(0, u64::MAX), Kind::Flag])), default: "none";
    /// Whether scripts of its packages may run when they are fetched.
    "install_scripts": Kind::Word(&["allow", "deny"]), default: "what its profile says, else deny";
    /// Labels for its data.
    "flow": Kind::Map(FLOW);
};

impl Section<McpPolicy> for Servers {
    const KEYS: &'static [Key] = keys! {
        /// Your own servers, and settings for servers that the client declares.
        "servers": Kind::Whole(&Kind::Process(SERVER)), default: "none", merge: "by `id`, key by key",
            example: "[{id: github, env_allow: [GITHUB_TOKEN], network: {allow: [uploads.github.com]}}]";
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let mut entries: Vec<(ServerId, Server)> = Vec::new();
        let read = reader.list(fields.find("servers"), server).map(|list| list.value).unwrap_or_default();
        for Ruled { value: (id, server), rule } in read {
            if let Some((_, first)) = entries.iter().find(|(known, _)| *known == id) {
                let help = format!("the first one is in line {}", first.rule.line);
                reader.problem_of_rule(&rule, format!("there are two servers `{id}`"), help);
                continue;
            }
            entries.push((id, server));
        }
        Self { entries }
    }

    fn merge(&self, below: &mut McpPolicy) {
        for (id, own) in &self.entries {
            let slot = below.servers.entry(id.clone()).or_insert_with(|| ServerPolicy::new(&own.rule));
            if let Some(url) = &own.url {
                slot.url = Some(url.clone());
                // Headers for one URL are not sent to another.
                slot.headers.clear();
                (slot.command, slot.args) = (None, Vec::new());
                slot.rule = own.rule.clone();
            }
            slot.headers.extend(own.headers.iter().flat_map(|headers| headers.value.clone()));
            if let Some(command) = &own.command {
                slot.url = None;
                slot.command = Some(command.value.clone());
                slot.args = own.args.iter().flat_map(|args| args.value.clone()).collect();
                slot.rule = own.rule.clone();
            }
            slot.env.extend(own.env.iter().flat_map(|env| env.value.clone()));
            merge_keys!(own => slot; install_scripts, source, sink);
            own.process.merge(&mut slot.process);
            slot.own.push(own.process.clone());
            below.not_enforced.extend(own.later.iter().cloned());
        }
    }

    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        if !self.entries.is_empty() {
            narrowing.profiles = crate::profile::builtin_all().map(|profile| profile.process).collect();
        }
        for (id, own) in &self.entries {
            refuse_gifts(id, own, narrowing);
            let slot = base.servers.entry(id.clone()).or_insert_with(|| ServerPolicy::new(&own.rule));
            narrowing.possible = narrowing.profiles.iter().map(|profile| slot.over(profile)).collect();
            narrowing.limits = limits_for_server();
            merge_keys!(own => slot; install_scripts, source, sink);
            slot.narrowing.push(own.process.clone());
            own.process.narrow(&mut slot.process, narrowing);
            narrowing.possible.clear();
            base.not_enforced.extend(own.later.iter().cloned());
        }
    }

    fn describe(policy: &McpPolicy, _: &str, lines: &mut Lines) {
        for (id, server) in &policy.servers {
            let name = format!("servers.{id}");
            if let Some(command) = &server.command {
                let whole = [std::slice::from_ref(command), &server.args].concat().join(" ");
                lines.add(&format!("{name}.command"), whole, &server.rule);
            }
            lines.list(&format!("{name}.url"), &server.url, Clone::clone);
            for header in server.headers.keys() {
                lines.add(&format!("{name}.headers"), header, &server.rule);
            }
            for variable in server.env.keys() {
                lines.add(&format!("{name}.env"), variable, &server.rule);
            }
            let word = |allowed: &bool| if *allowed { "allow" } else { "deny" };
            lines.list(&format!("{name}.install_scripts"), &server.install_scripts, word);
            lines.list(&format!("{name}.flow.source"), &server.source, |source| source.as_str());
            let word = |sink: &DataSink| if *sink == DataSink::Local { "local" } else { "external" };
            lines.list(&format!("{name}.flow.sink"), &server.sink, word);
            lines.limits = limits_for_server();
            server.process.describe(&name, lines);
        }
    }

    fn warn(policy: &McpPolicy, warnings: &mut Vec<Ruled<String>>) {
        policy.servers.values().for_each(|server| server.process.warn(warnings));
        for (id, server) in policy.servers.iter().filter(|(_, server)| server.url.is_none()) {
            if !server.headers.is_empty() {
                let value = format!("`headers` of server `{id}` are sent nowhere: its entry has no `url`");
                warnings.push(Ruled { value, rule: server.rule.clone() });
            }
        }
    }
}

/// Keys of a server that a project cannot set.
fn refuse_gifts(id: &ServerId, own: &Server, narrowing: &mut Narrowing<'_>) {
    if let Some(rule) = rules_of!(own; command, args, url).next() {
        let message = format!("a policy inside the project cannot say how server `{id}` is started");
        narrowing.refuse(rule, message);
    }
    let message = format!("a policy inside the project cannot say what server `{id}` is sent");
    narrowing.refuse_all(rules_of!(own; headers), &message);
    let message = format!("a policy inside the project cannot set variables of server `{id}`");
    narrowing.refuse_all(rules_of!(own; env), &message);
    let message = "a policy inside the project cannot let a package run its scripts";
    narrowing.refuse_if(&own.install_scripts, |allowed| *allowed, message);
    let message = "a policy inside the project cannot vouch for a server";
    narrowing.refuse_if(&own.source, |source| *source != DataSource::Private, message);
    narrowing.refuse_if(&own.sink, |sink| *sink == DataSink::Local, message);
}

impl ServerPolicy {
    fn new(rule: &RuleRef) -> Self {
        Self {
            rule: rule.clone(),
            command: None,
            args: Vec::new(),
            url: None,
            headers: BTreeMap::new(),
            env: BTreeMap::new(),
            install_scripts: None,
            source: None,
            sink: None,
            process: ProcessPolicy::server_default(),
            own: Vec::new(),
            narrowing: Vec::new(),
        }
    }

    /// The layers' entries merged over a profile, and narrowed by the layers that only restrict.
    pub(crate) fn over(&self, profile: &ProcessPolicy) -> ProcessPolicy {
        let mut process = profile.clone();
        self.own.iter().for_each(|own| own.merge(&mut process));
        self.narrowing.iter().for_each(|raw| narrow::intersect(&mut process, raw));
        process
    }

    /// Whether a policy wrote the whole list, such as `network.allow`, so that nothing else belongs to it.
    #[must_use]
    pub fn is_whole(&self, key: &str) -> bool {
        self.own.iter().any(|own| own.written(true).contains(&key))
            || self.narrowing.iter().any(|narrowing| narrowing.written(false).contains(&key))
    }
}

impl RawProcess {
    /// The lists that are written; with `only_replacing`, those that replace the lists below.
    fn written(&self, only_replacing: bool) -> Vec<&'static str> {
        fn is_there<T: Clone>(list: &Entries<T>, only_replacing: bool) -> bool {
            list.is_written() && (list.replaces() || !only_replacing)
        }
        let keys = [
            ("network.allow", is_there(&self.network.allow, only_replacing)),
            ("network.loopback", is_there(&self.network.loopback, only_replacing)),
            ("filesystem.write", is_there(&self.filesystem.write, only_replacing)),
        ];
        keys.into_iter().filter(|(_, is_there)| *is_there).map(|(key, _)| key).collect()
    }
}

fn server(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<(ServerId, Server)> {
    let fields = reader.known(here, &Kind::Process(SERVER).keys())?;
    let Some(id) = fields.find("id") else {
        return reader.fault(here, "this server has no id", "add `id: NAME`");
    };
    let id_text = reader.text(&id);
    if let Some(text) = &id_text
        && text.contains(['*', '?', '/'])
    {
        let help = "patterns belong in `allowed_servers` and `denied_servers`";
        reader.problem(&id, "a server has one plain name", help);
    }
    let command = reader.one(fields.find("command"), Reader::text);
    let url = reader.one(fields.find("url"), Reader::text);
    if let Some(url) = &url {
        judge_url(reader, url);
    }
    let headers = fields.find("headers").and_then(|here| headers(reader, &here));
    if let (Some(headers), Some(_)) = (&headers, &command) {
        let help = "variables of a command belong in `env`";
        let message = "`headers` is for a server with a `url`, and this server has a `command`";
        reader.problem_of_rule(&headers.rule, message, help);
    }
    let args = reader.whole(fields.find("args"), Reader::any_text);
    let transport = reader.word(fields.find("type"), &[("stdio", false), ("http", true), ("sse", true)]);
    if let (Some(_), Some(url)) = (&command, &url) {
        reader.problem_of_rule(&url.rule, "a server has a command or a url, not both", None);
    }
    if let (Some(transport), Some(command)) = (&transport, &command)
        && transport.value
    {
        let message = "the transport of a server with a command is `stdio`";
        reader.problem_of_rule(&command.rule, message, "remove `type`");
    }
    if let (Some(transport), Some(url)) = (&transport, &url)
        && !transport.value
    {
        let message = "the transport of a server with a url is not `stdio`";
        reader.problem_of_rule(&url.rule, message, "remove `type`");
    }
    if let (None, Some(args)) = (&command, &args) {
        reader.problem_of_rule(&args.rule, "arguments without a command", "add `command:`");
    }
    let env = fields.find("env").and_then(|here| environment(reader, &here));
    let mut later = Vec::new();
    if let Some(here) = fields.find("tls_fingerprint") {
        reader.text(&here);
        later.push(reader.rule(&here));
    }
    let install_scripts = reader.word(fields.find("install_scripts"), &SCRIPTS);
    let (source, sink) = flow(reader, fields.find("flow"));
    let process = RawProcess::read(reader, &fields);
    let rule = reader.rule(here);
    let server =
        Server { rule, command, args, url, headers, env, install_scripts, source, sink, process, later };
    Some((ServerId(id_text?), server))
}

/// Checks the URL as far as possible without a request.
pub fn judge_url(reader: &mut Reader<'_>, url: &Ruled<String>) {
    let rest = url.value.strip_prefix("https://").or_else(|| url.value.strip_prefix("http://"));
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    if host.is_none_or(|host| host.is_empty() || host.contains('@'))
        || url.value.contains(char::is_whitespace)
    {
        let help = "write `https://mcp.example.com/mcp`; a secret belongs in `headers`, as `${NAME}`";
        reader.problem_of_rule(&url.rule, "this is not the address of a server", help);
    }
}

/// Names and values of HTTP; the values may name variables.
pub fn headers(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<Ruled<BTreeMap<String, String>>> {
    let names = reader.names(here)?;
    let mut map = BTreeMap::new();
    for (name, entry) in names.all() {
        if !is_header(name) {
            reader.problem(&entry, "this is not the name of a header", None);
        }
        if let Some(text) = reader.any_text(&entry) {
            if text.contains(['\r', '\n', '\0']) {
                reader.problem(&entry, "a header is one line", None);
            }
            map.insert(name.to_owned(), text);
        }
    }
    Some(reader.ruled(here, map))
}

fn environment(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<Ruled<BTreeMap<String, String>>> {
    let names = reader.names(here)?;
    let mut map = BTreeMap::new();
    for (name, entry) in names.all() {
        if name.is_empty() || name.contains(['=', '\0']) {
            reader.problem(&entry, "this is not the name of a variable", None);
        }
        // A number or a truth value is what a person means by its letters.
        let text = match &entry.node.value {
            Value::Integer(value) => Some(value.to_string()),
            Value::Bool(value) => Some(value.to_string()),
            _ => reader.any_text(&entry),
        };
        if let Some(text) = text {
            map.insert(name.to_owned(), text);
        }
    }
    Some(reader.ruled(here, map))
}
