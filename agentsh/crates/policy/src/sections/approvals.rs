//! `approvals`: how long a call waits for a person, and permanent approvals.

use std::time::Duration;

use super::prelude::*;
use super::telemetry::address;
use crate::table::Field;

/// How long a call waits unless a policy says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);
/// The longest wait that may be written, in milliseconds.
const MAX_WAIT_MS: u64 = 24 * 3_600_000;

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
        self.wait.as_ref().map_or(DEFAULT_TIMEOUT, |wait| Duration::from_millis(wait.value.min(MAX_WAIT_MS)))
    }

    /// Whether a call waits although the session has no terminal.
    #[must_use]
    pub fn waits_headless(&self) -> bool {
        in_force(&self.headless, false)
    }

    /// Whether questions also wait at the fleet server, where this host is enrolled.
    #[must_use]
    pub fn asks_the_fleet(&self) -> bool {
        in_force(&self.fleet, false)
    }
}

table! {
    /// The policy in force, each key with its place if it was written.
    struct ApprovalPolicy;

    /// How long a call waits for the answer of a person; then it is refused.
    pub wait: One<u64> = Kind::Duration, default: "5m", example: "2m";
    /// What happens to a question if the session has no terminal: it is refused at once, or waits for `agentsh
    /// approvals`.
    pub headless: One<bool> = Kind::Word(&["deny", "wait"]), default: "deny", example: "wait"
        => words HEADLESS;
    /// A URL that gets a signed POST for every question, and may answer it with a signed reply: `https:`, or `http:` on
    /// this machine. See docs/approvals.md.
    pub webhook: One<String> = Kind::Text, default: "none", example: "\"https://chat.example/ask\""
        => read address;
    /// Variable of the caller's environment whose value signs questions and replies (HMAC-SHA256).
    pub webhook_secret_env: One<String> = Kind::Text, default: "none: without it no webhook is asked",
        example: "ASK_SECRET" => read |reader, here| reader.variable(here, "write `webhook_secret_env: NAME`");
    /// Whether questions also wait at the fleet server of an enrolled host, where an approver may answer them: `agentsh
    /// approvals list --fleet URL`. See docs/fleet.md.
    pub fleet: One<bool> = Kind::Flag, default: "false", example: "true";
}

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

/// What one file writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Approvals {
    asking: ApprovalPolicy,
    approved: Entries<Approved>,
}

impl Section<McpPolicy> for Approvals {
    const KEYS: &'static [Key] = keys! {
        /// How a person is asked. See docs/approvals.md.
        "approvals": Kind::Map(ApprovalPolicy::TABLE), example: "{wait: 2m}";
        /// What a person approved permanently: exactly this is not asked about again. `agentsh approvals approve ID
        /// --always` writes it into `approved.yaml` next to the user's policy.
        "approved": Kind::List(&Kind::Map(APPROVED)), default: "empty",
            example: "[{server: github, tool: create_issue}]";
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let approved = Field::read(reader, fields.find("approved"), approved);
        Self { asking: Table::read_at(reader, fields.find("approvals")), approved }
    }

    fn merge(&self, below: &mut McpPolicy) {
        Table::merge(&self.asking, &mut below.approvals);
        Field::merge(&self.approved, &mut below.approved);
    }

    fn narrow(&self, _: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        narrowing.refuse_all(Table::rules(&self.asking), "only the user decides how questions are asked");
        narrowing.refuse_all(rules_of!(self; approved), "a project cannot answer for the user");
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        Table::describe(&policy.approvals, &format!("{name}.approvals"), lines);
        lines.list(&format!("{name}.approved"), &policy.approved, ToString::to_string);
    }
}

const HEADLESS: [(&str, bool); 2] = [("deny", false), ("wait", true)];

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
