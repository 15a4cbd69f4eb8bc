//! The proxy without servers: tools with which an agent marks and searches texts itself, as in `@exfil/canary`. `rmcp`
//! speaks the protocol.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CustomRequest, CustomResult, ErrorCode,
    Implementation, ListToolsResult, PaginatedRequestParams, ResultType, ServerCapabilities, ServerConfig,
    Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use agentsh_base::json::{self, Json};
use agentsh_base::types::{ServerId, ToolId};
use agentsh_content::content::{Content, Searched, action_taken};
use agentsh_dlp::taint::marker::Position;
use agentsh_dlp::threads::run_in_pool;
use agentsh_mcp::aggregate::{OWN_ID, called};
use agentsh_mcp::{ErrorReply, INTERNAL_ERROR, INVALID_PARAMS};
use agentsh_store::Journal;

use super::report::Report;

/// In bytes, of a text to mark or compare.
const MAX_CONTENT: usize = 10 << 20;
/// In bytes, of data to search.
const MAX_DATA: usize = 50 << 20;
/// In bytes: such data, each byte escaped as `\u0000`.
pub const MAX_LINE: usize = (6 * MAX_DATA) + (1 << 20);

/// In bytes, of a server or tool.
const MAX_NAME: usize = 1024;
const KINDS: [&str; 6] =
    ["tool_result", "file_read", "api_response", "database_row", "user_message", "other"];
const PLACES: [&str; 4] = ["prefix", "suffix", "both", "random_word_boundary"];

pub struct Standalone {
    report: Report,
    content: Rc<RefCell<Content>>,
    record: Journal,
}

impl ServerHandler for Standalone {
    fn get_info(&self) -> ServerConfig {
        let name = Implementation::new("agentsh", env!("CARGO_PKG_VERSION")).with_title("agentsh proxy");
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build()).with_server_info(name)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools =
            self.tools().iter().map(|tool| serde_json::from_str::<Tool>(tool)).collect::<Result<_, _>>();
        tools.map(ListToolsResult::with_all_items).map_err(unreadable)
    }

    async fn call_tool(
        &self,
        CallToolRequestParams { name, arguments, .. }: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text: Arc<[u8]> = serde_json::to_vec(&arguments).map_err(unreadable)?.into();
        let began = Instant::now();
        let searched = self.searched(&name, &text).await;
        let outcome = match json::read(&text) {
            Ok(arguments) => self.call(&name, Some(&arguments), (began, searched)),
            Err(error) => Err(invalid_argument(error.to_string())),
        };
        // The recorder reports a failed store.
        let id = context.id.into_json_value();
        let _ = self.record.commit(called(&name, id, outcome.as_ref().err())).await;
        let mut result: CallToolResult =
            serde_json::from_str(&outcome.map_err(error)?).map_err(unreadable)?;
        result.result_type = Some(ResultType::COMPLETE);
        Ok(result.into())
    }

    /// Also known requests with unknown parameters.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(error(match request.method.as_str() {
            "tools/call" => {
                invalid_argument("the request needs a tool's `name` and an object of `arguments`".to_owned())
            }
            other => ErrorReply {
                code: ErrorCode::METHOD_NOT_FOUND.0,
                message: format!("no server knows '{other}'"),
                reason: "no-server",
                rule: None,
            },
        }))
    }
}

impl Standalone {
    pub fn new(report: Report, content: Rc<RefCell<Content>>, record: Journal) -> Self {
        Self { report, content, record }
    }

