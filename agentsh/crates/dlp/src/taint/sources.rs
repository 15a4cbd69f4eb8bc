//! The servers of remembered results: few, however many results.

use super::origin::Origin;

/// One result for each server and kind of server, with the number of results like it.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources(Vec<(Origin, usize)>);

impl Sources {
    pub fn add(&mut self, origin: &Origin) {
        match self.position(origin) {
            Some(at) => self.0[at].1 += 1,
            None => self.0.push((origin.clone(), 1)),
        }
    }

    pub fn remove(&mut self, origin: &Origin) {
        let Some(at) = self.position(origin) else { return };
        self.0[at].1 -= 1;
        if self.0[at].1 == 0 {
            self.0.swap_remove(at);
        }
    }

    /// One result for each server and privacy.
    pub fn iter(&self) -> impl Iterator<Item = &Origin> {
        self.0.iter().map(|(origin, _)| origin)
    }

    fn position(&self, origin: &Origin) -> Option<usize> {
        self.0.iter().position(|(known, _)| known.server == origin.server && known.private == origin.private)
    }
}
