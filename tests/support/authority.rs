//! An authorization server and an MCP server that wants its tokens, on loopback. Clients, redirect addresses, PKCE, resources,
//! codes and tokens are checked as the specifications have it; a test may make it lie.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use url::{Url, form_urlencoded};

use super::http_server::{Asked, HttpServer, Reply, handshake};

/// Begins every secret that is given out: what a test searches for.
pub const MARK: &str = "s3cret-of-the-user-";

#[derive(Default)]
pub struct State {
    /// Members of the metadata that are replaced.
    pub metadata: BTreeMap<&'static str, Value>,
    /// Members of every answer with tokens.
    pub tokens: BTreeMap<&'static str, Value>,
    /// The issuer that the browser gets; None: the true one.
    pub issuer_said: Option<String>,
    /// Sent instead of the answer of the token endpoint.
    pub token_reply: Option<fn() -> Reply>,
    pub without_refresh: bool,
    /// Compresses what it says.
    pub packs: bool,
    /// The server takes no token that is given out from now on.
    pub opens_nothing: bool,
    /// Neither server says which rights there are, or are lacking.
    pub names_no_scope: bool,
    /// Members of the server's own description.
    pub about_resource: BTreeMap<&'static str, Value>,
    /// The URL that the 401 names for it; None: the true one.
    pub resource_metadata: Option<String>,
    /// Where the server sends its clients on to.
    pub elsewhere: Option<&'static str>,
    clients: BTreeMap<String, String>,
    codes: BTreeMap<String, Code>,
    access: BTreeMap<String, Vec<String>>,
    refresh: BTreeMap<String, Vec<String>>,
    serial: u64,
}

#[derive(Clone)]
struct Code {
    client: String,
    redirect: String,
    challenge: String,
    resource: String,
    scopes: Vec<String>,
}

pub struct Authority {
    pub server: HttpServer,
    pub mcp: HttpServer,
    state: Arc<Mutex<State>>,
}

type Form = BTreeMap<String, String>;

