//! One bucket: its lock, its version, and the entries in it and in the nodes that continue it.
//!
//! The head word is `next node | version | locked`. Who writes takes the lock by one
//! compare-and-swap of the very head it read before it looked at the entries: so the swap proves
//! that all it saw still stands, and a charge costs one atomic operation. Who only reads looks at
//! the head before and after, and writes nothing. Every unlocking makes a new version.
//!
//! Entries lie densely: all used slots come before all free ones, and no node is empty.

use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::memory::{BUCKET, Memory};
use super::word::Word;
use crate::hash::{Fingerprint, SPARE_BITS};
use crate::rate::Stored;

const LOCKED: u64 = 1;
const VERSION: u64 = 1 << 1;
/// 37 bits of version: one would have to be suspended between two instructions while exactly 2^37
/// charges are made on one bucket, which take an hour at least, to be deceived.
const NEXT_SHIFT: u32 = 38;
const VERSION_MASK: u64 = (1 << NEXT_SHIFT) - VERSION;
/// The most nodes that can be named.
pub(crate) const MAX_NODES: usize = (1 << (64 - NEXT_SHIFT)) - 1;

/// Entries of a bucket, and of a node.
const IN_BUCKET: usize = 5;
const IN_NODE: usize = 2;

/// Words of an entry: the hash (with `n - 1` in its spare bits), and `tat`.
const HI: usize = 0;
const LO: usize = 1;
const TAT: usize = 2;
type Slot<'a, W> = &'a [W; 3];

#[inline(always)]
fn slot<W>(line: &[W], i: usize) -> Slot<'_, W> {
    line[1 + 3 * i..]
        .first_chunk()
        .expect("five entries fit a bucket and two a node")
}

/// An entry, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) print: Fingerprint,
    pub(crate) stored: Stored,
}

#[inline(always)]
fn is<W: Word>(slot: Slot<'_, W>, print: Fingerprint) -> bool {
    slot[HI].load(Relaxed) == print.hi && (slot[LO].load(Relaxed) ^ print.lo) >> SPARE_BITS == 0
}

#[inline(always)]
fn stored<W: Word>(slot: Slot<'_, W>) -> Stored {
    let spare = slot[LO].load(Relaxed) & ((1 << SPARE_BITS) - 1);
    Stored {
        tat: slot[TAT].load(Relaxed),
        n: spare + 1,
    }
}

fn write<W: Word>(slot: Slot<'_, W>, entry: Option<Entry>) {
    let words = entry.map_or([0; 3], |entry| {
        [
            entry.print.hi,
            entry.print.lo | (entry.stored.n - 1),
            entry.stored.tat,
        ]
    });
    for (word, value) in slot.iter().zip(words) {
        word.store(value, Relaxed);
    }
}

/// A bucket as it was when its head was read.
pub(super) struct View<'a, W> {
    memory: &'a Memory<W>,
    words: &'a [W; BUCKET],
    head: u64,
}

impl<'a, W: Word> View<'a, W> {
    /// `None` while somebody writes.
    #[inline(always)]
    pub(super) fn open(memory: &'a Memory<W>, bucket: u64) -> Option<Self> {
        let words = memory.buckets.get(bucket);
        let head = words[0].load(Acquire);
        (head & LOCKED == 0).then_some(Self {
            memory,
            words,
            head,
        })
    }

    /// Whether all that was read since [`open`](Self::open) was there at one moment.
    #[inline(always)]
    pub(super) fn still_stands(&self) -> bool {
        W::fence(Acquire);
        self.words[0].load(Relaxed) == self.head
    }

