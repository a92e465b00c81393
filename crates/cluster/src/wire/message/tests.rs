//! Messages come back as they were, and hostile ones are refused.

use super::*;

fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn address(node: &str) -> NodeAddress {
    NodeAddress {
        name: name(node),
        address: "192.168.1.7:7700".parse().unwrap(),
    }
}

fn prepare() -> Prepare {
    Prepare {
        ring: u64::MAX,
        epoch: 3,
        program: "0.9.0".to_owned(),
        protocol: 1,
        coordinator: address("lap"),
        previous: None,
        next: Some(address("pi2")),
        lane: LaneName::Udp,
        secret: RingSecret([7; 32]),
        model: WantedModel {
            id: Digest([1; 32]),
            name: "a.gguf".to_owned(),
            files: vec![WantedFile {
                bytes: 1 << 40,
                header: Digest([2; 32]),
            }],
            share: Digest([3; 32]),
        },
        part: StagePart {
            stage: 1,
            n_stages: 2,
            layers: LayerRange { start: 2, end: 9 },
        },
        group: None,
        size: SizeNumbers::of(&atta_model::ExecutorSize::default()),
        wire: WireType::F32,
        sources: vec![address("lap")],
    }
}

fn card() -> Card {
    Card {
        name: name("pi1"),
        program: "0.9.0".to_owned(),
        protocol: 1,
        isa: "neon".to_owned(),
        n_threads: 4,
        addresses: vec![address("pi1").address],
        memory: MemoryNumbers {
            all_bytes: 4 << 30,
            free_bytes: 3 << 30,
        },
        disk_free_bytes: None,
        measure: Some(NodeNumbers {
            read_bytes_per_s: 1.25e10,
            macs_per_s: 3e11,
            disk_bytes_per_s: 0.0,
        }),
        celsius: Some(51.5),
        is_throttled: true,
        held: None,
        events: vec![CardEvent {
            ago_s: 4,
            text: "started".to_owned(),
        }],
    }
}

#[test]
fn questions_and_answers_come_back_as_they_were() {
    let questions = [
        Question::Members {
            from: Some(address("lap")),
        },
        Question::Members { from: None },
        Question::Describe,
        Question::Echo { n_bytes: 9 },
        Question::MeasureLink { to: address("pi2") },
        Question::Prepare(Box::new(prepare())),
        Question::Fetch(Box::new(prepare())),
        Question::Progress { ring: u64::MAX },
        Question::Release { ring: 5 },
        Question::Leave,
        Question::Log,
        Question::Chain,
        Question::Rekey {
            key: ClusterKey::from_bytes([6; 32]),
        },
    ];
    for question in questions {
        let bytes = question.to_bytes().unwrap();
        assert_eq!(Question::parse(&bytes), Ok(question));
    }
    let answers = [
        Answer::Members {
            name: name("pi1"),
            is_announced: true,
            others: vec![address("lap")],
        },
        Answer::Card(Box::new(card())),
        Answer::Measuring,
        Answer::Loading(Loading::default()),
        Answer::Ready(ReadyStage {
            bytes: 5,
            streamed_bytes: 0,
            load_ms: 7,
            share: Digest([9; 32]),
        }),
        Answer::Blocked(Blocked {
            why: "no memory".to_owned(),
            would_do: None,
        }),
        Answer::Occupied(Occupied {
            by: name("lap"),
            since_s: 9,
        }),
        Answer::Fetched,
        Answer::Released,
        Answer::Log(Vec::new()),
        Answer::Chain(ChainLink {
            name: name("pi1"),
            start: 3,
            end: None,
            next: Some(address("pi2").address),
            lane: Some(LaneName::Udp),
        }),
        Answer::Rekeyed,
    ];
    for answer in answers {
        let bytes = answer.to_bytes().unwrap();
        assert_eq!(Answer::parse(&bytes), Ok(answer));
    }
    let size = atta_model::ExecutorSize {
        n_recent: Some(7),
        kv: atta_model::KvType::Q4,
        ..Default::default()
    };
    let again = SizeNumbers::of(&size).to_size();
    assert_eq!(format!("{again:?}"), format!("{size:?}"));
}

