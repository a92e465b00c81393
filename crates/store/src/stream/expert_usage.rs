//! How often each expert of a layer was used: the value of keeping it in memory.
//!
//! A use counts 1 and loses half of that in [`HALF_LIFE`] tokens, so that frequent and recent uses
//! count alike (LRFU, Lee et al. 2001): of experts that are used equally often the one used last
//! stays, and a prompt, which uses nearly all of them once, does not displace the frequent ones.
//! Knows ids and numbers, neither bytes nor files.

/// Tokens after which a use counts half. Not tuned: no trained mixture of experts was at hand.
const HALF_LIFE: f32 = 64.0;

/// What one more use counts at most before all values are divided by it.
const MAX_UNIT: f32 = 1e12;

/// The uses of the experts of one layer.
#[derive(Clone, Debug)]
pub(super) struct LayerUsage {
    /// By expert, in units of the first use.
    values: Vec<f32>,
    /// What a use counts now: growing is less work than letting all values decay.
    unit: f32,
}

impl LayerUsage {
    /// Of `n` experts that were never used.
    pub(super) fn new(n: usize) -> Self {
        Self {
            values: vec![0.0; n],
            unit: 1.0,
        }
    }

    /// Counts a step of `n_rows` tokens: `uses[i]` of them used expert `ids[i]`.
    pub(super) fn count(&mut self, ids: &[u32], uses: &[u32], n_rows: usize) {
        self.unit *= (n_rows as f32 / HALF_LIFE).min(32.0).exp2();
        if self.unit > MAX_UNIT {
            let unit = self.unit;
            self.values.iter_mut().for_each(|value| *value /= unit);
            self.unit = 1.0;
        }
        for (&id, &n) in ids.iter().zip(uses) {
            if let Some(value) = self.values.get_mut(id as usize) {
                *value += self.unit * n as f32;
            }
        }
    }

    /// The value of an expert, to be compared with those of others of this layer.
    pub(super) fn of(&self, id: u32) -> f32 {
        self.values.get(id as usize).copied().unwrap_or(0.0)
    }

    /// The decayed number of uses of each expert.
    pub(super) fn uses(&self) -> Vec<f32> {
        self.values.iter().map(|value| value / self.unit).collect()
    }

    /// Continues from the uses of an earlier run; not if they are of another number of experts.
    pub(super) fn restore(&mut self, uses: &[f32]) {
        if uses.len() == self.values.len() {
            self.values.copy_from_slice(uses);
            self.unit = 1.0;
        }
    }

    /// The experts that were used, most used first, the lower id on ties.
    pub(super) fn ranking(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = (0..self.values.len() as u32).collect();
        ids.retain(|&id| self.of(id) > 0.0);
        ids.sort_by(|&a, &b| self.of(b).total_cmp(&self.of(a)));
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_and_recent_uses_count() {
        let mut usage = LayerUsage::new(4);
        (0..5).for_each(|_| usage.count(&[2], &[1], 1));
        usage.count(&[0], &[1], 1);
        usage.count(&[1], &[1], 1);
        assert_eq!(usage.ranking(), [2, 1, 0]);
        // After some half-lives a single use counts more than many old ones.
        usage.count(&[], &[], 4 * 64);
        usage.count(&[3], &[1], 1);
        assert_eq!(usage.ranking(), [3, 2, 1, 0]);
    }

    #[test]
    fn values_stay_finite_and_survive_a_restart() {
        let mut usage = LayerUsage::new(3);
        for i in 0..5000 {
            usage.count(&[i % 2, 2], &[1, 2], 64);
        }
        let uses = usage.uses();
        assert!(uses.iter().all(|n| n.is_finite() && *n < 5.0), "{uses:?}");
        let mut restored = LayerUsage::new(3);
        restored.restore(&uses);
        assert_eq!(restored.ranking(), usage.ranking());
        restored.restore(&[9.0]);
        assert_eq!(restored.ranking(), usage.ranking(), "of another model");
    }
}
