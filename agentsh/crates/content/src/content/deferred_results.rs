//! Results that wait to be remembered.

use std::sync::{Arc, LazyLock};

use agentsh_base::json::{self, Json};
use agentsh_dlp::taint::{Leaves, Origin, ReadResult, Reader};
use agentsh_dlp::{Views, threads};

/// Results and bytes of them that may wait.
const MAX_RESULTS: usize = 64;
const MAX_BYTES: usize = 4 << 20;

/// Oldest first.
#[derive(Debug, Default)]
pub(super) struct DeferredResults {
    results: Vec<Deferred>,
}

#[derive(Debug)]
pub(super) struct Deferred {
    pub origin: Origin,
    /// The text as JSON.
    pub said: Arc<str>,
    /// A long one is read on another thread, unless who needs it comes first.
    pub read: Option<Arc<LazyLock<Option<ReadResult>, Job>>>,
    pub is_marked: bool,
}

type Job = Box<dyn FnOnce() -> Option<ReadResult> + Send>;

impl DeferredResults {
    pub fn push(&mut self, origin: Origin, said: &Json<'_>, apart: Option<(Reader, Views)>, is_marked: bool) {
        let said: Arc<str> = said.to_compact().into();
        let read = apart.map(|(reader, views)| {
            let (text, is_private) = (Arc::clone(&said), origin.private);
            let job = move || {
                // It was parsed before it was stored, so this cannot fail.
                let leaves = Leaves::of(&json::read(text.as_bytes()).ok()?);
                Some(reader.read(is_private, &leaves, &views))
            };
            let read = Arc::new(LazyLock::new(Box::new(job) as Job));
            let there = Arc::clone(&read);
            threads::run_in_pool(move || {
                LazyLock::force(&there);
            });
            read
        });
        self.results.push(Deferred { origin, said, read, is_marked });
    }

    pub fn len(&self) -> usize {
        self.results.len()
    }

    pub fn is_full(&self) -> bool {
        let bytes: usize = self.results.iter().map(|waiting| waiting.said.len()).sum();
        self.results.len() >= MAX_RESULTS || bytes >= MAX_BYTES
    }

    /// All, or those before the first that another thread still reads.
    pub fn take(&mut self, all: bool) -> Vec<Deferred> {
        // The other thread has finished with it.
        let is_read =
            |waiting: &Deferred| waiting.read.as_ref().is_none_or(|read| Arc::strong_count(read) == 1);
        let ready = self.results.iter().take_while(|waiting| all || is_read(waiting)).count();
        let rest = self.results.split_off(ready);
        std::mem::replace(&mut self.results, rest)
    }
}
