//! Server-sent events that announce new records. They contain only a number: the page reloads its parts.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::Either;
use hyper::body::{Body, Bytes, Frame};
use hyper::header::CONTENT_TYPE;
use hyper::{Response, StatusCode};
use tokio::sync::mpsc;

use super::app::{App, Reply, reply, with_header};
use agentsh_store::running;

/// Between two looks at the record.
const POLL_INTERVAL: Duration = Duration::from_millis(400);
/// Looks without news after which the connection is tried.
const QUIET_LOOKS: u32 = 40;

/// Pieces of a body as they come.
pub(super) struct Feed(mpsc::Receiver<Bytes>);

impl Body for Feed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

pub(super) fn stream(app: &Arc<App>, after: i64) -> Reply {
    let Ok(place) = Arc::clone(&app.streams).try_acquire_owned() else {
        let why = "too many pages are open\n";
        return reply(StatusCode::TOO_MANY_REQUESTS, "text/plain; charset=utf-8", why);
    };
    let (pieces, feed) = mpsc::channel(4);
    let app = Arc::clone(app);
    tokio::spawn(async move {
        watch(&app, after, &pieces).await;
        drop(place);
    });
    with_header(Response::new(Either::Right(Feed(feed))), CONTENT_TYPE, "text/event-stream")
}

/// Until the page is closed.
async fn watch(app: &App, mut newest: i64, pieces: &mpsc::Sender<Bytes>) {
    let mut runs = running::running(&app.state_dir);
    let mut quiet = 0;
    if pieces.send(Bytes::from_static(b"retry: 3000\n\n")).await.is_err() {
        return;
    }
    loop {
        let now = app.newest().await.unwrap_or(newest);
        let run_now = running::running(&app.state_dir);
        let piece = if now != newest || run_now != runs {
            (newest, runs, quiet) = (now, run_now, 0);
            Some(format!("event: news\nid: {now}\ndata: {now}\n\n"))
        } else {
            quiet += 1;
            (quiet % QUIET_LOOKS == 0).then(|| ":\n\n".to_owned())
        };
        if let Some(piece) = piece
            && pieces.send(Bytes::from(piece)).await.is_err()
        {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = pieces.closed() => return,
        }
    }
}
