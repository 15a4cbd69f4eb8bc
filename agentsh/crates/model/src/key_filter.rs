//! Answers without the keys that stay outside: a server may repeat a key that it was sent.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use agentsh_egress::secret_search::SecretSearch;
use hyper::body::{Body, Bytes, Frame, SizeHint};

/// A body that breaks off before a key.
pub(super) struct KeyFilter<B> {
    body: B,
    watch: SecretSearch,
    /// What may begin a key.
    held: Vec<u8>,
    is_over: bool,
}

impl<B> KeyFilter<B> {
    pub(super) fn new(body: B, watch: SecretSearch) -> Self {
        Self { body, watch, held: Vec::new(), is_over: false }
    }

    fn pass(&mut self, bytes: &[u8]) -> Option<Bytes> {
        if self.watch.finds_in(bytes) {
            return None;
        }
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        self.held = all.split_off(all.len() - self.watch.partial_match_length().min(all.len()));
        Some(Bytes::from(all))
    }
}

impl<B> Body for KeyFilter<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        while !self.is_over {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) if self.watch.is_idle() => return Poll::Ready(Some(Ok(frame))),
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => {
                    self.is_over = true;
                    let held = std::mem::take(&mut self.held);
                    return Poll::Ready((!held.is_empty()).then(|| Ok(Frame::data(held.into()))));
                }
            };
            let Ok(bytes) = frame.into_data() else { continue };
            let Some(passed) = self.pass(&bytes) else {
                self.is_over = true;
                return Poll::Ready(Some(Err(
                    "the response contains an API key that the sandbox must not see".into(),
                )));
            };
            if !passed.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(passed))));
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_empty() && (self.is_over || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
