// A decay of each element of a head's key.

fn decay_of_head(here: Here) -> f32 {
    return 1.0;
}

fn decay_of(here: Here, of_head: f32, i: u32) -> f32 {
    return values[p.decays_at + (here.row * p.n_heads + here.head) * p.d_key + i];
}

// The key that a state is asked for, decayed in the place of the state.
fn asked(here: Here, of_head: f32, i: u32) -> f32 {
    return mul(decay_of(here, of_head, i), values[here.k + i]);
}

fn gain_of(here: Here) -> f32 {
    return values[p.gains_at + here.row * p.n_heads + here.head];
}

fn skip_of(here: Here) -> f32 {
    return vector(p.skip_at + here.head);
}
