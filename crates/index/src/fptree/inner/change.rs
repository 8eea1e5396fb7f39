//! Changing the inner nodes: copies that take the place of what they were copied from.

use std::cmp::Ordering as Order;
use std::sync::atomic::{Ordering, fence};

use lapis_pmem::host_lock::lock;

use super::*;

/// Nodes that are always free: what a removal copies to before it gives back as many. A path is no
/// longer than this, and only its holder has the lock.
const MARGIN: usize = 8;

/// What a split will need of the inner nodes, set aside before it begins.
#[must_use]
#[derive(Debug)]
pub(in crate::fptree) struct Provision {
    separator: Separator,
    nodes: usize,
}

/// The lower end of a leaf's range, none for the first, and the leaf.
pub(in crate::fptree) type LeafEntry = (Option<Separator>, Link<LeafHeader>);

/// A node, taken apart.
#[derive(Debug)]
struct Content {
    level: usize,
    separators: Vec<Separator>,
    children: Vec<u64>,
}

impl Content {
    /// Removes a child, and the separator before it, or behind it if it is the first.
    fn remove(&mut self, index: usize) -> Option<Separator> {
        self.children.remove(index);
        let separator = index.saturating_sub(1);
        (separator < self.separators.len()).then(|| self.separators.remove(separator))
    }

    /// Takes the upper half off, and the separator between.
    fn split(&mut self) -> (Separator, Self) {
        let middle = self.separators.len() / 2;
        let separators = self.separators.split_off(middle + 1);
        let children = self.children.split_off(middle + 1);
        let between = self.separators.remove(middle);
        (between, Self { level: self.level, separators, children })
    }
}

impl InnerTree {
    /// Sees to it that there are so many free nodes beside those that are promised.
    fn provide<D: Domain>(
        &self,
        pool: &Pool<D>,
        state: &mut State,
        nodes: usize,
    ) -> Result<(), AllocError> {
        while state.free_nodes() < state.promised + nodes + MARGIN {
            let (first, words) =
                (state.provided as usize * self.columns.node_words, self.columns.node_words);
            // A node that would cross the end of a chunk is left out.
            if first + words > self.nodes.chunk_end(first) {
                let next = self.nodes.chunk_end(first).div_ceil(words);
                state.free.extend(state.fresh..state.provided);
                (state.fresh, state.provided) = (next as u32, next as u32);
                continue;
            }
            self.nodes.provide(pool, first)?;
            state.provided += 1;
        }
        Ok(())
    }

    /// Sets aside what entering a new leaf, from `key` on, will need.
    pub(in crate::fptree) fn prepare<D: Domain, K: IndexKey + ?Sized>(
        &self,
        pool: &Pool<D>,
        key: &K,
    ) -> Result<Provision, AllocError> {
        let mut state = lock(pool.domain(), &self.state);
        // Each level may split, also those that other splits add meanwhile.
        let nodes = 2 * MARGIN;
        self.provide(pool, &mut state, nodes)?;
        let separator = self.separators.make(pool, &mut state.words, key)?;
        state.promised += nodes;
        Ok(Provision { separator, nodes })
    }

    fn node<'a, D: Domain>(&'a self, pool: &'a Pool<D>, number: u32) -> Node<'a> {
        match self.try_node(pool, number) {
            Some(node) => node,
            None => no_such_node(number),
        }
    }

    fn content<D: Domain, K: IndexKey + ?Sized>(&self, pool: &Pool<D>, number: u32) -> Content {
        let (domain, node) = (pool.domain(), self.node(pool, number));
        let (count, level) = (node.header(domain).count(), node.header(domain).level());
        Content {
            level,
            separators: (0..count).map(|at| node.separator::<D, K>(domain, at)).collect(),
            children: (0..=count).map(|at| node.child(domain, at)).collect(),
        }
    }

