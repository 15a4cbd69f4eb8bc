//! Every event that agentsh records. The serialised form (`type` plus the fields, snake case) is what `--json`
//! prints and what the hash chain covers: fields may be added, never renamed.
//!
//! Values of environment variables and of secrets are never in an event.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::words::{
    Action, AdvisorySource, ApprovalScope, ApprovalWord, AuditVerdict, BundleState, ConnectionState,
    ExitCause, FileWord, ForgotReason, GuardChange, InterfaceWord, LayerState, LoginWord, ModelProvider,
    ReplacedReason, Sender, ServerType, Severity, ToolStatus,
};
use crate::types::{RuleRef, ServerId};

/// A secret, without its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SecretFound {
    /// The name in its tag: `EMAIL`.
    pub kind: String,
    /// JSON pointer to the string that contains it.
    pub pointer: String,
    /// HMAC-SHA256 with a key of the session that is not stored: equal values have equal hashes.
    pub hash: String,
}

/// An entry of a policy about files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FileGrant {
    /// As the policy writes it.
    pub path: String,
    pub word: FileWord,
    pub rule: RuleRef,
}

/// One policy file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PolicyLayer {
    /// The file, or `built-in:NAME`, or `command line`.
    pub file: String,
    /// `sha256:` of the text.
    pub hash: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// First event of a session.
    SessionStarted {
        version: String,
        /// `run`, `mcp run`, `demo`.
        verb: String,
        agent: Vec<String>,
        project: String,
        policy: String,
        kernel: String,
        /// uid that started agentsh.
        uid: u32,
        /// SHA-256 of the eBPF programs that this session loads into the kernel; None if it loads none. The enforcement
        /// report of each sandbox says whether the kernel accepted them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        network_programs: Option<String>,
        /// The policy files, if there are any.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        policy_layers: Vec<PolicyLayer>,
        /// The current commit of the project's repository, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        head: Option<String>,
    },
    /// Last event of a session that ended and was not killed.
    SessionEnded {
        exit_code: u8,
        duration_ms: u64,
        /// As in `session_started`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        head: Option<String>,
        /// Other commits of HEAD during the session, from git's log of HEAD.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        left: Vec<String>,
    },
    /// One layer of one sandbox: what was requested, and what the kernel enforces.
    Enforcement {
        /// None: the agent.
        server_id: Option<ServerId>,
        layer: String,
        asked: String,
        got: String,
        state: LayerState,
        /// Empty when enforced.
        why: String,
    },
    ProcessStarted {
        server_id: Option<ServerId>,
        /// Absolute path of the pinned program.
        program: String,
        args: Vec<String>,
        /// `sha256:` of the program's bytes.
        hash: String,
        pid: u32,
    },
    ProcessExited {
        server_id: Option<ServerId>,
        /// 128+n for signal n.
        exit_code: u8,
        cause: ExitCause,
    },
    /// Names of variables that were not passed on.
    McpServerEnvFiltered {
        server_id: Option<ServerId>,
        stripped_vars: Vec<String>,
        passed_count: usize,
    },
    McpServerBinaryMismatch {
        server_id: ServerId,
        binary_path: String,
        expected_hash: String,
        actual_hash: String,
        action: Action,
        /// The files that changed, at most 20.
        changed: Vec<String>,
    },
    McpServerBinaryNotPinned {
        server_id: ServerId,
        binary_path: String,
        actual_hash: String,
        action: Action,
    },
    McpServerBinaryPinned {
        server_id: ServerId,
        binary_path: String,
        hash: String,
        files: u64,
    },
    McpServerCrashed {
        server_id: ServerId,
        exit_code: u8,
        pending_calls: usize,
        restart_in_ms: u64,
    },
    McpToolSeen {
        server_id: ServerId,
        server_type: ServerType,
        tool_name: String,
        tool_hash: String,
        description: Option<String>,
        status: ToolStatus,
    },
    McpToolChanged {
        server_id: ServerId,
        tool_name: String,
        previous_hash: String,
        new_hash: String,
        /// The new one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
    },
    /// A registry was asked about a server's interface.
    McpInterfaceChecked {
        server_id: ServerId,
        /// The name that the server gives itself.
        name: String,
        /// The hash that `agentsh registry hash` prints; empty if there is none.
        hash: String,
        registry: String,
        verdict: InterfaceWord,
        detail: String,
    },
    McpToolsListChanged {
        server_id: ServerId,
    },
    McpToolCalled {
        server_id: ServerId,
        tool_name: String,
        /// As received.
        jsonrpc_id: Value,
        /// Redacted and bounded: see `store::redact`.
        input: Value,
    },
    McpToolCallIntercepted {
        server_id: ServerId,
        tool_name: String,
        jsonrpc_id: Value,
        tool_hash: Option<String>,
        action: Action,
        /// Stable code, see `guard::Reason`.
        reason: String,
        rule: RuleRef,
    },
    /// A call that the auditors checked.
    McpToolCallAudited {
        server_id: ServerId,
        tool_name: String,
        jsonrpc_id: Value,
        verdict: AuditVerdict,
        /// The auditor who decided; None: both gave the same verdict.
        by: Option<String>,
        action: Action,
        after_ms: u64,
    },
    /// A person is asked about a call, which waits.
    ApprovalRequested {
        approval: String,
        server_id: ServerId,
        /// The tool's name, or a method.
        name: String,
        arguments_hash: String,
        interface: Option<String>,
        rule: RuleRef,
        why: String,
    },
    /// The answer.
    ApprovalDecided {
        approval: String,
        server_id: ServerId,
        name: String,
        word: ApprovalWord,
        scope: Option<ApprovalScope>,
        /// Who answered, as uid and process; empty without an answer.
        by: String,
        after_ms: u64,
    },
    /// A message that was not forwarded.
    McpMessageRejected {
        server_id: ServerId,
        /// Who sent it.
        from: Sender,
        /// Stable code, such as `oversized-line`, `invalid-utf8`, `duplicate-key`, `batch`, `unasked-response`.
        reason: String,
        detail: String,
        bytes: u64,
    },
    /// A request that was not answered in time.
    McpRequestTimedOut {
        server_id: ServerId,
        method: String,
        jsonrpc_id: Value,
        after_ms: u64,
    },
    /// A call would have carried data of another server, or named a host that is not allowed. Never the value.
    McpExfilDetected {
        server_id: ServerId,
        tool_name: String,
        jsonrpc_id: Value,
        /// Stable code of the detector.
        detector: String,
        action: Action,
        severity: Severity,
        reason: String,
        rule: RuleRef,
        source_server: Option<ServerId>,
        source_tool: Option<String>,
        destination: Option<String>,
        /// Redacted.
        context: String,
        /// JSON pointer into the arguments.
        #[serde(default)]
        pointer: String,
        /// Decodings that led to it, outermost first.
        #[serde(default)]
        decoded: Vec<String>,
        /// The source, amount and destination of the data, as in the refusal.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        detail: String,
    },
    /// A definition, result or request of a server contains an instruction to a model. Only the context of the finding
    /// is recorded.
    McpContentDetected {
        server_id: ServerId,
        /// The tool, or the method.
        tool_name: String,
        /// None for a definition.
        jsonrpc_id: Value,
        /// Such as `hidden-instructions`.
        category: String,
        /// The rule that found it.
        detector: String,
        action: Action,
        severity: Severity,
        reason: String,
        rule: RuleRef,
        /// JSON pointer into the checked value.
        pointer: String,
        /// At most 50 characters on each side, secrets replaced.
        context: String,
        /// What the policy says of the pattern that found it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// What it was compared with: the other server, and its tool.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        other_server: Option<ServerId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        other_tool: Option<String>,
    },
    /// Results that are not, or not completely, remembered: copies of them may not be found.
    McpResultsForgotten {
        /// None: results of several servers.
        server_id: Option<ServerId>,
        reason: ForgotReason,
        /// Since the last event of this kind.
        results: u64,
        detail: String,
    },
    /// A server's annotations make it less trusted than its labels.
    McpServerSuspected {
        server_id: ServerId,
        tool_name: String,
        /// The name of the annotation.
        hint: String,
        detail: String,
    },
    /// An alert that was not delivered to the webhook, with its content.
    AlertUndelivered {
        event_id: String,
        /// Number of attempts.
        attempts: u32,
        detail: String,
        alert: Value,
    },
    /// An answer for several servers lacks this one, or an allowed call never reached it.
    McpServerUnavailable {
        server_id: ServerId,
        method: String,
        detail: String,
        /// The id of the call; None for an answer of several servers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_name: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        jsonrpc_id: Option<Value>,
    },
    /// An advisory about a server's packages, its host or its service.
    McpAdvisory {
        server_id: ServerId,
        kind: AdvisorySource,
        /// The id that its source uses.
        id: String,
        /// `npm:NAME@VERSION`, a host or a service.
        subject: String,
        severity: Severity,
        summary: String,
        /// The version with the fix.
        fixed: Option<String>,
        action: Action,
        rule: RuleRef,
    },
    /// A text could not be classified.
    McpClassifierUnavailable {
        server_id: ServerId,
        /// The tool, or the method.
        tool_name: String,
        detail: String,
        /// What happened to the text.
        action: Action,
        rule: RuleRef,
    },
    /// The signed policy of an organisation, as this session found it.
    PolicyBundle {
        name: String,
        /// The one in force; None: there is none.
        version: Option<u64>,
        state: BundleState,
        /// Empty if there is nothing to say.
        detail: String,
    },
    /// A request of an accepted client was answered, or its answer began: the ids of both in the client and in the journal.
    GatewayAnswered {
        server_id: ServerId,
        /// Name of the client's key.
        key: String,
        /// Address of the client.
        peer: String,
        /// `x-agentsh-log-id` of the answer.
        log_id: String,
        /// `x-agentsh-trace-id`.
        trace_id: String,
        method: String,
        /// The tool, the resource or the prompt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The id of the request in the proxy.
        jsonrpc_id: Value,
        status: u16,
        /// The code of the refusal: `x-agentsh-code`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        /// Time until the answer began.
        after_ms: u64,
    },
    /// A server that was not started.
    McpServerRefused {
        server_id: ServerId,
        reason: String,
        detail: String,
        rule: RuleRef,
    },
    /// A connection that left a sandbox, or tried to: once when it ends, and once before if it lasts longer than
    /// a second.
    McpNetworkConnection {
        /// None: the agent.
        server_id: Option<ServerId>,
        /// Number of the connection in its session.
        connection: u64,
        /// The requested name; None for an address.
        name: Option<String>,
        /// The address of the connection; None if there was none.
        address: Option<String>,
        port: u16,
        /// `tls`, `http`, `tcp`.
        protocol: String,
        action: Action,
        state: ConnectionState,
        /// Why it failed; empty otherwise.
        detail: String,
        rule: RuleRef,
        /// If the kernel reports them.
        pid: Option<u32>,
        comm: Option<String>,
        bytes_sent: u64,
        bytes_received: u64,
        duration_ms: u64,
    },
    /// A connection that was refused.
    NetConnectBlocked {
        server_id: Option<ServerId>,
        name: Option<String>,
        /// As the program requested it; None if the name is enough.
        address: Option<String>,
        port: u16,
        protocol: Option<String>,
        action: Action,
        /// Stable code, such as `server-name-mismatch`.
        reason: String,
        detail: String,
        rule: RuleRef,
        /// The policy text that would allow it.
        change: Option<String>,
        /// Number of equal refusals that this event counts: repeated ones are not all recorded.
        count: u64,
        pid: Option<u32>,
        comm: Option<String>,
    },
    /// The session added a secret of the user to a request of the agent.
    CredentialUsed {
        /// Number of the connection in its session.
        connection: u64,
        host: String,
        port: u16,
        method: String,
        /// Without its query.
        path: String,
        rule: RuleRef,
    },
    /// A key of the user signed something for the agent.
    SshKeyUsed {
        /// `SHA256:`, as `ssh-add -l` shows it.
        key: String,
        /// `login`, or `signature`.
        purpose: String,
        /// The server, as the policy names it; for a signature its namespace.
        destination: String,
        /// The user name of a login; empty for a signature.
        user: String,
        rule: RuleRef,
    },
    /// A request that the ssh agent inside refused.
    SshKeyRefused {
        key: String,
        /// Stable code, such as `host-not-allowed`.
        reason: String,
        detail: String,
        rule: RuleRef,
    },
    /// A login, renewal, refusal or logout at a server behind a URL. Contains no token.
    ServerLogin {
        server_id: ServerId,
        /// Without its query.
        url: String,
        /// The authorization server; None if it is not known.
        issuer: Option<String>,
        what: LoginWord,
        detail: String,
    },
    /// A change of a guarded file, or a message about one.
    GuardChanged {
        /// None: the agent.
        server_id: Option<ServerId>,
        path: String,
        what: GuardChange,
        detail: String,
    },
    /// A system call that the filter refused: once for each program and purpose.
    CallRefused {
        /// None: the agent.
        server_id: Option<ServerId>,
        /// The kernel's name of the call.
        program: String,
        /// Its purpose.
        what: String,
        detail: String,
        rule: RuleRef,
    },
    /// A file that Landlock refused: once for each path and access.
    FileRefused {
        /// None: the agent.
        server_id: Option<ServerId>,
        path: String,
        /// Landlock's names of the missing rights: `read_file`, `make_reg, refer`.
        access: String,
        rule: RuleRef,
        /// The policy text that would allow it.
        change: Option<String>,
    },
    /// The file rules of all policies except the built-in one, when a process starts.
    FilesGranted {
        /// None: the agent.
        server_id: Option<ServerId>,
        grants: Vec<FileGrant>,
    },
    /// `agentsh why` inside was asked, and the answer was no: once for each question.
    WhyDenied {
        /// `read`, `write`, `connect` or `execute`.
        what: String,
        /// The path, the host with its port, or the command.
        about: String,
        rule: RuleRef,
        /// The policy text that would allow it.
        change: Option<String>,
    },
    /// An answer of the agent's model was replaced.
    OutputMessageReplaced {
        provider: ModelProvider,
        reason_code: ReplacedReason,
    },
    /// A request to the agent's model, or its answer, that could not be checked and was withheld.
    ModelAnswerWithheld {
        provider: ModelProvider,
        reason: String,
    },
    /// A model answered.
    ModelCalled {
        provider: ModelProvider,
        model: String,
        /// The HTTP status.
        status: u16,
        /// As the provider counts them; 0 if unknown.
        input_tokens: u64,
        output_tokens: u64,
        /// In millionths of a dollar; None: no price is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_micro_usd: Option<u64>,
        /// Time from the request to the first and last byte of the answer.
        head_ms: u64,
        total_ms: u64,
    },
    /// A request to the model contained secrets. Never a value.
    ModelSecretsFound {
        provider: ModelProvider,
        /// `alert`: it passed unchanged; `rewrite`: without them; `block`: it was refused.
        action: Action,
        found: Vec<SecretFound>,
        /// Further ones that are not listed.
        more: u64,
    },
    /// A name that was resolved and is allowed: once for each name and query type.
    DnsQuery {
        server_id: Option<ServerId>,
        name: String,
        query_type: String,
        action: Action,
        rule: RuleRef,
    },
    /// A name that was looked up and is not allowed: once for each name.
    DnsBlocked {
        server_id: Option<ServerId>,
        name: String,
        query_type: String,
        action: Action,
        reason: String,
        rule: RuleRef,
        change: Option<String>,
        /// As in `net_connect_blocked`.
        count: u64,
    },
}

