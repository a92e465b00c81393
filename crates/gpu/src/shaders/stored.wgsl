// A head of keys or values in a KV block, as the CPU stores it: f32, or 16-bit codes of all positions and then the
// scales of each section. Parameters have `d_head`, `block_len` and `elem`: 0 for f32, 1 for codes.

fn n_sections(is_value: bool) -> u32 {
    return select((p.d_head + KEY_SECTION - 1u) / KEY_SECTION, 1u, is_value);
}

// Words of the rows of a head in a block.
fn head_words(is_value: bool) -> u32 {
    let of_codes = p.d_head / 2u + n_sections(is_value);
    return p.block_len * select(of_codes, p.d_head, p.elem == 0u);
}

// Turns pairs of elements by angles whose cosines and sines lie among the tables; all threads call it.
fn turn(angles: u32, d_rope: u32, pairs_are_neighbours: bool, t: u32) {
    let n = d_rope / 2u;
    workgroupBarrier();
    for (var i = t; i < n; i += THREADS) {
        let first = select(i, 2u * i, pairs_are_neighbours);
        let second = select(i + n, 2u * i + 1u, pairs_are_neighbours);
        let c = bitcast<f32>(tables[angles + 2u * i]);
        let s = bitcast<f32>(tables[angles + 2u * i + 1u]);
        let a = head[first];
        let b = head[second];
        head[first] = sub(mul(a, c), mul(b, s));
        head[second] = add(mul(a, s), mul(b, c));
    }
    workgroupBarrier();
}

// Codes of the elements of a section, and their scale; all threads call it.
fn store_section(codes_at: u32, scale_at: u32, first: u32, end: u32, is_value: bool, t: u32) {
    let peak = peak_of(first, end, t);
    let of_key = key_scale(peak, sum_of_squares(first, end, t));
    let scale = bitcast<f32>(select(bitcast<u32>(of_key), bitcast<u32>(value_scale(peak)), is_value));
    let inverse = inverse_of(scale);
    for (var i = first / 2u + t; 2u * i < end; i += THREADS) {
        kv[codes_at + i] = pair(encoded(head[2u * i], inverse), encoded(head[2u * i + 1u], inverse));
    }
    if t == 0u {
        kv[scale_at] = bitcast<u32>(scale);
    }
}

// Stores the head at a position of the rows that begin at a word; all threads call it.
fn store_head(rows: u32, position: u32, is_value: bool, t: u32) {
    workgroupBarrier();
    if p.elem == 0u {
        for (var i = t; i < p.d_head; i += THREADS) {
            kv[rows + position * p.d_head + i] = bitcast<u32>(head[i]);
        }
        return;
    }
    let width = p.d_head / 2u;
    let section = select(KEY_SECTION, p.d_head, is_value);
    for (var j = 0u; j < n_sections(is_value); j++) {
        let scale_at = rows + (width + j) * p.block_len + position;
        let end = min(p.d_head, (j + 1u) * section);
        store_section(rows + position * width, scale_at, j * section, end, is_value, t);
    }
}

// Element `i` of a key at a position of the rows that begin at a word.
fn stored_key(rows: u32, position: u32, i: u32) -> f32 {
    if p.elem == 0u {
        return bitcast<f32>(kv[rows + position * p.d_head + i]);
    }
    let width = p.d_head / 2u;
    let both = kv[rows + position * width + i / 2u];
    let code = select(first_of(both), second_of(both), (i & 1u) != 0u);
    let scale = kv[rows + (width + i / KEY_SECTION) * p.block_len + position];
    return mul(to_float(code), bitcast<f32>(scale));
}
