//! The user's own model that rates how likely a text gives orders to an agent: [`endpoint`] sends requests, [`answer`]
//! parses the score, [`breaker`] pauses after failures. Scores are cached by the hash of the text.

mod answer;
mod breaker;
mod endpoint;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use hyper::header::HeaderValue;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use url::{Host, Url};

use agentsh_egress::Client;
use agentsh_egress::resolve::Resolver;
use agentsh_egress::target::Rules;
use agentsh_policy::{ClassifierFormat, ClassifierPolicy};

use breaker::Breaker;
use endpoint::NoScore;

/// Longest piece that is sent at once, in bytes.
const PIECE: usize = 8 << 10;
/// Pieces of one text that are sent; of a longer one the rest is not seen.
const MAX_PIECES: usize = 8;
/// Questions on their way at once; more wait for their turn.
const MAX_CONCURRENT_REQUESTS: usize = 8;
/// Scores that are kept.
const MAX_CACHED_SCORES: usize = 4096;

type Hash = [u8; 32];

#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// From 0.0 to 1.0: how likely it is an attack.
    pub score: f64,
    /// Bytes at its end that were not examined.
    pub unseen: usize,
}

/// The scores of several texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// For each text the highest score of its pieces.
    pub of_texts: Vec<Score>,
    /// Why the first piece that has no score has none.
    pub missing: Option<String>,
}

pub struct Classifier {
    client: Client,
    url: Url,
    format: ClassifierFormat,
    model: String,
    labels: Vec<String>,
    /// Marked as sensitive, so that nothing prints it.
    key: Option<HeaderValue>,
    within: Duration,
    turns: Semaphore,
    breaker: RefCell<Breaker>,
    kept: RefCell<ScoreCache>,
}

#[derive(Default)]
struct ScoreCache {
    scores: HashMap<Hash, f64>,
    order: VecDeque<Hash>,
}

impl std::fmt::Debug for Classifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Classifier").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}

