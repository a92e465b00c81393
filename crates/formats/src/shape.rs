//! The shape of a tensor: one to four dimensions, outermost first, the reverse of the order in the
//! file.

/// Dimensions of a tensor, outermost first: `[d_out, d_in]` for the weights of `y = W x`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [u64; Shape::MAX_DIMS],
    n_dims: u8,
    n_elements: u64,
}

impl Shape {
    /// The most dimensions that the format allows.
    pub const MAX_DIMS: usize = 4;

    /// A shape from its dimensions, outermost first; `None` if there are more than four or their
    /// product overflows an `i64`, which is what other readers count in.
    pub fn new(dims: &[u64]) -> Option<Self> {
        let mut own = [1; Self::MAX_DIMS];
        own.get_mut(..dims.len())?.copy_from_slice(dims);
        let n_elements = dims
            .iter()
            .try_fold(1u64, |n, &d| n.checked_mul(d))
            .filter(|&n| i64::try_from(n).is_ok())?;
        Some(Self {
            dims: own,
            n_dims: dims.len() as u8,
            n_elements,
        })
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[u64] {
        &self.dims[..usize::from(self.n_dims)]
    }

    /// The product of the dimensions; 1 for a scalar without dimensions.
    pub fn n_elements(&self) -> u64 {
        self.n_elements
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.dims())
    }
}

impl std::fmt::Debug for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_outermost_first() {
        assert_eq!(
            Shape::new(&[4096, 2048]).unwrap().to_string(),
            "[4096, 2048]"
        );
    }

    #[test]
    fn refuses_five_dimensions_and_overflow() {
        assert_eq!(Shape::new(&[1; 5]), None);
        assert_eq!(Shape::new(&[1 << 32, 1 << 31]), None);
        assert_eq!(
            Shape::new(&[1 << 31, 1 << 31]).unwrap().n_elements(),
            1 << 62
        );
    }

    #[test]
    fn a_scalar_has_one_element() {
        assert_eq!(Shape::new(&[]).unwrap().n_elements(), 1);
    }
}
