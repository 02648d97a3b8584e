//! Where buckets and nodes lie: flat arrays of zeroed words that the operating system backs with
//! memory only as they are touched.

use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;

/// Words of a bucket: a head and five entries, two cache lines that processors fetch together.
pub(crate) const BUCKET: usize = 16;
/// Words of a node: a link, two entries, one word unused: one cache line.
pub(crate) const NODE: usize = 8;

/// Units of `N` words, each aligned to its own size.
pub(crate) struct Units<W, const N: usize> {
    words: Box<[W]>,
    /// The first aligned word.
    start: usize,
}

impl<W, const N: usize> Units<W, N> {
    fn new(units: usize, zeroed: impl FnOnce(usize) -> Box<[W]>) -> Self {
        let words = zeroed((units + 1) * N);
        let unit = N * size_of::<u64>();
        let beyond = words.as_ptr().addr() % unit;
        Self {
            start: (unit - beyond) % unit / size_of::<u64>(),
            words,
        }
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: u64) -> &[W; N] {
        let start = self.start + index as usize * N;
        self.words[start..]
            .first_chunk()
            .expect("an index is below the number of units the array was made for")
    }
}

/// Room for so many buckets, and for so many nodes that full buckets are continued in.
pub(crate) struct Memory<W> {
    pub(crate) buckets: Units<W, BUCKET>,
    pub(crate) nodes: Units<W, NODE>,
    pool: Mutex<Pool>,
}

/// Nodes are named from 1: 0 is no node.
struct Pool {
    free: Vec<u32>,
    used: u32,
    size: u32,
}

impl Memory<AtomicU64> {
    pub(crate) fn zeroed(buckets: usize, nodes: usize) -> Self {
        Self::new(buckets, nodes, bytemuck::zeroed_slice_box)
    }
}

impl<W> Memory<W> {
    pub(crate) fn new(buckets: usize, nodes: usize, zeroed: impl Fn(usize) -> Box<[W]>) -> Self {
        Self {
            buckets: Units::new(buckets, &zeroed),
            nodes: Units::new(nodes + 1, &zeroed),
            pool: Mutex::new(Pool {
                free: Vec::new(),
                used: 0,
                size: u32::try_from(nodes).unwrap_or(u32::MAX),
            }),
        }
    }

    #[cfg(test)]
    pub(crate) fn nodes_in_use(&self) -> u64 {
        let pool = self.pool.lock();
        u64::from(pool.used) - pool.free.len() as u64
    }

    /// A node that nobody uses, all its words 0.
    pub(crate) fn take_node(&self) -> u64 {
        let mut pool = self.pool.lock();
        if let Some(node) = pool.free.pop() {
            return node.into();
        }
        assert!(
            pool.used < pool.size,
            "entries lie densely, so there are never more than half as many nodes as entries"
        );
        pool.used += 1;
        pool.used.into()
    }

    /// Gives one back, all its words 0.
    pub(crate) fn give_node(&self, node: u64) {
        let node = u32::try_from(node).expect("names of nodes fit 26 bits");
        self.pool.lock().free.push(node);
    }
}
