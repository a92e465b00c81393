//! `atta leap` and the programs under LEAP's names: options as LEAP has them, and chains of
//! processes on loopback.

use std::{
    fs,
    io::Write,
    net::TcpListener,
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, SystemTime},
};

use crate::{
    program::{Scratch, atta, error_of, stdout, text_of},
    ring::{Homes, Node},
};

/// A model of four layers, in the directory in which all programs of a chain run.
const MODEL: &str = "stories.gguf";
const STORIES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/golden/stories.gguf"
);
/// A text of it that is short.
const TEXT: [&str; 6] = ["-p", "Once upon a time", "-n", "12", "-j", "1"];
/// LEAP's samplers in the words of `run`.
const NUCLEUS: [&str; 8] = ["-t", "1", "--top-p", "0.9", "--top-k", "0", "--min-p", "0"];

/// How machines of a chain are protected.
const LAN: [&str; 1] = ["--insecure-lan"];

impl Homes {
    /// Starts a worker with these layers.
    fn worker(&self, user: &str, split: &str, more: &[&str]) -> Node {
        let common = ["leap", "--role", "worker", "--host", "127.0.0.1", "-j", "1"];
        let layers = ["--split", split, "--port", "0"];
        self.start(user, &[&common[..], &layers, more].concat())
    }

    /// A master of layers up to `split`, before a worker.
    fn master(&self, split: &str, next: &Node, more: &[&str]) -> Command {
        let (_, port) = next.address.split_once(':').unwrap();
        let common = ["leap", MODEL, "--role", "master", "--host", "127.0.0.1"];
        let chain = [
            "--split",
            split,
            "--next-host",
            "127.0.0.1",
            "--next-port",
            port,
        ];
        self.command("master", &[&common[..], &chain, more].concat())
    }

    /// The text of one machine.
    fn alone(&self) -> String {
        self.stdout(
            "alone",
            &[&["run", MODEL, "--seed", "5"][..], &TEXT, &NUCLEUS].concat(),
        )
    }

    /// Checks that a chain writes the text of one machine; what it says besides.
    fn writes_the_same(&self, split: &str, next: &Node, more: &[&str]) -> String {
        let args = [&["--seed", "5"], &TEXT[..], more].concat();
        let output = self.master(split, next, &args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            self.alone(),
            "{said}"
        );
        said
    }
}

fn port(node: &Node) -> &str {
    node.address.split_once(':').unwrap().1
}

fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

fn with_input(mut command: Command, input: &str) -> Output {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A program that fails before it reads its input closes the pipe.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().unwrap()
}

#[test]
fn its_options_mean_what_they_mean_to_leap() {
    let leap = |more: &[&str]| stdout(&[&["leap", STORIES], &TEXT[..], more].concat());
    let run = |more: &[&str]| stdout(&[&["run", STORIES], &TEXT[..], more].concat());
    assert_eq!(
        leap(&["--seed", "7"]),
        run(&[&NUCLEUS[..], &["--seed", "7"]].concat())
    );
    assert_eq!(leap(&["--temp", "0"]), run(&["-t", "0"]));
    assert_eq!(
        leap(&["--temp", "0.5", "--top-p", "0.3", "--seed", "1"]),
        run(&[
            "-t", "0.5", "--top-p", "0.3", "--top-k", "0", "--min-p", "0", "--seed", "1"
        ])
    );
    // Without a seed, and with 0, each text is another one.
    let long = ["leap", STORIES, "-p", "One day", "-n", "40"];
    let texts = [&[][..], &["--seed", "0"]].map(|more| stdout(&[&long, more].concat()));
    assert_ne!(texts[0], texts[1]);
}

