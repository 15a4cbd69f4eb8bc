//! Computes the last hashes of a host's chains from its whole journal, to find later changes.

use std::collections::BTreeMap;

use agentsh_store::raw::FIRST_LINK;
use agentsh_store::{Reader, StoreError};

use crate::batch::{self, Unreadable};

/// Place and hash of the last row of each session, as they come out of its rows.
pub type Heads = BTreeMap<String, (u64, [u8; 32])>;

/// The last hashes as a host claims them.
pub type ClaimedHeads = BTreeMap<String, (u64, String)>;

/// Reads the rows up to the place `until` and computes their hashes. A changed row changes every hash after it in its session.
///
/// # Errors
/// When the journal cannot be read.
pub async fn compute(journal: &mut Reader, until: i64) -> Result<Heads, StoreError> {
    let mut heads = Heads::new();
    let links = journal.first_links().await?;
    let mut place = 0;
    while place < until {
        let rows = journal.raw_after(place, batch::MAX_ROWS, batch::USUAL_BYTES).await?;
        let Some(last) = rows.last() else { break };
        place = last.id;
        for row in rows.iter().filter(|row| row.id <= until) {
            let first = || links.get(&row.session).copied().unwrap_or(FIRST_LINK);
            let prev = heads.get(&row.session).map_or_else(first, |(_, hash)| *hash);
            heads.insert(row.session.clone(), (row.seq, row.hash_behind(&prev)));
        }
    }
    Ok(heads)
}

/// # Errors
/// Never, unless memory runs out.
pub fn heads_to_gzip(until: i64, heads: &Heads) -> Result<Vec<u8>, Unreadable> {
    let mut text = format!("{until}\n");
    for (session, (seq, hash)) in heads {
        text.push_str(&format!("{session}\t{seq}\t{}\n", agentsh_base::hex(hash)));
    }
    batch::pack(text.as_bytes())
}

/// # Errors
/// The bytes are not what a host packs.
pub fn unpacked(bytes: &[u8]) -> Result<(i64, ClaimedHeads), Unreadable> {
    let text = batch::unpack(bytes)?;
    let mut lines = text.lines();
    let wrong = |number| Unreadable::Line(number, "it is not the end of a chain");
    let until = lines.next().and_then(|line| line.parse().ok()).ok_or_else(|| wrong(1))?;
    let mut heads = ClaimedHeads::new();
    for (line, number) in lines.zip(2..) {
        let mut words = line.split('\t');
        let (Some(session), Some(seq), Some(hash), None) =
            (words.next(), words.next().and_then(|seq| seq.parse().ok()), words.next(), words.next())
        else {
            return Err(wrong(number));
        };
        heads.insert(session.to_owned(), (seq, hash.to_owned()));
    }
    Ok((until, heads))
}