    /// Writes a node that nothing refers to yet.
    fn build<D: Domain, K: IndexKey + ?Sized>(
        &self,
        pool: &Pool<D>,
        state: &mut State,
        content: &Content,
    ) -> u32 {
        let number = state.free.pop().unwrap_or_else(|| {
            debug_assert!(state.fresh < state.provided, "more nodes than were set aside");
            state.fresh += 1;
            state.fresh - 1
        });
        let (domain, node) = (pool.domain(), self.node(pool, number));
        let Content { level, separators, children } = content;
        node.write::<D, K>(domain, *level, separators, children);
        number
    }

    /// Says of nodes that nothing in the tree refers to any more that they are free.
    fn bury<D: Domain>(&self, pool: &Pool<D>, state: &mut State, dead: Vec<u32>) {
        let domain = pool.domain();
        for number in dead {
            self.node(pool, number).leave(domain);
            state.free.push(number);
        }
        // What is written to them from here on is not seen before this.
        fence(Ordering::Release);
    }

    /// Turns a word above a new node to it.
    fn turn<D: Domain>(&self, pool: &Pool<D>, above: Option<(u32, usize)>, to: u32) {
        let domain = pool.domain();
        match above {
            Some((parent, index)) => {
                self.node(pool, parent).turn_child(domain, index, u64::from(to));
            }
            None => {
                // The node may be in the pool, and the stores that made it on their way.
                domain.synchronize();
                self.root.store(to, Ordering::Release);
            }
        }
    }

    /// The nodes on the way to the leaf of `key`, with the child chosen in each, from the root.
    fn path<D: Domain, K: IndexKey + ?Sized>(&self, pool: &Pool<D>, key: &K) -> Vec<(u32, usize)> {
        let domain = pool.domain();
        let mut path = Vec::with_capacity(MARGIN);
        let mut number = self.root.load(Ordering::Relaxed);
        loop {
            let node = self.node(pool, number);
            let header = node.header(domain);
            let index =
                node.search(pool, &self.separators, header.count(), Target::Of(key), key.prefix());
            path.push((number, index));
            if header.level() <= 1 {
                return path;
            }
            number = node.child(domain, index) as u32;
        }
    }

    /// Enters a new leaf, whose range begins with `key`, for which `provision` was made. The caller
    /// holds the lock of the leaf it was split from.
    pub(in crate::fptree) fn insert<D: Domain, K: IndexKey + ?Sized>(
        &self,
        pool: &Pool<D>,
        provision: Provision,
        key: &K,
        leaf: Link<LeafHeader>,
    ) {
        let mut guard = lock(pool.domain(), &self.state);
        let state = &mut *guard;
        state.promised -= provision.nodes;
        let mut path = self.path(pool, key);
        let mut dead = Vec::with_capacity(path.len());
        let mut entering = (provision.separator, leaf.bits());
        // What takes the place of the child chosen one level up.
        let mut replaced: Option<u32> = None;
        loop {
            let Some((number, index)) = path.pop() else {
                // The root was split.
                let children = vec![u64::from(replaced.unwrap_or_default()), entering.1];
                let below = self.node(pool, entering.1 as u32).header(pool.domain()).level();
                let content = Content { level: below + 1, separators: vec![entering.0], children };
                let root = self.build::<D, K>(pool, state, &content);
                self.turn(pool, None, root);
                break;
            };
            let mut content = self.content::<D, K>(pool, number);
            if let Some(replaced) = replaced {
                content.children[index] = u64::from(replaced);
            }
            content.separators.insert(index, entering.0);
            content.children.insert(index + 1, entering.1);
            dead.push(number);
            if content.separators.len() <= self.capacity {
                let built = self.build::<D, K>(pool, state, &content);
                self.turn(pool, path.last().copied(), built);
                break;
            }
            let (between, upper) = content.split();
            replaced = Some(self.build::<D, K>(pool, state, &content));
            entering = (between, u64::from(self.build::<D, K>(pool, state, &upper)));
        }
        self.bury(pool, state, dead);
    }

