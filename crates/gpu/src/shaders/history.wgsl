// The vectors that a layer computed at earlier positions: of this batch among the values, of earlier ones in states.
// Parameters have `d`, `x_at`, `sources_at`, `n_sources`, `len` and `state_at`.
//
// The source of a vector is a pair of words among the tables, of each row and each number of positions back: 0 and a row
// of this batch; or how many positions it is before the end of a state, and the first word of the state's block; or NONE.

struct Source {
    back: u32,
    at: u32,
}

fn source_of(row: u32, back: u32) -> Source {
    let at = p.sources_at + 2u * (row * p.n_sources + back);
    return Source(tables[at], tables[at + 1u]);
}

// Element `i` of a vector that is there.
fn element_of(source: Source, i: u32) -> f32 {
    if source.back == 0u {
        return values[p.x_at + source.at * p.d + i];
    }
    return bitcast<f32>(kv[source.at + p.state_at + (p.len - source.back) * p.d + i]);
}