fn form(text: &str) -> Form {
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

fn error(code: &str) -> Reply {
    Reply { status: 400, ..Reply::json(json!({"error": code, "error_description": format!("no: {code}")})) }
}

impl Authority {
    pub fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let own = Arc::clone(&state);
        let server = HttpServer::start(move |asked| own.lock().unwrap().answer(asked));
        let (own, issuer) = (Arc::clone(&state), format!("http://127.0.0.1:{}", server.port));
        let mcp = HttpServer::start(move |asked| own.lock().unwrap().serve(asked, &issuer));
        Self { server, mcp, state }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn issuer(&self) -> String {
        format!("http://127.0.0.1:{}", self.server.port)
    }

    /// What was posted to its token endpoint.
    pub fn traded(&self) -> Vec<Form> {
        let asked = self.server.asked().into_iter().filter(|asked| asked.path == "/token");
        asked.map(|asked| form(&asked.body)).collect()
    }
}

impl State {
    /// No token that was given out opens anything any more.
    pub fn expire(&mut self) {
        self.access.clear();
    }

    pub fn revoke(&mut self) {
        self.refresh.clear();
    }

    /// A client that was registered beforehand.
    pub fn know(&mut self, id: &str, redirect: &str) {
        self.clients.insert(id.to_owned(), redirect.to_owned());
    }

    fn next(&mut self, what: &str) -> String {
        self.serial += 1;
        format!("{MARK}{what}-{}", self.serial)
    }

    fn answer(&mut self, asked: &Asked) -> Reply {
        let own = format!("http://{}", asked.header("host").unwrap_or_default());
        let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
        let reply = match (asked.method.as_str(), path) {
            ("GET", "/.well-known/oauth-authorization-server") => {
                let mut document = json!({
                    "issuer": own,
                    "authorization_endpoint": format!("{own}/authorize"),
                    "token_endpoint": format!("{own}/token"),
                    "registration_endpoint": format!("{own}/register"),
                    "revocation_endpoint": format!("{own}/revoke"),
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                    "authorization_response_iss_parameter_supported": true,
                });
                for (name, value) in &self.metadata {
                    document[*name] = value.clone();
                }
                Reply::json(document)
            }
            ("POST", "/register") => self.register(&asked.message()),
            ("GET", "/authorize") => self.authorize(&form(query), &own),
            ("POST", "/token") => match self.token_reply {
                Some(reply) => reply(),
                None => self.trade(&form(&asked.body)),
            },
            ("POST", "/revoke") => {
                let form = form(&asked.body);
                self.refresh.remove(&form["token"]);
                self.access.clear();
                Reply::json("{}")
            }
            _ => Reply::status(404),
        };
        if self.packs && !reply.pieces.is_empty() { reply.packed("gzip") } else { reply }
    }

    fn register(&mut self, about: &Value) -> Reply {
        let redirect = about["redirect_uris"][0].as_str().unwrap_or_default().to_owned();
        if !redirect.starts_with("http://127.0.0.1:") || about["application_type"] != "native" {
            return error("invalid_redirect_uri");
        }
        self.serial += 1;
        let id = format!("client-{}", self.serial);
        self.clients.insert(id.clone(), redirect);
        Reply { status: 201, ..Reply::json(json!({"client_id": id, "token_endpoint_auth_method": "none"})) }
    }

    /// The user agrees at once.
    fn authorize(&mut self, asked: &Form, own: &str) -> Reply {
        let value = |name: &str| asked.get(name).cloned().unwrap_or_default();
        let (client, redirect) = (value("client_id"), value("redirect_uri"));
        if self.clients.get(&client) != Some(&redirect) {
            return error("invalid_client");
        }
        if value("response_type") != "code"
            || value("code_challenge_method") != "S256"
            || value("resource").is_empty()
        {
            return error("invalid_request");
        }
        let scopes = value("scope").split(' ').filter(|scope| !scope.is_empty()).map(str::to_owned).collect();
        let (challenge, resource) = (value("code_challenge"), value("resource"));
        let code = self.next("code");
        self.codes
            .insert(code.clone(), Code { client, redirect: redirect.clone(), challenge, resource, scopes });
        let mut back = Url::parse(&redirect).unwrap();
        let issuer = self.issuer_said.clone().unwrap_or_else(|| own.to_owned());
        back.query_pairs_mut()
            .append_pair("code", &code)
            .append_pair("state", &value("state"))
            .append_pair("iss", &issuer);
        Reply::status(302).with("Location", back.as_str())
    }

    fn trade(&mut self, asked: &Form) -> Reply {
        let value = |name: &str| asked.get(name).cloned().unwrap_or_default();
        let scopes = match value("grant_type").as_str() {
            "authorization_code" => {
                let Some(code) = self.codes.remove(&value("code")) else { return error("invalid_grant") };
                let challenge =
                    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(value("code_verifier").as_bytes()));
                let fits = code.client == value("client_id")
                    && code.redirect == value("redirect_uri")
                    && code.challenge == challenge
                    && code.resource == value("resource");
                if !fits {
                    return error("invalid_grant");
                }
                code.scopes
            }
            "refresh_token" => match self.refresh.remove(&value("refresh_token")) {
                Some(scopes) if !value("resource").is_empty() => scopes,
                _ => return error("invalid_grant"),
            },
            _ => return error("unsupported_grant_type"),
        };
        let (access, refresh) = (self.next("access"), self.next("refresh"));
        if !self.opens_nothing {
            self.access.insert(access.clone(), scopes.clone());
        }
        let mut answer = json!({"access_token": access, "token_type": "Bearer", "expires_in": 3600});
        if !self.without_refresh {
            self.refresh.insert(refresh.clone(), scopes.clone());
            answer["refresh_token"] = json!(refresh);
        }
        if !scopes.is_empty() && !self.names_no_scope {
            answer["scope"] = json!(scopes.join(" "));
        }
        for (name, value) in &self.tokens {
            answer[*name] = value.clone();
        }
        Reply::json(answer)
    }

    /// The MCP server, which knows the tools `read` and `write`.
    fn serve(&self, asked: &Asked, issuer: &str) -> Reply {
        let own = format!("http://{}", asked.header("host").unwrap_or_default());
        let about = format!("{own}/.well-known/oauth-protected-resource/mcp");
        if asked.method == "GET" && asked.path == "/.well-known/oauth-protected-resource/mcp" {
            let mut document = json!({"resource": format!("{own}/mcp"), "authorization_servers": [issuer],
                "scopes_supported": ["files:read"]});
            for (name, value) in &self.about_resource {
                document[*name] = value.clone();
            }
            return Reply::json(document);
        }
        if asked.path != "/mcp" {
            return Reply::status(404);
        }
        if let Some(elsewhere) = self.elsewhere {
            return Reply::status(307).with("Location", elsewhere);
        }
        let about = self.resource_metadata.as_ref().unwrap_or(&about);
        let token = asked.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let Some(scopes) = token.and_then(|token| self.access.get(token)) else {
            let challenge = format!("Bearer resource_metadata=\"{about}\"");
            return Reply::status(401).with("WWW-Authenticate", &challenge);
        };
        let message = asked.message();
        if message["params"]["name"] == "write" && !scopes.iter().any(|scope| scope == "files:write") {
            let scope = if self.names_no_scope { "" } else { ", scope=\"files:write\"" };
            let challenge = format!("Bearer error=\"insufficient_scope\"{scope}");
            return Reply::status(403).with("WWW-Authenticate", &challenge);
        }
        if asked.rpc() == "tools/list" {
            let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
            let tools = json!({"tools": [tool("read"), tool("write")]});
            return Reply::json(json!({"jsonrpc": "2.0", "id": message["id"], "result": tools}));
        }
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": "from afar"}]}});
        handshake(asked).unwrap_or_else(|| Reply::json(answer))
    }
}

/// A browser: asks for an address and follows where it is sent. Gives the last status and the last address.
pub fn browse(address: &str) -> (u16, String) {
    let mut address = address.to_owned();
    for _ in 0..5 {
        let url = Url::parse(&address).unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", url.port().unwrap())).unwrap();
        let target = &url[url::Position::BeforePath..url::Position::AfterQuery];
        write!(
            stream,
            "GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\r\n",
            url.port().unwrap()
        )
        .unwrap();
        let mut answer = Vec::new();
        let mut piece = [0; 4096];
        // Our own server keeps the connection.
        while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read(&mut piece) {
                Ok(count) if count > 0 => answer.extend_from_slice(&piece[..count]),
                _ => break,
            }
        }
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let mut headers = answer.lines().filter_map(|line| line.split_once(": "));
        let location =
            headers.find(|(name, _)| name.eq_ignore_ascii_case("location")).map(|(_, value)| value);
        match location {
            Some(location) if status == 302 => location.trim().clone_into(&mut address),
            _ => return (status, address),
        }
    }
    panic!("sent on without end: {address}")
}
