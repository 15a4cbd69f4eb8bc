//! Common words of error messages, configuration and code: a passage of only these has no origin.

use std::collections::BTreeSet;
use std::sync::OnceLock;

const WORDS: &str = "abort aborted accept accepted access action actions address allocate allocation allowed already api app argument arguments \
assertion attempt attribute authentication authorization auth author available back backoff bad base before body border bound bounds box branch broken buffer build \
bytes cache call called calling cannot canceled center certificate changed channel character check checkout child class client close closed cluster code codec column command commit \
compile component condition conflict connect connected connection constraint container content context control cors could created crash current daemon database date \
deadline deadlock debug declared decode delay delete denied dependency deploy description deserialize desc develop device directory disabled display does driver duplicate email empty enabled encode end \
entity entry env environment errno error errors event exception exceeded execute exist exists exit expected expired expose fail failed failure fatal fetch field file files flex float font forbidden \
foreign format found frame from function generic get git given global goroutine handle handler has header headers heap height hidden host icon identity image implement implemented \
import imported index info init input install insufficient integer internal invalid issue item items java job jobs kernel kind label latest layout length level library limit \
line lint list listen load local localhost locate lock log login lookup loop main margin max maximum memory merge message metadata method min missing mode model module modules \
mount multiple name named names nan network next nil node nodejs nodes none not note npm null number object offset open operand operation operator option options order origin out output overflow \
package packages padding page panic param parameter parent parse parser password path peer pending permission pip pipe plugin pod pods pointer policy pool port position prefix prepare present preview process \
program prop property protocol provided provider public pull push query queue range rate reached react read readiness reason record redirect redis reference refused register reject \
rejected relation release remote render repo replicas repository request requested require required requirements requires reset resolve resource resources response rest restart restarting result retries retry \
returned role root route row rows run running runs runtime scheduling schema scope script scripts section segment server serve service session set setup shell should size \
slots socket sort source space spec specified specify sql ssh ssl stack staging start started state statement status steps stop stream string style such supported \
support syntax system table tag target task tcp template test tests thread throw timed timeout tls token trace traceback trait transaction tree trying type types ubuntu unable unauthorized undefined unexpected unhandled \
unique unit unknown unresolved unsupported update upload upstream url use used user username users uses utf valid validation value variable version violates volume wait waiting warn warning watch \
wheel width with worker workflow write wrong xml yaml yml";

/// Words without a meaning of their own, and words of formats and languages of programs.
const COMMON: &str = "about after also another been before being between both could does doing done each from have having here \
into itself just like made make many more most much must only other over same should since some such than that their them then there \
these they this those through under until upon very want were what when where which while will with within would your yours \
true false null none import from export return const class function public private static void async await default require module \
include define struct self this else elif except finally raise throw while switch case break continue lambda yield print \
string integer number boolean object array list dict type name value data json path pathlib sys logging http https html head body div span \
meta link script style href charset utf viewport width device initial scale content title text select where order group table insert \
update delete create values limit join inner left right null primary foreign index";

/// The possible lengths of one word, in bytes.
const LENGTHS: std::ops::RangeInclusive<usize> = 3..=14;

/// Letters and digits of words that say something, and of steps to other than the next character: an alphabet has none.
/// A word of several (`FailedScheduling`) is read as several. At least `enough`, or all of them.
pub(super) fn own_length(text: &str, enough: usize) -> usize {
    let words = common_words();
    let (mut length, mut lower) = (0, String::new());
    for part in text.split(|character: char| !character.is_alphanumeric()) {
        each_word(part, &mut |word| {
            lower.clear();
            lower.push_str(word);
            lower.make_ascii_lowercase();
            let is_plain = LENGTHS.contains(&word.len()) && words.contains(lower.as_str());
            length += if is_plain { 0 } else { steps(&lower) };
        });
        if length >= enough {
            break;
        }
    }
    length
}

fn common_words() -> &'static BTreeSet<&'static str> {
    static ALL: OnceLock<BTreeSet<&'static str>> = OnceLock::new();
    ALL.get_or_init(|| WORDS.split_whitespace().chain(COMMON.split_whitespace()).collect())
}

/// Cuts `camelCase` and `HTTPServer2` where a word begins.
fn each_word<'t>(part: &'t str, see: &mut impl FnMut(&'t str)) {
    let bytes = part.as_bytes();
    let mut from = 0;
    for at in 1..bytes.len() {
        let (before, now) = (bytes[at - 1], bytes[at]);
        let rises = before.is_ascii_lowercase() && now.is_ascii_uppercase();
        let ends_capitals = before.is_ascii_uppercase()
            && now.is_ascii_uppercase()
            && bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase);
        let is_number =
            before.is_ascii_digit() != now.is_ascii_digit() && now.is_ascii() && before.is_ascii();
        if rises || ends_capitals || is_number {
            see(&part[from..at]);
            from = at;
        }
    }
    if from < part.len() {
        see(&part[from..]);
    }
}

/// Number of characters that do not follow their predecessor in the alphabet.
fn steps(word: &str) -> usize {
    let mut before = None;
    word.chars()
        .filter(|character| {
            let follows = before.is_some_and(|before: char| u32::from(before) + 1 == u32::from(*character));
            before = Some(*character);
            !follows
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_messages_are_plain_and_human_sentences_are_not() {
        for text in [
            "ConnectionRefusedError: [Errno 111] connection refused",
            "password authentication failed for user",
            "FailedScheduling 0/3 nodes are available: Insufficient memory",
            "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
            "uses: actions/checkout@v4 run: npm test",
        ] {
            assert!(own_length(text, 16) < 16, "{text}: {}", own_length(text, 16));
        }
        for text in [
            "the orchard at Lindenau goes to the Brandt family",
            "the server of the Brandt family failed its inspection",
            "Aq3Zx9Lw2Vb7Ny4Kp8Wd6Hs",
        ] {
            assert!(own_length(text, 16) >= 16, "{text}: {}", own_length(text, 16));
        }
    }

    #[test]
    fn plain_words_have_lengths_and_letters_the_search_handles() {
        let is_found =
            |word: &str| LENGTHS.contains(&word.len()) && word.bytes().all(|b| b.is_ascii_lowercase());
        assert!(common_words().iter().all(|word| is_found(word)));
    }
}