#[test]
fn a_message_is_small_strict_and_of_this_version() {
    let other = br#"{"version":2,"body":{"dance":{}},"more":[1]}"#;
    assert_eq!(
        Question::parse(other),
        Err(MessageError::Version { got: 2 })
    );
    for wrong in [
        &b"{}"[..],
        br#"{"version":1}"#,
        br#"{"version":1,"body":"dance"}"#,
        br#"{"version":1,"body":"leave","more":1}"#,
        br#"{"version":1,"body":{"release":{"ring":1,"more":1}}}"#,
        br#"{"version":1,"body":{"release":{"ring":-1}}}"#,
        br#"{"version":1,"body":{"rekey":{"key":"atta1-AAAA"}}}"#,
        br#"{"version":1,"body":{"measure_link":{"to":{"name":"A","address":"1.2.3.4:5"}}}}"#,
        b"\xff",
    ] {
        assert!(
            matches!(Question::parse(wrong), Err(MessageError::Json(_))),
            "{wrong:?}"
        );
    }
    let long = vec![b' '; MAX_MESSAGE + 1];
    let n = long.len();
    assert_eq!(Question::parse(&long), Err(MessageError::TooLong { n }));
    let deep = [&b"{\"version\":1,\"body\":"[..], &[b'['; 60_000]].concat();
    assert!(matches!(Question::parse(&deep), Err(MessageError::Json(_))));
}

#[test]
fn lists_texts_and_numbers_have_limits() {
    let edit = |edit: &dyn Fn(&mut Prepare)| {
        let mut prepare = prepare();
        edit(&mut prepare);
        let question = Question::Prepare(Box::new(prepare));
        let bytes = write(&question).unwrap();
        assert!(question.to_bytes().is_err());
        Question::parse(&bytes).unwrap_err().to_string()
    };
    assert!(edit(&|p| p.sources = vec![address("a"); 17]).contains("17 sources, 16 at most"));
    assert!(edit(&|p| p.part.n_stages = 65).contains("65 stages"));
    assert!(edit(&|p| p.part.stage = 3).contains("stage 3 of 2"));
    assert!(edit(&|p| p.part.layers.end = 2).contains("layers 2 to 2"));
    assert!(edit(&|p| p.next = None).contains("none of a ring"));
    assert!(edit(&|p| p.model.files.clear()).contains("without files"));
    for path in ["../a", "a/b", "a\\b", "c:a", "", ".."] {
        assert!(edit(&|p| path.clone_into(&mut p.model.name)).contains("none"));
    }
    assert!(edit(&|p| p.program = "v\n".to_owned()).contains("control"));
    let with_group = |p: &mut Prepare, n_speeds: usize| {
        p.next = None;
        p.group = Some(MemberGroup {
            others: vec![address("pi1"), address("pi2")],
            speeds: vec![std::num::NonZeroU32::MIN; n_speeds],
        });
    };
    let error = edit(&|p| with_group(p, 2));
    assert!(error.contains("2 members and 2 speeds"), "{error}");
    assert!(edit(&|p| with_group(p, 17)).contains("17 members, 16 at most"));
    let neighbour = edit(&|p| {
        with_group(p, 3);
        p.next = Some(address("pi2"));
    });
    assert!(neighbour.contains("none of a ring"), "{neighbour}");
    assert!(Question::Echo { n_bytes: 70_000 }.to_bytes().is_err());

    let edit = |edit: &dyn Fn(&mut Card)| {
        let mut card = card();
        edit(&mut card);
        limit::check_answer(&Answer::Card(Box::new(card))).unwrap_err()
    };
    edit(&|c| c.events = vec![c.events[0].clone(); 65]);
    edit(&|c| c.events[0].text = "x".repeat(401));
    edit(&|c| c.celsius = Some(f32::NAN));
    edit(&|c| c.measure.as_mut().unwrap().macs_per_s = f64::INFINITY);
    edit(&|c| c.measure.as_mut().unwrap().disk_bytes_per_s = -1.0);
}

#[test]
fn a_wish_for_states_names_256_at_most() {
    let wish = |n: usize| PartRequest {
        model: Digest([1; 32]),
        wish: PartWish::States(vec![Digest([2; 32]); n]),
    };
    let bytes = wish(256).to_bytes().unwrap();
    assert_eq!(PartRequest::parse(&bytes), Ok(wish(256)));
    let error = wish(257).to_bytes().unwrap_err().to_string();
    assert!(error.contains("257 states, 256 at most"), "{error}");
}

#[test]
fn a_member_of_a_group_is_asked_as_it_was_meant() {
    let mut member = prepare();
    member.next = None;
    member.group = Some(MemberGroup {
        others: vec![address("pi1"), address("pi2")],
        speeds: vec![std::num::NonZeroU32::MIN; 3],
    });
    let question = Question::Prepare(Box::new(member));
    let bytes = question.to_bytes().unwrap();
    assert_eq!(Question::parse(&bytes), Ok(question));
}

#[test]
fn secrets_of_rings_and_clusters_are_not_shown() {
    let key = ClusterKey::from_bytes([7; 32]);
    let shown = format!("{:?} {:?}", prepare(), Question::Rekey { key: key.clone() });
    assert!(!shown.contains(&key.text()[6..20]), "{shown}");
    assert!(
        !shown.contains("0707") && !shown.contains("7, 7"),
        "{shown}"
    );
}