impl Event {
    /// Every value that `type` has.
    pub const KINDS: [&str; 49] = [
        "session_started",
        "session_ended",
        "enforcement",
        "process_started",
        "process_exited",
        "mcp_server_env_filtered",
        "mcp_server_binary_mismatch",
        "mcp_server_binary_not_pinned",
        "mcp_server_binary_pinned",
        "mcp_server_crashed",
        "mcp_tool_seen",
        "mcp_tool_changed",
        "mcp_interface_checked",
        "mcp_tools_list_changed",
        "mcp_tool_called",
        "mcp_tool_call_intercepted",
        "mcp_tool_call_audited",
        "approval_requested",
        "approval_decided",
        "mcp_message_rejected",
        "mcp_request_timed_out",
        "mcp_exfil_detected",
        "mcp_content_detected",
        "mcp_results_forgotten",
        "mcp_server_suspected",
        "alert_undelivered",
        "mcp_server_unavailable",
        "mcp_advisory",
        "mcp_classifier_unavailable",
        "policy_bundle",
        "gateway_answered",
        "mcp_server_refused",
        "mcp_network_connection",
        "net_connect_blocked",
        "credential_used",
        "ssh_key_used",
        "ssh_key_refused",
        "server_login",
        "guard_changed",
        "call_refused",
        "file_refused",
        "files_granted",
        "why_denied",
        "output_message_replaced",
        "model_answer_withheld",
        "model_called",
        "model_secrets_found",
        "dns_query",
        "dns_blocked",
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `docs/events.schema.json` is what the code says. `cargo xtask schema` writes it.
    #[test]
    fn the_schema_in_the_documents_is_current() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/events.schema.json");
        let schema = serde_json::to_string_pretty(&schemars::schema_for!(Event)).unwrap_or_default() + "\n";
        if std::env::var_os("AGENTSH_WRITE_SCHEMA").is_some() {
            assert!(std::fs::write(file, &schema).is_ok(), "{file} cannot be written");
        }
        let written = std::fs::read_to_string(file).unwrap_or_default();
        assert!(written == schema, "docs/events.schema.json is not current: run `cargo xtask schema`");
    }

    /// serde names every variant when it is asked for one that does not exist.
    #[test]
    fn every_type_is_listed() {
        let error =
            serde_json::from_str::<Event>(r#"{"type": "?"}"#).map(|_| ()).map_err(|error| error.to_string());
        let listed = Event::KINDS.map(|kind| format!("`{kind}`")).join(", ");
        assert!(
            error.as_ref().is_err_and(|text| text.contains(&format!("expected one of {listed} "))),
            "{error:?}"
        );
    }
}
