//! An index, with keys of one kind.

use std::any::Any;
use std::cell::RefCell;
use std::ops::{Bound, ControlFlow};
use std::rc::Rc;
use std::sync::Arc;

use lapis_compiled_indexes::ModelledKey;
use lapis_device::Modelled;
use lapis_index::{
    AnyIndex, Change, Direction, Exploration, Index, IndexError, IndexKey, IndexKind, IndexOf,
    IndexOptions, IndexRoot, place_hash, with_index,
};
use lapis_pmem::{AuditReport, BlockVisitor, Guard, Pool, ReachableBlocks};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::ballast;
use super::entries::Entries;
use super::index_walks::{InOrder, InOrderByPart, IndexWalks};
use crate::storage::Storage;
use crate::subject::{Live, Subject, WalkMemory, text};

/// The name of the root.
const ROOT: &str = "index";
/// So many entries, or all if they are fewer, are looked up one by one after iterating.
const LOOK_UPS: usize = 64;
/// What a key may take with all around it.
const BYTES_PER_KEY: usize = 1024;
/// Bits of a hash in which keys are the same that are to be in one place.
const SAME_BITS: u32 = 9;
/// A run of so many operations has at least one key for so many of them.
const OPERATIONS_PER_KEY: u64 = 3;
/// Operations of which most add, and then as many of which most remove.
const PHASE: usize = 97;
/// An index with more entries than any run inserts goes round in a circle.
const MOST_ENTRIES: usize = 1 << 16;

/// An operation on an index.
#[derive(Clone, Debug)]
pub enum IndexOperation<B> {
    /// Adds if absent.
    Insert(B, u64),
    /// Replaces if present.
    Update(B, u64),
    /// Adds or replaces.
    Put(B, u64),
    /// Removes if present.
    Remove(B),
    /// Takes all the room that the pool has, for good.
    TakeAllRoom,
}

/// Keys that are prefixes of each other are not longer: there are so many of them.
const LONGEST_KEY_BYTES: usize = 500;

/// Keys to draw from: few, so that they meet, and of the shapes that hurt.
pub trait KeySpace: ModelledKey {
    /// The `number`-th key.
    fn key(number: u64) -> Self::Buf;
}

impl KeySpace for u64 {
    fn key(number: u64) -> u64 {
        match number % 4 {
            // Neighbours, keys that differ at the top, extremes, and scattered ones.
            0 => number / 4,
            1 => (number / 4) << 58,
            2 => u64::MAX - number / 4,
            _ => (number / 4).wrapping_mul(0x9E37_79B9_7F4A_7C15),
        }
    }
}

impl KeySpace for [u8] {
    fn key(number: u64) -> Vec<u8> {
        let number_bytes = (number / 4).to_be_bytes();
        // One byte as long as that is enough.
        let small = &number_bytes[if number / 4 < 256 { 7 } else { 4 }..];
        match number % 4 {
            // Prefixes of each other, zero bytes, long common prefixes, short keys.
            0 => vec![b'a'; 1 + number as usize / 4 % LONGEST_KEY_BYTES],
            1 => [&[0; 3][..], small, &[0; 2]].concat(),
            2 => {
                [&b"a common prefix that is longer than a line of sixty-four bytes is: "[..], small]
                    .concat()
            }
            _ => [small, &[0xFF]].concat(),
        }
    }
}

/// Creates an index under a name, durably, and opens it.
pub(crate) fn created<K: ModelledKey + ?Sized>(
    kind: IndexKind,
    storage: Storage,
    options: &IndexOptions,
) -> Result<AnyIndex<Modelled, K>, String> {
    K::indexes().create_named(kind, &Arc::new(storage.into_pool()), ROOT, options).map_err(text)
}

/// Opens it; none if there is none yet.
pub(crate) fn opened<K: ModelledKey + ?Sized>(
    kind: IndexKind,
    storage: Storage,
) -> Result<Option<AnyIndex<Modelled, K>>, String> {
    let pool = storage.into_pool();
    let Some(root) = pool.root::<IndexRoot>(ROOT) else { return Ok(None) };
    K::indexes().open(kind, Arc::new(pool), root).map(Some).map_err(text)
}

