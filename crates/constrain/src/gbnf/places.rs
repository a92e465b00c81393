//! The construction of Glushkov (1961): the leaves of expressions, each in the place where it is
//! written, and after each place those that may be next.
//!
//! What a leaf is is not known here: a character of a terminal, or a terminal of a rule.

pub(super) struct LeafPosition<L> {
    pub(super) leaf: L,
    pub(super) next: Vec<u32>,
    /// Whether the whole may end here.
    pub(super) is_last: bool,
}

/// Where an expression begins and ends, and whether also without any place in it.
pub(super) struct Ends {
    pub(super) first: Vec<u32>,
    last: Vec<u32>,
    pub(super) is_nullable: bool,
}

impl Ends {
    pub(super) const EMPTY: Self = Self {
        first: Vec::new(),
        last: Vec::new(),
        is_nullable: true,
    };
    pub(super) const NOTHING: Self = Self {
        first: Vec::new(),
        last: Vec::new(),
        is_nullable: false,
    };

    pub(super) fn or(mut self, other: Self) -> Self {
        self.first.extend(other.first);
        self.last.extend(other.last);
        self.is_nullable |= other.is_nullable;
        self
    }
}

/// Places in the order in which they are written. What takes more room than there is gives `None`.
pub(super) struct Places<L> {
    pub(super) all: Vec<LeafPosition<L>>,
    /// How many more times a place may be next to another.
    pub(super) room: usize,
}

impl<L> Places<L> {
    pub(super) fn new(room: usize) -> Self {
        Self {
            all: Vec::new(),
            room,
        }
    }

    pub(super) fn add(&mut self, leaf: L) -> Option<Ends> {
        let at = u32::try_from(self.all.len()).ok()?;
        self.all.push(LeafPosition {
            leaf,
            next: Vec::new(),
            is_last: false,
        });
        Some(Ends {
            first: vec![at],
            last: vec![at],
            is_nullable: false,
        })
    }

    /// One after the other.
    pub(super) fn chain(&mut self, before: Ends, after: Ends) -> Option<Ends> {
        self.link(&before.last, &after.first)?;
        let mut first = before.first;
        let mut last = after.last;
        if before.is_nullable {
            first.extend(after.first);
        }
        if after.is_nullable {
            last.extend(before.last);
        }
        Some(Ends {
            first,
            last,
            is_nullable: before.is_nullable && after.is_nullable,
        })
    }

    /// Once or more.
    pub(super) fn again(&mut self, ends: Ends) -> Option<Ends> {
        self.link(&ends.last, &ends.first)?;
        Some(ends)
    }

    /// Notes that this is the whole.
    pub(super) fn finish(&mut self, whole: &Ends) {
        for &place in &whole.last {
            self.all[place as usize].is_last = true;
        }
    }

    fn link(&mut self, from: &[u32], to: &[u32]) -> Option<()> {
        self.room = self.room.checked_sub(from.len() * to.len())?;
        for &place in from {
            self.all[place as usize].next.extend(to);
        }
        Some(())
    }
}
