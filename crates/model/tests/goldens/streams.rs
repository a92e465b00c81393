//! Changes of each field of residuals of several streams.

use atta_model::spec::{ModelSpec, StreamKind, Streams};

use super::Change;

pub(super) fn changes(spec: &ModelSpec) -> Vec<Change> {
    if spec.streams.is_none() {
        return Vec::new();
    }
    let change = |what: &str, change: fn(&mut Streams)| -> Change {
        let of_spec = move |s: &mut ModelSpec| change(s.streams.as_mut().unwrap());
        (format!("streams.{what}"), Box::new(of_spec))
    };
    vec![
        ("streams".to_owned(), Box::new(|s| s.streams = None)),
        change("n", |s| s.n += 1),
        change("rank", |s| {
            let StreamKind::HyperConnections { rank, .. } = &mut s.kind;
            *rank += 1;
        }),
        change("eps", |s| {
            let StreamKind::HyperConnections { eps, .. } = &mut s.kind;
            *eps *= 2.0;
        }),
    ]
}
