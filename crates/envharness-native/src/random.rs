//! A small random number generator.

use std::hash::{BuildHasher as _, Hasher as _};

/// SplitMix64: 64 bits of state, one multiplication chain a number, the same numbers everywhere.
///
/// Its numbers are not numpy's: a seed gives the same episode in every run of this crate, but
/// another one than the same seed in Gymnasium.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A generator that differs from one instance and from one process to the next.
    pub fn from_entropy() -> Self {
        Self::new(std::hash::RandomState::new().build_hasher().finish())
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `low` up to, but not including, `high`, in steps of 2^-53 of the range.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
        let unit = (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        low + (high - low) * unit
    }
}

#[cfg(test)]
mod tests {
    use super::SplitMix64;

    /// The first numbers of seed 1234567, as published with the algorithm's reference code.
    #[test]
    fn the_numbers_are_those_of_the_reference() {
        let mut random = SplitMix64::new(1_234_567);
        let numbers: Vec<u64> = (0..5).map(|_| random.next_u64()).collect();
        assert_eq!(
            numbers,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821
            ]
        );
    }

    #[test]
    fn uniform_stays_in_its_range() {
        let mut random = SplitMix64::new(0);
        assert!((0..10_000).map(|_| random.uniform(-0.05, 0.05)).all(|v| (-0.05..0.05).contains(&v)));
    }
}
