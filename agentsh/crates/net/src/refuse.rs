//! Tells a program of a refusal in its own protocol: a TLS alert, an HTTP response.

use std::time::Duration;

use tokio::net::TcpStream;

use super::copy::{close_sending_side, reset_when_dropped, write_all};
use super::egress_context::{EgressContext, Refusal};
use super::http_host;
use super::permit::{Permit, request_refusal};
use super::socket::Socket;
use crate::store::Recorder;

/// The last message to the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReply {
    Reset,
    /// A fatal TLS alert (RFC 8446, section 6).
    Alert(u8),
    /// An HTTP response with status and text.
    Http(u16, String),
}

/// A refused connection, and its response.
pub(super) struct RefusedConnection {
    pub refusal: Refusal,
    pub protocol: Option<&'static str>,
    pub close_reply: CloseReply,
}

impl RefusedConnection {
    /// For a plain HTTP request.
    pub fn request(permit: &Permit, refused: &http_host::Refusal) -> Self {
        let host = &permit.shown;
        let text =
            format!("agentsh: this request is refused ({}): the connection is to '{host}'", refused.reason);
        Self {
            refusal: request_refusal(permit, refused),
            protocol: Some("http"),
            close_reply: CloseReply::Http(403, text),
        }
    }
}

pub const ACCESS_DENIED: u8 = 49;
pub const UNRECOGNIZED_NAME: u8 = 112;

/// For the program to read the response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// A refusal that cannot be recorded is not answered: the connection breaks.
pub(super) async fn answer_refused<R: Recorder + 'static>(
    egress: &EgressContext<R>,
    socket: Socket,
    permit: &Permit,
    refused: RefusedConnection,
) {
    let caller = permit.caller.as_ref();
    let recorded = egress.commit_refusal(&refused.refusal, None, refused.protocol, caller).await;
    let close_reply = if recorded { refused.close_reply } else { CloseReply::Reset };
    refuse(socket, &close_reply).await;
}

/// Sends the response and closes. Reads the rest, because unread bytes would cause a reset.
pub async fn refuse(socket: Socket, close_reply: &CloseReply) {
    let bytes = match close_reply {
        CloseReply::Reset => {
            reset_when_dropped(&socket);
            return;
        }
        CloseReply::Alert(number) => vec![21, 3, 3, 0, 2, 2, *number],
        CloseReply::Http(status, text) => http(*status, text),
    };
    let Ok(stream) = socket.into_tokio() else { return };
    let say = async {
        write_all(&stream, &bytes).await?;
        close_sending_side(&stream);
        drain(&stream).await
    };
    // The program may be gone.
    let _ = tokio::time::timeout(WRITE_TIMEOUT, say).await;
}

/// Reads to the end.
pub(super) async fn drain(stream: &TcpStream) -> std::io::Result<()> {
    let mut rest = vec![0; 4096];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut rest) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
}

pub(super) fn http(status: u16, text: &str) -> Vec<u8> {
    let phrase = if status == 403 { "Forbidden" } else { "Bad Gateway" };
    let body = format!("{text}\n");
    format!(
        "HTTP/1.1 {status} {phrase}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\nX-Agentsh: refused\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
