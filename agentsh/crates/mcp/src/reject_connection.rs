//! Rejects a connection: answers each request with the reason.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::framing::{Frame, LineReader};
use super::jsonrpc::{self, Message};
use super::reply::{self, ErrorReply};
use crate::json;

/// Time for a refused client to ask and close.
const REJECT_TIMEOUT: Duration = Duration::from_secs(5);
/// In bytes; only the id is read.
const MAX_LINE: usize = 64 << 10;

/// Answers requests with an error until the client closes its end, for a few seconds at most.
pub async fn reject_connection(
    input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
    reason: &'static str,
    message: &str,
) {
    let mut client = LineReader::new(input, MAX_LINE);
    let error =
        ErrorReply { code: reply::TOO_MANY_REQUESTS, message: message.to_owned(), reason, rule: None };
    let answers = async {
        while !client.is_at_end() {
            while let Some(frame) = client.next_frame() {
                let Frame::Line(line) = frame else { continue };
                let Ok(tree) = json::read(line) else { continue };
                let Ok(Message::Request { id, .. }) = jsonrpc::classify(&tree) else { continue };
                let mut answer = Vec::new();
                reply::write_error(&mut answer, Some(&id.spelled), &error);
                answer.push(b'\n');
                output.write_all(&answer).await?;
            }
            client.fill().await?;
        }
        std::io::Result::Ok(())
    };
    // It is rejected whether it read the answers or not.
    let _ = tokio::time::timeout(REJECT_TIMEOUT, answers).await;
}