/// Visits the blocks of the index from the root that the pool names; values refer to nothing.
pub(crate) fn visit_from_root<K: IndexKey + ?Sized>(
    index: &AnyIndex<Modelled, K>,
) -> impl FnOnce(&mut BlockVisitor<'_, Modelled>) {
    let is_gone = index.pool().root::<IndexRoot>(ROOT).is_none();
    move |visitor| {
        if is_gone {
            visitor.problem("the root is gone");
        }
        index.visit_blocks(visitor, &mut |_, _| {});
        ballast::visit(visitor, index.pool());
    }
}

/// An index to check.
#[derive(Debug)]
pub struct IndexSubject<K: IndexKey + ?Sized> {
    name: &'static str,
    sources: &'static [&'static str],
    kind: IndexKind,
    options: IndexOptions,
    keys: u64,
    filled: u64,
    pool_bytes: usize,
    drains: bool,
    begins_filled: bool,
    refuses: Refuses,
    rare_cut: Option<(u64, usize)>,
    /// The keys, if they are not those of the key space.
    chosen: Vec<K::Buf>,
}

/// What an index may refuse to do for want of room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refuses {
    Nothing,
    /// What adds to it, and after a crash whatever takes a block until free ones are found again.
    Additions,
    All,
}

impl<K: IndexKey + ?Sized> IndexSubject<K> {
    /// An index of a kind. `name` on the command line; `sources` are parts of the paths of its
    /// source files; operations draw from `keys` keys.
    pub fn new(
        kind: IndexKind,
        name: &'static str,
        sources: &'static [&'static str],
        options: IndexOptions,
        keys: u64,
    ) -> Self {
        Self {
            name,
            sources,
            kind,
            options,
            keys,
            filled: 0,
            pool_bytes: 4 << 20,
            drains: false,
            begins_filled: false,
            refuses: Refuses::Nothing,
            rare_cut: None,
            chosen: Vec::new(),
        }
    }

    /// After a first power cut in an operation from a seed, if so, it shows what other runs hardly do.
    #[must_use]
    pub fn rare_after(self, rare_cut: Option<(u64, usize)>) -> Self {
        Self { rare_cut, ..self }
    }

    /// In a pool of so many bytes.
    #[must_use]
    pub fn in_pool_of(self, pool_bytes: usize) -> Self {
        Self { pool_bytes, ..self }
    }

    /// In a pool of so many bytes, of which nothing is free when the power begins to be cut. What adds to the index may
    /// be refused then, and what removes from it if `refuses_removals`.
    #[must_use]
    pub fn cramped(self, pool_bytes: usize, refuses_removals: bool) -> Self {
        let refuses = if refuses_removals { Refuses::All } else { Refuses::Additions };
        Self { refuses, ..self.in_pool_of(pool_bytes) }
    }

    /// Begins every run with inserting so many keys, for an index of that size.
    #[must_use]
    pub fn filled(self, filled: u64) -> Self {
        Self { filled, ..self }
    }

    /// The same, and the power is cut in what comes after that. The pool has room for so many.
    #[must_use]
    pub fn filled_beforehand(self, filled: u64) -> Self {
        let pool_bytes =
            self.pool_bytes.max((filled as usize * BYTES_PER_KEY).next_multiple_of(1 << 20));
        Self { filled, pool_bytes, begins_filled: true, keys: self.keys.max(filled), ..self }
    }

    /// The same, with keys of which two of three have hashes that begin with [`SAME_BITS`] zeroes.
    #[must_use]
    pub fn crowded(mut self) -> Self
    where
        K: KeySpace,
    {
        let (mut crowded, mut others) = (crowded::<K>(), (0..).map(K::key));
        let keys = (0..self.keys.max(self.filled)).filter_map(|number| match number % 3 {
            0 => others.find(|key| !is_crowded::<K>(key)),
            _ => crowded.next(),
        });
        self.chosen = keys.collect();
        self
    }

    /// The same, with the greatest key first.
    #[must_use]
    pub fn descending(mut self) -> Self
    where
        K: KeySpace,
    {
        self.chosen = (0..self.keys.max(self.filled)).map(K::key).collect();
        self.chosen.sort_by(|one, other| other.cmp(one));
        self
    }

    /// The same, with removals that go through the keys in order, so that nodes become empty.
    #[must_use]
    pub fn draining(self) -> Self {
        Self { drains: true, ..self }
    }
}