    fn tools(&self) -> Vec<String> {
        let text = |about: &str| json!({"type": "string", "description": about});
        let tool = |name: &str, about: &str, properties: Value, required: &[&str]| {
            let schema = json!({"type": "object", "properties": properties, "required": required});
            json!({"name": name, "description": about, "inputSchema": schema}).to_string()
        };
        vec![
            tool(
                "wrap_content",
                "Mark content and remember it, to detect it when it leaves",
                json!({
                    "content": text("Content to mark, at most 10 MiB"),
                    "source_type": {"type": "string", "enum": KINDS},
                    "source_server": text("Server that it came from"),
                    "source_tool": text("Tool that it came from"),
                    "embed_position": {"type": "string", "enum": PLACES, "default": "suffix"},
                }),
                &["content", "source_type"],
            ),
            tool(
                "check_leakage",
                "Ask whether a text contains one marked content",
                json!({
                    "token_id": text("From wrap_content"),
                    "output": text("Text to look into, at most 10 MiB"),
                    "target_server": text("Server that receives it"),
                    "target_tool": text("Tool that receives it"),
                }),
                &["token_id", "output"],
            ),
            tool(
                "scan_outbound",
                "Search data for all remembered content before it is sent",
                json!({
                    "data": text("Data about to be sent, at most 50 MiB"),
                    "target_server": text("Server that receives it"),
                    "target_tool": text("Tool that receives it"),
                }),
                &["data"],
            ),
            self.report.entry("get_report"),
        ]
    }

    /// Searches long data on another thread: the watchdog ends a session whose own thread does not answer. Requests are
    /// answered one by one, so nothing changes meanwhile.
    async fn searched(&self, tool: &str, text: &Arc<[u8]>) -> Option<Searched> {
        let (name, longest) = match tool {
            "scan_outbound" => ("data", MAX_DATA),
            "check_leakage" => ("output", MAX_CONTENT),
            _ => return None,
        };
        let job = {
            let arguments = json::read(text).ok();
            let data = required_argument(arguments.as_ref(), name, longest).ok()?;
            self.content.borrow_mut().search_apart(&target(arguments.as_ref(), tool).ok()?, data.length())?
        };
        let (text, (tell, told)) = (Arc::clone(text), oneshot::channel());
        run_in_pool(move || {
            let arguments = json::read(&text).ok();
            if let Some(data) = arguments.as_ref().and_then(|arguments| arguments.member(name)) {
                // The session may be over.
                drop(tell.send(job(data)));
            }
        });
        told.await.ok()
    }

    fn call(
        &self,
        tool: &str,
        arguments: Option<&Json<'_>>,
        searched: (Instant, Option<Searched>),
    ) -> Result<String, ErrorReply> {
        match tool {
            "get_report" => self.report.answer(arguments),
            "wrap_content" => self.wrap(arguments),
            "check_leakage" => self.check(arguments, searched.1),
            "scan_outbound" => self.scan(arguments, searched),
            other => {
                let message = format!("unknown tool '{}'", other.chars().take(64).collect::<String>());
                Err(ErrorReply { code: INVALID_PARAMS, message, reason: "unknown-tool", rule: None })
            }
        }
    }

    fn wrap(&self, arguments: Option<&Json<'_>>) -> Result<String, ErrorReply> {
        let content = required_argument(arguments, "content", MAX_CONTENT)?;
        let one_of = |name: &str, words: &[&'static str], said: &str| {
            let known = words.iter().find(|word| **word == said);
            known
                .copied()
                .ok_or_else(|| invalid_argument(format!("`{name}` must be one of {}", words.join(", "))))
        };
        let kind = one_of("source_type", &KINDS, &text_of(required_argument(arguments, "source_type", 64)?))?;
        let place = text_argument(arguments, "embed_position")?;
        let place = one_of("embed_position", &PLACES, place.as_deref().unwrap_or("suffix"))?;
        let position = match place {
            "prefix" => Position::Prefix,
            "suffix" => Position::Suffix,
            "both" => Position::Both,
            _ => Position::Between,
        };
        let named = |name: &str| text_argument(arguments, name).map(Option::unwrap_or_default);
        let source = ToolId { server: ServerId(named("source_server")?), tool: named("source_tool")? };
        let mut remembered = self.content.borrow_mut();
        let wrapped = remembered.wrap(source, content, position, [kind, place]);
        let mut said = json!({"token_id": remembered.token_id(wrapped.id), "wrapped_content": wrapped.text});
        if let Some(why) = wrapped.unmarked {
            said["marked"] = json!(false);
            said["not_marked_because"] = json!(why);
        }
        Ok(answer(&said, false))
    }

