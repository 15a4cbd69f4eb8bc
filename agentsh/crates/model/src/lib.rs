//! The channel between the agent and its model: requests are forwarded, answers are checked before the agent gets
//! them. The relay passes both ends of the connection.

mod body;
mod canary;
mod carry;
pub mod endpoints;
mod finished_call;
pub mod hosted;
mod judge;
mod key_filter;
mod keys;
mod ledger;
mod other_requests;
mod secrets;

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Instant;

use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, IF_RANGE,
    RANGE, RETRY_AFTER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};

use self::body::{JudgedStream, error_body, reply_with, timeout_message};
use self::canary::Canary;
use self::carry::Upstream;
use self::finished_call::{ModelCall, SessionUsage};
use self::hosted::Reachable;
use self::judge::SessionJudge;
pub use self::judge::Wire;
use self::keys::Keys;
use self::ledger::Ledger;
use agentsh_agents::{Endpoint, providers};
use agentsh_base::random;
use agentsh_base::types::ServerId;
use agentsh_content::content::FILES;
use agentsh_egress::encoding::{self, Decoder};
use agentsh_guard::SubjectKind;
use agentsh_host::{Facts, Record};
use agentsh_llm::canary::Needle;
use agentsh_llm::{Answer, EngineEvent, LlmError, MAX_HELD, Provider, Route, Turns, request, route, sse};
use agentsh_policy::domain::{self, Host};
use agentsh_policy::{Credentials, OnModelSecret as OnSecret};
use agentsh_store::words::Action;
use agentsh_store::{Event, escape};

/// Longest request that is read, in bytes: pictures and documents travel in it.
const MAX_REQUEST: usize = 64 << 20;

/// The agent's model, and what its answers are judged by.
pub struct Model {
    facts: Rc<Facts>,
    record: Rc<Record>,
    places: Vec<(Host, u16)>,
    servers: Rc<BTreeSet<String>>,
    needs: Option<Canary>,
    books: Rc<SessionUsage>,
    keys: Keys,
    /// For hashes of secrets; it ends with the session.
    key: [u8; 32],
    /// Routes and secrets that were reported already.
    told: RefCell<BTreeSet<String>>,
    turns: RefCell<Turns>,
    /// Judges calls, here and on the wire, and learns in which turn they are.
    wire: Wire,
    /// The hosts that the provider may contact for the agent.
    reachable: OnceCell<Reachable>,
}

struct PendingAnswer {
    provider: Provider,
    needle: Option<Needle>,
    replacement: String,
    model: String,
    /// Events may come.
    is_streamed: bool,
    has_choices: bool,
    /// The tools of the question; None for a stored answer.
    offered: Option<BTreeSet<String>>,
    since: Instant,
}

/// In which OpenAI and Anthropic tell their clients whether to repeat a request.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// Longest quotation of an answer that is no JSON, in characters.
const MAX_QUOTE: usize = 200;
/// Maximum number of different messages, each reported once.
const MAX_REPORTED: usize = 4096;

type Outgoing = Either<Full<Bytes>, Incoming>;
type ReplyBody = Either<Full<Bytes>, Either<Incoming, JudgedStream>>;
type Reply = Response<ReplyBody>;

impl Model {
    /// None: by the policy no model's answers are judged, or no model is where they can be.
    #[must_use]
    pub fn of(
        (facts, record): (&Rc<Facts>, &Rc<Record>),
        endpoints: &[Endpoint],
        servers: BTreeSet<String>,
        wire: Wire,
    ) -> Option<Rc<Self>> {
        let policy = &facts.policy.llm;
        let places: Vec<(Host, u16)> = endpoints
            .iter()
            .filter(|endpoint| endpoints::interception(facts, endpoint).is_some())
            .filter_map(|endpoint| Some((domain::normalise(&endpoint.host).ok()?, endpoint.port)))
            .collect();
        if places.is_empty() && !endpoints::is_everywhere(facts) {
            return None;
        }
        let needs = Canary::of(policy);
        let ledger = RefCell::new(Ledger::new(policy));
        // Without random bytes hashes are equal in all sessions, but still reveal no value.
        let key = random::bytes().unwrap_or([0; 32]);
        let env = &facts.context.env;
        let own = endpoints.iter().filter(|endpoint| endpoint.only_keys).filter_map(|endpoint| {
            let host = domain::normalise(&endpoint.host).ok()?;
            let is_for = |name: &&String| providers::is_for(name, endpoint, env);
            let values = env.iter().filter(|(name, value)| !value.is_empty() && is_for(name));
            Some(((host, endpoint.port), values.map(|(_, value)| value.clone()).collect()))
        });
        let keys = Keys::new(own.collect());
        let books = Rc::new(SessionUsage { record: Rc::clone(record), ledger });
        let servers = Rc::new(servers);
        Some(Rc::new(Self {
            facts: Rc::clone(facts),
            record: Rc::clone(record),
            places,
            servers,
            needs,
            books,
            keys,
            key,
            told: RefCell::default(),
            turns: RefCell::default(),
            wire,
            reachable: OnceCell::new(),
        }))
    }

