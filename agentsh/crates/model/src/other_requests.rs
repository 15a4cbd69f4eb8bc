//! Requests to the model's host that are not questions to a model.

use std::time::Instant;

use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_LENGTH, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};

use super::body::timeout_message;
use super::carry::Upstream;
use super::{Model, Outgoing, Reply, hop_by_hop, whole_and_plain};
use agentsh_egress::encoding;
use agentsh_llm::hosted::{self, Hosted, HostedReach};
use agentsh_llm::{MAX_HELD, Provider, Route, StoredData, batch_results};
use agentsh_store::escape;

impl Model {
    /// Bodies go through in both directions.
    pub(super) async fn pass(&self, request: Request<Incoming>, upstream: &Upstream) -> Reply {
        let (head, body) = request.into_parts();
        self.forward(head, Either::Right(body), upstream).await
    }

    /// Stored answers are judged as new ones are. They are read as a whole, except where a policy rule allows the
    /// request.
    pub(super) async fn forward_stored_answer(
        &self,
        provider: Provider,
        request: Request<Incoming>,
        upstream: &Upstream,
    ) -> Reply {
        let policy = &self.facts.policy.llm;
        let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
        if policy.passes("GET", target).is_some() {
            return self.pass(request, upstream).await;
        }
        let path = escape::line(request.uri().path()).into_owned();
        let (mut head, body) = request.into_parts();
        whole_and_plain(&mut head.headers);
        let reply = self.forward(head, Either::Right(body), upstream).await;
        let (mut head, body) = reply.into_parts();
        let Either::Right(Either::Left(body)) = body else { return Response::from_parts(head, body) };
        if !head.status.is_success() {
            return Response::from_parts(head, Either::Right(Either::Left(body)));
        }
        let refuse = |why: &str| {
            let why = format!(
                "`GET {path}` may contain answers of a model: {why}; to let it pass unread: `llm: {{allow: \
                 [\"GET {path}\"]}}`"
            );
            self.withheld_reply(provider, StatusCode::BAD_GATEWAY, &why)
        };
        let timeout = policy.timeout();
        let body = match tokio::time::timeout(timeout, Limited::new(body, MAX_HELD).collect()).await {
            Ok(Ok(body)) => body,
            Ok(Err(_)) => return refuse("it is longer than 16 MiB, or broke off"),
            Err(_) => return refuse(&timeout_message(timeout)),
        };
        let body = match encoding::decode(&mut head.headers, body.to_bytes(), MAX_HELD) {
            Ok(body) => body,
            Err(why) => return refuse(&why),
        };
        let mut judge = self.judge(None);
        let judged = match batch_results::judge(&body, &mut judge) {
            Ok(judged) => judged,
            Err(error) => return refuse(&format!("the answer that the provider stored is {error}")),
        };
        if !judge.record(provider, &judged.told).await {
            return refuse("it cannot be recorded");
        }
        let body = judged.body.map_or(body, Bytes::from);
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        Response::from_parts(head, Either::Left(Full::new(body)))
    }

    /// A request with text for a model: counted and searched like a question.
    pub(super) async fn forward_counted(
        &self,
        provider: Provider,
        request: Request<Incoming>,
        upstream: &Upstream,
    ) -> Reply {
        let since = Instant::now();
        let (mut head, body) = request.into_parts();
        let admitted = match self.read(provider, &mut head, body, upstream).await {
            Ok((Some(asked), body)) => self.admit(provider, &asked, body, since).await,
            Ok((None, body)) => Ok(body),
            Err(refused) => Err(refused),
        };
        match admitted {
            Ok(body) => self.forward(head, Either::Left(Full::new(body)), upstream).await,
            Err(refused) => refused,
        }
    }

    /// A request that is not read: it passes if a rule allows it, or if it is known and nothing has to be kept out.
    pub(super) async fn forward_unread(
        &self,
        routed: Route,
        request: Request<Incoming>,
        upstream: &Upstream,
    ) -> Reply {
        let policy = &self.facts.policy.llm;
        let (method, path) = (request.method().as_str(), request.uri().path());
        let target = request.uri().path_and_query().map_or(path, |target| target.as_str());
        let path = escape::line(path);
        let because = match (routed.provider(), policy.bound()) {
            _ if policy.passes(method, target).is_some() => None,
            (None, _) => Some("is not a route of a model that agentsh knows".to_owned()),
            (Some(_), Some(rule)) => Some(format!(
                "leaves data with the provider that is neither counted nor searched, against {rule}"
            )),
            (Some(_), None) => None,
        };
        let Some(because) = because else {
            return match routed {
                Route::Left(provider, later) if policy.passes(method, target).is_none() => {
                    self.forward_stored_data(provider, later, request, upstream).await
                }
                _ => self.pass(request, upstream).await,
            };
        };
        let why = format!(
            "`{method} {path}` of the model's host {because}; to let it pass unread: \
             `llm: {{allow: [\"{method} {path}\"]}}`"
        );
        if self.is_new(&why) {
            self.record.note(&why);
        }
        self.withheld_reply(routed.provider().unwrap_or(Provider::OpenAiChat), StatusCode::FORBIDDEN, &why)
    }

    /// Data that the provider stores: a tool of the agent, and so are the actions that its questions request.
    async fn forward_stored_data(
        &self,
        provider: Provider,
        later: StoredData,
        request: Request<Incoming>,
        upstream: &Upstream,
    ) -> Reply {
        let one = |tool: &str, reach| Hosted { tool: tool.to_owned(), written: String::new(), reach };
        let (mut head, body) = request.into_parts();
        let (all, body) = match later {
            StoredData::File => (vec![one(hosted::FILES, HostedReach::Provider)], Either::Right(body)),
            StoredData::Batch => (vec![one(hosted::BATCH, HostedReach::Anywhere)], Either::Right(body)),
            StoredData::Questions => match self.read(provider, &mut head, body, upstream).await {
                Ok((asked, body)) => {
                    (asked.map(|asked| asked.hosted).unwrap_or_default(), Either::Left(body))
                }
                Err(refused) => return refused,
            },
        };
        let whole = match &body {
            Either::Left(body) => body.clone(),
            Either::Right(_) => Bytes::new(),
        };
        let allowed = match self.allow_hosted(provider, &all, whole).await {
            Ok(allowed) => allowed,
            Err(refused) => return refused,
        };
        let body = match body {
            Either::Left(_) => Either::Left(Full::new(allowed)),
            Either::Right(body) => Either::Right(body),
        };
        self.forward(head, body, upstream).await
    }

    pub(super) async fn forward(&self, mut head: Parts, body: Outgoing, upstream: &Upstream) -> Reply {
        hop_by_hop(&mut head.headers);
        match upstream.send(Request::from_parts(head, body)).await {
            Ok(answer) => {
                let (mut head, body) = answer.into_parts();
                hop_by_hop(&mut head.headers);
                Response::from_parts(head, Either::Right(Either::Left(body)))
            }
            Err(error) => {
                self.withheld_reply(Provider::OpenAiChat, StatusCode::BAD_GATEWAY, &error.to_string())
            }
        }
    }
}
