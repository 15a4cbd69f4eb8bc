//! `agentsh call SERVER TOOL [JSON]`: calls one tool from inside a sandbox, for agents that call tools from code. The
//! session checks and records it like every other call.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use agentsh_mcp::bridge;
use agentsh_sandbox::layout::OWN_DIRECTORY;
use agentsh_store::escape;
use agentsh_terminal::exit::{FAILED, NO, OK, USAGE};

/// Longest message of a server, in bytes. However many come before the answer, one is held at a time.
const MAX_ANSWER: u64 = 64 << 20;
/// Longest JSON on standard input, in bytes.
const MAX_INPUT: u64 = 16 << 20;
/// Pages of a listing: a server may send another cursor for ever.
const MAX_PAGES: usize = 50;

#[derive(Clone, Debug, Args)]
pub struct CallArgs {
    /// A server of this session
    server: String,
    /// One of its tools
    #[arg(required_unless_present = "list")]
    tool: Option<String>,
    /// The arguments, as a JSON object; `-` reads them from standard input
    #[arg(default_value = "{}")]
    arguments: String,
    /// Print the names of the tools, one per line
    #[arg(long, conflicts_with_all = ["tool"])]
    list: bool,
    /// Print the whole result as JSON instead of its text
    #[arg(long)]
    json: bool,
}

/// Why there is no result.
#[derive(Debug)]
enum Failure {
    Usage(String),
    /// The session or the server refused.
    Refused(String),
    Failed(String),
}

/// Exit status 0: the tool answered; 1: refused, or the tool says that it failed; 2: the arguments are no JSON object; 125:
/// there is no session.
pub fn run(args: &CallArgs, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let (status, message) = match call(args, out) {
        Ok(status) => return status,
        Err(Failure::Usage(message)) => (USAGE, message),
        Err(Failure::Refused(message)) => (NO, message),
        Err(Failure::Failed(message)) => (FAILED, message),
    };
    // The reader may have closed it: ignore that.
    let _ = writeln!(err, "error: {}", escape::line(&message));
    status
}

fn call(args: &CallArgs, out: &mut dyn Write) -> Result<u8, Failure> {
    let arguments = if args.list { json!({}) } else { arguments(&args.arguments)? };
    let mut client = Client::connect(&args.server)?;
    client.open()?;
    let tools = client.tools()?;
    let Some(tool) = &args.tool else {
        for tool in &tools {
            let text = |name: &str| tool[name].as_str().unwrap_or_default().to_owned();
            let about = text("description");
            let about = about.lines().next().unwrap_or_default();
            check_written(writeln!(out, "{}\t{}", escape::line(&text("name")), escape::line(about)))?;
        }
        return Ok(OK);
    };
    let result = client.request("tools/call", &json!({ "name": tool, "arguments": arguments }))?;
    show(&result, args.json, out)
}

fn arguments(text: &str) -> Result<Value, Failure> {
    let text = if text == "-" {
        let mut read = String::new();
        let taken = io::stdin().take(MAX_INPUT).read_to_string(&mut read);
        taken.map_err(|error| Failure::Usage(format!("cannot read standard input: {error}")))?;
        read
    } else {
        text.to_owned()
    };
    match serde_json::from_str::<Value>(&text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(Failure::Usage("the arguments of a tool must be a JSON object".into())),
        Err(error) => Err(Failure::Usage(format!("the arguments are not JSON: {error}"))),
    }
}

/// Texts as they are, or everything as one line of JSON.
fn show(result: &Value, whole: bool, out: &mut dyn Write) -> Result<u8, Failure> {
    if whole {
        check_written(writeln!(out, "{result}"))?;
    } else {
        for block in result["content"].as_array().into_iter().flatten() {
            match block["text"].as_str() {
                Some(text) => check_written(writeln!(out, "{text}"))?,
                None => check_written(writeln!(out, "{block}"))?,
            }
        }
    }
    Ok(if result["isError"] == json!(true) { NO } else { OK })
}