    /// With `credentials: broker`, placeholders for the keys in the agent's environment. Each key is for the endpoints of its
    /// own provider.
    #[must_use]
    pub fn keep_keys(
        &self,
        endpoints: &[Endpoint],
        env: BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let is_asked = self.facts.policy.llm.credentials.as_ref();
        if is_asked.is_none_or(|word| word.value != Credentials::Broker) {
            return BTreeMap::new();
        }
        let mut placeholders = env.clone();
        let word = |name: &str| {
            // Without random bytes it can be guessed, and still opens nothing elsewhere.
            let random = random::hex::<12>().unwrap_or_default();
            format!("agentsh-{}-{random}", name.to_ascii_lowercase().replace('_', "-"))
        };
        let users = &self.facts.context.env;
        let places = |name: &str| {
            let own = endpoints.iter().filter(|endpoint| providers::is_for(name, endpoint, users));
            own.filter_map(|endpoint| Some((domain::normalise(&endpoint.host).ok()?, endpoint.port)))
                .collect()
        };
        self.keys.take(&mut placeholders, word, places);
        placeholders.retain(|name, value| env.get(name) != Some(value));
        placeholders
    }

    /// `offered`: the names of the tools in the question, if it is known.
    fn judge(&self, offered: Option<BTreeSet<String>>) -> SessionJudge {
        let own = (Rc::clone(&self.facts), Rc::clone(&self.record));
        SessionJudge::new(own, Rc::clone(&self.servers), self.wire.clone(), offered)
    }

