//! The gateways that are measured, each with its servers, on free ports of this machine.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use crate::run::{find, succeed, target};

/// A server for standard input and output that answers as quickly as a script can.
const ECHO: &str = r#"import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method = message["method"]
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "echo", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}]}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

/// A process that ends with the measurement.
pub struct Started {
    child: Child,
    pub url: String,
    /// Where streams of the older transport are opened.
    pub streams: String,
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Started {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// Directories of the measurement: a home, the peers, the script.
pub struct Room {
    pub root: PathBuf,
    agentsh: PathBuf,
    echo: PathBuf,
}

impl Room {
    pub fn make(agentsh: &Path) -> Result<Self> {
        let root = target().join("bench-gateway");
        std::fs::create_dir_all(root.join("home"))?;
        let echo = root.join("echo.py");
        std::fs::write(&echo, ECHO)?;
        Ok(Self { root, agentsh: agentsh.to_owned(), echo })
    }

    /// The gateway of agentsh before this server, or before the script. `words` are before the command.
    pub fn agentsh(&self, words: &[&str], url: Option<&str>) -> Result<Started> {
        let endpoint = match url {
            Some(url) => json!({"id": "e", "url": url, "shared": "key"}),
            None => json!({"id": "e", "command": "/usr/bin/python3", "args": [self.echo]}),
        };
        let config = json!({"listen": "127.0.0.1:0", "auth": {"open": true}, "endpoints": [endpoint],
            "limits": {"requests_per_minute": 0, "sessions": 3000, "sessions_per_key": 3000}});
        let home = self.root.join("home");
        let file = home.join("gateway.yaml");
        std::fs::write(&file, config.to_string())?;
        let mut command = Command::new("prlimit");
        command.arg("--nofile=8192").args(words).arg(&self.agentsh).args(["gateway", "--config"]).arg(file);
        command.env_clear().env("HOME", &home).env("PATH", "/usr/bin:/bin").current_dir(&home);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut said = BufReader::new(child.stderr.take().context("a pipe")?);
        let mut all = String::new();
        let address = loop {
            let mut line = String::new();
            ensure!(said.read_line(&mut line)? > 0, "the gateway ended: {all}");
            if let Some((_, rest)) = line.split_once("listening on ") {
                break rest.split(',').next().unwrap_or_default().to_owned();
            }
            all += &line;
        };
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        let url = format!("http://{address}/mcp/e");
        Ok(Started { child, streams: url.clone(), url })
    }

    /// npm `supergateway` before the script.
    pub fn supergateway(&self, transport: &str) -> Result<Started> {
        let directory = self.root.join("npm");
        let program = directory.join("node_modules/.bin/supergateway");
        if !program.exists() {
            std::fs::create_dir_all(&directory)?;
            succeed(Command::new("npm").current_dir(&directory).args([
                "install",
                "--no-audit",
                "--no-fund",
                "supergateway",
            ]))?;
        }
        let port = free_port()?;
        let mut command = Command::new(program);
        command.args([
            "--stdio",
            &format!("/usr/bin/python3 {}", self.echo.display()),
            "--outputTransport",
            transport,
        ]);
        if transport == "streamableHttp" {
            command.arg("--stateful");
        }
        command.args(["--port", &port.to_string(), "--logLevel", "none"]);
        listening(command, port)
    }

    /// PyPI `mcp-proxy` before the script.
    pub fn mcp_proxy(&self) -> Result<Started> {
        let directory = self.root.join("venv");
        let program = directory.join("bin/mcp-proxy");
        if !program.exists() {
            let python = find("python3").context("python3 is missing")?;
            succeed(Command::new(python).args(["-m", "venv", "--clear"]).arg(&directory))?;
            succeed(Command::new(directory.join("bin/pip")).args(["install", "--quiet", "mcp-proxy"]))?;
        }
        let port = free_port()?;
        let mut command = Command::new(program);
        command.args(["--port", &port.to_string(), "--", "/usr/bin/python3"]).arg(&self.echo);
        listening(command, port)
    }
}

fn listening(mut command: Command, port: u16) -> Result<Started> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let url = format!("http://127.0.0.1:{port}/mcp");
    let streams = format!("http://127.0.0.1:{port}/sse");
    let mut started = Started { child: command.spawn()?, url, streams };
    let since = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if since.elapsed() > Duration::from_secs(60) || started.child.try_wait()?.is_some() {
            bail!("it does not listen");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(started)
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
