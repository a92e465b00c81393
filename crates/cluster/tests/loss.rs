//! Machines that go for good, come back empty, or change because a caller wants it: the text stays
//! that of one machine, on those that are left.

#[allow(dead_code, reason = "shared with other tests")]
mod changing;
#[allow(dead_code, reason = "shared with other tests")]
mod machines;
#[allow(dead_code, reason = "shared with other tests")]
mod stories;

use std::{
    ops::ControlFlow,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use atta_cluster::{RingEvent, control::NodeName};
use atta_engine::{Engine, Event, GenerateOptions, Session};
use changing::{Changing, Even, Extras, even, planned, thirds};
use machines::{Cluster, tls};
use stories::{n_layers, name, session, text, together, together_with};

/// Text 3 of an engine, with a call before each piece.
fn text_with(engine: &Engine, mut on: impl FnMut(usize)) -> Result<String, String> {
    let mut open = engine.session(&session()).unwrap();
    write(&mut open, &mut on)
}

fn write(open: &mut Session, on: &mut dyn FnMut(usize)) -> Result<String, String> {
    let prompt = open.engine().prompt_ids(b"Once upon a time");
    let mut written = String::new();
    let mut n = 0;
    let generation = open.generate(&prompt, &stories::options(3)).unwrap();
    let done = generation.run(|event| {
        if let Event::Text(piece) = event {
            written.push_str(&piece);
            n += 1;
            on(n);
        }
        ControlFlow::Continue(())
    });
    done.map(|_| written).map_err(|error| error.to_string())
}

#[test]
fn a_machine_that_is_lost_in_the_middle_of_a_text_changes_no_letter() {
    let expected = text(&stories::engine(None), 3);
    for victim in 0..3 {
        let mut cluster = Cluster::new(3, tls);
        let ring = Changing::new(&cluster, 0, &thirds(), even(&cluster, 0));
        let written = text_with(&ring.engine, |n| {
            if n == 6 {
                cluster.machines[victim].kill();
            }
        });
        assert_eq!(written.as_deref(), Ok(&expected[..]), "without {victim}");
        let [change] = &ring.told()[..] else {
            panic!("{:?}", ring.told())
        };
        let gone = format!("pi{}", victim + 1);
        assert_eq!(change.gone, [name(&gone)]);
        assert_eq!(change.after.stages.len(), 2);
        assert!(change.to_string().starts_with(&format!("{gone} is gone; ")));
        assert!(change.how.n_loaded > 0, "{change:?}");
        assert_eq!(ring.ring.plan(), change.after);
    }
}

#[test]
fn machines_that_are_lost_one_after_another_leave_the_coordinator_alone() {
    let expected = text(&stories::engine(None), 3);
    // The coordinator takes over layers each time, or at the end only.
    for n_local in [0, 1] {
        let mut cluster = Cluster::new(3, tls);
        let ring = Changing::new(&cluster, 0, &thirds(), even(&cluster, n_local));
        let written = text_with(&ring.engine, |n| {
            if n % 5 == 0 && n <= 15 {
                cluster.machines[n / 5 - 1].kill();
            }
        });
        assert_eq!(written.as_deref(), Ok(&expected[..]), "{n_local}");
        let told = ring.told();
        let last = told.last().unwrap();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(last.after.stages.is_empty());
        // A ring of this machine alone goes on, and is opened again.
        assert_eq!(text(&ring.engine, 3), expected);
    }
}

#[test]
fn a_machine_that_is_lost_while_stages_are_prepared_is_left_out_too() {
    let expected = text(&stories::engine(None), 3);
    let cluster = Cluster::new(3, tls);
    let replan = even(&cluster, 1);
    let cluster = Arc::new(Mutex::new(cluster));
    let is_due = Arc::new(AtomicBool::new(false));
    let kill = {
        let cluster = Arc::clone(&cluster);
        let is_due = Arc::clone(&is_due);
        move || {
            if is_due.swap(false, Ordering::AcqRel) {
                cluster.lock().unwrap().machines[2].kill();
            }
        }
    };
    let ring = {
        let cluster = cluster.lock().unwrap();
        let extras = Extras {
            on_stage: Arc::new(kill),
            ..Extras::default()
        };
        Changing::with(&cluster, 0, &thirds(), replan, extras)
    };
    let written = text_with(&ring.engine, |n| {
        if n == 6 {
            is_due.store(true, Ordering::Release);
            cluster.lock().unwrap().machines[0].kill();
        }
    });
    assert_eq!(written.as_deref(), Ok(&expected[..]));
    let told = ring.told();
    let gone: Vec<NodeName> = told.iter().flat_map(|c| c.gone.clone()).collect();
    assert_eq!(gone, [name("pi1"), name("pi3")], "{told:?}");
    assert_eq!(ring.ring.plan().stages.len(), 1);
}

#[test]
fn a_machine_that_comes_back_empty_gets_its_stage_again() {
    let expected = text(&stories::engine(None), 3);
    let mut cluster = Cluster::new(3, tls);
    let ring = Changing::new(&cluster, 0, &thirds(), even(&cluster, 0));
    let before = ring.ring.plan().stages.len();
    let written = text_with(&ring.engine, |n| {
        if n == 6 {
            cluster.machines[1].restart();
        }
    });
    assert_eq!(written.as_deref(), Ok(&expected[..]));
    let told = ring.told();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].gone, []);
    assert_eq!(told[0].after.stages.len(), before);
}

