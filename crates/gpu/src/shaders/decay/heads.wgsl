// A decay of each head.

fn decay_of_head(here: Here) -> f32 {
    return values[p.decays_at + here.row * p.n_heads + here.head];
}

fn decay_of(here: Here, of_head: f32, i: u32) -> f32 {
    return of_head;
}

// The key that a state is asked for; what it tells is multiplied by the decay of the head.
fn asked(here: Here, of_head: f32, i: u32) -> f32 {
    return values[here.k + i];
}

fn gain_of(here: Here) -> f32 {
    return values[p.gains_at + here.row * p.n_heads + here.head];
}

fn skip_of(here: Here) -> f32 {
    return vector(p.skip_at + here.head);
}
