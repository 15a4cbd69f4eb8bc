//! `approvals`: how long a call waits for a person, and permanent approvals.

use std::time::Duration;

use crate::describe::Lines;
use crate::keys::{Key, Kind, keys};
use crate::model::Ruled;
use crate::narrow::Narrowing;
use crate::reader::{Fields, Here, List, Reader};
use crate::section::{Section, merge_keys, merge_list, rules_of};
use crate::sections::McpPolicy;
use crate::sections::telemetry::address;

/// How long a call waits unless a policy says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);
/// The longest wait that may be written, in milliseconds.
const MAX_WAIT_MS: u64 = 24 * 3_600_000;

/// The policy in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApprovalPolicy {
    /// In milliseconds.
    pub wait_ms: Option<Ruled<u64>>,
    /// Wait even if no person seems to be there.
    pub headless: Option<Ruled<bool>>,
    /// An address that is asked, and may answer.
    pub webhook: Option<Ruled<String>>,
    /// The variable whose value signs questions and replies.
    pub webhook_secret_env: Option<Ruled<String>>,
    /// People of the fleet may answer too.
    pub fleet: Option<Ruled<bool>>,
    pub approved: Vec<Ruled<Approved>>,
}

/// One permanent approval. It applies to no other call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approved {
    pub server: String,
    pub tool: String,
    /// Data of this server may go to `server`, whatever the call is; None: the entry is about calls.
    pub from: Option<String>,
    /// Hash of the canonical arguments; None: any arguments.
    pub arguments: Option<String>,
    /// Hash of the tool's definition; None: any definition.
    pub interface: Option<String>,
}

impl ApprovalPolicy {
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.wait_ms
            .as_ref()
            .map_or(DEFAULT_TIMEOUT, |wait| Duration::from_millis(wait.value.min(MAX_WAIT_MS)))
    }

    /// Whether a call waits although the session has no terminal.
    #[must_use]
    pub fn waits_headless(&self) -> bool {
        self.headless.as_ref().is_some_and(|flag| flag.value)
    }

    /// Whether questions also wait at the fleet server, where this host is enrolled.
    #[must_use]
    pub fn asks_the_fleet(&self) -> bool {
        self.fleet.as_ref().is_some_and(|flag| flag.value)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Approvals {
    wait_ms: Option<Ruled<u64>>,
    headless: Option<Ruled<bool>>,
    webhook: Option<Ruled<String>>,
    webhook_secret_env: Option<Ruled<String>>,
    fleet: Option<Ruled<bool>>,
    approved: List<Approved>,
}

const APPROVALS: &[Key] = keys! {
    /// How long a call waits for the answer of a person; then it is refused.
    "wait": Kind::Duration, default: "5m", example: "2m";
    /// What happens to a question if the session has no terminal: it is refused at once, or waits for `agentsh
    /// approvals`.
    "headless": Kind::Word(&["deny", "wait"]), default: "deny", example: "wait";
    /// A URL that gets a signed POST for every question, and may answer it with a signed reply: `https:`, or `http:` on
    /// this machine. See docs/approvals.md.
    "webhook": Kind::Text, default: "none", example: "\"https://chat.example/ask\"";
    /// Variable of the caller's environment whose value signs questions and replies (HMAC-SHA256).
    "webhook_secret_env": Kind::Text, default: "none: without it no webhook is asked", example: "ASK_SECRET";
    /// Whether questions also wait at the fleet server of an enrolled host, where an approver may answer them: `agentsh
    /// approvals list --fleet URL`. See docs/fleet.md.
    "fleet": Kind::Flag, default: "false", example: "true";
};

const APPROVED: &[Key] = keys! {
    /// A server.
    "server": Kind::Text, default: "required";
    /// One of its tools, or a method.
    "tool": Kind::Text, default: "required";
    /// The server whose data may go to `server`.
    "from": Kind::Text, default: "none: the entry is about calls";
    /// Hash of the arguments, as `agentsh approvals show` prints it.
    "arguments": Kind::Text, default: "any";
    /// Hash of the tool's definition, as `agentsh mcp tools` prints it.
    "interface": Kind::Text, default: "any";
};

impl Section<McpPolicy> for Approvals {
    const KEYS: &'static [Key] = keys! {
        /// How a person is asked. See docs/approvals.md.
        "approvals": Kind::Map(APPROVALS), example: "{wait: 2m}";
        /// What a person approved permanently: exactly this is not asked about again. `agentsh approvals approve ID
        /// --always` writes it into `approved.yaml` next to the user's policy.
        "approved": Kind::List(&Kind::Map(APPROVED)), default: "empty",
            example: "[{server: github, tool: create_issue}]";
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let approved = reader.adding(fields.find("approved"), approved);
        let Some(fields) = reader.within(fields, "approvals", APPROVALS) else {
            return Self { approved, ..Self::default() };
        };
        Self {
            wait_ms: reader.duration(fields.find("wait")),
            headless: reader.word(fields.find("headless"), &[("deny", false), ("wait", true)]),
            webhook: reader.one(fields.find("webhook"), address),
            webhook_secret_env: reader.one(fields.find("webhook_secret_env"), |reader, here| {
                reader.variable(here, "write `webhook_secret_env: NAME`")
            }),
            fleet: reader.boolean(fields.find("fleet")),
            approved,
        }
    }

    fn merge(&self, below: &mut McpPolicy) {
        let below = &mut below.approvals;
        merge_keys!(self => below; wait_ms, headless, webhook, webhook_secret_env, fleet);
        merge_list(&self.approved, &mut below.approved);
    }

    fn narrow(&self, _: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let rules = rules_of!(self; wait_ms, headless, webhook, webhook_secret_env, fleet);
        narrowing.refuse_all(rules, "only the user decides how questions are asked");
        if let Some(list) = &self.approved {
            narrowing.refuse(&list.rule, "a project cannot answer for the user");
        }
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        let ApprovalPolicy { wait_ms, headless, webhook, webhook_secret_env, fleet, approved } =
            &policy.approvals;
        let key = |key: &str| format!("{name}.approvals.{key}");
        lines.list(&key("wait"), wait_ms, |wait| format!("{wait} ms"));
        lines.list(&key("headless"), headless, |waits| if *waits { "wait" } else { "deny" });
        lines.list(&key("webhook"), webhook, Clone::clone);
        lines.list(&key("webhook_secret_env"), webhook_secret_env, Clone::clone);
        lines.list(&key("fleet"), fleet, ToString::to_string);
        lines.list(&format!("{name}.approved"), approved, ToString::to_string);
    }
}

impl std::fmt::Display for Approved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.server, self.tool)?;
        if let Some(from) = &self.from {
            write!(f, ", what '{from}' said")?;
        }
        if let Some(hash) = &self.arguments {
            write!(f, ", arguments {hash}")?;
        }
        if let Some(hash) = &self.interface {
            write!(f, ", interface {hash}")?;
        }
        Ok(())
    }
}

fn approved(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<Approved> {
    let fields = reader.map(here, APPROVED)?;
    let mut text = |name: &str| fields.find(name).and_then(|here| reader.text(&here));
    let (server, tool, from) = (text("server"), text("tool"), text("from"));
    let (arguments, interface) = (text("arguments"), text("interface"));
    let (Some(server), Some(tool)) = (server, tool) else {
        return reader.fault(here, "this entry needs a `server` and a `tool`", None);
    };
    Some(Approved { server, tool, from, arguments, interface })
}
