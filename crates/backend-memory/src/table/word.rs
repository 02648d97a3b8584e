//! One atomic word: the standard library's, or loom's when a test explores interleavings.

use std::sync::atomic::{self, AtomicU64, Ordering};

pub(crate) trait Word: Send + Sync {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    /// Whether the word was `current` and is now `new`.
    fn swap_if(&self, current: u64, new: u64, success: Ordering) -> bool;
    fn fence(order: Ordering);
    /// Waits a little for another thread, the longer the more often it was called before.
    fn pause(attempt: &mut u32);
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        Self::load(self, order)
    }

    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        Self::store(self, value, order);
    }

    #[inline(always)]
    fn swap_if(&self, current: u64, new: u64, success: Ordering) -> bool {
        self.compare_exchange(current, new, success, Ordering::Relaxed)
            .is_ok()
    }

    #[inline(always)]
    fn fence(order: Ordering) {
        atomic::fence(order);
    }

    /// Whoever holds a bucket needs nanoseconds, unless the scheduler took its processor away.
    fn pause(attempt: &mut u32) {
        *attempt += 1;
        if *attempt < 64 {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
impl Word for loom::sync::atomic::AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        Self::load(self, order)
    }

    fn store(&self, value: u64, order: Ordering) {
        Self::store(self, value, order);
    }

    fn swap_if(&self, current: u64, new: u64, success: Ordering) -> bool {
        self.compare_exchange(current, new, success, Ordering::Relaxed)
            .is_ok()
    }

    fn fence(order: Ordering) {
        loom::sync::atomic::fence(order);
    }

    fn pause(_: &mut u32) {
        loom::thread::yield_now();
    }
}
