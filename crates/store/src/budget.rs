//! The memory budget: every allocation above 1 MB is reserved by name, and released on drop.
//!
//! It counts private memory (heap and anonymous maps), not pages of mapped files, which the kernel
//! may drop at will. It allocates nothing itself: the holder of a reservation allocates.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Error;

/// A shared account of private memory. Clones share one account.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Mutex<Account>>);

#[derive(Debug)]
struct Account {
    /// The most bytes that may be reserved.
    limit: u64,
    items: Vec<BudgetItem>,
    /// The accounts that count the same reservations.
    outer: Vec<Budget>,
}

/// One line of the memory table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetItem {
    /// The purpose of the memory.
    pub name: &'static str,
    /// Its size in bytes.
    pub bytes: u64,
}

impl Budget {
    /// A budget that grants everything and keeps count.
    pub fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// A budget that refuses to exceed `limit` bytes.
    pub fn limited(limit: u64) -> Self {
        Self::new(limit)
    }

    /// A budget whose reservations are made in these, too, such as for one of several models on a
    /// GPU.
    pub fn within(outer: &[&Self]) -> Self {
        let budget = Self::unlimited();
        budget.account().outer = outer.iter().map(|&outer| outer.clone()).collect();
        budget
    }

    fn new(limit: u64) -> Self {
        Self(Arc::new(Mutex::new(Account {
            limit,
            items: Vec::new(),
            outer: Vec::new(),
        })))
    }

    /// Refuses from now on to exceed `limit` bytes; earlier reservations stay.
    pub fn set_limit(&self, limit: u64) {
        self.account().limit = limit;
    }

    /// Reserves `bytes` for `name` until the reservation is dropped.
    ///
    /// # Errors
    /// [`Error::OverBudget`] if the limit would be exceeded; nothing is reserved then.
    pub fn reserve(&self, name: &'static str, bytes: u64) -> Result<Reservation, Error> {
        let outer = self.outer();
        let outer = outer.iter().map(|outer| outer.reserve(name, bytes));
        let outer = outer.collect::<Result<_, _>>()?;
        let mut account = self.account();
        let used = account.used();
        let limit = account.limit;
        if used.saturating_add(bytes) > limit {
            return Err(Error::OverBudget {
                what: name,
                asked: bytes,
                used,
                limit,
            });
        }
        match account.items.iter_mut().find(|i| i.name == name) {
            Some(item) => item.bytes += bytes,
            None => account.items.push(BudgetItem { name, bytes }),
        }
        drop(account);
        Ok(Reservation {
            budget: self.clone(),
            name,
            bytes,
            _outer: outer,
        })
    }

    /// All reservations by name, in the order of the first one of each name.
    pub fn items(&self) -> Vec<BudgetItem> {
        self.account().items.clone()
    }

    /// The sum of all reservations, bytes.
    pub fn used(&self) -> u64 {
        self.account().used()
    }

    /// Bytes that can still be reserved.
    pub fn left(&self) -> u64 {
        let outer = self.outer().iter().map(Self::left).min();
        let account = self.account();
        let left = account.limit.saturating_sub(account.used());
        left.min(outer.unwrap_or(u64::MAX))
    }

    /// The most bytes that can be reserved in all.
    pub fn limit(&self) -> u64 {
        self.account().limit
    }

    fn outer(&self) -> Vec<Self> {
        self.account().outer.clone()
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    fn used(&self) -> u64 {
        self.items.iter().map(|i| i.bytes).sum()
    }
}

/// Memory that was granted; dropping it releases it.
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    name: &'static str,
    bytes: u64,
    _outer: Vec<Reservation>,
}

impl Reservation {
    /// Granted bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let items = &mut self.budget.account().items;
        if let Some(i) = items.iter().position(|i| i.name == self.name) {
            items[i].bytes -= self.bytes;
            if items[i].bytes == 0 {
                items.remove(i);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_that_does_not_fit_names_the_numbers_and_takes_nothing() {
        let budget = Budget::limited(100);
        let _kv = budget.reserve("kv cache", 60).unwrap();
        let err = budget.reserve("activations", 50).unwrap_err();
        assert_eq!(
            err.to_string(),
            "out of memory budget: activations needs 50 bytes, 60 of 100 are taken; lower the batch size"
        );
        assert_eq!(budget.used(), 60);
        assert!(budget.reserve("activations", 40).is_ok());
    }

    #[test]
    fn dropping_a_reservation_gives_its_bytes_back_and_equal_names_share_a_line() {
        let budget = Budget::unlimited();
        let a = budget.reserve("kv cache", 10).unwrap();
        let b = budget.reserve("kv cache", 5).unwrap();
        assert_eq!(
            budget.items(),
            [BudgetItem {
                name: "kv cache",
                bytes: 15
            }]
        );
        drop(a);
        assert_eq!(budget.used(), 5);
        drop(b);
        assert!(budget.items().is_empty());
    }

    #[test]
    fn a_budget_within_others_reserves_in_all_or_in_none() {
        let [ram, gpu] = [Budget::limited(100), Budget::limited(50)];
        let both = Budget::within(&[&ram, &gpu]);
        assert_eq!(both.left(), 50);
        let held = both.reserve("gpu weights", 40).unwrap();
        let used = || [&ram, &gpu, &both].map(Budget::used);
        assert_eq!(used(), [40; 3]);
        assert!(both.reserve("gpu kv cache", 20).is_err());
        assert_eq!(used(), [40; 3]);
        drop(held);
        assert_eq!(used(), [0; 3]);
    }

    #[test]
    fn an_absurd_reservation_does_not_wrap_around() {
        let budget = Budget::limited(100);
        let _a = budget.reserve("a", 1).unwrap();
        assert!(budget.reserve("b", u64::MAX).is_err());
    }
}
