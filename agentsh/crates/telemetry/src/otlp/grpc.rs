//! The same messages as unary gRPC calls: five bytes and the message, one answer, and the status in the trailers.

use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TE};
use serde_json::Value;
use tokio::time::timeout;
use url::Url;

use super::{MAX_ANSWER, SendFailure, Settings, protobuf, to_gzip};
use agentsh_egress::Client;
use agentsh_egress::client::full_body;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// Characters of what a receiver says that are repeated.
const MAX_SAID: usize = 200;

/// The path of the call that takes `TRACES`, `LOGS` or `METRICS`.
#[must_use]
pub fn call(kind: &str) -> &'static str {
    match kind {
        "TRACES" => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        "LOGS" => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        _ => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    }
}

pub(super) async fn export(
    client: &Client,
    url: &Url,
    settings: &Settings,
    message: &Value,
) -> Result<(), SendFailure> {
    let message = protobuf::request(message);
    let message = if settings.is_packed { to_gzip(&message) } else { message };
    let Ok(length) = u32::try_from(message.len()) else {
        return Err(SendFailure::Never("a message is longer than 4 GiB".to_owned()));
    };
    // Whether it is compressed, and how long it is.
    let mut body = vec![u8::from(settings.is_packed)];
    body.extend_from_slice(&length.to_be_bytes());
    body.extend_from_slice(&message);
    let mut headers: HeaderMap = settings.headers.iter().cloned().collect();
    if settings.is_packed {
        headers.insert(ENCODING, HeaderValue::from_static("gzip"));
    }
    let within = settings.within.as_millis();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc+proto"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    if let Ok(within) = HeaderValue::from_str(&format!("{within}m")) {
        headers.insert(TIMEOUT, within);
    }
    let target = client.target(url.as_str()).map_err(|why| SendFailure::Never(why.to_string()))?;
    let asked = async {
        let answer = client.send(Method::POST, &target, headers, full_body(body)).await?;
        let (status, head) = (answer.status, answer.headers.clone());
        let (_, trailers) = answer.whole_with_trailers(MAX_ANSWER).await?;
        Ok((status, head, trailers))
    };
    let answered = timeout(settings.within, asked).await;
    let answered =
        answered.map_err(|_| SendFailure::Later(format!("it did not answer within {within} ms")))?;
    let (status, head, trailers) = answered.map_err(|error: agentsh_egress::HttpError| {
        if error.is_permanent() {
            SendFailure::Never(error.to_string())
        } else {
            SendFailure::Later(error.to_string())
        }
    })?;
    if status != 200 {
        return Err(send_failure(
            matches!(status.as_u16(), 408 | 429 | 502..=504),
            format!("the receiver answered with status {}", status.as_u16()),
        ));
    }
    // An answer that is over with its head has it there.
    let ended = if trailers.contains_key(STATUS) { &trailers } else { &head };
    let text = |name: HeaderName| ended.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match text(STATUS).parse::<u8>() {
        Ok(0) => Ok(()),
        Ok(code) => {
            let said: String = text(GRPC_MESSAGE).chars().take(MAX_SAID).collect();
            let said = if said.is_empty() { said } else { format!(" ({said})") };
            let why = format!("the receiver answered with gRPC status {code}{said}");
            // Cancelled, too late, exhausted, aborted, out of range, unavailable, lost.
            Err(send_failure(matches!(code, 1 | 4 | 8 | 10 | 11 | 14 | 15), why))
        }
        Err(_) => Err(SendFailure::Later("the receiver sent no gRPC status".to_owned())),
    }
}

fn send_failure(is_passing: bool, why: String) -> SendFailure {
    if is_passing { SendFailure::Later(why) } else { SendFailure::Never(why) }
}
