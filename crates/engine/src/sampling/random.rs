//! Random numbers of the sampler.
//!
//! The one idea: the stream for a seed never changes with a release, a platform or a dependency, so
//! that a seed gives the same text later. Tests pin it.

/// SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA
/// 2014, with the constants of Vigna's public-domain `splitmix64.c`. Period 2⁶⁴, one addition of
/// state per number.
#[derive(Clone, Debug)]
pub(super) struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 random bits.
    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..n`, from exactly one [`next`](Self::next). The probability of each is off by
    /// less than 2⁻⁶⁴.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_of_a_seed_never_changes() {
        let mut random = SplitMix64::new(1_234_567);
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(published.map(|_| random.next()), published);
    }

    #[test]
    fn the_stream_of_the_default_seed_never_changes() {
        let mut random = SplitMix64::new(42);
        let first = [
            13_679_457_532_755_275_413,
            2_949_826_092_126_892_291,
            5_139_283_748_462_763_858,
        ];
        assert_eq!([(); 3].map(|()| random.next()), first);
    }

    #[test]
    fn a_bounded_number_is_below_its_bound_and_reaches_both_ends() {
        let mut random = SplitMix64::new(7);
        let mut seen = [0; 5];
        (0..1000).for_each(|_| seen[random.below(5) as usize] += 1);
        assert!(seen.iter().all(|&n| n > 150), "{seen:?}");
        assert_eq!((random.below(1), random.below(0)), (0, 0));
    }
}
