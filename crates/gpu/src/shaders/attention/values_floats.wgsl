// Values of f32, in order of position.

fn add_values(row: Row, head: u32, start: u32, out: u32, t: u32) {
    let first = max(row.first, start);
    let end = min(row.last + 1u, start + CHUNK);
    for (var i = t; i < p.d_head; i += THREADS) {
        var sum = 0.0;
        for (var position = first; position < end; position++) {
            let x = bitcast<f32>(kv[float_row(row, p.v_at, head, position) + i]);
            sum = add(sum, mul(weights_of[position - start], x));
        }
        acts[out + i] = bitcast<u32>(sum);
    }
}
