//! How answers and requests are rewritten, byte by byte: inputs are shared with the fuzz target, and the expected
//! output of each is in `golden` under its name.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use crate as llm;

#[path = "../../../../fuzz/checks/llm_streams.rs"]
mod check;

fn inputs() -> Vec<(String, Vec<u8>)> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/llm_streams");
    let mut found: Vec<_> = fs::read_dir(corpus)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
        })
        .collect();
    found.sort();
    found
}

#[test]
fn rewritten_answers_match_golden_files() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let inputs = inputs();
    assert!(inputs.len() >= 30, "{}", inputs.len());
    for (name, input) in &inputs {
        check::check(input);
        let transcript = check::transcript(input).unwrap();
        if std::env::var_os("GOLDEN").is_some_and(|word| word == "write") {
            fs::write(golden.join(name), &transcript).unwrap();
        }
        let expected = fs::read_to_string(golden.join(name)).unwrap_or_default();
        assert_eq!(transcript, expected, "{name}");
    }
    assert_eq!(fs::read_dir(&golden).unwrap().count(), inputs.len(), "each golden file has its input");
}

proptest! {
    /// Answers with bytes that were lost, doubled or changed on the way: cutting them into pieces makes no difference.
    #[test]
    fn damaged_answers_give_the_same_output_in_any_pieces(which in any::<usize>(), changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6)) {
        let inputs = inputs();
        let (_, input) = &inputs[which % inputs.len()];
        let mut input = input.clone();
        for (place, change) in changes {
            let at = 4 + place % (input.len().max(5) - 4);
            match change % 4 {
                0 => { input.remove(at.min(input.len() - 1)); }
                1 => input.insert(at.min(input.len()), change),
                2 => input.truncate(at.max(5)),
                _ => if let Some(byte) = input.get_mut(at) { *byte ^= 1 << (change % 7) },
            }
        }
        check::check(&input);
    }
}
