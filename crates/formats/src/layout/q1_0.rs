//! Q1_0: 128 signs under one scale.

block! {
    /// 128 weights. `y = d` if bit `j % 8` of `qs[j / 8]` is set for weight j, else `y = −d`.
    Q1_0, 18: { d: f16 at 0, qs: 16 at 2, }
}

impl<'a> Q1_0<'a> {
    /// The bits of weights 32·g to 32·g + 31, `g` < 4.
    #[inline(always)]
    pub fn group(self, g: usize) -> &'a [u8; 4] {
        &self.qs().as_chunks().0[g]
    }
}

pub(crate) fn q1_0(block: &[u8; 18], y: &mut [f32; 128]) {
    let b = Q1_0(block);
    for (j, y) in y.iter_mut().enumerate() {
        let is_set = b.qs()[j / 8] >> (j % 8) & 1 == 1;
        *y = if is_set { b.d() } else { -b.d() };
    }
}