fn is_crowded<K: IndexKey + ?Sized>(key: &K::Buf) -> bool {
    place_hash(K::borrow(key)).leading_zeros() >= SAME_BITS
}

/// The keys whose hashes begin with [`SAME_BITS`] zeroes.
pub(crate) fn crowded<K: KeySpace + ?Sized>() -> impl Iterator<Item = K::Buf> {
    (0..).map(K::key).filter(is_crowded::<K>)
}

/// An open index.
pub struct LiveIndex<K: IndexKey + ?Sized> {
    index: AnyIndex<Modelled, K>,
    visits_check: bool,
    refuses: Refuses,
    was_refused: bool,
    walks: Option<Rc<IndexWalks<K::Buf>>>,
}

/// Turns differ in few bits, which are not the lowest: this has them in all.
fn spread(turn: u64) -> u64 {
    turn.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
}

impl<K: KeySpace + ?Sized> IndexSubject<K> {
    fn key(&self, number: u64) -> K::Buf {
        self.chosen.get(number as usize).cloned().unwrap_or_else(|| K::key(number))
    }
}

impl<K: KeySpace + ?Sized> Subject for IndexSubject<K>
where
    K::Buf: std::hash::Hash,
{
    type Operation = IndexOperation<K::Buf>;
    type State = Entries<K::Buf>;
    type Live = LiveIndex<K>;

    fn name(&self) -> &'static str {
        self.name
    }

    fn pool_bytes(&self) -> usize {
        self.pool_bytes
    }

    fn prior_contents(&self) -> u8 {
        0xC3
    }

    fn rare_cut(&self) -> Option<(u64, usize)> {
        self.rare_cut
    }

    fn first_operation(&self) -> usize {
        let taking = usize::from(self.refuses != Refuses::Nothing);
        if self.begins_filled { self.filled as usize + taking + 1 } else { 0 }
    }

    fn operations(&self, count: usize, seed: u64) -> Vec<Self::Operation> {
        let mut random = SmallRng::seed_from_u64(seed);
        // So many operations on few keys meet the same ones again and build nothing larger. Where all are removed in
        // turn, that they are few is what empties the index.
        let most = count as u64 / OPERATIONS_PER_KEY;
        let keys = if self.drains { self.keys } else { self.keys.max(most) };
        let mut in_order: Vec<_> = (0..keys).map(|number| self.key(number)).collect();
        in_order.sort();
        let mut drained = in_order.into_iter().cycle();
        let filling = (0..self.filled).map(|number| IndexOperation::Insert(self.key(number), 1));
        // Phases of growth and of shrinking, so that splits and merges both come; of few keys so short that both come
        // before the index is opened again.
        let phase = if self.drains { PHASE.min(self.keys as usize) } else { PHASE };
        let drawn = (0..count).map(|index| {
            let growing = index / phase % 2 == 0;
            if let (true, false, Some(next)) = (self.drains, growing, drained.next()) {
                return IndexOperation::Remove(next);
            }
            let key = self.key(random.random_range(0..keys));
            let value = random.random_range(0..8);
            match random.random_range(0..10) {
                0 => IndexOperation::Update(key, value),
                1 => IndexOperation::Put(key, value),
                2..=8 if growing => IndexOperation::Insert(key, value),
                2..=8 => IndexOperation::Remove(key),
                _ if growing => IndexOperation::Remove(key),
                _ => IndexOperation::Insert(key, value),
            }
        });
        let is_cramped = self.refuses != Refuses::Nothing;
        let taking = is_cramped.then_some(IndexOperation::TakeAllRoom);
        filling.chain(taking).chain(drawn).collect()
    }

    fn probes(
        &self,
        state: &Self::State,
        interrupted: Option<&Self::Operation>,
        seed: u64,
    ) -> Vec<Self::Operation> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut probes = Vec::new();
        // What was half done is undone and done again, and its neighbours are touched.
        if let Some(
            IndexOperation::Insert(key, _)
            | IndexOperation::Update(key, _)
            | IndexOperation::Put(key, _)
            | IndexOperation::Remove(key),
        ) = interrupted
        {
            if random.random() {
                probes.push(IndexOperation::Remove(key.clone()));
            }
            probes.push(IndexOperation::Put(key.clone(), 1));
            if let Some((next, _)) = state.at_or_after(key) {
                probes.push(IndexOperation::Remove(next.clone()));
            }
            if let Some((before, _)) = state.before(key) {
                probes.push(IndexOperation::Update(before.clone(), 9));
            }
        }
        for _ in 0..3 {
            let key = self.key(random.random_range(0..self.keys));
            probes.push(if random.random() {
                IndexOperation::Insert(key, random.random_range(0..8))
            } else {
                IndexOperation::Remove(key)
            });
        }
        probes
    }

    fn create(&self, storage: Storage) -> Result<Self::Live, String> {
        created(self.kind, storage, &self.options).map(|index| LiveIndex::of(index, self.refuses))
    }

    fn open(&self, storage: Storage) -> Result<Option<Self::Live>, String> {
        Ok(opened(self.kind, storage)?.map(|index| LiveIndex::of(index, self.refuses)))
    }

    fn initial(&self) -> Self::State {
        Entries::default()
    }

    fn apply(&self, state: &mut Self::State, operation: &Self::Operation) {
        match operation {
            IndexOperation::Insert(key, value) => {
                state.insert(key.clone(), *value, false);
            }
            IndexOperation::Update(key, value) => {
                state.update(key, *value);
            }
            IndexOperation::Put(key, value) => {
                state.insert(key.clone(), *value, true);
            }
            IndexOperation::Remove(key) => {
                state.remove(key);
            }
            IndexOperation::TakeAllRoom => {}
        }
    }

    fn owns_source(&self, file: &str) -> bool {
        Exploration::owns(self.sources, file)
    }

    fn walk_memory(&self) -> Option<Rc<dyn WalkMemory>> {
        with_index!(self.kind, |F| IndexOf::<F, Modelled, K>::WALKS_BY_PARTS)
            .then(|| Rc::<IndexWalks<K::Buf>>::default() as Rc<dyn WalkMemory>)
    }
}

