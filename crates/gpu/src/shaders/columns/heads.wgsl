// Columns of a product with a matrix of each head: `n_rows` neighbours have the same head, and their results lie head by
// head in a row.

// Words of the matrix of a head, and heads of a row: what products with experts have other words for.
fn words_of_head() -> u32 {
    return p.groups_at;
}

fn heads_of_row() -> u32 {
    return p.n_shared;
}

fn tile_of(group: vec3<u32>, rows: u32, columns: u32, t: u32) -> Tile {
    var tile = rows_of(group, rows);
    if tile.row < tile.n_out {
        let n_tiles = (p.n_rows + columns - 1u) / columns;
        let h = group.z / n_tiles;
        let first = columns * (group.z % n_tiles);
        tile.w_at += h * words_of_head();
        tile.first = h * p.n_rows + first;
        tile.n = min(columns, p.n_rows - first);
    }
    return tile;
}

fn row_of_acts(column: u32) -> u32 {
    return column;
}

fn row_of_out(column: u32) -> u32 {
    return column % p.n_rows * heads_of_row() + column / p.n_rows;
}