#[test]
fn links_with_leaps_names_are_its_programs() {
    let scratch = Scratch::new("leap-links");
    let help = |name: &str| {
        let link = scratch.path(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_atta"), &link).unwrap();
        let output = Command::new(&link).arg("--help").output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let inference = help("inference");
    for option in [
        "-t, --tokenizer",
        "-p, --prompt",
        "-c, --chat",
        "-s, --system",
        "-n, --n-predict",
        "--temp",
        "--top-p",
        "--seed",
        "--role",
        "single, master, worker",
        "--split",
        "--end",
        "--transport",
        "tcp, udp, kernel",
        "--host",
        "--port",
        "--next-host",
        "--next-port",
        "--key",
        "--insecure-lan",
        "/layers",
        "/resize",
    ] {
        assert!(inference.contains(option), "{option}: {inference}");
    }
    let export = help("export");
    assert!(
        export.contains("--meta-llama") && export.contains("--version"),
        "{export}"
    );
    assert!(help("tokenizer").contains("-o, --output"));
}

/// The model in f32.
fn exact(scratch: &Scratch) -> String {
    let exact = scratch.path("exact.gguf");
    // It warns of types that were small already.
    let output = atta(&["convert", STORIES, &exact, "--type", "f32"]);
    assert_eq!(output.status.code(), Some(0));
    exact
}

/// The model as model.bin with its tokenizer.bin, in f32.
fn model_bin(scratch: &Scratch) -> String {
    let exact = exact(scratch);
    let bin = scratch.path("model.bin");
    stdout(&["convert", &exact, &bin, "--to", "leap-f32"]);
    bin
}

/// The converted files in a cache.
fn kept(homes: &Homes) -> Vec<String> {
    let directory = Path::new(&homes.0.path("cache")).join("atta/cluster/leap");
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn a_model_bin_is_converted_once_and_again_when_it_changes() {
    let homes = Homes::new("leap-bin");
    let bin = model_bin(&homes.0);
    let greedy = ["-p", "Once upon a time", "-n", "12", "-j", "1"];
    let leap = || {
        let args = [&["leap", &bin, "--temp", "0"], &greedy[..]].concat();
        let output = homes.atta("alone", &args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{said}");
        (String::from_utf8(output.stdout).unwrap(), said)
    };
    let exact = homes.0.path("exact.gguf");
    let expected = stdout(&[&["run", &exact, "-t", "0"], &greedy[..]].concat());
    let (text, said) = leap();
    assert_eq!(text, expected);
    assert!(said.contains("converting it, once, to "), "{said}");
    let first = kept(&homes);
    let (text, said) = leap();
    assert_eq!((text, said), (expected.clone(), String::new()));
    assert_eq!(kept(&homes), first);

    let later = SystemTime::now() + Duration::from_secs(60);
    let file = fs::File::options().append(true).open(&bin).unwrap();
    file.set_modified(later).unwrap();
    let (text, said) = leap();
    assert_eq!(text, expected);
    assert!(said.contains("converting"), "{said}");
    let second = kept(&homes);
    assert!(second.len() == 1 && second != first, "{second:?}");
}

#[test]
fn all_versions_of_a_model_bin_run() {
    let homes = Homes::new("leap-versions");
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/llama2c/");
    // The context of the smallest one has six positions.
    let greedy = ["-p", "", "-n", "4"];
    for name in ["small-v0.bin", "small-v1.bin", "wide-v2.bin"] {
        let bin = format!("{golden}{name}");
        let gguf = homes.0.path(&format!("{name}.gguf"));
        stdout(&["convert", &bin, &gguf]);
        let expected = stdout(&[&["run", &gguf, "-t", "0"], &greedy[..]].concat());
        let leap = [&["leap", &bin, "--temp", "0"], &greedy[..]].concat();
        assert_eq!(homes.stdout("alone", &leap), expected, "{name}");
    }
}

#[test]
fn a_model_bin_is_named_by_other_commands_and_needs_its_vocabulary() {
    let scratch = Scratch::new("leap-named");
    let bin = model_bin(&scratch);
    let refused = error_of(&atta(&["run", &bin, "-p", "x"]), 1);
    assert!(refused.contains("`atta leap` runs it"), "{refused}");
    fs::rename(scratch.path("tokenizer.bin"), scratch.path("words.bin")).unwrap();
    let refused = error_of(&atta(&["leap", &bin, "-p", "x"]), 1);
    assert!(refused.contains("name it by -t"), "{refused}");
    let words = scratch.path("words.bin");
    let refused = error_of(&atta(&["leap", STORIES, "-t", &words, "-p", "x"]), 2);
    assert!(refused.contains("has its own"), "{refused}");
}

#[test]
fn a_chain_with_a_key_writes_the_text_of_one_machine() {
    let homes = Homes::new("leap-key");
    let key = homes.0.path("leap.key");
    let by_key = ["--key", &key];
    // The master makes the key.
    let worker = ["leap", MODEL, "--role", "worker", "--key", &key];
    let refused = error_of(&homes.atta("pi1", &worker), 1);
    assert!(refused.contains("copy it from the master"), "{refused}");
    let closed = free_port();
    let args = [
        "leap",
        MODEL,
        "--role",
        "master",
        "--split",
        "2",
        "--next-host",
        "127.0.0.1",
        "--next-port",
        &closed,
        "--host",
        "127.0.0.1",
        "-p",
        "x",
        "--key",
        &key,
    ];
    let output = homes.atta("master", &args);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let is_told = said.contains("made a key") && said.contains("--role worker` started there");
    assert!(is_told, "{said}");

    let back = free_port();
    let closing = ["--next-host", "127.0.0.1", "--next-port", &back];
    let last = homes.worker("pi2", "3", &[&[MODEL][..], &closing, &by_key].concat());
    let next = [
        "--end",
        "3",
        "--next-host",
        "127.0.0.1",
        "--next-port",
        port(&last),
    ];
    let first = homes.worker("pi1", "1", &[&[MODEL][..], &next, &by_key].concat());
    let said = homes.writes_the_same("1", &first, &[&["--port", &back][..], &by_key].concat());
    let is_told = said.contains("layers 1 to 3") && said.contains("layers 3 to 4");
    assert!(is_told && !said.contains("warning"), "{said}");

    // Workers take any transport, unless they were told one.
    for transport in ["udp", "kernel"] {
        let over = ["--transport", transport, "--port", &back];
        let said = homes.writes_the_same("1", &first, &[&over[..], &by_key].concat());
        assert_eq!(
            said.contains("going by udp"),
            transport == "kernel",
            "{said}"
        );
    }
    let told = [&[MODEL, "--transport", "tcp"][..], &by_key].concat();
    let strict = homes.worker("pi3", "1", &told);
    let over = [&["-p", "x", "--transport", "udp"][..], &by_key].concat();
    let output = homes.master("1", &strict, &over).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("takes rows over tcp only"), "{said}");

    let stranger = homes.0.path("other.key");
    let more = ["-p", "x", "--key", &stranger];
    let output = homes.master("1", &first, &more).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("with the same --key"), "{said}");
    first.signal("TERM");
    assert_eq!(first.end().0, Some(0));
}

#[test]
fn workers_of_an_open_network_need_no_model_and_are_warned_of() {
    let homes = Homes::new("leap-lan");
    let worker = homes.worker("pi1", "2", &LAN);
    let said = homes.writes_the_same("2", &worker, &LAN);
    assert!(said.contains("warning: --insecure-lan"), "{said}");
    // The whole model may be elsewhere, and the layers are kept.
    let all = homes.worker("pi2", "0", &LAN);
    homes.writes_the_same("0", &all, &LAN);
    let parts = Path::new(&homes.0.path("cache")).join("atta/cluster/parts");
    assert!(fs::read_dir(parts).unwrap().next().is_some());
}

#[test]
fn layers_that_do_not_fit_together_are_refused() {
    let homes = Homes::new("leap-gap");
    let refused = |split: &str, next: &Node| {
        let args = [&["-p", "x"], &LAN[..]].concat();
        let output = homes.master(split, next, &args).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    let worker = homes.worker("pi1", "2", &[&[MODEL, "--end", "3"], &LAN[..]].concat());
    let gap = refused("1", &worker);
    assert!(gap.contains("begins with layer 2, expected 1"), "{gap}");
    let short = refused("2", &worker);
    assert!(
        short.contains("up to 3 of 4, and names no next node"),
        "{short}"
    );
    let nothing = refused("4", &worker);
    assert!(
        nothing.contains("leaves no layer to the workers"),
        "{nothing}"
    );
    let args = [
        "leap", MODEL, "--role", "worker", "--split", "3", "--end", "5",
    ];
    let beyond = error_of(&homes.atta("pi1", &[&args[..], &LAN].concat()), 1);
    assert!(beyond.contains("layers 3 to 5 of a model of 4"), "{beyond}");
    let public = ["leap", MODEL, "--role", "worker", "--host", "8.8.8.8"];
    let public = error_of(&homes.atta("pi1", &[&public[..], &LAN].concat()), 1);
    assert!(public.contains("is a public address"), "{public}");
}

#[test]
fn the_borders_move_while_talking_and_the_conversation_goes_on() {
    let homes = Homes::new("leap-chat");
    let worker = homes.worker("pi1", "2", &[&[MODEL], &LAN[..]].concat());
    let chat = ["-c", "-s", "Be kind.", "--temp", "0", "-n", "8", "-j", "1"];
    let alone = homes.command("alone", &[&["leap", MODEL], &chat[..]].concat());
    let alone = with_input(alone, "One day\n/layers\nand then\nexit\nnot this\n");
    let said = String::from_utf8(alone.stderr).unwrap();
    assert_eq!(alone.status.code(), Some(0), "{said}");
    assert!(said.contains("this machine: all layers"), "{said}");
    let text = String::from_utf8(alone.stdout).unwrap();
    assert!(text.lines().count() >= 2, "{text}");

    let master = homes.master("2", &worker, &[&chat[..], &LAN].concat());
    let output = with_input(master, "One day\n/layers\n/resize 1\n/layers\nand then\n");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), text, "{said}");
    let at = |text: &str| {
        said.find(text)
            .unwrap_or_else(|| panic!("no {text:?} in {said}"))
    };
    assert!(at("layers 2 to 4") < at("layers 1 to 4"), "{said}");

    let master = homes.master("2", &worker, &[&chat[..], &LAN].concat());
    let output = with_input(master, "/resize 1 2 3\n");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("the first layer of each of the 1 workers"),
        "{said}"
    );
}

