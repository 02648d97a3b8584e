//! What this process holds: when each is to be renewed next, and how many of each key there are.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::keeper::Message;
use super::lease::Lease;
use crate::time::{FOREVER, Instant};

type Id = usize;

fn id(lease: &Arc<Lease>) -> Id {
    Arc::as_ptr(lease).addr()
}

/// Shared by those who take and give back, which is a few steps under a lock, and the task, which
/// sleeps until something is due.
#[derive(Default)]
pub(super) struct Registry {
    state: Mutex<State>,
    /// How many are held in this process instead of the store: usually none, and then nobody counts.
    here: AtomicUsize,
}

#[derive(Default)]
pub(super) struct State {
    held: HashMap<Id, Entry, foldhash::fast::RandomState>,
    due: BTreeSet<(Instant, Id)>,
    /// How many of a limit and key, by [`Lease::group`].
    own: HashMap<u64, u32, foldhash::fast::RandomState>,
    /// When the task looks next.
    alarm: Option<Instant>,
    /// The way to the task.
    pub(super) task: Option<mpsc::UnboundedSender<Message>>,
}

struct Entry {
    lease: Arc<Lease>,
    /// `None`: held here, so nothing is to be renewed.
    due: Option<Instant>,
}

impl Registry {
    pub(super) fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock())
    }

    /// Holds what the store gave. `Err`: as many are held in this process already, some of which the
    /// store does not know of. Says whether the task has to be told.
    pub(super) fn enter(&self, lease: &Arc<Lease>) -> Result<bool, u32> {
        let due = Instant::now() + lease.of.ttl / 3;
        self.with(|state| {
            if self.here.load(Ordering::Acquire) > 0
                && let Some(own) = state.full(lease)
            {
                return Err(own);
            }
            state.insert(lease, Some(due));
            let alive = state.task.as_ref().is_some_and(|task| !task.is_closed());
            let early = !alive || state.alarm.is_none_or(|alarm| due < alarm);
            if early {
                state.alarm = Some(due);
            }
            Ok(early)
        })
    }

    /// Holds one that the store was not asked for, unless this process has all already.
    pub(super) fn enter_here(&self, lease: &Arc<Lease>) -> Result<(), u32> {
        self.with(|state| {
            if let Some(own) = state.full(lease) {
                return Err(own);
            }
            state.insert(lease, None);
            self.here.fetch_add(1, Ordering::AcqRel);
            Ok(())
        })
    }

    /// The store has been silent for so long that the slot is about to be free there: it is held here
    /// from now on. Whether it still was.
    pub(super) fn keep_here(&self, lease: &Arc<Lease>) -> bool {
        self.with(|state| {
            let Some(entry) = state.held.get_mut(&id(lease)) else {
                return false;
            };
            let Some(due) = entry.due else {
                return false;
            };
            if !lease.keep_here() {
                return false;
            }
            entry.due = None;
            state.due.remove(&(due, id(lease)));
            self.here.fetch_add(1, Ordering::AcqRel);
            true
        })
    }

    /// Whether it was held.
    pub(super) fn remove(&self, lease: &Arc<Lease>) -> bool {
        self.with(|state| {
            let Some(entry) = state.held.remove(&id(lease)) else {
                return false;
            };
            self.left(state, &entry);
            true
        })
    }

    /// Everything, which is held no more.
    pub(super) fn take_all(&self) -> Vec<Arc<Lease>> {
        self.with(|state| {
            let all: Vec<_> = state.held.drain().map(|(_, entry)| entry).collect();
            for entry in &all {
                self.left(state, entry);
            }
            all.into_iter().map(|entry| entry.lease).collect()
        })
    }

    fn left(&self, state: &mut State, entry: &Entry) {
        match entry.due {
            Some(due) => _ = state.due.remove(&(due, id(&entry.lease))),
            None => _ = self.here.fetch_sub(1, Ordering::AcqRel),
        }
        if let Some(own) = state.own.get_mut(&entry.lease.group) {
            *own -= 1;
            if *own == 0 {
                state.own.remove(&entry.lease.group);
            }
        }
    }

    /// Up to so many that are due. Should their renewal never end, they are due again when their
    /// slots would be lost.
    pub(super) fn take_due(&self, most: usize) -> Vec<Arc<Lease>> {
        let now = Instant::now();
        self.with(|state| {
            let mut taken = Vec::new();
            while taken.len() < most
                && let Some(&(due, id)) = state.due.first()
                && due <= now
            {
                state.due.pop_first();
                if let Some(entry) = state.held.get_mut(&id) {
                    let end = entry.lease.until();
                    entry.due = Some(end);
                    state.due.insert((end, id));
                    taken.push(Arc::clone(&entry.lease));
                    // Or this would not end.
                    if end <= now {
                        break;
                    }
                }
            }
            taken
        })
    }

    /// It is due then, if it is still held in the store.
    pub(super) fn schedule(&self, lease: &Arc<Lease>, at: Instant) {
        self.with(|state| {
            let id = id(lease);
            if let Some(Entry { due: Some(due), .. }) = state.held.get_mut(&id) {
                state.due.remove(&(*due, id));
                *due = at;
                state.due.insert((at, id));
            }
        });
    }

    pub(super) fn holds(&self, lease: &Arc<Lease>) -> bool {
        self.with(|state| state.held.contains_key(&id(lease)))
    }

    /// When the task must look again. While nothing is held it keeps to the time it had, though
    /// nothing will be due: slots that come and go would wake it again and again.
    pub(super) fn set_alarm(&self) -> Instant {
        self.with(|state| {
            let next = match state.due.first() {
                Some((due, _)) => *due,
                None => {
                    let now = Instant::now();
                    let kept = state.alarm.filter(|alarm| *alarm > now);
                    kept.unwrap_or(now + FOREVER)
                }
            };
            state.alarm = Some(next);
            next
        })
    }
}

impl State {
    /// How many are held in this process, if that is all.
    fn full(&self, lease: &Lease) -> Option<u32> {
        let own = self.own.get(&lease.group).copied().unwrap_or(0);
        (own >= lease.of.slots.get()).then_some(own)
    }

    fn insert(&mut self, lease: &Arc<Lease>, due: Option<Instant>) {
        let id = id(lease);
        let lease = Arc::clone(lease);
        *self.own.entry(lease.group).or_default() += 1;
        self.held.insert(id, Entry { lease, due });
        if let Some(due) = due {
            self.due.insert((due, id));
        }
    }
}