    /// The slot of an identity. If there is none, it may be that it is just being moved.
    #[inline(always)]
    pub(super) fn find(&self, print: Fingerprint) -> Option<Slot<'a, W>> {
        // Without a branch for each slot: which one it is cannot be predicted. (Should two share
        // half a hash, the second is found by who holds the lock.)
        let mut found = IN_BUCKET;
        for i in (0..IN_BUCKET).rev() {
            let same = slot(self.words, i)[HI].load(Relaxed) == print.hi;
            found = if same { i } else { found };
        }
        if found < IN_BUCKET && is(slot(self.words, found), print) {
            return Some(slot(self.words, found));
        }
        if self.head >> NEXT_SHIFT == 0 {
            return None;
        }
        let view = Self { ..*self };
        view.find_in_nodes(print)
    }

    /// By value, so that what the caller has stays in registers.
    #[inline(never)]
    fn find_in_nodes(self, print: Fingerprint) -> Option<Slot<'a, W>> {
        let mut node = self.head >> NEXT_SHIFT;
        while node != 0 {
            let words = self.memory.nodes.get(node);
            for i in 0..IN_NODE {
                let slot = slot(words, i);
                if is(slot, print) {
                    return Some(slot);
                }
            }
            node = words[0].load(Relaxed);
            // A node that went to another bucket would lead astray, perhaps in circles.
            if !self.still_stands() {
                return None;
            }
        }
        None
    }

    #[inline(always)]
    pub(super) fn read(slot: Slot<'_, W>) -> Stored {
        stored(slot)
    }

    /// Writes one entry if nothing has changed since; whether it did.
    #[inline(always)]
    pub(super) fn write(self, slot: Slot<'_, W>, print: Fingerprint, new: Stored) -> bool {
        if !self.words[0].swap_if(self.head, self.head | LOCKED, Acquire) {
            return false;
        }
        // Readers that see what follows must see the lock.
        W::fence(Release);
        slot[TAT].store(new.tat, Relaxed);
        slot[LO].store(print.lo | (new.n - 1), Relaxed);
        self.words[0].store(after(self.head), Release);
        true
    }

    /// Takes the lock if nothing has changed since.
    pub(super) fn lock(self) -> Option<Locked<'a, W>> {
        if !self.words[0].swap_if(self.head, self.head | LOCKED, Acquire) {
            return None;
        }
        W::fence(Release);
        Some(Locked {
            memory: self.memory,
            words: self.words,
            head: self.head,
        })
    }

    /// How many entries there are, how many of them are idle, and when the next of the others will
    /// be. `None` if somebody wrote meanwhile.
    pub(super) fn census(&self, now: u64) -> Option<Census> {
        let mut census = Census {
            entries: 0,
            idle: 0,
            next_idle: u64::MAX,
        };
        let (mut line, mut slots): (&[W], usize) = (self.words, IN_BUCKET);
        let mut node = self.head >> NEXT_SHIFT;
        loop {
            for i in 0..slots {
                let slot = slot(line, i);
                if slot[HI].load(Relaxed) == 0 {
                    break;
                }
                let stored = stored(slot);
                census.entries += 1;
                if stored.is_idle(now) {
                    census.idle += 1;
                } else {
                    census.next_idle = census.next_idle.min(stored.idle_at());
                }
            }
            if !self.still_stands() {
                return None;
            }
            if node == 0 {
                return Some(census);
            }
            (line, slots) = (self.memory.nodes.get(node), IN_NODE);
            node = line[0].load(Relaxed);
        }
    }
}

/// What is in a bucket.
pub(super) struct Census {
    pub(super) entries: u64,
    pub(super) idle: u64,
    pub(super) next_idle: u64,
}

/// The head after a change.
#[inline(always)]
fn after(head: u64) -> u64 {
    (head & !VERSION_MASK) | ((head + VERSION) & VERSION_MASK)
}

/// A bucket that nobody else changes.
pub(crate) struct Locked<'a, W: Word> {
    memory: &'a Memory<W>,
    words: &'a [W; BUCKET],
    /// As it will be, but for the version.
    head: u64,
}

