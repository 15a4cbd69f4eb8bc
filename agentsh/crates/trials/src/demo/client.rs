//! A minimal MCP client for the scripted agent. It starts what its configuration names, like any agent.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// One connection with one server.
pub struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next: u64,
    /// Messages that belong to no request.
    pub stray: Vec<Value>,
}

impl Client {
    /// Starts the server as the configuration says, and shakes hands.
    ///
    /// # Errors
    /// When there is no such server, or it ends before it answers.
    #[expect(
        clippy::disallowed_methods,
        reason = "runs inside the sandbox, as the agent that it plays would"
    )]
    pub fn start(configuration: &Path, id: &str) -> io::Result<Self> {
        let document: Value = serde_json::from_slice(&std::fs::read(configuration)?)?;
        let entry = &document["mcpServers"][id];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut command = Command::new(text(&entry["command"]));
        command.args(entry["args"].as_array().into_iter().flatten().map(text));
        command.envs(entry["env"].as_object().into_iter().flatten().map(|(name, value)| (name, text(value))));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let missing = || io::Error::from(io::ErrorKind::BrokenPipe);
        let input = Some(child.stdin.take().ok_or_else(missing)?);
        let output = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        Ok(Self { child, input, output, next: 1, stray: Vec::new() })
    }

    /// The handshake. An answer that is an error is the inner result.
    ///
    /// # Errors
    /// When the connection ended.
    pub fn initialize(&mut self) -> io::Result<Result<Value, Value>> {
        let params = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "demo-agent", "version": "1"},
        });
        let answer = self.request("initialize", &params)?;
        self.raw(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)?;
        Ok(answer)
    }

    /// # Errors
    /// When the connection ended.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> io::Result<Result<Value, Value>> {
        self.request("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// # Errors
    /// When the connection ended.
    pub fn request(&mut self, method: &str, params: &Value) -> io::Result<Result<Value, Value>> {
        let id = self.next_id();
        self.raw(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string())?;
        self.answer(id)
    }

    pub fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Sends a line as it is.
    ///
    /// # Errors
    /// When the connection ended.
    pub fn raw(&mut self, line: &str) -> io::Result<()> {
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        input.write_all(line.as_bytes())?;
        input.write_all(b"\n")?;
        input.flush()
    }

    /// Reads until the answer to `id` comes; an error without an id counts as it.
    ///
    /// # Errors
    /// When the connection ended.
    pub fn answer(&mut self, id: u64) -> io::Result<Result<Value, Value>> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut message: Value = serde_json::from_str(&line)?;
            let is_ours = message["id"] == json!(id) && message.get("method").is_none();
            match (
                message.get("error").is_some(),
                is_ours || message["id"].is_null() && message.get("method").is_none(),
            ) {
                (false, true) if is_ours => return Ok(Ok(message["result"].take())),
                (true, true) => return Ok(Err(message["error"].take())),
                _ => self.stray.push(message),
            }
        }
    }

    /// Closes the connection and waits for the bridge to end.
    pub fn close(mut self) {
        self.input = None;
        // A bridge that does not end is killed with the sandbox.
        let _ = self.child.wait();
    }
}

/// The text of a tool's result.
#[must_use]
pub fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}
