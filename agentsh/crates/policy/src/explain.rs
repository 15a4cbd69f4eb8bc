//! Explains a policy: is this allowed, by which rule, and which line would change it. Pure: it does not read the disk,
//! so links are not followed.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};
use std::path::Path;

use super::builtin_paths::{
    HOME_MASKS, HOME_READ_ONLY, MACHINE, NESTED_READ_ONLY, PRIVATE, PROJECT_READ_ONLY, SYSTEM_READ, Tier,
};
use super::domain::{self, Host};
use super::mcp::{AGENT, Definition, Tool};
use super::model::{NetworkPolicy, Question, Ruled};
use super::path::{self, PathContext};
use super::profile::ServerProfile;
use super::sections::filesystem::FilesystemPolicy;
use super::sections::{Policy, ProcessPolicy};
use crate::texts::texts;
use crate::types::{RuleRef, ServerId};
use agentsh_base::remedy;

/// A policy's answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub allow: bool,
    pub rule: RuleRef,
    /// Why, as a clause that fits after "allowed: " or "denied: ".
    pub text: String,
    /// A piece of policy that turns the answer round, when there is one.
    pub change: Option<String>,
}

impl Display for Answer {
    /// For people: what, by which rule, and the command or the line that turns it round.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", if self.allow { "allowed" } else { "denied" }, self.text)?;
        writeln!(f, "  rule: {}", self.rule)?;
        let verb = if self.allow { "to deny it" } else { "to allow it" };
        let change = self.change.as_deref().filter(|_| !self.allow).and_then(remedy::parse);
        let command = change.and_then(|allow| allow.against(&self.rule).line());
        match (&self.change, command) {
            (_, Some(command)) => writeln!(f, "  {verb}: {command}"),
            (Some(change), None) => writeln!(f, "  {verb}, add: {change}"),
            (None, _) if self.rule.file.starts_with("built-in:") => {
                writeln!(f, "  {verb}, replace its list in your own policy: `{{replace: [...]}}`")
            }
            (None, _) if self.rule.line > 0 => {
                writeln!(f, "  {verb}, remove line {} of {}", self.rule.line, self.rule.file)
            }
            (None, _) => Ok(()),
        }
    }
}

impl Policy {
    /// Whether the agent (`from` is None) or a server may do something.
    #[must_use]
    pub fn ask(&self, from: Option<&ServerId>, question: &Question, context: &PathContext) -> Answer {
        self.ask_with(from, None, question, context)
    }

    /// Like [`Policy::ask`], for a server whose package has a profile.
    #[must_use]
    pub fn ask_with(
        &self,
        from: Option<&ServerId>,
        profile: Option<&ServerProfile>,
        question: &Question,
        context: &PathContext,
    ) -> Answer {
        if let Question::Tool(tool) = question {
            return self.ask_tool(from, tool);
        }
        let of_server;
        let (process, asker) = match from {
            None => (&self.agent, Asker { server: None }),
            Some(id) => {
                let listed = self.mcp.server_listed(id);
                if !listed.allow && listed.enforced {
                    let text = format!("server `{id}` is not started: {}", listed.reason.text());
                    return denied(listed.rule, text);
                }
                of_server = self.mcp.process_of(id, profile);
                (&of_server, Asker { server: Some(id) })
            }
        };
        match question {
            Question::Connect(host, port) if from.is_none() => {
                let mut rules = process.network.clone();
                let credentials = self.agent_only.credentials.iter();
                credentials
                    .filter_map(|credential| credential.value.host_rule(&credential.rule))
                    .for_each(|host| rules.insert(host));
                connect(&rules, &asker, host, *port)
            }
            Question::Connect(host, port) => connect(&process.network, &asker, host, *port),
            Question::Read(text) => file(&process.filesystem, &asker, text, Access::Read, context),
            Question::Write(text) => file(&process.filesystem, &asker, text, Access::Write, context),
            Question::Exec(text) => exec(process, &asker, text, context),
            Question::Env(name) => {
                let state = profile.and_then(|profile| profile.state.as_ref());
                match state.filter(|state| state.value.env.contains_key(name)) {
                    Some(state) => allowed(state.rule.clone(), "the profile sets it"),
                    None => env(self, process, &asker, name),
                }
            }
            Question::Tool(_) => self.ask_tool(from, ""),
        }
    }

