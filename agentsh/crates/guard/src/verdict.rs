//! A decision as a value, not a `bool`.

use std::time::Duration;

use crate::policy::GATEWAY;
use crate::types::RuleRef;
use agentsh_base::words;

words! {
    /// From the mildest to the strictest.
    #[derive(PartialOrd, Ord)]
    pub enum Outcome {
        Allow = "allow",
        /// Goes through, and is recorded as something that a stricter policy would refuse.
        Alert = "alert",
        /// Goes through with a part replaced.
        Rewrite = "rewrite",
        /// A person is asked; without an answer it is refused.
        Ask = "ask",
        Block = "block",
    }
}

words! {
    /// Why, as a stable code that scripts may match on.
    pub enum Reason: code {
        NoRule = "no-rule",
        ServerAllowed = "server-allowed",
        ServerDenied = "server-denied",
        ServerNotAllowlisted = "server-not-allowlisted",
        ToolAllowed = "tool-allowed",
        ToolDenied = "tool-denied",
        ToolNotAllowlisted = "tool-not-allowlisted",
        UnknownTool = "unknown-tool",
        RateLimited = "rate-limited",
        /// Data of another server's result is in the arguments.
        Tainted = "tainted-data",
        /// The arguments name a host that no rule allows.
        DestinationNotAllowed = "destination-not-allowed",
        /// A text of a server tries to give orders to the model.
        ContentSuspicious = "content-suspicious",
        /// A rule of the policy about what calls say.
        PolicyRule = "policy-rule",
        /// A person allowed it, now or by an earlier answer.
        Approved = "approved",
        /// A person refused it.
        ApprovalDenied = "approval-denied",
        /// No person answered in time.
        ApprovalTimedOut = "approval-timed-out",
        /// There is no person who could answer.
        NobodyToAsk = "nobody-to-ask",
        /// The server offers something other than what was trusted.
        InterfaceChanged = "interface-changed",
        /// The server offers something that was never trusted.
        InterfaceNotPinned = "interface-not-pinned",
        /// A known server offers an additional item.
        InterfaceAdded = "interface-added",
        /// The registry does not vouch for what a server offers.
        InterfaceNotVouched = "interface-not-vouched",
        /// A tool that no listing of its server showed.
        ToolNotListed = "tool-not-listed",
        /// Something in a text that a policy does not let pass, such as a secret.
        SecretFound = "secret-found",
        /// Invisible parts of a text were removed.
        TextCleaned = "text-cleaned",
        /// Servers may not ask for this at all.
        RequestNotAllowed = "request-not-allowed",
        /// Something private was read, and this call leaves.
        PrivateToExternal = "private-to-external",
        /// The name of a tool is that of another server's, or looks like it.
        ToolShadowed = "tool-shadowed",
        /// The name of a server is nearly that of another one.
        ServerNameSimilar = "server-name-similar",
        /// Something was read from another server shortly before it would be sent.
        ReadThenSend = "read-then-send",
        /// Like [`Reason::ReadThenSend`], for a tool that writes or processes data.
        CrossServerFlow = "cross-server-flow",
        /// More calls in a short time than the policy takes for honest work.
        Burst = "burst",
        /// A text could not be classified.
        NotClassified = "not-classified",
        /// A call or an answer that is not as it used to be.
        Unusual = "unusual",
        /// An auditor flagged the call.
        AuditFlagged = "audit-flagged",
        /// An auditor did not answer in time.
        AuditTimedOut = "audit-timed-out",
        /// An auditor could not be asked, or answered in no form that counts.
        AuditFailed = "audit-failed",
        /// The caller cancelled the call, or disconnected, before the auditors answered.
        AuditCancelled = "audit-cancelled",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Verdict {
    pub outcome: Outcome,
    pub reason: Reason,
    pub rule: RuleRef,
    /// With [`Reason::RateLimited`]: how long until the same call would pass. None: it never will.
    pub retry_after: Option<Duration>,
}

impl Verdict {
    /// A verdict that time does not change.
    pub fn new(outcome: Outcome, reason: Reason, rule: RuleRef) -> Self {
        Self { outcome, reason, rule, retry_after: None }
    }

    #[must_use]
    pub fn is_block(&self) -> bool {
        self.outcome == Outcome::Block
    }

    /// How the policy's author can allow it; empty if nothing was refused.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self.reason {
            Reason::NoRule | Reason::ServerAllowed | Reason::ToolAllowed | Reason::Approved => String::new(),
            Reason::ServerDenied
            | Reason::ServerNotAllowlisted
            | Reason::ToolDenied
            | Reason::ToolNotAllowlisted
            | Reason::SecretFound
            | Reason::RequestNotAllowed
                if self.rule.file.ends_with(".bundle") =>
            {
                "it is a rule of your organisation, which alone can change it".to_owned()
            }
            Reason::PolicyRule => "ask the user; only a change of this rule allows it".to_owned(),
            Reason::ApprovalDenied => "the user said no: do not try again".to_owned(),
            Reason::ApprovalTimedOut => {
                "nobody answered in time; tell the user, who can approve the next attempt with `agentsh approvals`".to_owned()
            }
            Reason::NobodyToAsk => {
                "tell the user: this session has no terminal; `approvals: {headless: wait}` in sandbox.mcp lets it wait for \
                 `agentsh approvals`, and an entry in `approved` allows it permanently"
                    .to_owned()
            }
            Reason::InterfaceChanged | Reason::InterfaceNotPinned | Reason::InterfaceAdded => {
                "tell the user, who can inspect it with `agentsh mcp pins diff` and accept it with `agentsh mcp pins trust`"
                    .to_owned()
            }
            Reason::InterfaceNotVouched => {
                "tell the user, who can inspect it with `agentsh registry verify`, accept it with `agentsh registry approvals` or `register`, or allow it with an alert by `interface: {enforce: false}`"
                    .to_owned()
            }
            Reason::PrivateToExternal => {
                "ask the user whether it may go there; to allow it, add one of these lines, and start again".to_owned()
            }
            Reason::ToolNotListed => {
                "use a tool that it lists; to allow others, set sandbox.mcp.version_pinning.unlisted to `alert`".to_owned()
            }
            Reason::SecretFound => {
                format!("to allow it, set {} to `audit`", self.rule.id)
            }
            Reason::TextCleaned => "to keep such text, set sandbox.mcp.content.sanitize to false".to_owned(),
            Reason::RequestNotAllowed => format!("to allow it, set {} to `allow`", self.rule.id),
            Reason::ServerDenied => "to allow it, remove the server from denied_servers".to_owned(),
            Reason::ServerNotAllowlisted => "to allow it, add the server to allowed_servers".to_owned(),
            Reason::ToolDenied => "to allow it, remove the tool from denied_tools".to_owned(),
            Reason::ToolNotAllowlisted => "to allow it, add the tool to allowed_tools".to_owned(),
            Reason::UnknownTool => {
                "with fail_closed a tool must have been listed by tools/list and be in allowed_tools"
                    .to_owned()
            }
            Reason::Tainted => {
                "ask the user whether it may go there; to allow it, add one of these lines, and start again; or leave the \
                 copied text out"
                    .to_owned()
            }
            Reason::DestinationNotAllowed => {
                format!("ask the user whether it may go there; to allow it, add the host to {}", self.rule.id)
            }
            Reason::ContentSuspicious => {
                if self.rule.file == GATEWAY {
                    return "no policy can allow this command here: remove it from the call".to_owned();
                }
                if self.rule.id.contains(".classifier") {
                    return "to allow it with an alert, set sandbox.mcp.classifier.action to `alert`".to_owned();
                }
                format!("to allow it with an alert, set {} to `alert`", self.rule.id)
            }
            Reason::ToolShadowed => "to allow it, remove one of the two servers, or set \
                                     cross_server.shadow_tool.enabled to false"
                .to_owned(),
            Reason::ServerNameSimilar => String::new(),
            Reason::ReadThenSend | Reason::CrossServerFlow => {
                let key = self.rule.id.rsplit('.').next().unwrap_or_default();
                format!(
                    "ask the user whether it may go there; to allow it, set cross_server.{key}.enabled to false"
                )
            }
            Reason::NotClassified => {
                "try again; to allow such texts, set sandbox.mcp.classifier.on_unavailable to `pass`".to_owned()
            }
            Reason::Unusual => {
                format!("ask the user; to allow it with an alert, set {} to `alert`", self.rule.id)
            }
            Reason::AuditFlagged => {
                "to allow it, remove what the auditor names, or change `auditors`"
                    .to_owned()
            }
            Reason::AuditCancelled => "call again, and wait for the answer".to_owned(),
            Reason::AuditTimedOut | Reason::AuditFailed => {
                "try again; to allow calls without a verdict, set audit_timeout_action to `allow`"
                    .to_owned()
            }
            Reason::RateLimited | Reason::Burst => self.retry_after.map_or_else(
                || "no further call is allowed".to_owned(),
                |wait| format!("try again in {:.1} s", (wait.as_secs_f64() * 10.0).ceil() / 10.0),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    const ALL: [Reason; 37] = [
        Reason::NoRule,
        Reason::ServerAllowed,
        Reason::ServerDenied,
        Reason::ServerNotAllowlisted,
        Reason::ToolAllowed,
        Reason::ToolDenied,
        Reason::ToolNotAllowlisted,
        Reason::UnknownTool,
        Reason::RateLimited,
        Reason::Tainted,
        Reason::DestinationNotAllowed,
        Reason::ContentSuspicious,
        Reason::PolicyRule,
        Reason::Approved,
        Reason::ApprovalDenied,
        Reason::ApprovalTimedOut,
        Reason::NobodyToAsk,
        Reason::InterfaceChanged,
        Reason::InterfaceNotPinned,
        Reason::InterfaceAdded,
        Reason::InterfaceNotVouched,
        Reason::ToolNotListed,
        Reason::SecretFound,
        Reason::TextCleaned,
        Reason::RequestNotAllowed,
        Reason::PrivateToExternal,
        Reason::ToolShadowed,
        Reason::ServerNameSimilar,
        Reason::ReadThenSend,
        Reason::CrossServerFlow,
        Reason::Burst,
        Reason::NotClassified,
        Reason::Unusual,
        Reason::AuditFlagged,
        Reason::AuditTimedOut,
        Reason::AuditFailed,
        Reason::AuditCancelled,
    ];

    /// Every text that ends a refusal, as it is read. AGENTSH_WRITE_REMEDIES=1 writes them anew.
    #[test]
    fn remedies_in_refusals_match_their_snapshot() {
        let rule = |reason: Reason| match reason {
            Reason::DestinationNotAllowed => {
                RuleRef::default_rule("sandbox.mcp.exfiltration.allowed_domains")
            }
            Reason::ContentSuspicious => RuleRef::default_rule("sandbox.mcp.content.results"),
            Reason::SecretFound => RuleRef::default_rule("sandbox.mcp.secrets.results"),
            Reason::ReadThenSend => RuleRef::default_rule("sandbox.mcp.cross_server.read_then_send"),
            Reason::CrossServerFlow => RuleRef::default_rule("sandbox.mcp.cross_server.cross_server_flow"),
            _ => RuleRef::default_rule("sandbox.mcp"),
        };
        let told: String = ALL
            .into_iter()
            .map(|reason| {
                let remedy = Verdict::new(Outcome::Block, reason, rule(reason)).remedy();
                format!("{}: {remedy}\n", reason.code())
            })
            .collect();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/remedies.txt");
        if std::env::var_os("AGENTSH_WRITE_REMEDIES").is_some() {
            std::fs::write(path, &told).unwrap();
        }
        assert_eq!(told, std::fs::read_to_string(path).unwrap());
    }
}