impl<'a, W: Word> Locked<'a, W> {
    /// The slot at a position, used or free; `None` beyond the last node.
    fn slot(&self, position: usize) -> Option<Slot<'a, W>> {
        if position < IN_BUCKET {
            return Some(slot(self.words, position));
        }
        let mut further = position - IN_BUCKET;
        let mut node = self.head >> NEXT_SHIFT;
        while node != 0 {
            let words = self.memory.nodes.get(node);
            if further < IN_NODE {
                return Some(slot(words, further));
            }
            further -= IN_NODE;
            node = words[0].load(Relaxed);
        }
        None
    }

    fn used(&self, position: usize) -> Slot<'a, W> {
        self.slot(position)
            .expect("positions come from this bucket, which is locked")
    }

    /// Where the first entry lies of which `is` holds.
    fn position(&self, is: impl Fn(Slot<'a, W>) -> bool) -> Option<usize> {
        let mut position = 0;
        let (mut line, mut slots): (&[W], usize) = (self.words, IN_BUCKET);
        let mut node = self.head >> NEXT_SHIFT;
        loop {
            for i in 0..slots {
                let slot = slot(line, i);
                if slot[HI].load(Relaxed) == 0 {
                    return None;
                }
                if is(slot) {
                    return Some(position);
                }
                position += 1;
            }
            if node == 0 {
                return None;
            }
            (line, slots) = (self.memory.nodes.get(node), IN_NODE);
            node = line[0].load(Relaxed);
        }
    }

    /// How many entries there are.
    pub(super) fn count(&self) -> usize {
        let count = Cell::new(0);
        self.position(|_| {
            count.set(count.get() + 1);
            false
        });
        count.get()
    }

    /// The entry at a position below [`count`](Self::count).
    pub(super) fn get(&self, position: usize) -> Entry {
        let slot = self.used(position);
        Entry {
            print: Fingerprint {
                hi: slot[HI].load(Relaxed),
                lo: slot[LO].load(Relaxed) >> SPARE_BITS << SPARE_BITS,
            },
            stored: stored(slot),
        }
    }

    pub(crate) fn find(&self, print: Fingerprint) -> Option<(usize, Stored)> {
        let position = self.position(|slot| is(slot, print))?;
        Some((position, stored(self.used(position))))
    }

    /// Where an entry lies that decides like none at `now`.
    pub(crate) fn find_idle(&self, now: u64) -> Option<usize> {
        self.position(|slot| stored(slot).is_idle(now))
    }

    pub(crate) fn set(&mut self, position: usize, entry: Entry) {
        write(self.used(position), Some(entry));
    }

    /// Adds an entry, in a new node if all slots are used.
    pub(crate) fn push(&mut self, entry: Entry) {
        let used = self.count();
        if let Some(free) = self.slot(used) {
            write(free, Some(entry));
            return;
        }
        let node = self.memory.take_node();
        // Readers that come from the bucket it was in before must see that one's lock.
        W::fence(Release);
        write(slot(self.memory.nodes.get(node), 0), Some(entry));
        self.link(nodes_for(used), node);
    }

    /// Takes an entry out; the last one takes its place.
    pub(crate) fn remove(&mut self, position: usize) {
        let last = self.count() - 1;
        let (gap, end) = (self.used(position), self.used(last));
        for (to, from) in gap.iter().zip(end) {
            to.store(from.load(Relaxed), Relaxed);
        }
        write(end, None);
        let nodes = nodes_for(last + 1);
        if nodes_for(last) < nodes {
            let emptied = self.link(nodes - 1, 0);
            self.memory.give_node(emptied);
        }
    }

    /// Makes `node` the one after so many others; tells which one was there.
    fn link(&mut self, others: usize, node: u64) -> u64 {
        let mut last = None;
        let mut next = self.head >> NEXT_SHIFT;
        for _ in 0..others {
            let line = self.memory.nodes.get(next);
            next = line[0].load(Relaxed);
            last = Some(line);
        }
        match last {
            Some(line) => line[0].store(node, Relaxed),
            None => self.head = (self.head & ((1 << NEXT_SHIFT) - 1)) | node << NEXT_SHIFT,
        }
        next
    }
}

/// How many nodes so many entries need.
fn nodes_for(entries: usize) -> usize {
    entries.saturating_sub(IN_BUCKET).div_ceil(IN_NODE)
}

impl<W: Word> Drop for Locked<'_, W> {
    fn drop(&mut self) {
        self.words[0].store(after(self.head), Release);
    }
}