#[test]
fn the_prompt_of_a_chat_is_its_first_message() {
    let chat = |first: &[&str], input: &str| {
        let common = ["leap", STORIES, "-c", "--temp", "0", "-n", "8"];
        let output = crate::program::command(&[&common[..], first].concat());
        String::from_utf8(with_input(output, input).stdout).unwrap()
    };
    let text = chat(&["-p", "One day"], "and then\n");
    assert_eq!(text, chat(&[], "One day\nand then\n"));
    assert!(text.lines().count() >= 2, "{text}");
}

#[test]
fn transports_that_encrypt_want_a_key() {
    for transport in ["udp", "kernel"] {
        let args = [
            "leap",
            STORIES,
            "--role",
            "worker",
            "--transport",
            transport,
        ];
        let refused = error_of(&atta(&[&args[..], &LAN].concat()), 2);
        assert!(refused.contains("encrypt in any case"), "{refused}");
    }
    let refused = error_of(&atta(&["leap", STORIES, "--role", "worker"]), 2);
    assert!(
        refused.contains("--key FILE") && refused.contains("--insecure-lan"),
        "{refused}"
    );
}

#[test]
fn the_tokenizer_is_the_one_that_an_export_writes() {
    let scratch = Scratch::new("leap-tools");
    let exact = exact(&scratch);
    let bin = scratch.path("out/model.bin");
    fs::create_dir(scratch.path("out")).unwrap();
    text_of(&atta(&["leap-export", &bin, "--meta-llama", &exact]));
    let same = scratch.path("same.bin");
    stdout(&["convert", &exact, &same, "--to", "leap-f32"]);
    assert!(fs::read(&bin).unwrap() == fs::read(&same).unwrap());
    let words = scratch.path("words.bin");
    text_of(&atta(&["leap-tokenizer", STORIES, "-o", &words]));
    let written = fs::read(scratch.path("out/tokenizer.bin")).unwrap();
    assert!(fs::read(&words).unwrap() == written);
    // The same vocabulary may be there, another one stays.
    text_of(&atta(&["leap-tokenizer", STORIES, "-o", &words]));
    fs::write(&words, "another").unwrap();
    let refused = error_of(&atta(&["leap-tokenizer", STORIES, "-o", &words]), 1);
    assert!(refused.contains("--force"), "{refused}");
    text_of(&atta(&["leap-tokenizer", STORIES, "-o", &words, "--force"]));
    assert!(fs::read(&words).unwrap() == written);
}
