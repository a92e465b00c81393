//! Changes of each field of several streams, of low-rank layers and of sparse gates.

use atta_model::spec::{AltUp, Ffn, Laurel, LayerSpec, ModelSpec};

use super::{Change, LayerChange};

pub(super) fn of_model(spec: &ModelSpec) -> Vec<Change> {
    if spec.alt_up.is_none() {
        return vec![(
            "alt_up".to_owned(),
            Box::new(|s| {
                let eps = 1e-6;
                s.alt_up = Some(AltUp {
                    n: 2,
                    active: 0,
                    eps,
                });
            }),
        )];
    }
    let change = |what: &str, change: fn(&mut AltUp)| -> Change {
        let of_spec = move |s: &mut ModelSpec| change(s.alt_up.as_mut().unwrap());
        (format!("alt_up.{what}"), Box::new(of_spec))
    };
    vec![
        ("alt_up".to_owned(), Box::new(|s| s.alt_up = None)),
        change("n", |alt| alt.n -= 1),
        change("active", |alt| alt.active = (alt.active + 1) % alt.n),
        change("eps", |alt| alt.eps *= 1.5),
    ]
}

pub(super) fn of_layer(layer: &LayerSpec) -> Vec<LayerChange> {
    let mut all: Vec<LayerChange> = match layer.laurel {
        None => vec![("laurel", |l| {
            l.laurel = Some(Laurel { rank: 4, eps: 1e-6 });
        })],
        Some(_) => vec![
            ("laurel", |l| l.laurel = None),
            ("laurel.rank", |l| l.laurel.as_mut().unwrap().rank += 1),
            ("laurel.eps", |l| l.laurel.as_mut().unwrap().eps *= 1.5),
        ],
    };
    if let Ffn::Sparse(_) = layer.ffn {
        all.push(("sparse.deviations", |l| {
            if let Ffn::Sparse(sparse) = &mut l.ffn {
                sparse.deviations += 0.2;
            }
        }));
    }
    all
}
