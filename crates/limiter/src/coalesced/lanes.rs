//! Which subjects are being asked about, and what waits for each: what a call looks at first.

use std::collections::{HashMap, VecDeque, hash_map};
use std::sync::Arc;
use std::task::Waker;

use foldhash::fast::RandomState;
use tokio::runtime::Handle;
use tollgate_core::{Cost, Subject};

use super::batch::Batch;

/// How many charges a batch may hold, divided by the number of quotas that each is counted by: so
/// that no script runs for long.
const MAX_CHARGES: usize = 1024;
/// How many subjects may share a trip, for the same reason.
pub(super) const MAX_SUBJECTS: usize = 64;

/// How many trips a group may have under way before charges wait for the next.
pub(super) const MAX_TRIPS: usize = 4;

/// A lane a subject that is being asked about or waits for it, by the hash of the subject. Whether
/// two subjects are the same is checked where it matters: where charges meet in a batch.
pub(super) struct Lanes {
    lanes: HashMap<u64, Lane, RandomState>,
    groups: HashMap<u64, Group, RandomState>,
    queued: usize,
    max_queued: usize,
}

/// What waits while the subject is under way, or until its group has a trip to spare.
#[derive(Default)]
struct Lane {
    waiting: VecDeque<Arc<Batch>>,
    /// How many charges the last batch held: about as many as the next.
    last: usize,
}

/// Subjects that may share trips.
#[derive(Default)]
struct Group {
    trips: usize,
    /// Lanes that wait for a trip and are not under way, longest first.
    ready: VecDeque<u64>,
}

/// What somebody who asks is to do.
pub(super) enum Entered {
    /// Ask, and leave when it is answered.
    Lead,
    /// Wait for the answer to this charge of the batch.
    Wait(Arc<Batch>, usize),
    /// Ask, and that is all.
    Alone,
}

/// Lanes under way in one trip, and the group that counts it.
pub(super) type Way<'a> = (&'a [u64], Option<u64>);

impl Lanes {
    pub(super) fn new(max_queued: usize) -> Self {
        Self {
            lanes: HashMap::default(),
            groups: HashMap::default(),
            queued: 0,
            max_queued,
        }
    }

    /// How many charges wait to leave, those whose callers have gone included.
    pub(super) const fn queued(&self) -> usize {
        self.queued
    }

    pub(super) const fn max_queued(&self) -> usize {
        self.max_queued
    }

    pub(super) const fn set_max_queued(&mut self, max: usize) {
        self.max_queued = max;
    }

    pub(super) fn enter(
        &mut self,
        id: u64,
        group: Option<u64>,
        subject: Subject<'_>,
        cost: Cost,
        waker: &Waker,
    ) -> Entered {
        let room = self.queued < self.max_queued;
        let entered = match self.lanes.entry(id) {
            hash_map::Entry::Occupied(mut lane) if room => {
                lane.get_mut().join(subject, cost, waker)
            }
            hash_map::Entry::Occupied(_) => Entered::Alone,
            hash_map::Entry::Vacant(vacant) => {
                let Some(name) = group else {
                    vacant.insert(Lane::default());
                    return Entered::Lead;
                };
                let group = self.groups.entry(name).or_default();
                if group.trips < MAX_TRIPS {
                    group.trips += 1;
                    vacant.insert(Lane::default());
                    return Entered::Lead;
                }
                let mut lane = Lane::default();
                let entered = if room {
                    lane.join(subject, cost, waker)
                } else {
                    Entered::Alone
                };
                if matches!(entered, Entered::Wait(..)) {
                    vacant.insert(lane);
                    group.ready.push_back(id);
                }
                entered
            }
        };
        if matches!(entered, Entered::Wait(..)) {
            self.queued += 1;
        }
        entered
    }

    /// Where a task can run for those who wait until this way is free; `None` if nobody does, and
    /// then it is free now.
    pub(super) fn leave(&mut self, (lanes, group): Way<'_>) -> Option<Handle> {
        let ready = group
            .and_then(|group| self.groups.get(&group))
            .into_iter()
            .flat_map(|group| &group.ready);
        let first = lanes
            .iter()
            .chain(ready)
            .find_map(|id| self.lanes.get(id)?.waiting.front());
        let handle = first.map(|batch| batch.handle.clone());
        if handle.is_none() {
            self.next((lanes, group));
        }
        handle
    }

    /// Frees the lanes and says what goes next on the same way; if nothing does, that is free too.
    pub(super) fn next(&mut self, (lanes, group): Way<'_>) -> Vec<(u64, Arc<Batch>)> {
        let mut next = Vec::new();
        let mut group = group.and_then(|name| match self.groups.entry(name) {
            hash_map::Entry::Occupied(group) => Some(group),
            hash_map::Entry::Vacant(_) => None,
        });
        for id in lanes {
            let hash_map::Entry::Occupied(mut lane) = self.lanes.entry(*id) else {
                continue;
            };
            match &mut group {
                _ if lane.get().waiting.is_empty() => drop(lane.remove()),
                Some(group) => group.get_mut().ready.push_back(*id),
                None => next.extend(lane.get_mut().pop().map(|batch| (*id, batch))),
            }
        }
        if let Some(mut group) = group {
            while next.len() < MAX_SUBJECTS
                && let Some(id) = group.get_mut().ready.pop_front()
            {
                let batch = self.lanes.get_mut(&id).and_then(Lane::pop);
                next.extend(batch.map(|batch| (id, batch)));
            }
            if next.is_empty() {
                group.get_mut().trips -= 1;
                if group.get().trips == 0 {
                    group.remove();
                }
            }
        }
        self.queued -= next.iter().map(|(_, batch)| batch.len()).sum::<usize>();
        next
    }

    /// Gives a way up on which nothing will go any more. Those who waited for it and for nothing
    /// else must be sent away.
    pub(super) fn close(&mut self, (lanes, group): Way<'_>) -> Vec<Arc<Batch>> {
        let mut closed: Vec<u64> = lanes.to_vec();
        if let Some(name) = group
            && let Some(group) = self.groups.get_mut(&name)
        {
            group.trips -= 1;
            if group.trips == 0 {
                closed.extend(&group.ready);
                self.groups.remove(&name);
            }
        }
        let stranded: Vec<_> = closed
            .iter()
            .filter_map(|id| self.lanes.remove(id))
            .flat_map(|lane| lane.waiting)
            .collect();
        self.queued -= stranded.iter().map(|batch| batch.len()).sum::<usize>();
        stranded
    }
}

impl Lane {
    fn pop(&mut self) -> Option<Arc<Batch>> {
        let batch = self.waiting.pop_front()?;
        self.last = batch.len();
        Some(batch)
    }

    fn join(&mut self, subject: Subject<'_>, cost: Cost, waker: &Waker) -> Entered {
        if let Some(batch) = self.waiting.back() {
            if !batch.is_of(subject) {
                return Entered::Alone;
            }
            if let Some(index) = batch.join(cost, waker) {
                return Entered::Wait(Arc::clone(batch), index);
            }
        }
        // Without a runtime nobody could take them.
        let Ok(handle) = Handle::try_current() else {
            return Entered::Alone;
        };
        let max = (MAX_CHARGES / subject.policy.quotas().len()).max(1);
        let batch = Arc::new(Batch::new(subject, handle, max, self.last.max(1)));
        self.waiting.push_back(Arc::clone(&batch));
        match batch.join(cost, waker) {
            Some(index) => Entered::Wait(batch, index),
            None => Entered::Alone,
        }
    }
}