    fn ask_tool(&self, from: Option<&ServerId>, tool: &str) -> Answer {
        let Some(server) = from else {
            let rule = RuleRef::default_rule("sandbox.mcp.tool_policy");
            return denied(rule, "a tool belongs to a server");
        };
        let asked = Tool { server, name: tool, definition: Definition::Any, listed: true };
        let listed = self.mcp.tool_listed(asked);
        let why = listed.reason.text();
        let entry = format!("{{server: {server:?}, tool: {tool:?}}}", server = server.0);
        let change = |key: &str| Some(format!("sandbox: {{mcp: {{{key}: [{entry}]}}}}"));
        match (listed.allow, listed.enforced) {
            (true, _) => {
                let change = change("tool_policy: denylist, denied_tools");
                Answer { allow: true, rule: listed.rule, text: why.to_owned(), change }
            }
            (false, true) => {
                let by_tools = self.mcp.server_listed(server).allow;
                let change = match (listed.rule.id.contains("denied_"), by_tools) {
                    (true, _) => None,
                    (false, true) => change("allowed_tools"),
                    (false, false) => {
                        Some(format!("sandbox: {{mcp: {{allowed_servers: [{{id: {:?}}}]}}}}", server.0))
                    }
                };
                Answer { allow: false, rule: listed.rule, text: why.to_owned(), change }
            }
            (false, false) => {
                let text = format!("{why}, but the lists are not enforced: an alert is recorded");
                let change = Some("sandbox: {mcp: {enforce_policy: true}}".to_owned());
                Answer { allow: true, rule: listed.rule, text, change }
            }
        }
    }
}

/// The subject of the question, to name where a rule would be.
struct Asker<'a> {
    server: Option<&'a ServerId>,
}

impl Asker<'_> {
    fn section(&self) -> &'static str {
        if self.server.is_some() { "sandbox.mcp.servers" } else { "agent" }
    }

    fn default_rule(&self, key: &str) -> RuleRef {
        RuleRef::default_rule(&format!("{}.{key}", self.section()))
    }

    /// The policy line that adds `text` to the rights of this process.
    fn line(&self, text: &str) -> Option<String> {
        Some(match self.server {
            None => format!("agent: {{{text}}}"),
            Some(id) => format!("sandbox: {{mcp: {{servers: [{{id: {:?}, {text}}}]}}}}", id.0),
        })
    }
}

/// Whether these rules of the agent (`from` is None) or of a server let a connection out.
#[must_use]
pub fn ask_connect(network: &NetworkPolicy, from: Option<&ServerId>, host: &str, port: u16) -> Answer {
    connect(network, &Asker { server: from }, host, port)
}

/// Whether these rules of the agent let a file be read or written. Of other questions: no.
#[must_use]
pub fn ask_file(files: &FilesystemPolicy, question: &Question, context: &PathContext) -> Answer {
    let asker = Asker { server: None };
    match question {
        Question::Read(text) => file(files, &asker, text, Access::Read, context),
        Question::Write(text) => file(files, &asker, text, Access::Write, context),
        _ => denied(asker.default_rule("filesystem"), "it is not about a file"),
    }
}

/// Guarded without being in a table: the policy lifts it by its absolute path.
#[must_use]
pub fn named_read_only(from: Option<&ServerId>, place: &Path, why: &str) -> Answer {
    let (asker, place) = (Asker { server: from }, place.display().to_string());
    Answer {
        allow: false,
        rule: RuleRef { id: "read-only:named".to_owned(), file: "built-in".to_owned(), line: 0 },
        change: asker.line(&format!("filesystem: {{unmask: [{place:?}]}}")),
        text: format!("`{place}` stays read-only: {why}"),
    }
}

/// The entry of `network.allow` for a host and a port; None if it is not a host.
#[must_use]
pub fn allow_entry(host: &str, port: u16) -> Option<String> {
    // This machine is opened by port alone.
    let shown = domain::parse_pattern(host).ok()?.to_string();
    Some(format!("{:?}", entry(shown, port)))
}

/// The policy line that names a tool of the agent itself, such as a search that the model's provider does.
#[must_use]
pub fn own_tool_entry(tool: &str) -> String {
    format!("sandbox: {{mcp: {{allowed_tools: [{{server: {AGENT:?}, tool: {tool:?}}}]}}}}")
}

