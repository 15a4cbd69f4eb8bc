//! What the name of an argument says about its value.

use agentsh_base::words_of_name;

/// How much a value under a key has to look like a host to count as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trust {
    /// Prose, paths, anything: only what is clearly a destination.
    Nothing,
    /// `url`, `target`, `repo`: what has a dot and an end that names of machines have. It may be a file as well.
    Likely,
    /// `endpoint`, `server`: anything with a dot.
    Address,
    /// `host`, `proxy`: any value.
    Host,
}

/// The key of an argument, split into its parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub trust: Trust,
    /// `path`, `route`: is appended to an address.
    pub continues: bool,
    /// `command`, `script`: is executed.
    pub runs: bool,
    /// `version`: four numbers are no address.
    pub counts: bool,
    /// `field`, `expr`: words with dots are parts of a value.
    pub names_part: bool,
}

const HOST: &str = "host hostname fqdn proxy nameserver dns ip hosts hostnames";
const LIKELY: &str = "url urls uri uris href link links remote origin target site website base destination dest registry \
     repo repository mirror redirect baseurl connection";
const ADDRESS: &str = "endpoint endpoints domain domains server servers address addr webhook webhooks callback gateway \
     upstream peer broker";
const CONTINUES: &str = "path route suffix query endpoint resource pathname uri";
const RUNS: &str = "command cmd commands script shell bash sh exec run cmdline entrypoint";

const COUNTS: &str = "version versions release semver build revision";
const PARTS: &str =
    "field fields expr expression property selector attribute jsonpath jq column columns identifier";

impl Key {
    pub(super) fn of(key: Option<&str>) -> Self {
        let mut found =
            Self { trust: Trust::Nothing, continues: false, runs: false, counts: false, names_part: false };
        // The first 128 characters count.
        for word in words_of_name(key.unwrap_or("").chars().take(128)) {
            let word = word.as_str();
            if has_word(HOST, word) {
                found.trust = Trust::Host;
            } else if has_word(ADDRESS, word) {
                found.trust = found.trust.max(Trust::Address);
            } else if has_word(LIKELY, word) {
                found.trust = found.trust.max(Trust::Likely);
            }
            found.continues |= has_word(CONTINUES, word);
            found.runs |= has_word(RUNS, word);
            found.counts |= has_word(COUNTS, word);
            found.names_part |= has_word(PARTS, word);
        }
        found
    }
}

/// Whether a list of words has this one.
pub(super) fn has_word(words: &str, word: &str) -> bool {
    words.split_ascii_whitespace().any(|one| one == word)
}