thread_local! {
    /// Where in the order of keys the entries were that an index visited in an order of its own: it
    /// visits much the same ones next time.
    static PLACES: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

impl<K: KeySpace + ?Sized> LiveIndex<K> {
    fn of(index: AnyIndex<Modelled, K>, refuses: Refuses) -> Self {
        let kind = index.kind().0;
        let visits_check = with_index!(kind, |F| IndexOf::<F, Modelled, K>::VISITS_CHECK);
        Self { index, visits_check, refuses, was_refused: false, walks: None }
    }

    /// Which of a few states an index is in that visits its entries in order.
    fn find_in_order(&self, expected: &[&Entries<K::Buf>]) -> Option<usize> {
        if let Some(walks) = &self.walks {
            let memory = &mut *walks.entries.borrow_mut();
            let visited = &mut *walks.visited.borrow_mut();
            let domain = self.index.pool().domain();
            let mut visitor = InOrderByPart::new(expected, memory, domain, visited);
            self.index.for_each_by_part(&mut visitor);
            return visitor.order.found();
        }
        let mut order = InOrder::new(expected);
        self.index.for_each(&mut |key, value| order.entry(key, value));
        order.found()
    }

    /// Whether an index is in this state, in whatever order it visits its entries.
    fn is_in(&self, state: &Entries<K::Buf>) -> bool {
        let (keys, values) = (state.keys(), state.values());
        let mut found = vec![0u64; keys.len().div_ceil(64)];
        PLACES.with_borrow_mut(|places| {
            let (mut visited, mut same) = (0, true);
            self.index.for_each(&mut |key, value| {
                let compare = |other: &K::Buf| K::borrow(other).cmp(key);
                let guess = places.get(visited).map_or(0, |&place| place as usize);
                // One entry more or fewer before it than last time.
                let place = (guess.saturating_sub(1)..guess + 2)
                    .find(|&at| keys.get(at).is_some_and(|other| compare(other).is_eq()))
                    .or_else(|| keys.binary_search_by(compare).ok());
                same = place.is_some_and(|place| {
                    let (word, bit) = (&mut found[place / 64], 1 << (place % 64));
                    let first = *word & bit == 0;
                    *word |= bit;
                    first && values[place] == value
                });
                let place = place.unwrap_or(guess) as u32;
                match places.get_mut(visited) {
                    Some(known) => *known = place,
                    None => places.push(place),
                }
                visited += 1;
                if same { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            same && visited == keys.len()
        })
    }

    /// What is reachable from the root.
    fn reachable(&self) -> ReachableBlocks {
        let pool = self.index.pool();
        let visit_blocks = visit_from_root(&self.index);
        match &self.walks {
            Some(walks) => {
                let mut memory = walks.blocks.borrow_mut();
                pool.reachable_by_parts(&mut memory.walk(pool.domain()), visit_blocks)
            }
            None => pool.reachable(visit_blocks),
        }
    }

    /// A look-up of the key finds what iteration did.
    fn look_up(
        &self,
        key: &K::Buf,
        expected: Option<u64>,
        pinned: &Guard<'_, Modelled>,
    ) -> Result<(), String> {
        let found = self.index.get_pinned(K::borrow(key), pinned);
        if found == expected {
            return Ok(());
        }
        Err(format!("iteration finds {expected:?} for {key:?}, a look-up {found:?}"))
    }

    /// Looks up some keys of `state`, which the index is in: others in another turn, in some turns all at once, and in
    /// some by going through all entries from the last one on.
    fn look_up_some(
        &self,
        state: &Entries<K::Buf>,
        turn: u64,
        pinned: &Guard<'_, Modelled>,
    ) -> Result<(), String> {
        let every = state.len().div_ceil(LOOK_UPS).max(1);
        let spread = spread(turn);
        let mut chosen = state.iter().skip((spread % every as u64) as usize).step_by(every);
        match spread >> 8 & 31 {
            0 => self.look_up_at_once(&chosen.collect::<Vec<_>>()),
            1 if self.index.kind().1.ordered => self.go_backward(state),
            _ => chosen.try_for_each(|(key, value)| self.look_up(key, Some(value), pinned)),
        }
    }

    /// From the last entry to the first one finds what is there: where nodes end, that rests on other bounds than the way
    /// from the first one on.
    fn go_backward(&self, state: &Entries<K::Buf>) -> Result<(), String> {
        let mut rest = state.keys().iter().zip(state.values()).rev();
        let mut wrong = None;
        self.index.scan(Bound::Unbounded, Direction::Backward, &mut |key, value| {
            let next = rest.next();
            if next.is_some_and(|(other, it)| *it == value && K::borrow(other).cmp(key).is_eq()) {
                return ControlFlow::Continue(());
            }
            wrong = Some((next, key.to_buf(), value));
            ControlFlow::Break(())
        });
        match (wrong, rest.next()) {
            (None, None) => Ok(()),
            (Some((next, key, value)), _) => Err(format!(
                "iteration finds {next:?} where the way back comes to {value} for {key:?}"
            )),
            (None, next) => Err(format!("iteration finds {next:?}, and the way back ends there")),
        }
    }

    /// As [`LiveIndex::look_up`], of many keys.
    fn look_up_at_once(&self, entries: &[(&K::Buf, u64)]) -> Result<(), String> {
        let keys: Vec<&K> = entries.iter().map(|(key, _)| K::borrow(key)).collect();
        let mut answers = vec![None; keys.len()];
        self.index.get_many(&keys, &mut |place, found| answers[place] = found);
        match entries.iter().zip(answers).find(|((_, value), found)| *found != Some(*value)) {
            None => Ok(()),
            Some(((key, value), found)) => Err(format!(
                "iteration finds {value} for {key:?}, a look-up of many keys {found:?}"
            )),
        }
    }
}

impl<K: KeySpace + ?Sized> Live<IndexOperation<K::Buf>, Entries<K::Buf>> for LiveIndex<K> {
    fn perform(&mut self, operation: &IndexOperation<K::Buf>) -> Result<(), String> {
        let (key, change) = match operation {
            IndexOperation::Insert(key, value) => (key, Change::Insert(*value)),
            IndexOperation::Update(key, value) => (key, Change::Update(*value)),
            IndexOperation::Put(key, value) => (key, Change::Put(*value)),
            IndexOperation::Remove(key) => (key, Change::Remove),
            IndexOperation::TakeAllRoom => return ballast::take_all_room(self.index.pool()),
        };
        let may_refuse = match self.refuses {
            Refuses::Nothing => false,
            Refuses::Additions => change != Change::Remove || self.index.pool().needs_reclaim(),
            Refuses::All => true,
        };
        self.was_refused = match self.index.change(K::borrow(key), change) {
            Err(IndexError::Alloc(_)) if may_refuse => true,
            outcome => outcome.map(|_| false).map_err(text)?,
        };
        Ok(())
    }

    fn was_refused(&self) -> bool {
        self.was_refused
    }

    fn observe(&self) -> Result<Entries<K::Buf>, String> {
        // A list from an index that never ends is cut off.
        let mut entries = Vec::new();
        self.index.for_each(&mut |key, value| {
            entries.push((key.to_buf(), value));
            if entries.len() > MOST_ENTRIES {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        let state = Entries::of(entries).map_err(|twice| format!("{twice:?} is visited twice"))?;
        self.look_up_some(&state, 0, &self.index.pool().pin())?;
        Ok(state)
    }

    fn find(&self, expected: &[&Entries<K::Buf>], turn: u64) -> Result<Option<usize>, String> {
        let found = if self.index.kind().1.ordered {
            self.find_in_order(expected)
        } else {
            (0..expected.len()).find(|&number| self.is_in(expected[number]))
        };
        let Some(number) = found else { return Ok(None) };
        // Looking a key up must find what iteration finds. That goes for all, of which it is some
        // each time, and for those in question always, with their neighbours.
        let state = expected[number];
        // Each look-up would be the last to let go of the pool, and look for what to free then.
        let pinned = self.index.pool().pin();
        self.look_up_some(state, turn, &pinned)?;
        if let [one, other] = expected {
            let pairs = one.iter().zip(other.iter());
            let same = pairs.take_while(|(one, other)| one == other).count();
            for entries in expected {
                let around = entries.iter().skip(same.saturating_sub(1)).take(3);
                for (key, _) in around {
                    self.look_up(key, state.get(key), &pinned)?;
                }
            }
        }
        Ok(Some(number))
    }

    fn check(&self) -> Vec<String> {
        if self.visits_check && self.walks.is_some() {
            return self.reachable().problems().iter().map(ToString::to_string).collect();
        }
        self.index.check()
    }

    fn audit_checks(&self) -> bool {
        self.visits_check
    }

    fn reclaim_and_audit(&self) -> AuditReport {
        let pool = self.index.pool();
        let reachable = self.reachable();
        pool.reclaim_and_audit(&reachable)
    }

    fn remember_walks(&mut self, memory: &Rc<dyn WalkMemory>) {
        let walks = Rc::clone(memory) as Rc<dyn Any>;
        self.walks = walks.downcast().ok();
    }

    fn pool(&self) -> Option<&Pool<Modelled>> {
        Some(self.index.pool())
    }
}