    /// Handles one request and its answer.
    async fn serve(&self, mut request: Request<Incoming>, upstream: &Upstream) -> Reply {
        if wants_socket(request.headers()) {
            // agentsh does not read WebSockets. Clients that get this error continue without.
            let why =
                "[agentsh] web sockets to the model are not allowed: agentsh could not inspect the answers";
            let body = error_body(Provider::OpenAiResponses, StatusCode::UPGRADE_REQUIRED, why);
            return reply_with(StatusCode::UPGRADE_REQUIRED, body);
        }
        let routed = route(request.method().as_str(), request.uri().path());
        let put = self.keys.put_on(&mut request, upstream.channel_target());
        if let Err(why) = put.and_then(|()| self.keys.check(&request, upstream.channel_target())) {
            let provider = routed.provider().unwrap_or(Provider::OpenAiChat);
            return self.withheld_reply(provider, StatusCode::FORBIDDEN, &why);
        }
        if self.keys.holds_any() {
            // Compressed answers could not be searched for the key.
            request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        let provider = match routed {
            Route::Model(provider) => provider,
            Route::Beside(_) => return self.pass(request, upstream).await,
            Route::Kept(provider) => return self.forward_stored_answer(provider, request, upstream).await,
            Route::Measured(provider) => return self.forward_counted(provider, request, upstream).await,
            Route::Left(..) | Route::Unknown => return self.forward_unread(routed, request, upstream).await,
        };
        let since = Instant::now();
        let refuse = |status, why: &str| self.withheld_reply(provider, status, why);
        let (mut head, body) = request.into_parts();
        let (asked, body) = match self.read(provider, &mut head, body, upstream).await {
            Ok((Some(asked), body)) => (asked, body),
            Ok((None, body)) => return self.forward(head, Either::Left(Full::new(body)), upstream).await,
            Err(refused) => return refused,
        };
        if let Some(said) = asked.said {
            self.wire.0.borrow_mut().in_turn(self.turns.borrow_mut().number_turn(said));
        }
        let body = match self.admit(provider, &asked, body, since).await {
            Ok(body) => body,
            Err(refused) => return refused,
        };
        let body = match self
            .needs
            .as_ref()
            .map_or_else(|| Ok(body.clone()), |canary| canary.mark(provider, body.clone()))
        {
            Ok(body) => body,
            Err(error) => {
                return refuse(StatusCode::BAD_REQUEST, &format!("the request is {error}"));
            }
        };
        hop_by_hop(&mut head.headers);
        whole_and_plain(&mut head.headers);
        let is_kept = body.is_empty();
        let request = Request::from_parts(head, Either::Left(Full::new(body)));
        let timeout = self.facts.policy.llm.timeout();
        let answer = match tokio::time::timeout(timeout, upstream.send(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                return refuse(StatusCode::BAD_GATEWAY, &format!("the model did not answer: {error}"));
            }
            Err(_) => return refuse(StatusCode::GATEWAY_TIMEOUT, &timeout_message(timeout)),
        };
        let canary = self.needs.as_ref();
        let asked = PendingAnswer {
            provider,
            needle: canary.and_then(|canary| canary.arm(&asked.system)),
            replacement: canary.map(|canary| canary.replacement.clone()).unwrap_or_default(),
            model: asked.model,
            has_choices: asked.has_choices,
            offered: (!is_kept).then_some(asked.offered),
            is_streamed: asked.stream || provider == Provider::Google || is_kept,
            since,
        };
        self.answer(answer, asked).await
    }

    async fn answer(&self, answer: Response<Incoming>, asked: PendingAnswer) -> Reply {
        let (mut head, body) = answer.into_parts();
        hop_by_hop(&mut head.headers);
        let mut call = ModelCall::new(Rc::clone(&self.books), &asked, head.status);
        // No model speaks in an error.
        if !head.status.is_success() {
            return Response::from_parts(head, Either::Right(Either::Left(body)));
        }
        let refuse = |why: &str| {
            let mut reply = self.withheld_reply(asked.provider, StatusCode::BAD_GATEWAY, why);
            // The official clients would ask again, and pay for the same answer.
            reply.headers_mut().insert(SHOULD_RETRY, HeaderValue::from_static("false"));
            reply
        };
        let timeout = self.facts.policy.llm.timeout();
        let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let mut body = body;
        let (is_stream, first) = match kind.as_str() {
            // Some servers name the wrong type: a client that asked for no stream reads JSON in either.
            "text/event-stream" if asked.is_streamed => (true, Bytes::new()),
            "application/json" if !asked.is_streamed || asked.provider == Provider::Ollama => {
                (false, Bytes::new())
            }
            _ if asked.provider == Provider::Ollama => (true, Bytes::new()),
            // Clients do not look at the name: what it is shows in how it begins.
            _ => match tokio::time::timeout(timeout, body::first_piece(&mut body)).await {
                Ok(first) => (sse::begins(&first), first),
                Err(_) => return refuse(&timeout_message(timeout)),
            },
        };
        if is_stream {
            let decoder = match Decoder::take(&mut head.headers) {
                Ok(decoder) => decoder,
                Err(why) => return refuse(&format!("the model's stream: {why}")),
            };
            head.headers.remove(CONTENT_LENGTH);
            let judged = JudgedStream::new(
                (first, body, decoder),
                &asked,
                (self.judge(asked.offered.clone()), call),
                timeout,
            );
            return Response::from_parts(head, Either::Right(Either::Right(judged)));
        }
        let whole = Limited::new(body, MAX_HELD).collect();
        let body = match tokio::time::timeout(timeout, whole).await {
            Ok(Ok(rest)) if first.is_empty() => rest.to_bytes(),
            Ok(Ok(rest)) => Bytes::from([first, rest.to_bytes()].concat()),
            Ok(Err(_)) => return refuse("the model's answer is longer than 16 MiB, or broke off"),
            Err(_) => return refuse(&timeout_message(timeout)),
        };
        let body = match encoding::decode(&mut head.headers, body, MAX_HELD) {
            Ok(body) => body,
            Err(why) => return refuse(&format!("the model's answer: {why}")),
        };
        let mut judge = self.judge(asked.offered);
        let judged = Answer::of(asked.provider, &body, asked.needle.as_ref(), &asked.replacement, &mut judge);
        let judged = match judged {
            Ok(judged) => judged,
            Err(error) => {
                let fault = self.fault(&error, &body, asked.needle.as_ref());
                return refuse(&format!("the model's answer is {fault}"));
            }
        };
        call.usage = judged.usage;
        let is_recorded = judge.record(asked.provider, &judged.told).await;
        if !is_recorded {
            return refuse("it cannot be recorded");
        }
        let body = judged.body.map_or(body, Bytes::from);
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        Response::from_parts(head, Either::Left(Full::new(body)))
    }

    /// A request and its body, decompressed. None: it is not a question, and its URL is not a known model.
    async fn read(
        &self,
        provider: Provider,
        head: &mut Parts,
        body: Incoming,
        upstream: &Upstream,
    ) -> Result<(Option<request::ModelRequest>, Bytes), Reply> {
        let refuse = |status, why: &str| self.withheld_reply(provider, status, why);
        let body = Limited::new(body, MAX_REQUEST).collect().await.map_err(|_| {
            refuse(StatusCode::PAYLOAD_TOO_LARGE, "the request is longer than 64 MiB, or broke off")
        })?;
        let body = encoding::decode(&mut head.headers, body.to_bytes(), MAX_REQUEST).map_err(|why| {
            refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, &format!("a compressed request: {why}"))
        })?;
        // The body may have another length than it came with; hyper writes the one that it has.
        head.headers.remove(CONTENT_LENGTH);
        match request::read(provider, head.uri.path(), &body) {
            Ok(asked) if !upstream.channel_target().is_one || !asked.model.is_empty() => {
                Ok((Some(asked), body))
            }
            Err(error) if !upstream.channel_target().is_one => {
                Err(refuse(StatusCode::BAD_REQUEST, &format!("the request is {error}")))
            }
            _ => Ok((None, body)),
        }
    }

