// Keys of f32: scores in sixteen lanes.

var<workgroup> query: array<f32, 1024>;

fn load_query(at: u32, t: u32) {
    for (var i = t; i < p.d_head; i += THREADS) {
        query[i] = values[at + i];
    }
    workgroupBarrier();
}

fn score_of(row: Row, head: u32, position: u32) -> f32 {
    let key = float_row(row, p.k_at, head, position);
    var sums: array<f32, 16>;
    for (var i = 0u; i < p.d_head; i++) {
        let lane = i & 15u;
        sums[lane] = add(sums[lane], mul(query[i], bitcast<f32>(kv[key + i])));
    }
    return mul(sum_of_lanes(sums), p.scale);
}
