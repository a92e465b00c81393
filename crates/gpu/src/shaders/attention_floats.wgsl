// Keys and values of f32: scores in sixteen lanes, values in order of position.

var<workgroup> query: array<f32, 1024>;

fn load_query(at: u32, t: u32) {
    for (var i = t; i < p.d_head; i += THREADS) {
        query[i] = values[at + i];
    }
    workgroupBarrier();
}

fn row_in_block(row: Row, first: u32, head: u32, position: u32) -> u32 {
    return block_of(row, position) + first + (head * p.block_len + position % p.block_len) * p.d_head;
}

fn score_of(row: Row, head: u32, position: u32) -> f32 {
    let key = row_in_block(row, p.k_at, head, position);
    var sums: array<f32, 16>;
    for (var i = 0u; i < p.d_head; i++) {
        let lane = i & 15u;
        sums[lane] = add(sums[lane], mul(query[i], bitcast<f32>(kv[key + i])));
    }
    return mul(sum_of_lanes(sums), p.scale);
}

fn add_values(row: Row, head: u32, start: u32, out: u32, t: u32) {
    let first = max(row.first, start);
    let end = min(row.last + 1u, start + CHUNK);
    for (var i = t; i < p.d_head; i += THREADS) {
        var sum = 0.0;
        for (var position = first; position < end; position++) {
            let x = bitcast<f32>(kv[row_in_block(row, p.v_at, head, position) + i]);
            sum = add(sum, mul(weights_of[position - start], x));
        }
        acts[out + i] = bitcast<u32>(sum);
    }
}