/// The policy line that adds an entry to `network.allow`.
#[must_use]
pub fn allow_line(from: Option<&ServerId>, entry: &str) -> String {
    Asker { server: from }.line(&format!("network: {{allow: [{entry}]}}")).unwrap_or_default()
}

fn entry(shown: String, port: u16) -> String {
    match (domain::DEFAULT_PORTS.contains(&port), shown.contains(':')) {
        (true, _) => shown,
        (false, true) => format!("[{shown}]:{port}"),
        (false, false) => format!("{shown}:{port}"),
    }
}

fn connect(network: &NetworkPolicy, asker: &Asker<'_>, host: &str, port: u16) -> Answer {
    let normal = match domain::normalise(host) {
        Ok(normal) => normal,
        Err(error) => {
            return denied(asker.default_rule("network.allow"), error.to_string());
        }
    };
    if let Some(rule) = network.closed_by(&normal, port) {
        return denied(rule.clone(), "it is closed to every sandbox, and no rule can allow it");
    }
    if normal.is_local() {
        let open = network.loopback.iter().find(|open| open.value == port);
        return match open {
            Some(open) => allowed(open.rule.clone(), "this port of the machine is open"),
            None => Answer {
                change: asker.line(&format!("network: {{loopback: [{port}]}}")),
                ..denied(asker.default_rule("network.loopback"), "this port of the machine is not open")
            },
        };
    }
    let shown = match &normal {
        Host::Name(name) => name.clone(),
        Host::Address(address) => address.to_string(),
    };
    if let Some(rule) = network.rule_for(&normal, port) {
        return allowed(rule.rule.clone(), format!("`{}` covers it", rule.value));
    }
    let (rule, text) = match network.rule_for_host(&normal) {
        Some(near) => (near.rule.clone(), format!("`{}` does not name port {port}", near.value)),
        None => (asker.default_rule("network.allow"), format!("no rule names `{shown}`")),
    };
    let entry = entry(shown, port);
    Answer { allow: false, rule, text, change: asker.line(&format!("network: {{allow: [{entry:?}]}}")) }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// The order is that of the sandbox: masks win over everything, then `deny`, then read-only files, then grants.
fn file(
    rules: &FilesystemPolicy,
    asker: &Asker<'_>,
    text: &str,
    access: Access,
    context: &PathContext,
) -> Answer {
    let wanted = path::absolute(text, context);
    let covering = |list: &[Ruled<String>]| {
        list.iter().find(|entry| path::covers(&path::absolute(&entry.value, context), &wanted)).cloned()
    };
    let key = if access == Access::Read { "read" } else { "write" };
    let builtin = |id: &str| RuleRef { id: id.to_owned(), file: "built-in".to_owned(), line: 0 };
    let lifted = |guarded: &[Cow<'_, str>]| {
        rules.unmask.iter().any(|entry| {
            let entry = path::absolute(&entry.value, context);
            path::covers(guarded, &entry) && path::covers(&entry, &wanted)
        })
    };
    let guards_all = rules.guard.as_ref().is_some_and(|all| all.value);
    // A policy cannot say `..`.
    let climbs = text.split('/').any(|part| part == "..");
    let quoted = if climbs { path::show_here(&wanted, context) } else { path::show(&path::written(text)) };
    let write_grant = covering(&rules.write);
    let grant = match access {
        Access::Write => write_grant.clone(),
        Access::Read => write_grant.clone().or_else(|| covering(&rules.read)),
    };
    // A written list replaces the default, so it has to contain the default entries.
    let granting = {
        let in_force = if access == Access::Read { &rules.read } else { &rules.write };
        let defaults = in_force.iter().filter(|entry| entry.rule.line == 0).map(|entry| entry.value.as_str());
        format!("{key}: {:?}", defaults.chain([quoted.as_str()]).collect::<Vec<_>>())
    };
    let unmask = |what: &str| match &grant {
        Some(_) => asker.line(&format!("filesystem: {{unmask: [{what:?}]}}")),
        None => asker.line(&format!("filesystem: {{unmask: [{what:?}], {granting}}}")),
    };

    let home = path::absolute("~", context);
    for (name, why) in HOME_MASKS {
        if path::covers_below(&home, name, &wanted) && !lifted(&path::below(&home, name)) {
            let text = format!("`~/{name}` is never visible: {why}");
            return Answer { change: unmask(&quoted), ..denied(builtin(&format!("mask:~/{name}")), text) };
        }
    }
    if let Some(entry) = covering(&rules.deny) {
        return denied(entry.rule, format!("`{}` is denied", entry.value));
    }
    if access == Access::Write
        && write_grant.is_some()
        && let Some((name, why, guarded)) = read_only(&wanted, context, guards_all)
        && !is_unmasked(rules, &guarded, context)
    {
        let text = format!("`{name}` stays read-only: {why}");
        // It is one mount: no part of it can be made writable alone.
        let change = unmask(&path::show_here(&guarded, context));
        return Answer { change, ..denied(builtin(&format!("read-only:{name}")), text) };
    }
    let among = |table: &'static [&'static str]| {
        table.iter().copied().find(|entry| path::covers(&path::written(entry), &wanted))
    };
    let is_below = |top: &str| path::covers(&path::written(top), &wanted);
    if is_below("/dev") && among(PRIVATE).is_none() {
        let rule = asker.default_rule(&format!("filesystem.{key}"));
        return denied(rule, "every sandbox has its own `/dev`, without devices of this machine");
    }
    if let Some(entry) = grant {
        return allowed(entry.rule, format!("`{}` covers it", entry.value));
    }
    if is_below("/proc") && access == Access::Write {
        return denied(builtin("private"), "every sandbox has its own `/proc`, and it is read-only");
    }
    // A project or a home below `/tmp` is this machine's, not the sandbox's.
    let is_ours = [".", "~"].iter().any(|root| path::covers(&path::absolute(root, context), &wanted));
    if let Some(private) = among(PRIVATE).filter(|_| !is_ours) {
        let text = format!("every sandbox has its own `{private}`: nothing of this machine is touched");
        return allowed(builtin("private"), text);
    }
    let system = among(SYSTEM_READ).or_else(|| among(MACHINE));
    if let (Access::Read, Some(system)) = (access, &system) {
        return allowed(builtin("system_read"), format!("`{system}` is readable by everybody"));
    }
    let text = match (access, system, covering(&rules.read)) {
        (Access::Write, _, Some(entry)) => format!("`{}` is granted only for reading", entry.value),
        (Access::Write, Some(system), None) => format!("`{system}` is read-only"),
        _ => "nothing grants it".to_owned(),
    };
    let change = asker.line(&format!("filesystem: {{{granting}}}"));
    Answer { allow: false, rule: asker.default_rule(&format!("filesystem.{key}")), text, change }
}

