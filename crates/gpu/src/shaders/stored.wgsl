// A head of keys or values in a KV block, as the CPU stores it. Parameters have `d_head` and `block_len`, and a shader that
// includes this has `elem_of`, the element type of keys or values.
//
//     f32:    the elements
//     codes:  codes of 16 bits of all positions, then the scales of each section
//     bytes:  an f16 scale and int8 codes, row by row
//     nibbles: groups of 32: f16 scale, f16 minimum, 16 bytes; row by row

const FLOATS: u32 = 0u;
const CODES: u32 = 1u;
const BYTES: u32 = 2u;

fn n_sections(is_value: bool) -> u32 {
    return select(n_key_sections(), 1u, is_value);
}

// Words of the rows of a head in a block.
fn head_words(is_value: bool) -> u32 {
    switch elem_of(is_value) {
        case FLOATS: { return p.block_len * p.d_head; }
        case CODES: { return p.block_len * (p.d_head / 2u + n_sections(is_value)); }
        case BYTES: { return p.block_len * (p.d_head + 2u) / 4u; }
        default: { return p.block_len * nibble_words(p.d_head); }
    }
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
    let of_key = key_scale(peak, sum_of_squares(first, end, 0.0, t));
    let scale = bitcast<f32>(select(bitcast<u32>(of_key), bitcast<u32>(value_scale(peak)), is_value));
    let inverse = inverse_of(scale);
    for (var i = first / 2u + t; 2u * i < end; i += THREADS) {
        set_word(codes_at + i, pair(encoded(head[2u * i], inverse), encoded(head[2u * i + 1u], inverse)));
    }
    if t == 0u {
        set_word(scale_at, bitcast<u32>(scale));
    }
}

fn store_codes(rows: u32, position: u32, is_value: bool, t: u32) {
    let width = p.d_head / 2u;
    for (var j = 0u; j < n_sections(is_value); j++) {
        let scale_at = rows + (width + j) * p.block_len + position;
        let section = select(key_section(j), vec2<u32>(0u, p.d_head), is_value);
        store_section(rows + position * width, scale_at, section.x, section.y, is_value, t);
    }
}

// Half `i` of a row of bytes: its scale, then pairs of codes.
fn half_of_row(i: u32, scale: u32, inverse: f32) -> u32 {
    if i == 0u {
        return scale;
    }
    let first = code_within(mul(head[2u * i - 2u], inverse), -127.0, 127.0);
    let second = code_within(mul(head[2u * i - 1u], inverse), -127.0, 127.0);
    return (bitcast<u32>(first) & 255u) | ((bitcast<u32>(second) & 255u) << 8u);
}

fn store_bytes(rows: u32, position: u32, t: u32) {
    let scale = byte_scale(peak_of(0u, p.d_head, t));
    let inverse = inverse_of(from_f16(scale));
    let first = position * (p.d_head / 2u + 1u);
    let end = first + p.d_head / 2u + 1u;
    for (var i = first / 2u + t; 2u * i < end; i += THREADS) {
        var word = 0u;
        var mask = 0u;
        if 2u * i >= first {
            word = half_of_row(2u * i - first, scale, inverse);
            mask = 0xffffu;
        }
        if 2u * i + 1u < end {
            word |= half_of_row(2u * i + 1u - first, scale, inverse) << 16u;
            mask |= 0xffff0000u;
        }
        set_bits(rows + i, word, mask);
    }
}

fn nibble(x: f32, minimum: f32, inverse: f32) -> u32 {
    return u32(code_within(mul(sub(x, minimum), inverse), 0.0, 15.0));
}

// Group `g` of a row of nibbles, by one thread.
fn store_nibble_group(at: u32, g: u32) {
    let first = g * NIBBLE_GROUP;
    let n = group_len(p.d_head, g);
    var least = head[first];
    var most = head[first];
    for (var i = first + 1u; i < first + n; i++) {
        least = select(least, head[i], head[i] < least);
        most = select(most, head[i], head[i] > most);
    }
    let min_bits = to_f16(least);
    let minimum = from_f16(min_bits);
    let scale = to_f16(div(sub(most, minimum), 15.0));
    let inverse = inverse_of(from_f16(scale));
    set_word(at, scale | (min_bits << 16u));
    for (var w = 0u; w < n / 8u; w++) {
        var word = 0u;
        for (var i = 0u; i < 4u; i++) {
            let low = nibble(head[first + 4u * w + i], minimum, inverse);
            let high = nibble(head[first + n / 2u + 4u * w + i], minimum, inverse);
            word |= (low | (high << 4u)) << (8u * i);
        }
        set_word(at + 1u + w, word);
    }
}

fn store_nibbles(rows: u32, position: u32, t: u32) {
    let row = rows + position * nibble_words(p.d_head);
    for (var g = t; g * NIBBLE_GROUP < p.d_head; g += THREADS) {
        store_nibble_group(row + g * GROUP_WORDS, g);
    }
}

// Stores the head at a position of the rows that begin at a word; all threads call it.
fn store_head(rows: u32, position: u32, is_value: bool, t: u32) {
    workgroupBarrier();
    switch elem_of(is_value) {
        case FLOATS: {
            for (var i = t; i < p.d_head; i += THREADS) {
                set_word(rows + position * p.d_head + i, bitcast<u32>(head[i]));
            }
        }
        case CODES: { store_codes(rows, position, is_value, t); }
        case BYTES: { store_bytes(rows, position, t); }
        default: { store_nibbles(rows, position, t); }
    }
}
