//! A bounded queue of events to send. The oldest are dropped first, and counted.

use std::collections::VecDeque;

/// Maximum size of the queue, in bytes.
const MAX_BYTES: usize = 8 << 20;
const MAX_ITEMS: usize = 4096;

#[derive(Default)]
pub struct Queue<T> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
    /// Out of the queue, and on the way.
    on_the_way: usize,
    /// Dropped entries.
    pub dropped: u64,
}

impl<T> Queue<T> {
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// `size`: what it takes, in bytes.
    pub fn push(&mut self, item: T, size: usize) {
        self.items.push_back((item, size));
        self.bytes += size;
        self.shrink();
    }

    /// The oldest ones, at most `most`; [`Self::done`], [`Self::count_lost`] or [`Self::put_back`] has to follow.
    pub fn take(&mut self, most: usize) -> Vec<(T, usize)> {
        let taken: Vec<_> = self.items.drain(..most.min(self.items.len())).collect();
        self.bytes -= taken.iter().map(|(_, size)| size).sum::<usize>();
        self.on_the_way = taken.len();
        taken
    }

    pub fn done(&mut self) {
        self.on_the_way = 0;
    }

    pub fn count_lost(&mut self) {
        self.dropped += std::mem::take(&mut self.on_the_way) as u64;
    }

    /// Puts back what was taken.
    pub fn put_back(&mut self, taken: Vec<(T, usize)>) {
        self.on_the_way = 0;
        self.bytes += taken.iter().map(|(_, size)| size).sum::<usize>();
        for item in taken.into_iter().rev() {
            self.items.push_front(item);
        }
        self.shrink();
    }

    /// The consumer is gone.
    pub fn end(&mut self) {
        self.dropped += (self.items.len() + std::mem::take(&mut self.on_the_way)) as u64;
        self.items.clear();
        self.bytes = 0;
    }

    fn shrink(&mut self) {
        while self.items.len() > MAX_ITEMS || self.bytes > MAX_BYTES {
            let Some((_, size)) = self.items.pop_front() else { return };
            self.bytes -= size;
            self.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn telemetry_queue_drops_the_oldest_and_counts_it() {
        let mut queue = Queue::default();
        for number in 0..MAX_ITEMS + 3 {
            queue.push(number, 1);
        }
        assert_eq!((queue.len(), queue.dropped), (MAX_ITEMS, 3));
        let taken = queue.take(2);
        assert_eq!(taken, [(3, 1), (4, 1)]);
        queue.put_back(taken);
        assert_eq!((queue.len(), queue.dropped), (MAX_ITEMS, 3));
        queue.push(0, MAX_BYTES);
        assert_eq!((queue.len(), queue.dropped), (1, 3 + MAX_ITEMS as u64));
        queue.end();
        assert_eq!((queue.len(), queue.dropped), (0, 4 + MAX_ITEMS as u64));
    }
}
