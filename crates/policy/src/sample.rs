//! What stack distances of a sample of places are counted with, here and in the laboratory.

/// Spreads places evenly whatever their order (the finisher of MurmurHash3).
pub fn spread(mut value: u64) -> u64 {
    value ^= value >> 33;
    value = value.wrapping_mul(0xff51_afd7_ed55_8ccd);
    value ^= value >> 33;
    value = value.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    value ^ value >> 33
}

/// Sums over a row of numbers that change (a Fenwick tree).
pub struct Sums(Vec<i64>);

impl Sums {
    /// Of so many zeros.
    pub fn new(length: usize) -> Sums {
        Sums(vec![0; length + 1])
    }

    /// Changes one of them.
    pub fn add(&mut self, at: usize, change: i64) {
        let mut node = at + 1;
        while node < self.0.len() {
            self.0[node] += change;
            node += node & node.wrapping_neg();
        }
    }

    /// The sum of the first `count`.
    pub fn up_to(&self, count: usize) -> i64 {
        let mut node = count;
        let mut sum = 0;
        while node > 0 {
            sum += self.0[node];
            node &= node - 1;
        }
        sum
    }
}