/// Whether what is read-only is lifted: it is named itself. See `Builder::lifted` of the sandbox's layout.
fn is_unmasked(rules: &FilesystemPolicy, guarded: &[Cow<'_, str>], context: &PathContext) -> bool {
    rules.unmask.iter().any(|entry| path::absolute(&entry.value, context) == guarded)
}

/// The built-in read-only entry that a path falls under: its name, why, and where it is.
fn read_only<'t>(
    wanted: &[Cow<'t, str>],
    context: &'t PathContext,
    guards_all: bool,
) -> Option<(String, &'static str, path::Written<'t>)> {
    let (project, home) = (path::absolute(".", context), path::absolute("~", context));
    for entry in PROJECT_READ_ONLY.iter().filter(|entry| guards_all || entry.tier == Tier::Runs) {
        if entry.is_pattern() {
            if let Some(name) = wanted.get(project.len()).filter(|name| entry.matches(name))
                && wanted.starts_with(&project)
            {
                let place = wanted.get(..=project.len()).unwrap_or_default().to_vec();
                return Some((name.clone().into_owned(), entry.why, place));
            }
        } else if path::covers_below(&project, entry.path, wanted) {
            return Some((entry.path.to_owned(), entry.why, path::below(&project, entry.path)));
        }
    }
    for (entry, why) in HOME_READ_ONLY {
        if path::covers_below(&home, entry, wanted) {
            return Some((format!("~/{entry}"), why, path::below(&home, entry)));
        }
    }
    for (name, why) in NESTED_READ_ONLY {
        let parts: Vec<&str> = name.split('/').collect();
        let at = wanted.windows(parts.len()).position(|window| window == parts);
        if let Some(place) = at.and_then(|at| wanted.get(..at + parts.len())) {
            return Some(((*name).to_owned(), why, place.to_vec()));
        }
    }
    None
}

fn exec(process: &ProcessPolicy, asker: &Asker<'_>, text: &str, context: &PathContext) -> Answer {
    // A bare name is looked for where the system keeps its programs.
    let text = if text.contains('/') { text.to_owned() } else { format!("/usr/bin/{text}") };
    let visible = file(&process.filesystem, asker, &text, Access::Read, context);
    if !visible.allow {
        return Answer { text: format!("it cannot be read: {}", visible.text), ..visible };
    }
    if process.exec.allow.is_empty() {
        return allowed(asker.default_rule("exec.allow"), "every program that can be read may be executed");
    }
    let wanted = path::absolute(&text, context);
    let means = |entry: &&Ruled<String>| {
        // A pattern that starts with `**` is about the whole system, not about the project.
        let anchored =
            if entry.value.starts_with("**") { format!("/{}", entry.value) } else { entry.value.clone() };
        path::is(&path::absolute(&anchored, context), &wanted)
    };
    match process.exec.allow.iter().find(means) {
        Some(entry) => allowed(entry.rule.clone(), format!("`{}` names it", entry.value)),
        None => Answer {
            change: asker.line(&format!("exec: {{allow: [{:?}]}}", path::show(&wanted))),
            ..denied(asker.default_rule("exec.allow"), "no pattern of `exec.allow` names it")
        },
    }
}

fn env(policy: &Policy, process: &ProcessPolicy, asker: &Asker<'_>, name: &str) -> Answer {
    if let Some(server) = asker.server.and_then(|id| policy.mcp.servers.get(id))
        && server.env.contains_key(name)
    {
        return allowed(server.rule.clone(), "the server's own `env` sets it");
    }
    let decision = process.env.decide(name, asker.section());
    let is_changeable = !decision.pass && !process.env.never.iter().any(|never| never.rule == decision.rule);
    let change = if is_changeable { asker.line(&format!("env_allow: [{name:?}]")) } else { None };
    Answer { allow: decision.pass, rule: decision.rule, text: decision.why.to_owned(), change }
}

fn allowed(rule: RuleRef, text: impl Into<String>) -> Answer {
    Answer { allow: true, rule, text: text.into(), change: None }
}

fn denied(rule: RuleRef, text: impl Into<String>) -> Answer {
    Answer { allow: false, ..allowed(rule, text) }
}

/// Sockets of powerful services, which act for every client.
const POWERFUL_SOCKETS: &[&str] = texts! {
    "docker.sock" "podman.sock" "containerd.sock" "crio.sock" "buildkitd.sock" "libvirt-sock" "system_bus_socket"
    "snapd.socket"
};

/// A warning about the suggested permission. None if there is no risk.
#[must_use]
pub fn beware(question: &Question, context: &PathContext) -> Option<String> {
    let (text, writes) = match question {
        Question::Read(text) => (text, false),
        Question::Write(text) => (text, true),
        Question::Env(name) if crate::env::is_loader(name) => {
            return Some(format!("`{name}` decides what programs load: whoever sets it runs code in them"));
        }
        _ => return None,
    };
    let wanted = path::absolute(text, context);
    let name = wanted.last().map(|part| part.to_string()).unwrap_or_default();
    if POWERFUL_SOCKETS.contains(&name.as_str()) {
        return Some(format!(
            "a program that can talk to `{name}` can start programs outside every sandbox, with most of them as root: this gives away the whole machine"
        ));
    }
    let home = path::absolute("~", context);
    if let Some((name, why)) = HOME_MASKS.iter().find(|(name, _)| path::covers_below(&home, name, &wanted)) {
        return Some(format!(
            "`~/{name}` contains {why}: every program in the sandbox can use them, and send them wherever it may connect"
        ));
    }
    if writes && let Some((name, why, _)) = read_only(&wanted, context, true) {
        // A rule of the user's policy with a relative path holds in whatever project a session runs.
        let everywhere = if text.starts_with(['/', '~']) { "" } else { ", in every project" };
        return Some(format!(
            "what is written to `{name}` takes effect outside of the sandbox{everywhere}: {why}"
        ));
    }
    let is_root = wanted.len() == 1;
    let holds_home = home.strip_prefix(wanted.as_slice()).is_some();
    (is_root || holds_home).then(|| "this contains the whole home directory".to_owned())
}