fn check_written(result: io::Result<()>) -> Result<(), Failure> {
    result.map_err(|error| Failure::Failed(format!("cannot write the answer: {error}")))
}

struct Client {
    stream: BufReader<UnixStream>,
    asked: u64,
}

impl Client {
    fn connect(server: &str) -> Result<Self, Failure> {
        let named = std::env::var_os(bridge::SOCKET_VARIABLE).map(PathBuf::from);
        let socket = named.unwrap_or_else(|| Path::new(OWN_DIRECTORY).join("bridge"));
        if !socket.exists() {
            return Err(Failure::Failed("no session: `agentsh call` works only inside `agentsh run`".into()));
        }
        let lost = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
        let mut stream = bridge::connect(&socket).map_err(|error| lost(&error))?;
        stream.write_all(&bridge::header(server)).map_err(|error| lost(&error))?;
        Ok(Self { stream: BufReader::new(stream), asked: 0 })
    }

    fn open(&mut self) -> Result<(), Failure> {
        let client = json!({ "name": "agentsh-call", "version": env!("CARGO_PKG_VERSION") });
        let opening = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        self.request("initialize", &opening)?;
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
    }

    /// Rules may be about what a tool's definition says, so it is asked for first.
    fn tools(&mut self) -> Result<Vec<Value>, Failure> {
        let (mut tools, mut cursor) = (Vec::new(), json!({}));
        for _ in 0..MAX_PAGES {
            let mut page = self.request("tools/list", &cursor)?;
            if let Some(listed) = page["tools"].as_array_mut() {
                tools.append(listed);
            }
            match page["nextCursor"].as_str().filter(|next| !next.is_empty()) {
                Some(next) => cursor = json!({ "cursor": next }),
                None => return Ok(tools),
            }
        }
        Err(Failure::Refused(format!("the server lists more than {MAX_PAGES} pages of tools")))
    }

    fn send(&mut self, message: &Value) -> Result<(), Failure> {
        let sent = self.stream.get_mut().write_all(format!("{message}\n").as_bytes());
        sent.map_err(|error| connection_failure(&error))
    }

    fn request(&mut self, method: &str, params: &Value) -> Result<Value, Failure> {
        self.asked += 1;
        let id = self.asked;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        loop {
            let message = self.message()?;
            if message["id"] != json!(id) {
                // A server may ask a client for something that this client cannot give.
                if let (Some(_), Some(asked)) = (message.get("method"), message.get("id")) {
                    let error = json!({ "code": -32601, "message": "agentsh call does not answer requests" });
                    let reply = json!({ "jsonrpc": "2.0", "id": asked, "error": error });
                    self.send(&reply)?;
                }
                continue;
            }
            return match message.get("error") {
                Some(error) => {
                    let said = error["message"].as_str().map_or_else(|| error.to_string(), str::to_owned);
                    Err(Failure::Refused(said))
                }
                None => Ok(message["result"].clone()),
            };
        }
    }

    fn message(&mut self) -> Result<Value, Failure> {
        let mut line = String::new();
        let read = (&mut self.stream)
            .take(MAX_ANSWER)
            .read_line(&mut line)
            .map_err(|error| connection_failure(&error))?;
        if read == 0 {
            return Err(connection_failure(&io::ErrorKind::BrokenPipe.into()));
        }
        if read as u64 == MAX_ANSWER && !line.ends_with('\n') {
            let most = MAX_ANSWER >> 20;
            return Err(Failure::Refused(format!("the server sent a message of more than {most} MiB")));
        }
        serde_json::from_str(&line).map_err(|_| Failure::Failed("the session's answer is not JSON".into()))
    }
}

/// A session that wants nothing of it closes the connection, maybe before it has read what was sent.
fn connection_failure(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Failure::Refused(
            "the session does not know this server, or closed the connection: `agentsh why` and the report say more".into(),
        ),
        _ => Failure::Failed(format!("the session ended: {error}")),
    }
}