    /// Takes the leaf of `key` away. Its range goes to the leaf before it, as its entries do, wherever
    /// that lies by now, and to the one behind it if it was the first of all. The caller holds the
    /// leaf's lock.
    pub(in crate::fptree) fn remove<D: Domain, K: IndexKey + ?Sized>(
        &self,
        pool: &Pool<D>,
        key: &K,
        leaf: Link<LeafHeader>,
    ) {
        let mut guard = lock(pool.domain(), &self.state);
        let state = &mut *guard;
        let mut path = self.path(pool, key);
        let is_first = path.iter().all(|&(_, index)| index == 0);
        let (bottom, at) = path.last().copied().unwrap_or_default();
        let mut content = self.content::<D, K>(pool, bottom);
        if content.children.get(at) != Some(&leaf.bits()) {
            debug_assert!(false, "a leaf that is not where its key leads");
            return;
        }
        // The separator that nobody has any more; and, if the leaf before is under another node, the
        // one that is to part the two nodes.
        let take = |content: &mut Content, index: usize| {
            let removed = content.remove(index);
            if index > 0 || is_first { (removed, None) } else { (None, removed) }
        };
        let (mut gone, mut parting) = take(&mut content, at);
        let mut dead = Vec::with_capacity(path.len());
        let few = self.capacity.div_ceil(4);
        while let Some((number, _)) = path.pop() {
            dead.push(number);
            let Some(&(parent, index)) = path.last() else {
                self.replace_root::<D, K>(pool, state, content, &mut dead);
                break;
            };
            if content.children.is_empty() {
                content = self.content::<D, K>(pool, parent);
                (gone, parting) = take(&mut content, index);
                continue;
            }
            if let Some(separator) = parting {
                let built = self.build::<D, K>(pool, state, &content);
                content = self.content::<D, K>(pool, parent);
                content.children[index] = u64::from(built);
                if index > 0 {
                    gone = Some(std::mem::replace(&mut content.separators[index - 1], separator));
                    parting = None;
                }
                continue;
            }
            if content.children.len() <= few
                && let Some(joined) =
                    self.join::<D, K>(pool, state, parent, index, &mut content, &mut dead)
            {
                content = joined;
                continue;
            }
            let built = self.build::<D, K>(pool, state, &content);
            self.turn(pool, Some((parent, index)), built);
            break;
        }
        self.bury(pool, state, dead);
        if let Some(separator) = gone {
            self.separators.give_back(&mut state.words, separator);
        }
    }

    /// Puts the content of a node and that of a neighbour into one, if they fill half of it. Returns
    /// what the parent becomes.
    fn join<D: Domain, K: IndexKey + ?Sized>(
        &self,
        pool: &Pool<D>,
        state: &mut State,
        parent: u32,
        index: usize,
        content: &mut Content,
        dead: &mut Vec<u32>,
    ) -> Option<Content> {
        let mut above = self.content::<D, K>(pool, parent);
        let left = index.saturating_sub(1);
        let other = *above.children.get(if index > 0 { left } else { 1 })? as u32;
        let mut beside = self.content::<D, K>(pool, other);
        if content.children.len() + beside.children.len() > self.capacity.div_ceil(2) {
            return None;
        }
        if index == 0 {
            std::mem::swap(content, &mut beside);
        }
        // `beside` is the left one now.
        beside.separators.push(above.separators.remove(left));
        beside.separators.append(&mut content.separators);
        beside.children.append(&mut content.children);
        above.children.remove(left + 1);
        dead.push(other);
        above.children[left] = u64::from(self.build::<D, K>(pool, state, &beside));
        Some(above)
    }

