//! Texts that are computed twice: a machine that flips one bit is found, named and left out, and
//! the text stays that of one machine.

#[allow(dead_code, reason = "shared with other tests")]
mod changing;
#[allow(dead_code, reason = "shared with other tests")]
mod disturbed;
#[allow(dead_code, reason = "shared with other tests")]
mod machines;
#[allow(dead_code, reason = "shared with other tests")]
mod stories;

use std::{io, net::SocketAddr, ops::ControlFlow, sync::Arc};

use atta_cluster::{
    GroupLinks, GroupWiring, Lane, Links, RingLinks, RunningStage, Stage, StageLinks,
    lane::tcp::Doors,
};
use atta_engine::Event;
use changing::{Changing, Extras, even, thirds};
use disturbed::{Flip, FlipAt};
use machines::{Cluster, On, tls};
use stories::{n_layers, name, session, text, together};

/// Links whose stage flips a bit.
struct FlippingLinks {
    doors: Arc<Doors>,
    flip: Arc<FlipAt>,
}

impl Links for FlippingLinks {
    fn address(&self) -> SocketAddr {
        self.doors.address()
    }

    fn start_stage(&self, links: StageLinks, stage: Stage) -> io::Result<Box<dyn RunningStage>> {
        let flip = Arc::clone(&self.flip);
        let stage = stage.map_executor(|inner| Box::new(Flip { inner, flip }));
        self.doors.start_stage(links, stage)
    }

    fn open_ring(&self, links: RingLinks) -> io::Result<Box<dyn Lane>> {
        self.doors.open_ring(links)
    }

    fn open_group(&self, plan: GroupWiring) -> io::Result<Arc<dyn GroupLinks>> {
        self.doors.open_group(plan)
    }
}

/// Machines, one with such links.
fn cluster(victim: usize, flip: &Arc<FlipAt>) -> Cluster {
    Cluster::with_links(3, tls, |i| {
        let flip = Arc::clone(flip);
        Box::new(move |doors| match i == victim {
            true => Arc::new(FlippingLinks {
                doors,
                flip: Arc::clone(&flip),
            }),
            false => doors,
        })
    })
}

/// A ring on the three machines whose texts are audited.
fn audited(cluster: &Cluster, n_local: usize, stages: &[On], probability: f64) -> Changing {
    let extras = Extras {
        audited: Some(probability),
        ..Extras::default()
    };
    Changing::with(cluster, n_local, stages, even(cluster, 0), extras)
}

#[test]
fn a_machine_that_flips_one_bit_is_named_and_left_out_and_the_text_is_right() {
    let expected = text(&stories::engine(None), 3);
    for victim in 0..3 {
        for flip in [FlipAt::once(4), FlipAt::always_from(0)] {
            let cluster = cluster(victim, &flip);
            let ring = audited(&cluster, 0, &thirds(), 1.0);
            assert_eq!(text(&ring.engine, 3), expected, "without {victim}");
            let told = ring.told();
            assert_eq!(told.len(), 1, "{told:?}");
            let guilty = format!("pi{}", victim + 1);
            assert_eq!(told[0].left_out, [name(&guilty)]);
            assert_eq!((told[0].gone.len(), told[0].after.stages.len()), (0, 2));
            assert_eq!(ring.audits().n_faults, 1);
            let events = ring.ring.record().events();
            let named = format!("audit: {guilty} computed other rows than this machine");
            assert!(
                events.iter().any(|e| e.text.starts_with(&named)),
                "{events:?}"
            );
        }
    }
}

#[test]
fn a_machine_that_was_left_out_does_not_come_back_with_the_next_loss() {
    let expected = text(&stories::engine(None), 3);
    let flip = FlipAt::always_from(0);
    let mut cluster = cluster(1, &flip);
    let ring = audited(&cluster, 0, &thirds(), 1.0);
    let mut open = ring.engine.session(&session()).unwrap();
    let prompt = ring.engine.prompt_ids(b"Once upon a time");
    let mut written = String::new();
    let mut n = 0;
    let generation = open.generate(&prompt, &stories::options(3)).unwrap();
    let done = generation.run(|event| {
        if let Event::Text(piece) = event {
            written.push_str(&piece);
            n += 1;
            if n == 6 {
                cluster.machines[0].kill();
            }
        }
        ControlFlow::Continue(())
    });
    done.unwrap();
    assert_eq!(written, expected);
    let told = ring.told();
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[0].left_out, [name("pi2")]);
    assert_eq!(
        (&told[1].gone[..], &told[1].left_out[..]),
        (&[name("pi1")][..], &[][..])
    );
    let stages = ring.ring.plan().stages;
    assert_eq!(stages.len(), 1);
    assert_eq!(stages[0].node.name, name("pi3"));
}

#[test]
fn an_audit_has_nothing_to_say_against_honest_machines() {
    let here = stories::engine(None);
    let n = n_layers();
    let cluster = Cluster::new(3, tls);
    let ring = audited(&cluster, 1, &[(0, 1..2), (1, 2..n)], 1.0);
    assert_eq!(text(&ring.engine, 3), text(&here, 3));
    let alone = ring.audits();
    assert!(alone.n_rows > 20, "{alone:?}");
    assert_eq!(together(&ring.engine), together(&here));
    let counts = ring.audits();
    assert!(counts.n_rows > alone.n_rows && counts.n_drawn == counts.n_texts);
    assert_eq!(counts.n_faults, 0);
    assert_eq!(ring.told(), []);
}

#[test]
fn texts_are_drawn_whole() {
    let n = n_layers();
    let cluster = Cluster::new(1, tls);
    let ring = audited(&cluster, 1, &[(0, 1..n)], 0.5);
    let mut rows = Vec::new();
    let mut before = 0;
    let mut open = ring.engine.session(&session()).unwrap();
    for _ in 0..8 {
        open.truncate(0).unwrap();
        let prompt = ring.engine.prompt_ids(b"Once upon a time");
        let generation = open.generate(&prompt, &stories::options(0)).unwrap();
        generation.run(|_| ControlFlow::Continue(())).unwrap();
        let counts = ring.audits();
        rows.push(counts.n_rows - before);
        before = counts.n_rows;
    }
    let all = *rows.iter().max().unwrap();
    assert!(rows.iter().all(|n| [0, all].contains(n)), "{rows:?}");
    assert!(rows.contains(&0) && all > 10, "{rows:?}");
}