    fn check(&self, arguments: Option<&Json<'_>>, searched: Option<Searched>) -> Result<String, ErrorReply> {
        let written = text_of(required_argument(arguments, "token_id", 64)?);
        let output = required_argument(arguments, "output", MAX_CONTENT)?;
        if written.len() != 32 || !written.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(invalid_argument(
                "`token_id` must be 32 hexadecimal digits from wrap_content".to_owned(),
            ));
        }
        let target = target(arguments, "check_leakage")?;
        let mut content = self.content.borrow_mut();
        let found = content.search(&target, output, searched);
        // The search itself forgets old entries.
        let id = content.of_token(&written);
        let leaked = id.is_some_and(|id| found.iter().any(|(found, _)| *found == id));
        let status = if id.is_some() { "active" } else { "expired" };
        let action = if leaked { action_taken(content.outcome()) } else { "none" };
        let found = json!({"token_id": written, "status": status, "leaked": leaked, "action_taken": action});
        Ok(answer(&found, leaked && content.halts()))
    }

    fn scan(
        &self,
        arguments: Option<&Json<'_>>,
        (began, searched): (Instant, Option<Searched>),
    ) -> Result<String, ErrorReply> {
        let data = required_argument(arguments, "data", MAX_DATA)?;
        let target = target(arguments, "scan_outbound")?;
        let mut content = self.content.borrow_mut();
        let found = content.search(&target, data, searched);
        let findings: Vec<Value> = found
            .iter()
            .map(|(id, found)| {
                json!({"token_id": content.token_id(*id), "detector": found.detector, "severity": found.severity.as_str(),
                    "decoded": found.decoded})
            })
            .collect();
        let result = json!({
            "clean": found.is_empty(),
            "tokens_scanned": content.remembered_count(),
            "scan_duration_ms": u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            "leakage_count": found.len(),
            "findings": findings,
        });
        Ok(answer(&result, !found.is_empty() && content.halts()))
    }
}

fn answer(value: &Value, is_error: bool) -> String {
    let mut result = json!({"content": [{"type": "text", "text": value.to_string()}]});
    if is_error {
        result["isError"] = Value::Bool(true);
    }
    result.to_string()
}

fn error(ErrorReply { code, message, reason, .. }: ErrorReply) -> ErrorData {
    ErrorData::new(ErrorCode(code), format!("agentsh: {message}"), Some(json!({"reason": reason})))
}

/// agentsh wrote it.
fn unreadable(why: serde_json::Error) -> ErrorData {
    error(ErrorReply { code: INTERNAL_ERROR, message: why.to_string(), reason: "internal", rule: None })
}

fn text_of(value: &Json<'_>) -> String {
    value.as_text().unwrap_or_default().into_owned()
}

fn text_argument(arguments: Option<&Json<'_>>, name: &str) -> Result<Option<String>, ErrorReply> {
    match arguments.and_then(|arguments| arguments.member(name)) {
        None | Some(Json::Null) => Ok(None),
        Some(_) => required_argument(arguments, name, MAX_NAME).map(|value| Some(text_of(value))),
    }
}

/// The tool that would receive the searched text: the one that the agent names, else the called one.
fn target(arguments: Option<&Json<'_>>, called: &str) -> Result<ToolId, ErrorReply> {
    let named = |name: &str, otherwise: &str| {
        text_argument(arguments, name).map(|word| word.unwrap_or_else(|| otherwise.to_owned()))
    };
    Ok(ToolId { server: ServerId(named("target_server", OWN_ID)?), tool: named("target_tool", called)? })
}

fn invalid_argument(message: String) -> ErrorReply {
    ErrorReply { code: INVALID_PARAMS, message, reason: "invalid-params", rule: None }
}

fn required_argument<'t, 'a>(
    arguments: Option<&'t Json<'a>>,
    name: &str,
    longest: usize,
) -> Result<&'t Json<'a>, ErrorReply> {
    match arguments.and_then(|arguments| arguments.member(name)) {
        Some(value @ Json::String(raw)) if raw.len() <= longest || text_of(value).len() <= longest => {
            Ok(value)
        }
        Some(Json::String(_)) => Err(invalid_argument(format!("`{name}` is longer than {longest} bytes"))),
        _ => Err(invalid_argument(format!("`{name}` must be a string"))),
    }
}
