// A decay of each element of a head's state, `exp(rate·gain)`; gains and skips are of rows of the state.

fn decay_of_head(here: Here) -> f32 {
    return gain_of(here);
}

fn decay_of(here: Here, gain: f32, i: u32) -> f32 {
    return exp_of(mul(vector(p.decays_at + here.own * p.d_key + i), gain));
}

fn asked(here: Here, gain: f32, i: u32) -> f32 {
    return values[here.k + i];
}

fn gain_of(here: Here) -> f32 {
    return values[p.gains_at + here.row * p.n_heads * p.d_value + here.own];
}

fn skip_of(here: Here) -> f32 {
    return vector(p.skip_at + here.own);
}