#[test]
fn texts_of_many_users_go_on_without_a_machine() {
    let expected = together(&stories::engine(None));
    let mut cluster = Cluster::new(3, tls);
    let n = n_layers();
    let stages = [(0, 1..2), (1, 2..3), (2, 3..n)];
    let ring = Changing::new(&cluster, 1, &stages, even(&cluster, 2));
    let written = together_with(&ring.engine, |n| {
        if n == 9 {
            cluster.machines[1].kill();
        }
    });
    assert_eq!(written, expected);
    assert_eq!(ring.told().len(), 1);
}

#[test]
fn where_no_plan_fits_the_text_ends_with_an_error_and_a_later_one_finds_machines() {
    let expected = text(&stories::engine(None), 3);
    let mut cluster = Cluster::new(2, tls);
    let n = n_layers();
    let replan = Even {
        n_least: 2,
        ..even(&cluster, 0)
    };
    let ring = Changing::new(&cluster, 0, &[(0, 0..1), (1, 1..n)], replan);
    let mut open = ring.engine.session(&session()).unwrap();
    let mut on = |n| {
        if n == 6 {
            cluster.machines[1].kill();
        }
    };
    let error = write(&mut open, &mut on).unwrap_err();
    let says = ["stage 2 is gone", "2 is pi2", "1 nodes are too few"];
    assert!(says.iter().all(|part| error.contains(part)), "{error}");
    cluster.machines[1].restart();
    open.truncate(0).unwrap();
    assert_eq!(write(&mut open, &mut |_| {}), Ok(expected));
}

#[test]
fn layers_move_when_a_caller_wants_it_and_the_text_goes_on() {
    let n = n_layers();
    let here = stories::engine(None);
    let cluster = Cluster::new(3, tls);
    let ring = Changing::new(&cluster, 1, &[(0, 1..2), (1, 2..n)], even(&cluster, 0));
    let [mut local, mut open] = [&here, &ring.engine].map(|e| e.session(&session()).unwrap());
    let plans = [
        cluster.plan(0, &[(0, 0..3), (1, 3..n)]),
        cluster.plan(3, &[(0, 3..n)]),
        cluster.plan(n, &[]),
        cluster.plan(2, &[(2, 2..3), (1, 3..n)]),
    ];
    for plan in plans {
        let more = |open: &mut Session| {
            let options = GenerateOptions {
                n_predict: 6,
                ..stories::options(0)
            };
            open.generate(&here.prompt_ids(b" The cat"), &options)
                .unwrap()
                .run(|_| ControlFlow::Continue(()))
                .unwrap();
            open.tokens().to_vec()
        };
        assert_eq!(more(&mut open), more(&mut local));
        ring.ring.change(planned(plan.clone()));
        open.refresh().unwrap();
        assert_eq!(ring.ring.plan(), plan);
        assert_eq!(more(&mut open), more(&mut local), "{plan:?}");
    }
    let told = ring.told();
    assert_eq!(told.len(), 4);
    for change in told {
        assert!(change.gone.is_empty());
        assert!(change.how.n_loaded > 0, "{change:?}");
        assert_eq!(change.how.n_computed, 0, "its layers were copied");
    }
}

#[test]
fn a_change_that_is_refused_leaves_the_ring_as_it_was() {
    let n = n_layers();
    let expected = text(&stories::engine(None), 3);
    let mut cluster = Cluster::new(3, tls);
    let ring = Changing::new(&cluster, 0, &[(0, 0..1), (1, 1..n)], even(&cluster, 0));
    cluster.machines[2].kill();
    let mut open = ring.engine.session(&session()).unwrap();
    let mut is_refused = false;
    let before = ring.ring.plan();
    let wanted = cluster.plan(0, &[(0, 0..2), (2, 2..n)]);
    assert_eq!(write(&mut open, &mut |_| {}), Ok(expected.clone()));
    ring.ring.change(planned(wanted));
    if let Err(error) = open.refresh() {
        is_refused = error.to_string().contains("pi3: it does not answer");
    }
    assert!(is_refused);
    assert_eq!(ring.ring.plan(), before);
    // Its stages have never been others.
    let events = ring.ring.record().events();
    let is_opening = |event: &&RingEvent| event.text.starts_with("the ring opens");
    assert_eq!(events.iter().filter(is_opening).count(), 1, "{events:?}");
    open.truncate(0).unwrap();
    assert_eq!(write(&mut open, &mut |_| {}), Ok(expected));
}