    /// The body as forwarded, if the provider may do what it says, the budgets allow it and no secret blocks it.
    async fn admit(
        &self,
        provider: Provider,
        asked: &request::ModelRequest,
        body: Bytes,
        since: Instant,
    ) -> Result<Bytes, Reply> {
        let body = self.allow_hosted(provider, &asked.hosted, body).await?;
        let admitted = self.books.ledger.borrow_mut().admit(&asked.model, since);
        admitted.map_err(|spent| self.spent(provider, &spent))?;
        self.search(provider, body).await
    }

    /// True the first time.
    fn is_new(&self, what: &str) -> bool {
        let mut told = self.told.borrow_mut();
        if told.len() >= MAX_REPORTED {
            // Recording something twice does less harm than not recording it.
            told.clear();
        }
        told.insert(what.to_owned())
    }

    fn spent(&self, provider: Provider, spent: &ledger::BudgetExhausted) -> Reply {
        let status =
            if spent.again.is_some() { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::FORBIDDEN };
        let mut reply =
            self.withheld_reply(provider, status, &format!("the budget is used up: {}", spent.why));
        if let Some(again) = spent.again {
            reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(again.as_secs() + 1));
        }
        reply
    }

    /// Whether anything looks for what the agent read: only then it is worth reading.
    fn remembers(&self) -> bool {
        self.facts.policy.mcp.exfiltration.enabled && !self.servers.is_empty()
    }

    /// Secrets in results of the agent's own tools are searched in messages to servers, like those of files.
    fn remember_own(&self, own: &[secrets::OwnResult]) {
        for read in own.iter().filter(|read| self.is_new(&read.hash)) {
            let Ok(lines) = agentsh_base::json::read(read.lines.as_bytes()) else { continue };
            let server = ServerId(FILES.to_owned());
            let matter = SubjectKind::OwnRead { tool: &read.tool, lines: &lines };
            // It is not judged, only remembered.
            let _ = self.wire.0.borrow_mut().decide(&server, matter, std::time::Duration::ZERO);
        }
    }

    /// The request as forwarded, with its secrets treated as the policy says.
    async fn search(&self, provider: Provider, body: Bytes) -> Result<Bytes, Reply> {
        let (policy, key, text) = (self.facts.policy.llm.clone(), self.key, body.clone());
        // Off the thread that carries messages: a request has megabytes.
        let reads = self.remembers();
        let search = move || {
            let own = if reads { secrets::own_tool_results(provider, &text, &key) } else { Vec::new() };
            (secrets::search(&text, &policy, &key), own)
        };
        let searched = tokio::task::spawn_blocking(search).await;
        if let Ok((_, own)) = &searched {
            self.remember_own(own);
        }
        let Ok(searched) = searched.map(|(searched, _)| searched) else {
            return Err(self.withheld_reply(
                provider,
                StatusCode::BAD_GATEWAY,
                "cannot search the request for secrets",
            ));
        };
        let Some(searched) = searched else { return Ok(body) };
        let action = match searched.action {
            OnSecret::Block => Action::Block,
            OnSecret::Redact => Action::Rewrite,
            OnSecret::Log | OnSecret::Off => Action::Alert,
        };
        let kinds: BTreeSet<&str> = searched.found.iter().map(|found| found.kind.as_str()).collect();
        let kinds = kinds.into_iter().collect::<Vec<_>>().join(", ");
        // A conversation is sent again with every turn.
        let is_new = searched.found.iter().filter(|found| self.is_new(&found.hash)).count() > 0;
        if is_new || action == Action::Block {
            self.record.journal.record(Event::ModelSecretsFound {
                provider: judge::policy_provider(provider),
                action,
                found: searched.found,
                more: u64::try_from(searched.more).unwrap_or(u64::MAX),
            });
        }
        if action == Action::Block {
            let why =
                format!("the request contains secrets ({kinds}); to allow them: `llm: {{secrets: log}}`");
            return Err(self.withheld_reply(provider, StatusCode::FORBIDDEN, &why));
        }
        Ok(searched.body.map_or(body, Bytes::from))
    }

    /// What is wrong with an answer. Of one that is no JSON at all, such as the page of a proxy, the first line says it.
    fn fault(&self, error: &LlmError, body: &[u8], needle: Option<&Needle>) -> String {
        let text = String::from_utf8_lossy(body);
        let line = text.trim_start().lines().next().unwrap_or_default();
        let is_json = line.is_empty() || line.starts_with(['{', '[']) || !matches!(error, LlmError::Json(_));
        let is_guarded = self.keys.watch().finds_in(body) || needle.is_some_and(|needle| needle.is_in(&text));
        if is_json || is_guarded {
            return error.to_string();
        }
        format!("not JSON; it begins with '{}'", escape::shorten(&escape::line(line), MAX_QUOTE))
    }

    /// In the shape of the provider's own errors, so that the agent shows it.
    fn withheld_reply(&self, provider: Provider, status: StatusCode, why: &str) -> Reply {
        self.record.journal.record(Event::ModelAnswerWithheld {
            provider: judge::policy_provider(provider),
            reason: why.to_owned(),
        });
        reply_with(status, error_body(provider, status, &format!("[agentsh] {why}")))
    }
}

fn wants_socket(headers: &HeaderMap) -> bool {
    let named = headers.get_all(UPGRADE).iter().filter_map(|value| value.to_str().ok());
    named.flat_map(|text| text.split(',')).any(|word| word.trim().eq_ignore_ascii_case("websocket"))
}

/// Requests uncompressed and complete answers, because others cannot be judged.
fn whole_and_plain(headers: &mut HeaderMap) {
    for name in [RANGE, IF_RANGE] {
        headers.remove(name);
    }
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}

/// Headers of a single connection; lengths are set again.
fn hop_by_hop(headers: &mut HeaderMap) {
    const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
    for name in [CONNECTION, TRANSFER_ENCODING, UPGRADE, KEEP_ALIVE] {
        headers.remove(name);
    }
}

/// Whether an event reports a leak of the prompt.
fn is_leak(told: &EngineEvent) -> bool {
    *told == EngineEvent::Leaked
}