impl Classifier {
    /// The classifier of a policy; None where it names none.
    ///
    /// # Errors
    /// The address may not be used, or the key is missing.
    pub fn of_policy(
        policy: &ClassifierPolicy,
        env: &BTreeMap<String, String>,
    ) -> Result<Option<Self>, String> {
        let Some(address) = &policy.url else { return Ok(None) };
        let refused = |why: &str| format!("{}: the classifier cannot be used: {why}", address.rule);
        let mut url = Url::parse(&address.value).map_err(|error| refused(&error.to_string()))?;
        let is_here = match url.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        };
        let host = url.host_str().unwrap_or_default().to_owned();
        let is_named = policy.host.as_ref().is_some_and(|named| named.value.eq_ignore_ascii_case(&host));
        if !is_here && !is_named {
            return Err(refused(&format!(
                "'{host}' is not this machine; to send servers' messages to it, add \
                 `sandbox: {{mcp: {{classifier: {{host: \"{host}\"}}}}}}`"
            )));
        }
        if policy.format() == ClassifierFormat::OpenAi && !url.path().ends_with("/chat/completions") {
            let mut path = url.path_segments_mut().map_err(|()| refused("it has no path"))?;
            path.pop_if_empty().extend(["chat", "completions"]);
        }
        let key = match &policy.key_env {
            None => None,
            Some(name) => {
                let key = env.get(&name.value).map(|key| key.trim()).filter(|key| !key.is_empty());
                let key = key.ok_or_else(|| {
                    format!(
                        "{}: the variable {} is not set; it must contain the classifier's key",
                        name.rule, name.value
                    )
                })?;
                let value = HeaderValue::from_str(&format!("Bearer {key}"));
                let mut value =
                    value.map_err(|_| format!("{}: {} contains no key", name.rule, name.value))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let lookup = Resolver::system_lookup().map_err(|error| refused(&error.to_string()))?;
        let rules = Rules { loopback: true, permitted: Vec::new(), anywhere: is_named };
        Ok(Some(Self {
            client: Client::new(lookup, rules),
            url,
            format: policy.format(),
            model: policy.model.as_ref().map(|model| model.value.clone()).unwrap_or_default(),
            labels: policy.labels(),
            key,
            within: Duration::from_millis(policy.timeout_ms()),
            turns: Semaphore::new(MAX_CONCURRENT_REQUESTS),
            breaker: RefCell::default(),
            kept: RefCell::default(),
        }))
    }

    /// Scores of these texts, in order, as far as available. All requests together take no longer than the timeout. A
    /// failed piece does not remove the scores of others, because the text's author can choose a piece that breaks an
    /// answer.
    pub async fn scores(self: &Rc<Self>, texts: &[String]) -> Scores {
        let end = tokio::time::Instant::now() + self.within;
        let mut asked = JoinSet::new();
        let mut given = Scores::default();
        for (number, text) in texts.iter().enumerate() {
            let seen: usize = pieces(text).map(str::len).sum();
            given.of_texts.push(Score { score: 0.0, unseen: text.len() - seen });
            for piece in pieces(text) {
                let (own, piece) = (Rc::clone(self), piece.to_owned());
                asked.spawn_local(async move { (number, own.piece(&piece).await) });
            }
        }
        loop {
            let why = match tokio::time::timeout_at(end, asked.join_next()).await {
                Ok(None) => return given,
                Ok(Some(Ok((number, Ok(score))))) => {
                    if let Some(of_text) = given.of_texts.get_mut(number) {
                        of_text.score = of_text.score.max(score);
                    }
                    continue;
                }
                Ok(Some(Ok((_, Err(why))))) => why,
                Ok(Some(Err(_))) => "the request to it failed".to_owned(),
                Err(_) => {
                    self.breaker.borrow_mut().record_failure(Instant::now());
                    let why = format!("it did not answer within {} ms", self.within.as_millis());
                    given.missing.get_or_insert(why);
                    return given;
                }
            };
            given.missing.get_or_insert(why);
        }
    }

    async fn piece(&self, text: &str) -> Result<f64, String> {
        let hash = hash(text);
        if let Some(score) = self.cached_score(&hash) {
            return Ok(score);
        }
        self.left_alone()?;
        let _turn = self.turns.acquire().await;
        // An earlier request may have found that the endpoint does not answer.
        self.left_alone()?;
        let said = endpoint::ask(self, text).await;
        self.breaker.borrow_mut().record_answer(&said, Instant::now());
        let score = said.map_err(NoScore::reason)?;
        self.kept.borrow_mut().keep(hash, score);
        Ok(score)
    }

    fn left_alone(&self) -> Result<(), String> {
        match self.breaker.borrow().closed_for(Instant::now()) {
            None => Ok(()),
            Some(left) => {
                Err(format!("it did not answer; agentsh asks it again in {} s", left.as_secs() + 1))
            }
        }
    }

    fn cached_score(&self, hash: &Hash) -> Option<f64> {
        self.kept.borrow().scores.get(hash).copied()
    }
}

impl ScoreCache {
    fn keep(&mut self, hash: Hash, score: f64) {
        if self.scores.insert(hash, score).is_none() {
            self.order.push_back(hash);
        }
        if self.order.len() > MAX_CACHED_SCORES
            && let Some(oldest) = self.order.pop_front()
        {
            self.scores.remove(&oldest);
        }
    }
}

fn hash(text: &str) -> Hash {
    Sha256::digest(text).into()
}

/// The text in pieces, cut between characters. What does not fit into the last one is left out.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    let cut = move || {
        let mut end = rest.len().min(PIECE);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, after) = rest.split_at(end);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    };
    std::iter::from_fn(cut).take(MAX_PIECES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classifier_input_is_split_between_characters() {
        let text = "ä".repeat(PIECE);
        let all: Vec<&str> = pieces(&text).collect();
        assert_eq!(all.concat(), text);
        assert!(all.iter().all(|piece| piece.len() <= PIECE));
        let long = "x".repeat(PIECE * (MAX_PIECES + 2));
        assert_eq!(pieces(&long).map(str::len).sum::<usize>(), PIECE * MAX_PIECES);
        assert_eq!(pieces("").count(), 0);
    }

    #[test]
    fn score_cache_is_bounded() {
        let mut kept = ScoreCache::default();
        for number in 0..MAX_CACHED_SCORES + 10 {
            kept.keep(hash(&number.to_string()), 0.5);
        }
        assert_eq!((kept.scores.len(), kept.order.len()), (MAX_CACHED_SCORES, MAX_CACHED_SCORES));
        assert!(!kept.scores.contains_key(&hash("0")));
    }
}