    /// Puts a content in the place of the root; a root with one child gives way to it.
    fn replace_root<D: Domain, K: IndexKey + ?Sized>(
        &self,
        pool: &Pool<D>,
        state: &mut State,
        content: Content,
        dead: &mut Vec<u32>,
    ) {
        if content.level <= 1 || content.children.len() > 1 {
            let root = self.build::<D, K>(pool, state, &content);
            self.turn(pool, None, root);
            return;
        }
        let mut root = content.children[0] as u32;
        loop {
            let node = self.node(pool, root);
            let header = node.header(pool.domain());
            if header.count() > 0 || header.level() <= 1 {
                break;
            }
            dead.push(root);
            root = node.child(pool.domain(), 0) as u32;
        }
        self.turn(pool, None, root);
    }

    /// Builds the nodes over leaves in order, each with the word of its least key (that of the first
    /// does not count). Words that are no key are left out.
    pub(in crate::fptree) fn rebuild<D: Domain, K: IndexKey + ?Sized>(
        &self,
        pool: &Pool<D>,
        leaves: &[(u64, Link<LeafHeader>)],
    ) -> Result<(), AllocError> {
        let mut guard = lock(pool.domain(), &self.state);
        let state = &mut *guard;
        let nothing = Separator { prefix: 0, handle: 0 };
        let mut level = 1;
        let mut entries = Vec::with_capacity(leaves.len());
        for &(word, leaf) in leaves {
            if entries.is_empty() {
                entries.push((nothing, leaf.bits()));
                continue;
            }
            let made =
                K::with_word(pool, word, |key| self.separators.make(pool, &mut state.words, key));
            if let Some(made) = made {
                entries.push((made?, leaf.bits()));
            }
        }
        loop {
            // Room for some more in each, and none much emptier than the others.
            let nodes = entries.len().div_ceil((self.capacity + 1) * 3 / 4).max(1);
            self.provide(pool, state, nodes)?;
            let mut above = Vec::with_capacity(nodes);
            for number in 0..nodes {
                let part = number * entries.len() / nodes..(number + 1) * entries.len() / nodes;
                let part = &entries[part];
                let content = Content {
                    level,
                    separators: part.iter().skip(1).map(|entry| entry.0).collect(),
                    children: part.iter().map(|entry| entry.1).collect(),
                };
                let built = self.build::<D, K>(pool, state, &content);
                above.push((part.first().map_or(nothing, |first| first.0), u64::from(built)));
            }
            if let [(_, root)] = above[..] {
                self.turn(pool, None, root as u32);
                return Ok(());
            }
            (entries, level) = (above, level + 1);
        }
    }

    /// Every leaf in order with its range's lower end, the number of levels and of nodes. Nobody may
    /// change the tree meanwhile.
    pub(in crate::fptree) fn leaves<D: Domain, K: IndexKey + ?Sized>(
        &self,
        pool: &Pool<D>,
    ) -> (Vec<LeafEntry>, usize, usize) {
        let domain = pool.domain();
        let root = self.root.load(Ordering::Acquire);
        let height = self.node(pool, root).header(domain).level();
        let mut level = vec![(None, u64::from(root))];
        let mut nodes = 0;
        for _ in 0..height {
            nodes += level.len();
            let mut below = Vec::new();
            for (lower, number) in level {
                let content = self.content::<D, K>(pool, number as u32);
                let lowers = content.separators.into_iter().map(Some);
                below.extend(std::iter::once(lower).chain(lowers).zip(content.children));
            }
            level = below;
        }
        let leaves = level.into_iter().map(|(lower, link)| (lower, Link::from_bits(link)));
        (leaves.collect(), height, nodes)
    }

    /// Compares a leaf's lower end with the key of a word. None if the word is no key.
    pub(in crate::fptree) fn compare_word<D: Domain, K: IndexKey + ?Sized>(
        &self,
        pool: &Pool<D>,
        separator: Separator,
        word: u64,
    ) -> Option<Order> {
        K::with_word(pool, word, |key| self.separators.compare(pool, separator, key.prefix(), key))
    }
}

#[cold]
#[inline(never)]
fn no_such_node(number: u32) -> ! {
    panic!("the index is damaged: there is no inner node {number}")
}
